"""What the tiles of a grid may show to one reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.facts.captures import held_by_other
from training.models import Capture, Opinion

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from console.models import User
    from registry.models import Line


@dataclass(frozen=True)
class Tiles:
    """Which captures hide the machine's answer, which are held by somebody else, and of which this reader has given an
    opinion."""

    masked: set[UUID]
    held: set[UUID]
    said: set[UUID]


def tiles(rows: Iterable[Capture], person: User, supervised: Iterable[Line]) -> Tiles:
    shown, free = list(rows), {line.pk for line in supervised}
    judged = [row.pk for row in shown if row.opinions and row.state in Capture.OPEN]
    own = Opinion.objects.filter(by=person, capture__in=judged).values_list("capture", flat=True) if judged else ()
    said = set(own)
    masked = {row.pk for row in shown if row.masked and row.line_id not in free and row.pk not in said}
    return Tiles(masked, {row.pk for row in shown if held_by_other(row, person)}, said)
