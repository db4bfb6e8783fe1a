"""What an export takes along: which pictures, under which names, with which decisions and classes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from registry import blobs
from registry.models import DefectClass
from training import regions as drawings
from training.formats.model import ClassEntry, Labelled, Package, Shape, is_name
from training.formats.names import folded, is_picture, stem
from training.models import Capture, Decision
from training.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from django.db.models import QuerySet

    from registry.models import Line
    from training.models import Snapshot
    from training.policies import Person

DECIDED_ONES = "show=decided"
_KINDS = ((b"\x89PNG", ".png"), (b"\xff\xd8", ".jpg"), (b"BM", ".bmp"), (b"II", ".tif"), (b"MM", ".tif"))


def checked_options(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options in their one spelling: `selection` as the grid has it, `with_pictures`, `first_id` of COCO."""
    return {
        "selection": Selection.parse(str(asked.get("selection", DECIDED_ONES))).query(),
        "with_pictures": bool(asked.get("with_pictures", True)),
        "first_id": 0 if asked.get("first_id") in (0, "0") else 1,
    }


def selected(line: Line, options: Mapping[str, Any], snapshot: Snapshot | None, by: Person) -> QuerySet[Capture]:
    """The captures, each once: those of the snapshot, else those that this person selected."""
    if snapshot is not None:
        return Capture.objects.filter(snapshot_items__snapshot=snapshot)
    return Selection.parse(options["selection"]).captures(line, by)


def package(
    line: Line, options: Mapping[str, Any], snapshot: Snapshot | None, by: Person
) -> tuple[Package, dict[str, str]]:
    """What is written, and name -> digest of each picture. A snapshot's decisions are those that it froze."""
    pictures: list[Labelled] = []
    digests: dict[str, str] = {}
    taken: set[str] = set()
    for capture, decision in _decided(line, options, snapshot, by):
        name = _free(name_of(capture), capture, taken)
        taken.add(folded(stem(name)))
        digests[name] = capture.digest
        pictures.append(_labelled(name, capture, decision))
    used = {number for picture in pictures for number in (*picture.classes, *(s.number for s in picture.shapes))}
    return Package(_classes(line, used), tuple(pictures)), digests


def _decided(
    line: Line, options: Mapping[str, Any], snapshot: Snapshot | None, by: Person
) -> Iterator[tuple[Capture, Decision | None]]:
    if snapshot is not None:
        items = snapshot.items.select_related("capture", "decision").order_by("capture_id")
        for item in items.iterator(chunk_size=2000):
            yield item.capture, item.decision
        return
    rows = selected(line, options, None, by).select_related("decision").order_by("pk")
    for capture in rows.iterator(chunk_size=2000):
        yield capture, capture.decision if capture.state == Capture.State.DECIDED else None


def _labelled(name: str, capture: Capture, decision: Decision | None) -> Labelled:
    size = (capture.width, capture.height)
    if decision is None:
        return Labelled(name, *size, capture.digest)
    shapes = tuple(
        Shape(region["number"], region["kind"], tuple((float(x), float(y)) for x, y in region["points"]))
        for region in decision.regions
    )
    drawn = drawings.numbers(decision.regions)
    undrawn = [number for number in decision.classes if number not in drawn]
    # The main class comes first: where leaving out the drawn ones would lose which it was, all are said.
    said = undrawn if [*undrawn, *drawn] == list(decision.classes) else list(decision.classes)
    verdict: Any = decision.verdict
    return Labelled(name, *size, capture.digest, verdict, tuple(said), shapes)


def _classes(line: Line, used: set[int]) -> tuple[ClassEntry, ...]:
    """The defect book with its own numbers; retired classes only where a picture has them."""
    book: Iterable[DefectClass] = DefectClass.objects.filter(line=line).order_by("number")
    return tuple(
        ClassEntry(entry.number, entry.code, entry.name_en or entry.code)
        for entry in book
        if entry.retired_at is None or entry.number in used
    )


# ------------------------------------------------------------------------------------------------ names


def name_of(capture: Capture) -> str:
    """The name that the picture came with; else one by its serial or its bytes."""
    given = capture.file_name.replace("\\", "/").lstrip("/")
    if is_name(given) and is_picture(given):
        return given
    suffix = _suffix(capture.digest)
    own = f"{capture.serial}{suffix}"
    return own if capture.serial and "/" not in own and is_name(own) else f"{capture.digest[:16]}{suffix}"


def _suffix(digest: str) -> str:
    try:
        with blobs.open_read(digest) as handle:
            head = handle.read(12)
    except blobs.Missing:
        return ".png"
    if head[:4] == b"RIFF" and head[8:] == b"WEBP":
        return ".webp"
    return next((suffix for start, suffix in _KINDS if head.startswith(start)), ".png")


def _free(name: str, capture: Capture, taken: set[str]) -> str:
    """`name`, or one that nobody has: label files are named like pictures but for the suffix, so that does not part."""
    base = stem(name)
    suffix = name[len(base) :]
    marks = itertools.chain(
        ("", mark_of(capture.digest)), (f"{mark_of(capture.digest)}-{n}" for n in itertools.count(2))
    )
    return next(f"{base}{mark}{suffix}" for mark in marks if folded(base + mark) not in taken)


def mark_of(digest: str) -> str:
    """What parts a picture's name from an equal one."""
    return f"-{digest[:8]}"
