"""How the counts of captures that pages show are counted from their rows; `registry.counters` keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from registry import counters
from training.models import IN_QUEUE, Capture, Snapshot

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet

    from registry.models import Line

NEW = "captures_new"  # in the queue
DECIDED = "captures_decided"  # decided since the last snapshot
TOTAL = "captures_total"


def frozen_at(line: Line) -> datetime | None:
    """When the line's last snapshot was frozen."""
    return Snapshot.objects.filter(line=line).order_by("-number").values_list("created_at", flat=True).first()


def decided_since_snapshot(line: Line) -> QuerySet[Capture]:
    """Captures whose present decision is younger than the line's last snapshot."""
    rows = Capture.objects.filter(line=line, state=Capture.State.DECIDED, reserved=False)
    last = frozen_at(line)
    return rows.filter(decision__created_at__gt=last) if last else rows


@counters.counted(NEW)
def count_new(line: Line) -> int:
    return Capture.objects.filter(IN_QUEUE, line=line).count()


@counters.counted(DECIDED)
def count_decided(line: Line) -> int:
    return decided_since_snapshot(line).count()


@counters.counted(TOTAL)
def count_total(line: Line) -> int:
    return Capture.objects.filter(line=line).count()
