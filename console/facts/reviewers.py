"""What the pages about reviewing itself say: how reliably people judge, the policy and its cost, estimated escapes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from console.facts.classes import book
from console.models import Membership, User
from console.roles import ROLES
from registry import counters
from training import agreement, counts, escapes, golden, reliability
from training.models import GoldenItem

if TYPE_CHECKING:
    from datetime import datetime

    from registry.models import Line
    from training.reliability import Figures

REVIEWING = [code for code, role in ROLES.items() if "capture.review" in role.actions]
ADJUDICATING = [code for code, role in ROLES.items() if "capture.adjudicate" in role.actions]


def reviewers(line: Line) -> list[User]:
    """Who may judge pictures of the line, by name: never by how well they do."""
    members = Membership.objects.filter(line=line, role__in=REVIEWING).values("user")
    return list(User.objects.filter(pk__in=members, is_active=True).order_by("display_name", "username"))


def adjudicators(line: Line) -> int:
    found = Membership.objects.filter(line=line, role__in=ADJUDICATING, user__is_active=True)
    return found.values("user").distinct().count()


@dataclass(frozen=True)
class KappaRow:
    name: str
    kappa: agreement.Kappa | None


@dataclass(frozen=True)
class PersonRow:
    person: User
    figures: Figures
    kappas: list[KappaRow]

    @property
    def enough(self) -> bool:
        return self.figures.agreed[1] >= agreement.FEWEST


class LineReliability:
    """The people of one line as one reader may see them: a supervisor all, anybody else themself."""

    def __init__(self, line: Line, reader: User, now: datetime, *, all_of_them: bool) -> None:
        self.line = line
        self._reader = reader
        self._now = now
        self.all_of_them = all_of_them

    @cached_property
    def rows(self) -> list[PersonRow]:
        people = reviewers(self.line) if self.all_of_them else [self._reader]
        names = {0: "OK", **{entry.number: entry.name for entry in book(self.line) if not entry.retired_at}}
        return [self._row(person, names) for person in people]

    def _row(self, person: User, names: dict[int, str]) -> PersonRow:
        numbers = [number for number in names if number]
        figures = reliability.of(person, self.line, now=self._now, classes=numbers)
        return PersonRow(person, figures, [KappaRow(names[number], kappa) for number, kappa in figures.kappas.items()])


class PolicyCost:
    """What the line's review policy costs, in the words of the page that sets it."""

    def __init__(self, line: Line) -> None:
        self.line = line

    @cached_property
    def reviewers(self) -> int:
        return len(reviewers(self.line))

    @cached_property
    def adjudicators(self) -> int:
        return adjudicators(self.line)

    @cached_property
    def waiting(self) -> int:
        return counters.value(self.line, counts.NEW)

    @cached_property
    def known(self) -> int:
        """Pictures whose answer is known: those of the current golden sets."""
        return GoldenItem.objects.filter(golden_set__in=golden.current(self.line)).count()


@dataclass(frozen=True)
class LineEscapes:
    line: Line
    weeks: list[dict[str, Any]]


def escapes_of(lines: list[Line], now: datetime) -> list[LineEscapes]:
    return [LineEscapes(line, [_week(week) for week in escapes.weeks(line, now=now)]) for line in lines]


def _week(week: escapes.Week) -> dict[str, Any]:
    return {
        "week": week,
        "share": _percent(week.share),
        "share_interval": _between(week.share_interval, 100, 3),
        "escapes_interval": _between(week.escapes_interval, 1, 0),
        "rate": _percent(week.rate, 1),
        "rate_interval": _between(week.rate_interval, 100, 1),
    }


def _percent(share: float | None, places: int = 3) -> str:
    """Never "0 %": what was not found may still be there, so that the upper end of the interval is what counts."""
    if share is None:
        return ""
    return f"{100 * share:.{places}f} %" if share else ""


def _between(ends: tuple[float, float] | None, times: float, places: int) -> str:
    if ends is None:
        return ""
    unit = " %" if times == 100 else ""
    return f"{times * ends[0]:,.{places}f}–{times * ends[1]:,.{places}f}{unit}"
