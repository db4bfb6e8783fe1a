"""What the page of two snapshots says: counts, then the pictures of one kind, and the class tables then and now."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from django.http import Http404
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from console.facts.classes import name_then
from console.facts.paging import Page
from registry.lifecycle import Refused
from training import differences
from training.models import Snapshot, SnapshotItem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from registry.models import Line

SIZE = 60
NOT_TWO = gettext_noop("Choose two snapshots to compare.")
SIDES = ("train", "val", "test")


def two(lines: Iterable[Line], ids: list[str]) -> tuple[Snapshot, Snapshot]:
    """The two snapshots that were chosen, older first."""
    if len(set(ids)) != 2:
        raise Refused(NOT_TWO)
    try:
        found = list(
            Snapshot.objects.filter(pk__in=[uuid.UUID(text) for text in ids], line__in=lines).order_by("number")
        )
    except ValueError as error:
        raise Http404("no such snapshot") from error
    if len(found) != 2:
        raise Http404("no such snapshot")
    return found[0], found[1]


def page(old: Snapshot, new: Snapshot, *, kind: str, after: str) -> dict[str, Any]:
    difference = differences.between(old, new)
    if kind not in differences.KINDS:
        kind = next((each for each in differences.KINDS if difference.counts[each]), differences.ADDED)
    names = {
        "added": _("Added"), "removed": _("Removed"), "moved": _("On another side"),
        "relabelled": _("Labelled otherwise"),
    }  # fmt: skip
    return {
        "old": old,
        "new": new,
        "kind": kind,
        "kinds": [(each, names[each], difference.counts[each]) for each in differences.KINDS],
        "same": difference.same,
        "page": _pictures(old, new, kind, after),
        "classes": _classes(old, new),
        "sides": [(SnapshotItem.Split(side).label, _total(old, side), _total(new, side)) for side in SIDES],
    }


def _total(snapshot: Snapshot, side: str) -> int:
    return sum(snapshot.counts[side].values())


def _pictures(old: Snapshot, new: Snapshot, kind: str, after: str) -> Page:
    """Newest picture first."""
    below = _key(after)
    rows = differences.pictures(old, new, kind).select_related("capture").order_by("-capture_id")
    if below:
        rows = rows.filter(capture_id__lt=below)
    found = list(rows[: SIZE + 1])
    was, now = (_names(snapshot) for snapshot in (old, new))
    for item in found[:SIZE]:
        item.label_name = (was if kind == differences.REMOVED else now).get(item.label, str(item.label))
        if kind in (differences.MOVED, differences.RELABELLED):
            item.was_side = SnapshotItem.Split(item.was_split).label
            item.was_name = was.get(item.was_label, str(item.was_label))
    onwards = str(found[SIZE - 1].capture_id) if len(found) > SIZE else ""
    return Page(rows=found[:SIZE], after=after if below else "", next=onwards)


def _key(after: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(after) if after else None
    except ValueError:
        return None


def _names(snapshot: Snapshot) -> dict[int, str]:
    return {entry["number"]: name_then(entry) for entry in snapshot.classes}


def _classes(old: Snapshot, new: Snapshot) -> list[dict[str, Any]]:
    """Each class of either table by its number: names and pictures then and now, and whether its entry changed."""
    before, after = ({entry["number"]: entry for entry in each.classes} for each in (old, new))
    rows = []
    for number in sorted({*before, *after}):
        was, now = before.get(number), after.get(number)
        rows.append({
            "number": number,
            "was": name_then(was) if was else "",
            "now": name_then(now) if now else "",
            "was_n": sum(old.counts[side].get(str(number), 0) for side in SIDES),
            "now_n": sum(new.counts[side].get(str(number), 0) for side in SIDES),
            "was_critical": bool(was and was.get("critical")),
            "critical": bool(now and now.get("critical")),
            "changed": _entry(was) != _entry(now),
        })  # fmt: skip
    return rows


def _entry(entry: dict[str, Any] | None) -> tuple[Any, ...]:
    return tuple((entry or {}).get(name) for name in ("code", "name_ko", "name_en", "critical"))
