"""What the snapshot pages say: counts per class and side, lots in their lanes, what speaks against freezing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db.models import Count
from django.http import Http404
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from console.facts import changes, jobs
from console.facts import classes as names
from console.facts.paging import newest_first
from registry.lifecycle import Refused, why_not
from registry.models import DefectClass
from training import differences, golden, outline, policies, snapshots
from training.models import Capture, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.facts.paging import Page
    from console.forms import SnapshotForm
    from console.models import User
    from registry.models import Line

SIDES = ("train", "val", "test")
LANES = {"train": 2, "val": 30, "test": 58}
WIDTH, LEFT = 620.0, 86.0  # of the lot drawing, in SVG units
LOTS_BY_HAND = 200


def listing(lines: Iterable[Line], after: str = "") -> Page:
    page = newest_first(Snapshot.objects.filter(line__in=lines).select_related("line", "frozen_by"), after)
    changes.mark_snapshots(page.rows)
    for snapshot in page.rows:
        snapshot.total = sum(sum(snapshot.counts[side].values()) for side in SIDES)
        snapshot.ng = sum(n for side in SIDES for label, n in snapshot.counts[side].items() if label != "0")
    return page


def asked_for(lines: Iterable[Line], pk: str) -> Snapshot | None:
    """The snapshot asked for, if it is of these lines (else 404); none when none was asked for."""
    if not pk:
        return None
    try:
        return Snapshot.objects.select_related("line").get(pk=pk, line__in=lines)
    except (Snapshot.DoesNotExist, ValidationError) as error:
        raise Http404(f"no snapshot {pk}") from error


def products(line: Line) -> list[str]:
    """The products of the line's decided pictures."""
    decided = Capture.objects.filter(line=line, state=Capture.State.DECIDED, reserved=False)
    return list(decided.order_by("product").values_list("product", flat=True).distinct())


def draft(line: Line, form: SnapshotForm, *, by: User) -> dict[str, Any]:
    """What freezing what the form says would give now, and the sentence that keeps the button off."""
    context: dict[str, Any] = {"line": line, "counted_at": timezone.now(), "golden_sets": golden_sets(line)}
    if not form.is_valid():
        return context | {"why": _("Correct the marked fields first.")}
    if outline.too_large(line) and not form.exact:
        return context | _outline(line, form, by)
    try:
        plan = snapshots.plan(line, form.rule())
    except Refused as refused:
        return context | {"why": str(refused), "refusals": [refused.as_json()]}
    counts = plan.counts()
    lots = _lots_of((picture.lot, side) for picture, side in plan.sides)
    return context | {
        "refusals": plan.refusals,
        "warnings": plan.warnings,
        "reserved": plan.reserved,
        "twins": plan.twins,
        "classes": classes(plan.classes, counts),
        "totals": totals(counts),
        "by_product": by_product((picture.product, side, 1) for picture, side in plan.sides),
        "lots": lot_drawing(lots),
        "by_hand": by_hand(lots, form.assigned),
        "why": why_not(policies.check_can_freeze, line, by=by)
        or (str(Refused(plan.refusals[0]["text"], **plan.refusals[0]["params"])) if plan.refusals else ""),
    }


def _outline(line: Line, form: SnapshotForm, by: User) -> dict[str, Any]:
    """Of a line that is too large to be dealt at each change: what there is, without its sides."""
    found = outline.outline(line, form.rule()["products"])
    names = dict(DefectClass.objects.filter(line=line).values_list("number", _name_column()))
    return {
        "outline": found,
        "counted_at": found.at,
        "outline_classes": [(names.get(label, "OK"), n) for label, n in sorted(found.classes.items())],
        "outline_products": sorted(found.products.items()),
        "live_most": outline.LIVE_MOST,
        "why": why_not(policies.check_can_freeze, line, by=by),
    }


def _name_column() -> str:
    return "name_ko" if (get_language() or "").startswith("ko") else "name_en"


def detail(snapshot: Snapshot) -> dict[str, Any]:
    """Everything that the page of a frozen snapshot says."""
    changes.mark_snapshots([snapshot])
    rows = snapshot.items.values_list("capture__lot", "split").annotate(n=Count("id")).order_by("capture__lot")
    lots: dict[str, dict[str, int]] = {}
    for lot, side, n in rows:
        lots.setdefault(lot, {})[side] = n
    return {
        "classes": classes(names.then_and_now(snapshot.line, snapshot.classes), snapshot.counts),
        "totals": totals(snapshot.counts),
        "by_product": by_product(snapshot.items.values_list("capture__product", "split").annotate(n=Count("id"))),
        "lots": lot_drawing(lots),
        "jobs": jobs.of_snapshot(snapshot),
        "previous": differences.previous(snapshot),
        "by_lot": [{"lot": lot, "sides": [sides.get(side, 0) for side in SIDES]} for lot, sides in lots.items()],
    }


def golden_sets(line: Line) -> list[Any]:
    found: list[Any] = list(golden.current(line).select_related("owner").annotate(pictures=Count("items")))
    for each in found:
        each.name = each.name_ko if (get_language() or "").startswith("ko") else each.name_en
    return found


def classes(table: list[dict[str, Any]], counts: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per class: pictures per side, all of them, and the bar of the three sides."""
    return [_class_row(entry, [counts[side].get(str(entry["number"]), 0) for side in SIDES]) for entry in table]


def _class_row(entry: dict[str, Any], sides: list[int]) -> dict[str, Any]:
    """`sides` becomes [(pictures, whether they are missing there)]: nothing to learn from, or to measure on."""
    total = sum(sides)
    bars, left = [], 0.0
    for index, n in enumerate(sides, start=1):
        if n:
            right = left + 200.0 * n / total
            bars.append((f"s{index}", f"M{left:.1f} 0H{right:.1f}V10H{left:.1f}z"))
            left = right
    missing = [total > 0 and index < 2 and not n for index, n in enumerate(sides)]
    return {
        "name": names.name_then(entry),
        "now": entry.get("now", ""),
        "ok": entry["number"] == 0,
        "critical": entry.get("critical"),
        "sides": list(zip(sides, missing, strict=True)),
        "total": total,
        "bars": bars,
        "thin": any(missing),
    }


def by_product(rows: Iterable[tuple[str, str, int]]) -> list[dict[str, Any]]:
    """Pictures of each product per side; nothing when there is only one."""
    found: dict[str, dict[str, int]] = {}
    for product, side, n in rows:
        sides = found.setdefault(product, dict.fromkeys(SIDES, 0))
        sides[side] += n
    if len(found) < 2:
        return []
    return [
        {"name": name, "sides": [sides[side] for side in SIDES], "total": sum(sides.values())}
        for name, sides in sorted(found.items())
    ]


def totals(counts: dict[str, Any]) -> dict[str, Any]:
    sides = [sum(counts[side].values()) for side in SIDES]
    ng = sum(n for side in SIDES for label, n in counts[side].items() if label != "0")
    return {
        "sides": sides,
        "all": sum(sides),
        "ng": [ng, sum(sides)],
        "lots": [counts["lots"][side] for side in SIDES],
        "lots_all": sum(counts["lots"].values()),
    }


def _lots_of(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    lots: dict[str, dict[str, int]] = {}
    for lot, side in pairs:
        if lot:
            sides = lots.setdefault(lot, {})
            sides[side] = sides.get(side, 0) + 1
    return dict(sorted(lots.items()))


def lot_drawing(lots: dict[str, dict[str, int]]) -> list[dict[str, str]]:
    """Lots from left to right, each in the lane of its side; width: pictures in the lot; red: one lot in two lanes."""
    total = sum(sum(sides.values()) for sides in lots.values())
    if not total:
        return []
    shapes, left, gap = [], LEFT, min(1.5, WIDTH / (4 * len(lots)))
    for lot, sides in lots.items():
        width = (WIDTH - gap * len(lots)) * sum(sides.values()) / total
        for side in sides:
            css = "lk" if len(sides) > 1 else f"s{SIDES.index(side) + 1}"
            shapes.append({"css": css, "path": f"M{left:.2f} {LANES[side]}h{width:.2f}v17h-{width:.2f}z", "lot": lot})
        left += width + gap
    return shapes


def by_hand(lots: dict[str, dict[str, int]], assigned: dict[str, str]) -> list[dict[str, Any]]:
    """Lots that may be put on a side by hand, with where they are now."""
    rows = [
        {
            "lot": lot,
            "n": sum(sides.values()),
            "now": max(sides, key=lambda side: sides[side]),
            "asked": assigned.get(lot, ""),
        }
        for lot, sides in lots.items()
    ]
    rows += [{"lot": lot, "n": 0, "now": "", "asked": side} for lot, side in assigned.items() if lot not in lots]
    return rows[:LOTS_BY_HAND]
