"""What the pages of imports and exports say: the list, what an export would take, what an archive would do, reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from console.facts.filters import Filters
from console.facts.paging import newest_first
from registry.lifecycle import why_not
from training import exports, formats, policies, transfers
from training.models import Snapshot, Transfer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from console.facts.paging import Page
    from console.models import User
    from registry.models import Line


def listing(lines: Iterable[Line], after: str = "") -> Page:
    """Imports and exports, newest first."""
    page = newest_first(Transfer.objects.filter(line__in=lines).select_related("line", "asked_by", "snapshot"), after)
    for row in page.rows:
        row.format_name = format_name(row.format)
        row.file = row.file_name if row.kind == Transfer.Kind.IMPORT else transfers.download_name(row)
    return page


def format_name(code: str) -> str:
    """The name of a format as its own tool writes it; of ours in the reader's language."""
    own = {transfers.MANIFEST: _("Table manifest.csv"), transfers.PICTURES: _("Pictures without labels")}
    return own.get(code) or (formats.FORMATS[code].name if code in formats.FORMATS else "")


def import_formats() -> list[tuple[str, str]]:
    return [(code, format_name(code)) for code in transfers.IMPORT_FORMATS]


def export_formats() -> list[tuple[str, str]]:
    return [(code, entry.name) for code, entry in formats.FORMATS.items()]


# ------------------------------------------------------------------------------------------------ asking for one


def filters_of(query: Mapping[str, str]) -> Filters:
    """The grid's filters, but decided pictures where the address does not say."""
    return Filters.read({"show": "decided", **{name: query[name] for name in query}})


def export_draft(line: Line, filters: Filters, snapshot: Snapshot | None, *, by: User) -> dict[str, Any]:
    """What the export would take along, counted."""
    count = exports.selected(line, {"selection": filters.query()}, snapshot, by).count()
    return {
        "line": line,
        "snapshot": snapshot,
        "filters": filters,
        "query": filters.query(),
        "count": count,
        "why": why_not(policies.check_can_export, line, by=by) or ("" if count else _(transfers.NOTHING_TO_EXPORT)),
    }


# ------------------------------------------------------------------------------------------------ one of them


def detail(transfer: Transfer, *, by: User) -> dict[str, Any]:
    """Everything that the page of one import or export says."""
    importing = transfer.kind == Transfer.Kind.IMPORT
    waiting = importing and transfer.confirmed_at is None and transfer.state == Transfer.State.QUEUED
    report = transfer.report
    return {
        "importing": importing,
        "waiting": waiting,
        "ended": transfer.state in Transfer.ENDED,
        "format_name": format_name(transfer.format),
        "formats": import_formats() if waiting else [],
        "phase": _phases().get(transfer.progress.get("phase", ""), ""),
        "more_names": max(0, transfer.look.get("pictures", 0) - len(transfer.look.get("names", ()))),
        "report": report,
        "hidden": max(0, report.get("refused_count", 0) - len(report.get("refused", ()))),
        "filters": _filter_words(transfer),
        "file": transfers.download_name(transfer) if not importing else transfer.file_name,
        "why_confirm": why_not(policies.check_can_confirm, transfer, by=by) if waiting else "",
        "why_cancel": why_not(policies.check_can_cancel_transfer, transfer, by=by),
        "why_download": why_not(policies.check_can_download, transfer, by=by),
    }


def _phases() -> dict[str, str]:
    return {"read": _("pictures read"), "record": _("pictures recorded"), "write": _("pictures written")}


def _filter_words(transfer: Transfer) -> str:
    """What an export was asked to take, in words."""
    if transfer.kind == Transfer.Kind.IMPORT:
        return ""
    if transfer.snapshot is not None:
        return str(transfer.snapshot)
    return ", ".join(Filters.parse(transfer.options["selection"]).words())
