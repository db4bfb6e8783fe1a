"""How often the classes of a line are used, counted from rows as they are now: decided, in golden sets, in drafts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from django.db.models import Count

from training.models import Capture, Draft, GoldenItem

if TYPE_CHECKING:
    from registry.models import Line


def decided(line: Line) -> dict[int, int]:
    """Class number -> captures whose standing decision has it as main class. One walk over an index."""
    rows = Capture.objects.filter(line=line, decided_class__gt=0)
    return dict(rows.order_by("decided_class").values_list("decided_class").annotate(n=Count("pk")))


def drafted(line: Line) -> dict[int, int]:
    """Class number -> drafts that have it drawn. Drafts are few: they go with the decision."""
    counted: Counter[int] = Counter()
    for regions in Draft.objects.filter(capture__line=line).values_list("data__regions", flat=True).iterator(2000):
        counted.update({int(region["number"]) for region in regions or ()})
    return dict(counted)


def golden(line: Line) -> dict[int, int]:
    """Class number -> pictures of the golden sets in force."""
    rows = GoldenItem.objects.filter(golden_set__line=line, golden_set__retired_at=None)
    return dict(rows.order_by("label").values_list("label").annotate(n=Count("pk")))
