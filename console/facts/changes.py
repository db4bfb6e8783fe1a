"""What pages say of frozen decisions that do not stand any more: marks, the pictures behind them, how far one went."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from django.utils.translation import ngettext

from console.facts.classes import name_then
from console.facts.paging import Page
from training import lineage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from django.db.models import QuerySet

    from registry.models import Device, Version
    from training.lineage import Reach
    from training.models import Capture, Snapshot, SnapshotItem

SIZE = 50
SHOWN = 12  # snapshots and devices named one by one on the page of a picture


# ------------------------------------------------------------------------------------------------ marks


def mark_snapshots(rows: Collection[Snapshot]) -> None:
    """Set `changed` on each: how many of its pictures are decided otherwise now."""
    found = lineage.changed_in_snapshots(rows)
    for row in rows:
        row.changed = found.get(row.pk, 0)  # type: ignore[attr-defined]


def mark_versions(rows: Collection[Version]) -> None:
    found = lineage.changed_in_versions([row.pk for row in rows])
    for row in rows:
        row.changed = found.get(row.pk, 0)  # type: ignore[attr-defined]


def mark_devices(rows: Collection[Device]) -> None:
    """Set `changed` and `changed_version`: what the device runs learned that many decisions that do not stand."""
    found = lineage.changed_in_devices(rows)
    for row in rows:
        row.changed_version, row.changed = found.get(row.pk, (None, 0))  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------ the pictures


def in_snapshot(snapshot: Snapshot, after: str = "") -> Page:
    """Pictures of the snapshot that are decided otherwise now, newest picture first."""
    return _page(lineage.changed([snapshot.pk]), after)


def in_version(version: Version, after: str = "") -> Page:
    """Pictures that taught the version, or one that it continues; each once, as it was frozen last."""
    snapshots = lineage.taught_by([version.pk])[version.pk]
    return _page(lineage.changed(snapshots), after)


def _page(items: QuerySet[SnapshotItem], after: str) -> Page:
    below = _key(after)
    if below:
        items = items.filter(capture_id__lt=below)
    newest = items.order_by("-capture_id", "-snapshot_id").distinct("capture_id")
    related = newest.select_related("snapshot", "decision__by", "capture__line", "capture__decision__by")
    rows = list(related[: SIZE + 1])
    for row in rows:
        dress(row)
    onwards = str(rows[SIZE - 1].capture_id) if len(rows) > SIZE else ""
    return Page(rows=rows[:SIZE], after=after if below else "", next=onwards)


def _key(after: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(after) if after else None
    except ValueError:
        return None


def dress(item: Any) -> None:
    """Set `was` and `now`: the classes in words, both as the snapshot's class table names them."""
    names = {entry["number"]: name_then(entry) for entry in item.snapshot.classes}
    standing = item.capture.decision
    item.was = _named(item.decision.classes, names)
    item.now = _named(standing.classes, names) if standing else ""
    item.redrawn = standing is not None and (standing.verdict, standing.classes) == (
        item.decision.verdict,
        item.decision.classes,
    )


def _named(numbers: Iterable[int], names: dict[int, str]) -> str:
    return ", ".join(names.get(number, str(number)) for number in numbers)


# ------------------------------------------------------------------------------------------------ one picture


def whereabouts(capture: Capture) -> dict[str, Any]:
    """Where the decisions of a picture went, and how far the one went that does not stand, or will not any more."""
    blast = lineage.blast(capture)
    changed = {item.pk for item in blast.changed}
    for item in blast.items[:SHOWN]:
        item.capture = capture
        dress(item)
        item.changed = item.pk in changed  # type: ignore[attr-defined]
    return {
        "frozen": blast.items[:SHOWN],
        "more_frozen": max(0, len(blast.items) - SHOWN),
        "reach": blast.reach if blast.items else None,
        "devices": blast.reach.devices[:SHOWN] if blast.items else [],
        "more_devices": max(0, len(blast.reach.devices) - SHOWN) if blast.items else 0,
        "reached": reached(blast.changed_reach, len(changed)) if changed else "",
        "would_reach": reached(blast.standing_reach, len(blast.standing))
        if capture.decision and blast.standing
        else "",
    }


def reached(reach: Reach, snapshots: int) -> str:
    """How far a decision came: "3 snapshots, 2 versions, 5 devices"."""
    versions, devices = len(reach.versions), len(reach.devices)
    parts = [ngettext("%(n)d snapshot", "%(n)d snapshots", snapshots) % {"n": snapshots}]
    if versions:
        parts.append(ngettext("%(n)d version", "%(n)d versions", versions) % {"n": versions})
    if devices:
        parts.append(ngettext("%(n)d device", "%(n)d devices", devices) % {"n": devices})
    return ", ".join(parts)
