"""Counts for the builder of a very large line: one grouped query instead of dealing every picture at each change."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from django.db.models import Count
from django.utils import timezone

from registry import counters
from training import counts
from training.models import Capture

if TYPE_CHECKING:
    from uuid import UUID

    from registry.models import Line

LIVE_MOST = 50_000  # decided pictures that are still dealt at each change of the form: about two seconds
FRESH_S = 30


@dataclass(frozen=True)
class Outline:
    """Decided pictures per main class and per product, as they were at `at`."""

    at: datetime
    classes: Counter[int] = field(default_factory=Counter)
    products: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.classes.total()


_kept: dict[tuple[UUID, tuple[str, ...]], tuple[float, Outline]] = {}


def too_large(line: Line) -> bool:
    """Has the line more decided pictures than can be dealt while somebody waits? From counters, never counted."""
    found = counters.values(line)
    return found.get(counts.TOTAL, 0) - found.get(counts.NEW, 0) > LIVE_MOST


def outline(line: Line, products: list[str] | None) -> Outline:
    """Counted at most every half minute per line and choice of products, in this process."""
    key = (line.pk, tuple(sorted(products or ())))
    standing = _kept.get(key)
    if standing and time.monotonic() - standing[0] < FRESH_S:
        return standing[1]
    rows = Capture.objects.filter(line=line, state=Capture.State.DECIDED, reserved=False)
    if products:
        rows = rows.filter(product__in=products)
    made = Outline(timezone.now())
    for label, product, n in rows.values_list("decided_class", "product").annotate(n=Count("pk")).order_by():
        made.classes[label or 0] += n
        made.products[product] += n
    _kept.clear()  # one line is built at a time; nothing piles up
    _kept[key] = (time.monotonic(), made)
    return made
