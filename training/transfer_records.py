"""Turns what an archive says into captures and decisions, a batch a transaction, and counts what became of each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from django.db import connection, transaction
from django.utils.translation import gettext_noop

from edge.pictures import PictureRefused
from registry import blobs, classes
from registry.lifecycle import Refused
from training import captures, pictures, transfer_imports, transfers
from training import regions as drawings
from training.defect_book import Book, is_ok
from training.models import Capture, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from training.formats.model import Labelled
    from training.pictures import PictureInfo
    from training.transfer_imports import Content
    from training.transfers import Held

BATCH = 50
BATCH_S = 0.5  # a batch holds the line's counters: reviewers and devices wait no longer than this
REFUSED_KEPT = 1000
SAME_PX = 0.01

DECIDED_OTHERWISE = gettext_noop("It was decided otherwise here, and that decision stands.")
NG_WITHOUT_CLASS = gettext_noop("It is NG, but no defect class is named. It waits in the queue.")


class Progress(Protocol):
    """What the runner's pulse offers."""

    progress: dict[str, Any]

    def due(self) -> bool: ...
    def beat(self, phase: str, done: int, of: int) -> None: ...


class Recorder:
    """`report` is the one that the transfer's page shows; it goes into the row with each batch."""

    def __init__(self, held: Held, pulse: Progress, content: Content, infos: Mapping[str, PictureInfo]) -> None:
        self._held, self._pulse, self._content, self._infos = held, pulse, content, infos
        self._row = held.transfer
        self._line, self._by = self._row.line, self._row.asked_by
        self._items = sorted(content.found.package.pictures, key=lambda item: item.name)
        self._labels_only = not content.pictures
        self._numbers: dict[int, int | None] = {}
        self._standing: dict[str, Capture] = {}
        self.report: dict[str, Any] = dict(self._row.report)

    def record(self) -> None:
        """All that is not recorded yet. Raises what the pulse raises, and LeaseLost."""
        self._plan()
        after = self._pulse.progress.get("after", "")
        waiting = [item for item in self._items if item.name > after]
        done, of = len(self._items) - len(waiting), len(self._items)
        while done < of:
            self._pulse.beat("record", done, of)
            done += self._batch(waiting[done - of :][:BATCH], done, of)

    def _plan(self) -> None:
        """Classes into the book, and the report's beginning, together: a second run finds both or neither."""
        found = self._content.found
        with transaction.atomic():
            transfers.hold(self._held)
            book = Book(self._line, by=self._by)
            for entry in self._content.used():
                self._numbers[entry.number] = None if is_ok(entry.code) else book.number(entry.code, entry.name)
            if not self.report:
                self.report = {
                    "rows": len(self._items) + len(found.refused), "matched": found.matched, "created": 0, "known": 0,
                    "decided": 0, "undecided": 0, "classes_added": book.added,
                    "refused": found.refused[:REFUSED_KEPT], "refused_count": len(found.refused),
                }  # fmt: skip
            transfers.write(self._held, report=self.report, progress=self._pulse.progress)

    def _batch(self, items: list[Labelled], done: int, of: int) -> int:
        """Record some of these in one transaction; returns how many."""
        began, count = time.monotonic(), 0
        with transaction.atomic():
            transfers.hold(self._held)
            self._one_import_at_a_time()
            classes.hold(self._line, [number for number in self._numbers.values() if number is not None])
            self._lock_standing(items)
            for item in items:
                self._one(item)
                count += 1
                if time.monotonic() - began > BATCH_S:
                    break
            self._pulse.progress |= {
                "phase": "record", "done": done + count, "of": of, "after": items[count - 1].name,
            }  # fmt: skip
            last = done + count == of
            transfers.write(
                self._held, announced=last or self._pulse.due(), report=self.report, progress=self._pulse.progress
            )
        return count

    def _one_import_at_a_time(self) -> None:
        """Two imports of the same pictures would wait for each other's rows and counters for ever."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"import {self._line.pk}"])

    def _lock_standing(self, items: list[Labelled]) -> None:
        """Lock the captures that are here before any counter is: reviewers take the two in this order, too."""
        rows = Capture.objects.select_for_update(of=("self",)).select_related("line__site", "decision")
        if self._labels_only:
            found = rows.filter(line=self._line, pk__in=[transfer_imports.capture_id(item.name) for item in items])
            self._standing = {str(row.pk): row for row in found.order_by("pk")}
            return
        found = rows.filter(line=self._line, digest__in=[item.digest for item in items]).order_by("pk")
        self._standing = {}
        for row in found:  # what was imported before goes before what a device sent
            if row.digest not in self._standing or row.device_id is None:
                self._standing[row.digest] = row

    # -------------------------------------------------------------------------------------------- one picture

    def _one(self, item: Labelled) -> None:
        shown = item.name.split("/", 1)[1] if self._labels_only else item.name
        try:
            capture, created = self._capture(item)
        except PictureRefused as refused:
            self._refuse(shown, pictures.stored_sentence(refused))
            return
        except Refused as refused:
            self._refuse(shown, refused.as_json())
            return
        self.report["created" if created else "known"] += 1
        decided = self._decide(item, capture, shown)
        self.report["decided"] += decided
        self.report["undecided"] += not decided and created

    def _capture(self, item: Labelled) -> tuple[Capture, bool]:
        key = transfer_imports.capture_id(item.name) if self._labels_only else item.digest
        if key in self._standing:
            return self._standing[key], False
        meta = {"product": self._line.product, **self._content.metas.get(item.name, {})}
        meta.setdefault("file_name", item.name[-255:])
        source = blobs.path(item.digest)
        made = captures.import_one(self._line, source, meta, by=self._by, checked=self._infos.get)
        self._standing[item.digest] = made[0]
        return made

    def _decide(self, item: Labelled, capture: Capture, shown: str) -> bool:
        """Record what the labels say; True when a decision was made."""
        if item.verdict is None:
            return False
        verdict, classes, regions = self._said(item)
        if verdict == Verdict.NG and not classes:
            self._refuse(shown, {"text": NG_WITHOUT_CLASS, "params": {}})
            return False
        try:
            if capture.state == Capture.State.DECIDED:
                if not _same(capture, verdict, classes, regions):
                    self._refuse(shown, {"text": DECIDED_OTHERWISE, "params": {}})
                return False
            captures.decide(
                capture, verdict=verdict, classes=classes, regions=regions, comment=str(self._row), by=self._by
            )
        except Refused as refused:
            self._refuse(shown, refused.as_json())
            return False
        return True

    def _said(self, item: Labelled) -> tuple[str, list[int], list[dict[str, Any]]]:
        """Verdict, classes and regions in the book's numbers; what the file calls OK is no class."""
        numbers = [self._numbers[number] for number in transfer_imports.numbers_of(item)]
        classes = list(dict.fromkeys(number for number in numbers if number is not None))
        regions = [
            {
                "number": self._numbers[shape.number],
                "kind": shape.kind,
                "points": [list(point) for point in shape.points],
            }
            for shape in item.shapes
            if self._numbers[shape.number] is not None
        ]
        only_ok = bool(numbers) and not classes
        return (Verdict.OK if only_ok else str(item.verdict)), classes, regions

    def _refuse(self, name: str, sentence: Mapping[str, Any]) -> None:
        self.report["refused_count"] += 1
        if len(self.report["refused"]) < REFUSED_KEPT:
            self.report["refused"].append({"name": name, "text": sentence["text"], "params": sentence["params"]})


def _same(capture: Capture, verdict: str, classes: list[int], regions: list[dict[str, Any]]) -> bool:
    """Does the standing decision say the same? Its regions may differ by what rounding in a file makes of them."""
    standing = capture.decision
    if standing is None or standing.verdict != verdict or set(standing.classes) != set(classes):
        return False
    drawn = drawings.checked(regions, width=capture.width, height=capture.height)
    pairs = zip(_ordered(standing.regions), _ordered(drawn), strict=False)
    return len(standing.regions) == len(drawn) and all(_near(one, other) for one, other in pairs)


def _ordered(regions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(regions, key=lambda region: (region["number"], region["kind"], region["points"]))


def _near(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if (one["number"], one["kind"], len(one["points"])) != (other["number"], other["kind"], len(other["points"])):
        return False
    return all(abs(a - b) <= SAME_PX for a, b in zip(_flat(one), _flat(other), strict=True))


def _flat(region: Mapping[str, Any]) -> Iterator[float]:
    return (float(value) for point in region["points"] for value in point)
