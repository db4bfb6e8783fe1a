"""What the line pages say: how each line is run, and its defect book."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import Count, Q

from console.facts import audit, classes
from console.facts.paging import by_code
from registry import policies
from registry.lifecycle import why_not
from registry.models import Line

if TYPE_CHECKING:
    from console.facts.paging import Page
    from console.models import User

EVENTS = 12


def listing(lines: list[Line], after: str = "") -> Page:
    """Lines by code, each with the size of its defect book."""
    standing = Q(defect_classes__retired_at=None)
    rows = Line.objects.filter(pk__in=[line.pk for line in lines]).select_related("site")
    counted = rows.annotate(
        classes=Count("defect_classes", filter=standing),
        critical=Count("defect_classes", filter=standing & Q(defect_classes__critical=True)),
    )
    return by_code(counted, after)


def detail(line: Line, *, by: User, counted: bool) -> dict[str, Any]:
    """Everything that the page of one line says. `counted`: with how often each class is used."""
    return {
        "line": line,
        "rows": classes.of_line(line, counted=counted),
        "counted": counted,
        "stations": list(line.stations.all()),
        "events": audit.of_row(line, limit=EVENTS),
        "why_edit": why_not(policies.check_can_edit_defect_book, line, by=by),
        "why_settings": why_not(policies.check_can_change_settings, line, by=by),
    }
