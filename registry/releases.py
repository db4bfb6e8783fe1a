"""Releases: the numbered things that devices of a line may install. One is published; numbers rise for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import Max

from registry import audit, events, lifecycle, versions
from registry.models import Release, TrackingEntry, Version

if TYPE_CHECKING:
    from registry.audit import Actor
    from registry.models import Line, Promotion


def published(line: Line) -> Release | None:
    """The release that devices of the line may install now."""
    return Release.objects.filter(line=line, state=Release.State.PUBLISHED).select_related("version").first()


def publish(promotion: Promotion, *, by: Actor) -> Release:
    """The release of an approved promotion. Inside the approval's transaction, which holds the line's lock."""
    line, version = promotion.line, promotion.version
    number = (Release.objects.filter(line=line).aggregate(last=Max("number"))["last"] or 0) + 1
    if former := published(line):
        lifecycle.move(former, Release.State.SUPERSEDED, by=by, reason=promotion.reason)
    release = Release.objects.create(
        line=line,
        number=number,
        version=version,
        promotion=promotion,
        manifest_digest=promotion.manifest_digest,
        manifest_bytes=version.files[versions.MANIFEST]["bytes"],
    )
    audit.record(
        by,
        "release.publish",
        release,
        old={"release": former.number if former else None},
        new={"release": number, "version": version.number, "manifest": promotion.manifest_digest},
        reason=promotion.reason,
    )
    if version.state != Version.State.RELEASED:
        lifecycle.move(version, Version.State.RELEASED, by=by)
    versions.owe(version, TrackingEntry.Kind.SET_CHAMPION)
    events.announce(*release.topics(), *line.topics(), *version.topics())
    return release
