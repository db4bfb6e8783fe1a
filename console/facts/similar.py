"""What the page says on which a person decides all pictures like one: the clear ones, and those near the border."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Q

from console.facts import captures, classes
from training import similarity
from training.models import Capture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from console.models import User

# On solar cells, magnet tiles and a ball screw, 95 to 99 % of what is as near as USUAL to a good part is good, too; at
# 0.95 it is 90 to 93 %. What is as near to a defect is the same defect in 19 to 97 %, by kind of part: hence the look.
STEPS = (0.99, 0.98, 0.97, 0.96, 0.95, 0.93, 0.9)
USUAL = 0.97
BORDER = 6  # pictures on each side of the border that are shown large,
WIDTH = 0.01  # above it those alone that are no more similar than this
MOST = 300  # on one page


@dataclass(frozen=True)
class Alike:
    """The open pictures nearest to a picked one. Only what is listed here can be decided on the page."""

    least: float
    clear: Sequence[Capture]
    above: Sequence[Capture]  # just similar enough
    below: Sequence[Capture]  # just not
    more: bool  # similar ones that are not on this page

    @property
    def ticked(self) -> int:
        return len(self.clear)


def least_asked(text: str) -> float:
    """The similarity that is asked for, if it is one of the steps; else the usual one."""
    return next((step for step in STEPS if f"{step:g}" == text), USUAL)


def alike(picked: Capture, least: float) -> Alike:
    """The open pictures that look like this one, most similar first, with their `likeness`."""
    ranked = similarity.nearest(picked.pk, picked.line, where=~Q(pk=picked.pk), waiting=True)
    similar = [pk for pk, share in ranked if share >= least]
    listed = similar[:MOST]
    below = [pk for pk, _share in ranked[len(similar) : len(similar) + BORDER]] if len(listed) == len(similar) else []
    rows = Capture.objects.select_related("line", "claimed_by").in_bulk([*listed, *below])
    for pk, share in ranked:
        if pk in rows:
            rows[pk].likeness = share  # type: ignore[attr-defined]
    border = min(BORDER, sum(least <= share < least + WIDTH for _pk, share in ranked[: len(listed)]))
    split = len(listed) - border

    def found(keys: Sequence[UUID]) -> list[Capture]:
        return [rows[pk] for pk in keys if pk in rows]

    more = len(similar) > len(listed)
    return Alike(least, clear=found(listed[:split]), above=found(listed[split:]), below=found(below), more=more)


def page(picked: Capture, least: float, *, by: User) -> dict[str, Any]:
    """Everything that the page shows."""
    found = alike(picked, least)
    shown = [*found.clear, *found.above, *found.below]
    return {
        "capture": picked,
        "line": picked.line,
        "alike": found,
        "steps": [(f"{step:g}", f"{step:.2f}", step == least) for step in STEPS],
        "why_not": captures.why_not_alike(picked),
        "reading": captures.Reading(picked, by),
        "book": classes.buttons(picked.line),
        "held": {row.pk for row in shown if captures.held_by_other(row, by)},
        "chosen": _choice(picked),
        "least": f"{least:g}",
    }


def _choice(picked: Capture) -> str:
    """The standing decision as a form value; "" while there is none."""
    decision = picked.decision
    if decision is None:
        return ""
    numbers = ",".join(str(number) for number in decision.classes)
    return f"{decision.verdict}:{numbers}" if numbers else str(decision.verdict)
