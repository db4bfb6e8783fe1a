"""What the golden set pages say: the sets of each line, one edition with its pictures, what a next one would change."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.http import Http404
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from console.facts import audit
from console.facts.paging import newest_first
from console.models import User
from registry.lifecycle import why_not
from registry.models import DefectClass, Version
from training import golden, policies
from training.models import Capture, GoldenItem, GoldenSet, Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from console.facts.filters import Filters
    from console.facts.paging import Page
    from registry.models import Line

MOST = 500  # pictures of a selection that one page offers
TILES = 120  # of one page of an edition
LAST_VERSIONS = 200  # of a line, looked through for comparisons


# ------------------------------------------------------------------------------------------------ lists


def listing(lines: Iterable[Line], now: datetime) -> list[GoldenSet]:
    """The newest edition of every set: line by line, the leading one first, retired ones last."""
    newest = GoldenSet.objects.filter(line__in=lines).order_by("line_id", "code", "-number")
    rows = list(newest.distinct("line_id", "code").select_related("line", "owner"))
    _count(rows)
    for row in rows:
        dress(row, now)
    return sorted(rows, key=lambda row: (row.line.code, row.retired_at is not None, not row.leads, row.code))


def dress(row: Any, now: datetime) -> None:
    """Set `name`, `expired` and `expires_soon`."""
    row.name = name_of(row)
    row.expired = row.retired_at is None and row.expires_at <= now
    row.expires_soon = row.retired_at is None and not row.expired and row.expires_at < now + golden.EXPIRES_SOON


def name_of(golden_set: GoldenSet) -> str:
    return golden_set.name_ko if (get_language() or "").startswith("ko") else golden_set.name_en


def _count(rows: Sequence[Any]) -> None:
    """Set `classes`, [(number, name, pictures)], and `pictures` on each, in one query for all of them."""
    found: dict[Any, Counter[int]] = {row.pk: Counter() for row in rows}
    for pk, label in GoldenItem.objects.filter(golden_set__in=rows).values_list("golden_set", "label"):
        found[pk][label] += 1
    names = _names({row.line_id for row in rows})
    for row in rows:
        row.pictures = found[row.pk].total()
        row.classes = _named(found[row.pk], row.line_id, names)


def _names(lines: Iterable[Any]) -> dict[tuple[Any, int], str]:
    return {(entry.line_id, entry.number): entry.name for entry in DefectClass.objects.filter(line__in=lines)}


def _named(counts: Counter[int], line: Any, names: dict[tuple[Any, int], str]) -> list[tuple[int, str, int]]:
    return [
        (label, names.get((line, label), "OK" if not label else str(label)), n) for label, n in sorted(counts.items())
    ]


# ------------------------------------------------------------------------------------------------ one edition


def detail(golden_set: GoldenSet, after: str, *, by: User, now: datetime) -> dict[str, Any]:
    """Everything that the page of one edition says."""
    dress(golden_set, now)
    _count([golden_set])
    editions: list[Any] = list(
        GoldenSet.objects.filter(line=golden_set.line, code=golden_set.code).select_related("owner").order_by("-number")
    )
    _count(editions)
    used = compared(golden_set.line, editions)
    for edition in editions:
        edition.versions = used.get(edition.pk, [])
    return {
        "golden_set": golden_set,
        "page": _pictures(golden_set, after),
        "editions": editions,
        "is_newest": editions[0].pk == golden_set.pk,
        "events": audit.of_row(golden_set),
        "owners": owners(golden_set.line),
        "why_change": why_not(policies.check_can_change_golden, golden_set, by=by),
        "why_manage": why_not(policies.check_can_manage_golden, golden_set.line, by=by),
    }


def _pictures(golden_set: GoldenSet, after: str) -> Page:
    names = _names([golden_set.line_id])
    page = newest_first(golden_set.items.select_related("capture"), after, size=TILES)
    for item in page.rows:
        item.label_name = names.get((golden_set.line_id, item.label), "")
    return page


def compared(line: Line, editions: Sequence[GoldenSet]) -> dict[UUID, list[Version]]:
    """Edition id -> the line's latest versions that were compared on it: it stood when their training began."""
    code = editions[0].code
    latest = list(Version.objects.filter(line=line).order_by("-number").values_list("pk", flat=True)[:LAST_VERSIONS])
    versions = Version.objects.filter(pk__in=latest, evidence__sets__has_key=code).order_by("-number")
    found = list(versions.only("number", "state", "created_at", "job_id"))
    began = dict(Job.objects.filter(pk__in=[row.job_id for row in found]).values_list("pk", "started_at"))
    used: dict[UUID, list[Version]] = {}
    for version in found:
        at = began.get(version.job_id) or version.created_at
        edition = next((row for row in editions if row.created_at <= at), None)  # newest first
        if edition:
            used.setdefault(edition.pk, []).append(version)
    return used


def owners(line: Line) -> list[User]:
    """People who have a role on the line."""
    return list(User.objects.filter(memberships__line=line, is_active=True).distinct().order_by("username"))


# ------------------------------------------------------------------------------------------------ choosing pictures


def selected(line: Line, filters: Filters, *, by: User) -> list[Capture]:
    """The decided pictures that the review's filters mean, newest first; nothing without a filter."""
    if not filters.query():
        return []
    rows = replace(filters, show="decided").captures(line, by).select_related("decision", "line")
    return list(rows.order_by("-received_at", "-id")[:MOST])


def named(ids: Iterable[str], lines: Iterable[Line]) -> list[Capture]:
    """These pictures, of lines that the person may see; one that is not there is a 404 for all."""
    try:
        wanted = {UUID(text) for text in ids}
    except ValueError as error:
        raise Http404("no such capture") from error
    rows = list(
        Capture.objects.filter(pk__in=wanted, line__in=lines).select_related("decision", "line").order_by("-pk")
    )
    if len(rows) != len(wanted):
        raise Http404("no such capture")
    return rows


def in_set(golden_set: GoldenSet) -> list[Capture]:
    rows = Capture.objects.filter(golden_items__golden_set=golden_set).select_related("decision", "line")
    return list(rows.order_by("-pk"))


def choice(
    line: Line, golden_set: GoldenSet | None, offered: list[Capture], picked: list[Capture] | None
) -> dict[str, Any]:
    """The tiles to choose from, and what an edition of the picked ones would change.

    `picked`: what the person ticked; at first everything that can be chosen. What was trained on cannot.
    """
    trained = golden.unusable(line, offered)
    critical = set(DefectClass.objects.filter(line=line, critical=True).values_list("number", flat=True))
    names = _names([line.pk])
    chosen = [row for row in (offered if picked is None else picked) if row.pk not in trained]
    ticked = {row.pk for row in chosen}
    difference = golden.difference(golden_set, chosen)
    added = {row.pk for row in difference.added}
    tiles = [
        {
            "capture": row,
            "label": names.get((line.pk, golden.label_of(row.decision, critical)), "") if row.decision else "",
            "trained": f"S-{trained[row.pk]:04d}" if row.pk in trained else "",
            "on": row.pk in ticked,
            "new": golden_set is not None and row.pk in added,
        }
        for row in offered
    ]
    counts = Counter(golden.label_of(row.decision, critical) for row in chosen if row.decision)
    return {
        "tiles": tiles,
        "difference": difference,
        "counts": _named(counts, line.pk, names),
        "chosen": len(chosen),
        "most": MOST,
        "left_out": len(trained),
    }


def union(*groups: Iterable[Capture]) -> list[Capture]:
    """All of them once, in this order."""
    return list({row.pk: row for group in groups for row in group}.values())


# ------------------------------------------------------------------------------------------------ expiry


def expiry_words(golden_set: GoldenSet, now: datetime) -> str:
    """When it expires or expired, as a person says it."""
    day = timezone.localtime(golden_set.expires_at).strftime("%Y-%m-%d")
    return (_("expired on %(day)s") if golden_set.expires_at <= now else _("expires on %(day)s")) % {"day": day}
