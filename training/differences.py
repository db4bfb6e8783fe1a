"""Two snapshots of a line, picture by picture: added, removed, moved to another side, labelled otherwise.

Joins in the database, never lists of pictures in memory: 100,000 pictures a side are ordinary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Count, Exists, F, OuterRef, Q
from django.utils.translation import gettext_noop

from registry.lifecycle import Refused
from training.models import SnapshotItem

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from training.models import Snapshot

ADDED, REMOVED, MOVED, RELABELLED = "added", "removed", "moved", "relabelled"
KINDS = (ADDED, REMOVED, MOVED, RELABELLED)
OTHER_LINE = gettext_noop("%(old)s and %(new)s are of two lines and share no picture. Compare snapshots of one line.")


@dataclass(frozen=True)
class Difference:
    """From `old` to `new`. A picture that moved may be labelled otherwise too."""

    old: Snapshot
    new: Snapshot
    counts: dict[str, int]
    same: int


def between(old: Snapshot, new: Snapshot) -> Difference:
    """Counted in three queries. Raises Refused for snapshots of two lines."""
    if old.line_id != new.line_id:
        raise Refused(OTHER_LINE, old=str(old), new=str(new))
    moved, relabelled = ~Q(split=F("was_split")), ~Q(label=F("was_label"))
    shared = _shared(old, new).aggregate(
        both=Count("pk"),
        moved=Count("pk", filter=moved),
        relabelled=Count("pk", filter=relabelled),
        same=Count("pk", filter=~moved & ~relabelled),
    )
    counts = {
        ADDED: new.items.count() - shared["both"],
        REMOVED: old.items.count() - shared["both"],
        MOVED: shared["moved"],
        RELABELLED: shared["relabelled"],
    }
    return Difference(old, new, counts, shared["same"])


def pictures(old: Snapshot, new: Snapshot, kind: str) -> QuerySet[Any]:
    """The items of one kind, as they are in `new` (removed ones as they were in `old`)."""
    if kind == MOVED:
        return _shared(old, new).exclude(split=F("was_split"))
    if kind == RELABELLED:
        return _shared(old, new).exclude(label=F("was_label"))
    here, there = (new, old) if kind == ADDED else (old, new)
    elsewhere = SnapshotItem.objects.filter(snapshot=there, capture=OuterRef("capture"))
    return SnapshotItem.objects.filter(~Exists(elsewhere), snapshot=here)


def _shared(old: Snapshot, new: Snapshot) -> QuerySet[Any]:
    """Items of `new` that are in `old` too, with `was_split` and `was_label`."""
    both = SnapshotItem.objects.filter(snapshot=new, capture__snapshot_items__snapshot=old)
    return both.annotate(was_split=F("capture__snapshot_items__split"), was_label=F("capture__snapshot_items__label"))


def previous(snapshot: Snapshot) -> Snapshot | None:
    """The snapshot of the line that was frozen before this one."""
    return snapshot.line.snapshots.filter(number__lt=snapshot.number).order_by("-number").first()
