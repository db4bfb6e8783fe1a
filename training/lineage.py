"""Where decisions went: snapshots that froze them, versions that learned from those, devices that run these now.

A frozen picture is changed when the decision that stands now does not say what was frozen. Decided again alike, it is
unchanged again: what counts is what was said, not which row says it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from django.contrib.postgres.aggregates import ArrayAgg
from django.db import connection
from django.db.models import Count, F, Min, Q

from registry import events
from registry.models import Device, Release, Version
from training.models import Decision, Snapshot, SnapshotItem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID

    from django.db.models import QuerySet

    from registry.models import Line
    from training.models import Capture

GENERATIONS = 50  # how far back a version's parents are followed
MOST_VERSIONS = 500  # how many versions one decision is followed to
CLOCKS = timedelta(hours=1)  # how far the clocks of two web servers may lie apart
SAYS_THE_SAME = Q(
    decision__verdict=F("capture__decision__verdict"),
    decision__classes=F("capture__decision__classes"),
    decision__regions=F("capture__decision__regions"),
)
LEARNED = """
    WITH RECURSIVE learned(id) AS (
        SELECT id FROM registry_version WHERE snapshot_id = ANY(%s)
        UNION SELECT child.id FROM registry_version child JOIN learned ON child.parent_id = learned.id
    ) SELECT id FROM learned LIMIT %s
"""
TAUGHT_BY = """
    WITH RECURSIVE line_of(version, id, parent_id, snapshot_id, generation) AS (
        SELECT id, id, parent_id, snapshot_id, 0 FROM registry_version WHERE id = ANY(%s)
        UNION ALL
        SELECT child.version, parent.id, parent.parent_id, parent.snapshot_id, child.generation + 1
        FROM line_of child JOIN registry_version parent ON parent.id = child.parent_id WHERE child.generation < %s
    ) SELECT version, snapshot_id FROM line_of
"""


# ------------------------------------------------------------------------------------------------ one decision onwards


@dataclass(frozen=True)
class Reach:
    """What learned from some snapshots: their versions, those that continue them, their releases, who runs them now."""

    versions: list[Version]
    releases: list[Release]
    devices: list[Device]


def frozen(capture: Capture) -> list[SnapshotItem]:
    """Each freezing of a decision of this picture, newest first, with its snapshot and decision."""
    return list(capture.snapshot_items.select_related("snapshot", "decision").order_by("-snapshot__number"))


def says_the_same(item: SnapshotItem, decision: Decision | None) -> bool:
    """Does this decision say what was frozen? The same question as SAYS_THE_SAME, of rows that are at hand."""
    was = item.decision
    return decision is not None and (was.verdict, was.classes, was.regions) == (
        decision.verdict,
        decision.classes,
        decision.regions,
    )


def reach(line: Line, snapshots: Iterable[UUID]) -> Reach:
    """The versions of this line that learned from these snapshots, directly or by continuing one that did."""
    with connection.cursor() as cursor:
        cursor.execute(LEARNED, [list(snapshots), MOST_VERSIONS])
        ids = [row[0] for row in cursor.fetchall()]
    light = Version.objects.filter(line=line, pk__in=ids).select_related("parent")
    versions = list(light.only("number", "state", "manifest_digest", "snapshot_id", "parent__number", "line"))
    digests = {version.manifest_digest for version in versions}
    running = Device.objects.filter(line=line, running_digest__in=digests).exclude(state=Device.State.RETIRED)
    return Reach(
        versions=versions,
        releases=list(Release.objects.filter(version__in=ids).select_related("version")),
        devices=list(running.order_by("code")),
    )


@dataclass(frozen=True)
class Blast:
    """Where the decisions of one picture went. `items`: its freezings."""

    capture: Capture
    items: list[SnapshotItem]

    @cached_property
    def changed(self) -> list[SnapshotItem]:
        """Freezings that the standing decision contradicts."""
        return [item for item in self.items if not says_the_same(item, self.capture.decision)]

    @cached_property
    def reach(self) -> Reach:
        """What any of its freezings reached."""
        return reach(self.capture.line, [item.snapshot_id for item in self.items])

    @cached_property
    def changed_reach(self) -> Reach:
        """What learned something that does not stand any more."""
        return reach(self.capture.line, [item.snapshot_id for item in self.changed])

    @cached_property
    def standing(self) -> list[SnapshotItem]:
        """Freezings that would be contradicted if the standing decision were taken back."""
        return [item for item in self.items if item not in self.changed]

    @cached_property
    def standing_reach(self) -> Reach:
        return reach(self.capture.line, [item.snapshot_id for item in self.standing])


def blast(capture: Capture) -> Blast:
    return Blast(capture, frozen(capture))


def announce(line: Line) -> None:
    """A frozen decision was taken back or made again: marks on snapshots, versions and devices may have changed."""
    events.announce(f"{line.code}.snapshots", f"{line.code}.versions", f"{line.code}.devices")


# ------------------------------------------------------------------------------------------------ marks


def changed(snapshots: Collection[UUID]) -> QuerySet[SnapshotItem]:
    """Pictures of these snapshots whose standing decision is another one or none.

    A decision only changes by being taken back first, so the few that were taken back since the first of these
    snapshots are where to look, never all of its pictures.
    """
    first = Snapshot.objects.filter(pk__in=snapshots).aggregate(at=Min("created_at"))["at"]
    if first is None:
        return SnapshotItem.objects.none()
    taken_back = Decision.objects.filter(kind=Decision.Kind.RETRACTED, created_at__gt=first - CLOCKS)
    items = SnapshotItem.objects.filter(snapshot__in=snapshots, capture__in=taken_back.values("capture"))
    return items.filter(Q(capture__decision=None) | ~SAYS_THE_SAME)


def changed_in_snapshots(snapshots: Iterable[Snapshot]) -> dict[UUID, int]:
    """Snapshot id -> how many of its pictures changed since; only those with any."""
    found = changed([snapshot.pk for snapshot in snapshots]).values_list("snapshot").annotate(n=Count("pk"))
    return dict(found.order_by())


def changed_in_versions(versions: Collection[UUID]) -> dict[UUID, int]:
    """Version id -> how many pictures that taught it, or a version that it continues, changed since."""
    taught = taught_by(versions)
    snapshots = {snapshot for found in taught.values() for snapshot in found}
    pictures = changed(snapshots).values("capture").annotate(frozen_in=ArrayAgg("snapshot_id")).order_by()
    frozen_in = [set(row["frozen_in"]) for row in pictures]
    counted = {version: sum(not found.isdisjoint(each) for each in frozen_in) for version, found in taught.items()}
    return {version: count for version, count in counted.items() if count}


def changed_in_devices(devices: Collection[Device]) -> dict[UUID, tuple[Version, int]]:
    """Device id -> the version that it runs and how many pictures that taught it changed since; only those with any."""
    digests = {device.running_digest for device in devices if device.running_digest}
    releases = Release.objects.filter(line__in={device.line_id for device in devices}, manifest_digest__in=digests)
    light = releases.select_related("version").only("line", "manifest_digest", "version__number", "version__line")
    running = {(release.line_id, release.manifest_digest): release.version for release in light}
    counted = changed_in_versions([version.pk for version in running.values()]) if running else {}
    found = ((device.pk, running.get((device.line_id, device.running_digest))) for device in devices)
    return {pk: (version, counted[version.pk]) for pk, version in found if version and version.pk in counted}


def taught_by(versions: Collection[UUID]) -> dict[UUID, set[UUID]]:
    """Version id -> the snapshots that it and the versions that it continues were trained on."""
    with connection.cursor() as cursor:
        cursor.execute(TAUGHT_BY, [list(versions), GENERATIONS])
        rows = cursor.fetchall()
    found: dict[UUID, set[UUID]] = defaultdict(set)
    for version, snapshot in rows:
        found[version].add(snapshot)
    return found
