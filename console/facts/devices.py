"""What the device pages say: what each runs and should run, when it was heard, what waits on it, and its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import Count, Q, Sum
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from console.facts import audit, changes
from console.facts.paging import by_code
from console.templatetags.loopline import size
from registry import devices, policies, reports
from registry.lifecycle import why_not
from registry.models import Deployment, Device, Release

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from console.facts.paging import Page
    from console.models import User
    from registry.models import Line

COUNTS = (
    ("inspected", pgettext_lazy("column", "inspected")),
    ("ok", "OK"),
    ("ng", "NG"),
    ("review", "RV"),
    ("flagged", _("flagged")),
)
HISTORY = 12
HARDWARE = {
    "machine": _("Machine"),
    "system": _("System"),
    "cores": _("Cores"),
    "memory_bytes": _("Memory"),
    "python": "Python",
}


def listing(lines: Iterable[Line], after: str, *, now: datetime) -> Page:
    """Devices by code, each with its newest deployment and what is derived: silent, behind."""
    page = by_code(Device.objects.filter(line__in=lines).select_related("line", "station"), after)
    newest = Deployment.objects.filter(device__in=page.rows).select_related("rollout__release")
    latest = {row.device_id: row for row in newest.order_by("device_id", "-created_at").distinct("device_id")}
    published = dict(
        Release.objects.filter(line__in=lines, state=Release.State.PUBLISHED).values_list("line", "number")
    )
    changes.mark_devices(page.rows)
    for device in page.rows:
        derive(device, latest.get(device.pk), published.get(device.line_id), now=now)
    return page


def derive(device: Any, latest: Deployment | None, published: int | None, *, now: datetime) -> None:
    """Set what no column holds: `silent`, the deployment under way, and the release it should run instead."""
    device.silent = devices.is_silent(device, now)
    device.latest = latest
    device.under_way = latest if latest and latest.state in Deployment.UNDER_WAY else None
    wanted = device.under_way.rollout.release.number if device.under_way else published
    device.should_run = wanted if wanted is not None and wanted != device.running_number else None


def summary(lines: Iterable[Line], *, now: datetime) -> dict[str, int]:
    """How many there are, how many were heard lately, and how many pictures wait on them."""
    rows = Device.objects.filter(line__in=lines).exclude(state=Device.State.RETIRED)
    return rows.aggregate(
        all=Count("pk"),
        heard=Count("pk", filter=Q(seen_at__gte=now - devices.SILENT_AFTER)),
        waiting=Coalesce(Sum("outbox_waiting"), 0),
        releases=Count("running_digest", filter=~Q(running_digest=""), distinct=True),
    )


def detail(device: Device, *, by: User, now: datetime) -> dict[str, Any]:
    """Everything that the page of one device says."""
    history: list[Any] = list(
        device.deployments.select_related("rollout__release__version")
        .prefetch_related("steps")
        .order_by("-created_at")[:HISTORY]
    )
    published = Release.objects.filter(line=device.line, state=Release.State.PUBLISHED).first()
    changes.mark_devices([device])
    derive(device, history[0] if history else None, published.number if published else None, now=now)
    for row in history:
        row.reason = reports.sentence(row.code, row.params)
        for step in row.steps.all():
            step.word = Deployment.State(step.state).label
    running = (
        Release.objects.filter(manifest_digest=device.running_digest, line=device.line)
        .select_related("version")
        .first()
    )
    return {
        "history": history,
        "running": running if device.running_digest else None,
        "counts": [(words, device.counts.get(name)) for name, words in COUNTS],
        "hardware": [(HARDWARE.get(name, name), _said(name, value)) for name, value in device.hardware.items()],
        "events": audit.of_row(device),
        "why_administer": why_not(policies.check_can_administer_devices, device.line, by=by),
        "why_flag": why_not(policies.check_can_ask_for_pictures, device, by=by),
        "can_move": {to: to in Device.MOVES[device.state] for to in Device.State.values},
    }


def _said(name: str, value: Any) -> Any:
    return size(value) if name.endswith("_bytes") and isinstance(value, int | float) else value
