"""What the review pages say about captures: the grid, and one picture with what the machine said and people decided."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.utils import timezone
from django.utils.translation import gettext as _

from console import previews
from console.facts import classes
from console.facts import filters as narrowing
from console.facts.paging import Page
from registry.lifecycle import why_not
from registry.models import Release, Station
from training import blind, checks, drafts, embeddings, near_duplicates, opinions, policies, queue
from training.models import Capture, Decision, Opinion, Verdict
from training.selection import SHOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from django.db.models import Q, QuerySet

    from console.facts.filters import Filters
    from console.models import User
    from registry.models import DefectClass, Line
    from training.captures import Together
    from training.models import Check

GRID_SIZE = 60
RAIL = 9  # pictures held for one reviewer at a time
HISTORY = 30
SIBLINGS = 8
NAMED = 5  # pictures left alone that are named one by one
TWINS = 5  # near duplicates that are named


# ------------------------------------------------------------------------------------------------ the grid


def grid(lines: Iterable[Line], filters: Filters, after: str, by: User) -> Page:
    """A page of captures in the order asked for; decided ones newest first.

    One query per line and index, merged: what is open has an index of its own, all else one that begins with the state.
    """
    if filters.like is not None:
        return _most_similar(lines, filters, after, by)
    order = queue.ORDERS[filters.order] if filters.rising else queue.NEWEST
    behind = narrowing.behind(after, order) if after else None
    wanted = [SHOW["open"]] if filters.rising else [(state,) for state in SHOW[filters.show]]
    parts = [_part(line, states, filters, behind, order, by) for line in lines for states in wanted]
    merged = heapq.merge(*parts, key=lambda row: _place(row, order))
    rows = list(islice(merged, GRID_SIZE + 1))
    shown = rows[:GRID_SIZE]
    onwards = narrowing.cursor(shown[-1], order) if rows[GRID_SIZE:] else ""
    if filters.rising and filters.order == queue.OLDEST:  # several stations send at once: pictures of a lot together
        first = {row.lot: place for place, row in reversed(list(enumerate(shown)))}
        shown.sort(key=lambda row: first[row.lot])
    return Page(rows=shown, after=after if behind else "", next=onwards)


def _most_similar(lines: Iterable[Line], filters: Filters, after: str, by: User) -> Page:
    """A page of the pictures nearest to the picked one, each with its `likeness`; only its own line has any."""
    place = narrowing.likeness(after) if after else None
    ranked = [pair for line in lines for pair in filters.nearest(line, by)]
    further = [(pk, share) for pk, share in ranked if place is None or (-share, pk) > place]
    shown = dict(further[:GRID_SIZE])
    found = Capture.objects.select_related("line__site", "decision__by", "claimed_by", "station").in_bulk(list(shown))
    rows = [found[pk] for pk in shown if pk in found]
    for row in rows:
        row.likeness = shown[row.pk]  # type: ignore[attr-defined]
    last = further[GRID_SIZE - 1] if len(further) > GRID_SIZE else None
    return Page(rows=rows, after=after if place else "", next=f"{last[1]!r}~{last[0]}" if last else "")


def picked(filters: Filters, lines: Iterable[Line]) -> Picked | None:
    """The picture that others shall be like, if one is picked and is of these lines."""
    if filters.like is None:
        return None
    row = Capture.objects.filter(pk=filters.like, line__in=list(lines)).select_related("line", "embedding").first()
    return Picked(row)


@dataclass(frozen=True)
class Picked:
    """A picked picture, and why nothing can be compared with it yet. Without `row` it is not on the lines shown."""

    row: Capture | None

    def __str__(self) -> str:
        return str(self.row) if self.row else _("a picked picture")

    @property
    def why_not(self) -> str:
        if self.row is None:
            return _("The picked picture is not on the lines shown. Choose its line, or remove the filter.")
        return why_not_alike(self.row)


def why_not_alike(capture: Capture) -> str:
    """Why no picture can be compared with this one now; "" when they can."""
    row = getattr(capture, "embedding", None)
    if row is not None:
        return _("%(name)s cannot be compared: its picture cannot be read.") % {"name": capture} if row.problem else ""
    waiting = embeddings.waiting(capture.line)
    many = f"{embeddings.COUNTED}+" if waiting >= embeddings.COUNTED else str(waiting)
    text = (
        _("%(name)s is not compared yet: a worker does it while nothing is trained. Pictures that wait: %(n)s.")
        if embeddings.basis(capture.line)
        else _("Nothing can be compared before a base model is imported. Pictures that wait: %(n)s.")
    )
    return text % {"name": capture, "n": many}


def _part(
    line: Line, states: tuple[str, ...], filters: Filters, behind: Q | None, order: tuple[str, str], by: User
) -> list[Capture]:
    rows = Capture.objects.filter(filters.where(line, by), line=line, state__in=states)
    if filters.show != "all" or "golden" in filters.flags:
        rows = rows.filter(reserved="golden" in filters.flags)
    if behind:
        rows = rows.filter(behind)
    found = rows.select_related("line__site", "decision__by", "claimed_by", "station").order_by(*order)
    return list(found[: GRID_SIZE + 1])


def _place(row: Capture, order: tuple[str, str]) -> tuple[float, ...]:
    """A key that sorts as the columns of `order` do."""
    return tuple((-1 if name[0] == "-" else 1) * _number(getattr(row, name.lstrip("-"))) for name in order)


def _number(value: Any) -> float:
    return value.int if isinstance(value, UUID) else value.timestamp() if isinstance(value, datetime) else value


@dataclass(frozen=True)
class Choices:
    """What the filter form offers on the lines shown."""

    stations: list[str]
    shifts: list[str]
    classes: list[tuple[int, str]]

    @property
    def class_names(self) -> dict[int, str]:
        return dict(self.classes)


def choices(lines: list[Line]) -> Choices:
    """From the lines' own tables, never from the captures: their distinct values would take a walk over all rows."""
    stations = Station.objects.filter(line__in=lines).order_by("code").values_list("code", flat=True)
    shifts = {str(shift["code"]) for line in lines for shift in line.shifts}
    entries = classes.book(lines[0]) if len(lines) == 1 else []
    named = [(0, "OK"), *((entry.number, classes.shown(entry)) for entry in entries)]
    return Choices(list(dict.fromkeys(stations)), sorted(shifts), named)


# ------------------------------------------------------------------------------------------------ one picture


class Reading:
    """One capture as its page shows it, for one reader. `supervising`: sees it all, and is not about to judge it."""

    asked_map: dict[str, Any] | None = None  # of the champion, for a picture that came without one

    def __init__(self, capture: Capture, person: User, *, supervising: bool = False) -> None:
        self.capture = capture
        self.person = person
        self.supervising = supervising
        self._book = classes.book(capture.line)
        self._meant = {entry.number: _end(entry) for entry in self._book}
        self._check = checks.of(capture)

    @cached_property
    def blind(self) -> bool:
        """Is the machine's answer kept from this reader?"""
        return not self.supervising and blind.hidden(self.capture, by=self.person)

    @cached_property
    def decision(self) -> Decision | None:
        """The standing decision; while there is none, this reader's own opinion."""
        if self.capture.decision or not self.capture.opinions:
            return self.capture.decision
        own = Opinion.objects.filter(capture=self.capture, by=self.person).select_related("decision").first()
        return own.decision if own else None

    @cached_property
    def deep(self) -> bool:
        return previews.deep(self.capture)

    @property
    def tile_levels(self) -> int:
        """How many levels the picture's tiles have; 0 for one that is shown whole."""
        return previews.level_count(self.capture)

    @cached_property
    def siblings(self) -> list[Capture]:
        """Other pictures of the same serial number, newest first."""
        if not self.capture.serial:
            return []
        same = Capture.objects.filter(line=self.capture.line, serial=self.capture.serial)
        return list(same.exclude(pk=self.capture.pk).select_related("station").order_by("-received_at")[:SIBLINGS])

    # ---- what is drawn

    @cached_property
    def looked(self) -> bool:
        """Is the place where the model looked worth an outline? Not when it found nothing."""
        return bool(self.map) and self.capture.verdict != Verdict.OK

    @cached_property
    def drawn(self) -> str:
        """The shapes of the standing decision, or of one's own opinion, as JSON."""
        return json.dumps(self.decision.regions if self.decision else [])

    @cached_property
    def draft(self) -> drafts.Opened:
        """What this person has drawn and typed without deciding; nobody else's."""
        return checks.draft(self.capture, by=self.person) if not self.decision else drafts.Opened()

    @property
    def draft_words(self) -> str:
        return json.dumps(draft_words(self.draft))

    @cached_property
    def class_names(self) -> str:
        """Class number -> name in the reader's language, for the tags of shapes; retired ones are marked."""
        return json.dumps({str(entry.number): classes.shown(entry) for entry in self._book})

    # ---- what the machine said

    @cached_property
    def _said(self) -> list[tuple[Mapping[str, Any], float]]:
        """(class-table entry, probability) as the release that judged it knows the classes, most probable first."""
        shares = [] if self.blind else self.capture.prediction.get("probabilities") or []
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
        return classes.name_then(self.top[0]) if self.top else ""

    @property
    def top_share(self) -> float | None:
        return self.top[1] if self.top else None

    @property
    def accept(self) -> str:
        """What Enter decides, as a form value: the model's most probable class, if it can still be chosen."""
        if self.blind:
            return ""
        if self.top is None:
            return {"OK": "OK"}.get(self.capture.verdict, "")
        if self.top[0]["number"] == 0:
            return "OK"
        return f"NG:{self._accepted.number}" if self._accepted and not self._accepted.retired_at else ""

    @property
    def _accepted(self) -> DefectClass | None:
        """The most probable class as it is meant now."""
        return self._meant.get(int(self.top[0]["number"])) if self.top else None

    @property
    def accept_words(self) -> str:
        return self._accepted.name if self._accepted else self.top_name or "OK"

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
        if self.blind or self.capture.score is None or self.thresholds is None:
            return None
        low, high = self.thresholds
        places = {"low": low, "high": high, "score": self.capture.score}
        found = {name: f"{100 * value:.2f}" for name, value in places.items()}
        anchor = "start" if self.capture.score < 0.06 else "end" if self.capture.score > 0.94 else "mid"
        narrow = {"narrow_ok": low < 0.07, "narrow_band": high - low < 0.24, "narrow_ng": high > 0.94}
        return {**found, **narrow, "band": f"{max(0.0, 100 * (high - low)):.2f}", "anchor": anchor}

    @property
    def map(self) -> dict[str, Any] | None:
        return None if self.blind else self.capture.prediction.get("map") or self.asked_map

    # ---- what a person may say

    @cached_property
    def classes(self) -> list[classes.ClassButton]:
        decided = set(self.decision.classes) if self.decision else set()
        keys, shares = classes.keys(self._book), self._shares
        return [
            classes.ClassButton(
                entry.number, entry.name, entry.critical, keys[entry.number], shares.get(entry.number),
                entry.number in decided,
            )
            for entry in self._book
            if not entry.retired_at
        ]  # fmt: skip

    @property
    def _shares(self) -> dict[int, float]:
        """Class number -> the model's probability; classes that were merged since count together."""
        found: dict[int, float] = {}
        for entry, share in self._said:
            meant = self._meant.get(int(entry["number"]))
            number = meant.number if meant else int(entry["number"])
            found[number] = found.get(number, 0.0) + share
        return found

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
    def sees_others(self) -> bool:
        """Nobody sees what others said of an open picture that needs several opinions, but who settles a dispute."""
        row = self.capture
        if row.state not in Capture.OPEN or (row.line.opinions <= 1 and not row.opinions):
            return True
        return row.disagreed and not self.decision and policies.can_adjudicate(row.line, by=self.person)

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """What people did with this picture, as far as this reader may know, oldest first."""
        acts: QuerySet[Decision] = self.capture.decisions.select_related("by").order_by("-created_at", "-id")
        if self._check:
            return [self._act(act) for act in self._check_acts(self._check)]
        if not self.sees_others:
            acts = acts.filter(by=self.person)
        return [self._act(act) for act in reversed(acts[:HISTORY])]

    def _check_acts(self, check: Check) -> list[Decision]:
        """What an ordinary picture's history would say of this person's acts."""
        acts = [self.capture.decision] if self.capture.decision else []
        if check.skipped_at:
            acts.insert(0, Decision(kind=Decision.Kind.SKIPPED, by=self.person, created_at=check.skipped_at))
        return acts

    def _act(self, act: Decision) -> dict[str, Any]:
        said, kind, names = act.kind in Decision.SAID, str(act.get_kind_display()), self.names(act.classes)
        return {
            "at": act.created_at,
            "verdict": act.verdict,
            "words": names if said else f"{kind}, {names}" if names else kind,
            "note": kind if said and act.kind != Decision.Kind.DECIDED else "",
            "who": _("you") if act.by_id == self.person.pk else str(act.by),
            "comment": act.comment,
            "regions": [_outline(region) for region in act.regions],
        }

    # ---- where several opinions are asked for

    @property
    def several(self) -> bool:
        return self.capture.opinions > 0 or (self.capture.state in Capture.OPEN and self.capture.line.opinions > 1)

    @cached_property
    def opinions(self) -> list[dict[str, Any]]:
        """The opinions that stand, side by side; none for a reader who has to judge without them."""
        if not self.capture.opinions or not self.sees_others:
            return []
        standing = self.capture.decision
        return [
            {**self._act(one.decision), "note": "", "alike": bool(standing and opinions.alike(one.decision, standing))}
            for one in opinions.given(self.capture)
        ]

    @cached_property
    def twins(self) -> list[tuple[Capture, float]]:
        """Pictures of the line that show nearly the same in other bytes."""
        return near_duplicates.of(self.capture, TWINS)

    @cached_property
    def examples(self) -> list[tuple[int, str, bool]]:
        """The classes that it is decided as: number, name, and whether it is an example of it."""
        shown = set(self.capture.example_of.values_list("entry__number", flat=True))
        numbers = self.capture.decision.classes if self.capture.decision else []
        return [(number, self.names([number]), number in shown) for number in numbers]

    @property
    def agreement(self) -> tuple[int, int] | None:
        """[how many opinions say what the decision says, of how many]."""
        if not self.capture.decision or not self.opinions:
            return None
        return sum(one["alike"] for one in self.opinions), len(self.opinions)

    @property
    def own_opinion(self) -> bool:
        return self.decision is not None and self.capture.decision is None

    @property
    def golden_sets(self) -> str:
        if self._check:
            return ""
        sets = {item.golden_set.code for item in self.capture.golden_items.select_related("golden_set")}
        return ", ".join(sorted(sets))


def _end(entry: DefectClass) -> DefectClass:
    """The class that it means now."""
    while entry.merged_into is not None:
        entry = entry.merged_into
    return entry


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


def left_alone(done: Together) -> list[tuple[str, str]]:
    """(sentence, names of the pictures it is said of) of what was not decided together with the rest."""
    said: dict[str, list[str]] = {}
    for capture, sentence in done.left:
        said.setdefault(sentence, []).append(str(capture))
    return [(sentence, _some(names)) for sentence, names in said.items()]


def _some(names: list[str]) -> str:
    more = len(names) - NAMED
    shown = ", ".join(names[:NAMED])
    return shown if more <= 0 else _("%(names)s and %(n)s more") % {"names": shown, "n": more}
