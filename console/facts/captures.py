"""What the review pages say about captures: the grid, and one picture with what the machine said and people decided."""

from __future__ import annotations

import heapq
import json
import uuid
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from console import previews
from console.facts.paging import Page
from registry.lifecycle import why_not
from registry.models import DefectClass, Release, Station
from training import drafts, policies
from training.models import Capture, Decision, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from django.db.models import QuerySet

    from console.models import User
    from registry.models import Line

GRID_SIZE = 60
RAIL = 9  # pictures held for one reviewer at a time
KEYS = "123456789"
HISTORY = 30


# ------------------------------------------------------------------------------------------------ filters

SHOW: dict[str, tuple[str, ...]] = {
    "open": Capture.OPEN,
    "decided": (Capture.State.DECIDED,),
    "all": tuple(Capture.State),
}
TEXT_FILTERS = ("lot", "serial", "product")


@dataclass(frozen=True)
class Filters:
    """What a grid or a queue is narrowed to, as it stands in the address: it travels between grid and single view."""

    show: str = "open"
    reason: tuple[str, ...] = ()
    second_look: bool = False
    differs: bool = False
    golden: bool = False
    skipped: bool = False
    texts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Filters:
        show = query.get("show", "open")
        reasons = [part for part in query.get("why", "").split(",") if part in Capture.Reason.values]
        return cls(
            show=show if show in SHOW else "open",
            reason=tuple(reasons),
            second_look=query.get("look") == "1",
            differs=query.get("differs") == "1",
            golden=query.get("golden") == "1",
            skipped=query.get("skipped") == "1",
            texts=tuple((name, query[name].strip()[:80]) for name in TEXT_FILTERS if query.get(name, "").strip()),
        )

    def lookups(self) -> dict[str, Any]:
        """As column lookups: what `training.captures.queue` takes."""
        found: dict[str, Any] = dict(self.texts)
        if self.reason:
            found["reason__in"] = list(self.reason)
        if self.second_look:
            found["second_look"] = True
        if self.skipped:
            found["skipped"] = True
        return found

    def query(self) -> str:
        """As a query string, without what is left at its default."""
        from urllib.parse import urlencode

        pairs = [("why", ",".join(self.reason))] if self.reason else []
        flags = {"look": self.second_look, "differs": self.differs, "golden": self.golden, "skipped": self.skipped}
        pairs += [(name, "1") for name, on in flags.items() if on]
        pairs += [("show", self.show)] if self.show != "open" else []
        return urlencode([*pairs, *self.texts])

    def words(self) -> list[str]:
        """What is shown, in the order of the address, for the work bar."""
        state = {"open": _("undecided"), "decided": _("decided"), "all": _("all pictures")}[self.show]
        said = [state, *(str(Capture.Reason(value).label) for value in self.reason)]
        said += [_("needs a second look")] if self.second_look else []
        said += [_("put aside by you")] if self.skipped else []
        return said + [value for _name, value in self.texts]


def presets() -> list[tuple[str, str]]:
    """The filters that everybody has: name and query string."""
    return [
        (_("Undecided"), ""),
        (_("In the review band"), "why=band"),
        (_("Audit sample"), "why=audit"),
        (_("Asked by an operator"), "why=operator"),
        (_("Needs a second look"), "look=1"),
        (_("Machine and person differ"), "differs=1&show=decided"),
        (_("Decided"), "show=decided"),
        (_("In a golden set"), "golden=1&show=all"),
    ]


def grid(lines: Iterable[Line], filters: Filters, after: str) -> Page:
    """A page of captures, oldest first and lot by lot where work waits, newest first otherwise.

    One indexed query per line and state, merged: a single query over several states would sort the whole queue.
    """
    rising = filters.show == "open"
    cursor = _uuid(after)
    parts = [_part(line, state, filters, cursor, rising) for line in lines for state in SHOW[filters.show]]
    merged = heapq.merge(*parts, key=lambda row: row.pk, reverse=not rising)
    rows = list(islice(merged, GRID_SIZE + 1))
    shown = rows[:GRID_SIZE]
    onwards = str(shown[-1].pk) if len(rows) > GRID_SIZE else ""
    if rising:  # several stations send at once: a page's pictures of one lot stand together
        first = {row.lot: place for place, row in reversed(list(enumerate(shown)))}
        shown.sort(key=lambda row: first[row.lot])
    return Page(rows=shown, after=after if cursor else "", next=onwards)


def _part(line: Line, state: str, filters: Filters, cursor: uuid.UUID | None, rising: bool) -> list[Capture]:
    rows = Capture.objects.filter(line=line, state=state).select_related("line__site", "decision__by", "claimed_by")
    lookups = filters.lookups()
    lookups.pop("skipped", None)
    rows = rows.filter(**lookups)
    if filters.show != "all" or filters.golden:
        rows = rows.filter(reserved=filters.golden)
    if filters.differs:
        rows = rows.filter(_differs())
    if cursor:
        rows = rows.filter(id__gt=cursor) if rising else rows.filter(id__lt=cursor)
    return list(rows.order_by("id" if rising else "-id")[: GRID_SIZE + 1])


def _differs() -> Q:
    return ~Q(verdict__in=("", Verdict.REVIEW)) & ~Q(decision__verdict=F("verdict"))


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text) if text else None
    except ValueError:
        return None


# ------------------------------------------------------------------------------------------------ classes


@dataclass(frozen=True)
class ClassButton:
    """One entry of the defect book as a button: its key cap, and the model's probability where it knows the class."""

    number: int
    name: str
    critical: bool
    key: str
    share: float | None = None
    on: bool = False


def book(line: Line) -> list[DefectClass]:
    return list(DefectClass.objects.filter(line=line).order_by("number"))


def class_name(entry: Mapping[str, Any]) -> str:
    """The name of a class-table entry in the reader's language; OK stays Latin in both."""
    if entry["number"] == 0:
        return "OK"
    return str(entry["name_ko"] if (get_language() or "en").startswith("ko") else entry["name_en"])


class Reading:
    """One capture as its page shows it, for one reader."""

    def __init__(self, capture: Capture, person: User, classes: list[DefectClass] | None = None) -> None:
        self.capture = capture
        self.person = person
        self._book = classes if classes is not None else book(capture.line)

    @cached_property
    def deep(self) -> bool:
        return previews.deep(self.capture)

    # ---- what is drawn

    @cached_property
    def looked(self) -> bool:
        """Is the place where the model looked worth an outline? Not when it found nothing."""
        return bool(self.map) and self.capture.verdict != Verdict.OK

    @cached_property
    def drawn(self) -> str:
        """The shapes of the standing decision, as JSON."""
        return json.dumps(self.capture.decision.regions if self.capture.decision else [])

    @cached_property
    def draft(self) -> drafts.Opened:
        """What this person has drawn and typed without deciding; nobody else's."""
        return drafts.opened(self.capture, by=self.person) if not self.capture.decision else drafts.Opened()

    @property
    def draft_words(self) -> str:
        return json.dumps(draft_words(self.draft))

    @cached_property
    def class_names(self) -> str:
        """Class number -> name in the reader's language, for the tags of shapes; retired ones too."""
        return json.dumps({str(entry.number): entry.name for entry in self._book})

    # ---- what the machine said

    @cached_property
    def _said(self) -> list[tuple[Mapping[str, Any], float]]:
        """(class-table entry, probability) as the release that judged it knows the classes, most probable first."""
        shares = self.capture.prediction.get("probabilities") or []
        release = (
            Release.objects.filter(line=self.capture.line, number=self.capture.release_number)
            .select_related("version")
            .first()
            if self.capture.release_number and shares
            else None
        )
        table = release.version.manifest.get("classes", []) if release else []
        return sorted(zip(table, shares, strict=False), key=lambda pair: -pair[1])

    @property
    def top(self) -> tuple[Mapping[str, Any], float] | None:
        return self._said[0] if self._said else None

    @property
    def top_name(self) -> str:
        return class_name(self.top[0]) if self.top else ""

    @property
    def top_share(self) -> float | None:
        return self.top[1] if self.top else None

    @property
    def accept(self) -> str:
        """What Enter decides, as a form value: the model's most probable class, as long as the book still has it."""
        if self.top is None:
            return {"OK": "OK"}.get(self.capture.verdict, "")
        number = int(self.top[0]["number"])
        if number == 0:
            return "OK"
        return f"NG:{number}" if any(entry.number == number and not entry.retired_at for entry in self._book) else ""

    @property
    def accept_words(self) -> str:
        return self.top_name or "OK"

    @property
    def thresholds(self) -> tuple[float, float] | None:
        said = self.capture.prediction.get("thresholds") or {}
        low, high = said.get("ok_below"), said.get("ng_from")
        return (low, high) if low is not None and high is not None else None

    @property
    def in_band(self) -> bool:
        return self.capture.verdict == Verdict.REVIEW

    @property
    def bar(self) -> dict[str, Any] | None:
        """Places on the score bar, in per cent of its width; None for a picture that no model judged.

        `narrow_ok`, `narrow_band`, `narrow_ng`: these zones have no room for their words.
        """
        if self.capture.score is None or self.thresholds is None:
            return None
        low, high = self.thresholds
        places = {"low": low, "high": high, "score": self.capture.score}
        found = {name: f"{100 * value:.2f}" for name, value in places.items()}
        anchor = "start" if self.capture.score < 0.06 else "end" if self.capture.score > 0.94 else "mid"
        narrow = {"narrow_ok": low < 0.07, "narrow_band": high - low < 0.24, "narrow_ng": high > 0.94}
        return {**found, **narrow, "band": f"{max(0.0, 100 * (high - low)):.2f}", "anchor": anchor}

    @property
    def map(self) -> dict[str, Any] | None:
        return self.capture.prediction.get("map") or None

    # ---- what a person may say

    @cached_property
    def classes(self) -> list[ClassButton]:
        shares = {int(entry["number"]): share for entry, share in self._said}
        decided = set(self.capture.decision.classes) if self.capture.decision else set()
        buttons = []
        for index, entry in enumerate(entry for entry in self._book if not entry.retired_at):
            key = entry.hotkey or (KEYS[index] if index < len(KEYS) else "")
            share, on = shares.get(entry.number), entry.number in decided
            buttons.append(ClassButton(entry.number, entry.name, entry.critical, key, share, on))
        return buttons

    @property
    def only_class(self) -> int | None:
        """With one defect class in the book, N says it all."""
        return self.classes[0].number if len(self.classes) == 1 else None

    @cached_property
    def why_not_decide(self) -> str:
        return why_not(policies.check_can_decide, self.capture, by=self.person)

    @cached_property
    def why_not_retract(self) -> str:
        return why_not(policies.check_can_retract, self.capture, by=self.person)

    # ---- what people said

    def names(self, numbers: Iterable[int]) -> str:
        known = {entry.number: entry.name for entry in self._book}
        return ", ".join(known.get(number, str(number)) for number in numbers)

    @property
    def decided_names(self) -> str:
        return self.names(self.capture.decision.classes) if self.capture.decision else ""

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """What people did with this picture, oldest first: kind, words, who, when, comment."""
        acts: QuerySet[Decision] = self.capture.decisions.select_related("by").order_by("-created_at", "-id")[:HISTORY]
        return [
            {
                "at": act.created_at,
                "verdict": act.verdict,
                "words": self.names(act.classes) if act.kind == Decision.Kind.DECIDED else act.get_kind_display(),
                "who": _("you") if act.by_id == self.person.pk else str(act.by),
                "comment": act.comment,
                "regions": [_outline(region) for region in act.regions],
            }
            for act in reversed(acts)
        ]

    @property
    def golden_sets(self) -> str:
        sets = {item.golden_set.code for item in self.capture.golden_items.select_related("golden_set")}
        return ", ".join(sorted(sets))


def _outline(region: Mapping[str, Any]) -> str:
    """A stored region as points of an SVG polygon."""
    points = region["points"]
    if region["kind"] == "box":
        (left, top), (right, bottom) = points
        points = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def draft_words(draft: drafts.Opened) -> dict[str, Any]:
    """A draft as the page's script takes it; `saved` is plant time."""
    at = timezone.localtime(draft.at).strftime("%H:%M:%S") if draft.at else ""
    return {"regions": draft.regions, "comment": draft.comment, "version": draft.version, "saved": at}


def held_by_other(capture: Capture, person: User) -> bool:
    """Does somebody else hold a claim that has not run out? For marking tiles; the policy decides when it matters."""
    return bool(
        capture.claimed_by_id not in (None, person.pk)
        and capture.claimed_until
        and capture.claimed_until > timezone.now()
    )


def stations(line: Line) -> list[Station]:
    return list(line.stations.all())
