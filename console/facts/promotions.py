"""What a promotion's page says: what is asked, the evidence, the gates, who has answered and who may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from console.facts import audit, versions
from console.facts.paging import newest_first
from registry import policies, promotions
from registry.lifecycle import why_not
from registry.models import Device, Promotion, Release

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.facts.dossier import Changes
    from console.facts.paging import Page
    from console.models import User
    from registry.models import Line, Version


def listing(lines: Iterable[Line], after: str = "") -> Page:
    query = Promotion.objects.filter(line__in=lines).select_related("line", "version", "requested_by", "release")
    return newest_first(query, after)


def detail(promotion: Promotion, *, by: User) -> dict[str, Any]:
    """Everything that the page of one promotion says."""
    version, line = promotion.version, promotion.line
    release = Release.objects.filter(promotion=promotion).first()
    standing = Release.objects.filter(line=line, state=Release.State.PUBLISHED).select_related("version").first()
    gates = [_named(gate, version) for gate in promotions.gates(version)]
    changes = versions.changes(version)
    return {
        "release": release,
        "release_id": str(release.pk) if release else "",
        "standing": standing,
        "gates": gates,
        "passed": sum(bool(gate["passed"]) for gate in gates),
        "failed": sum(not gate["passed"] for gate in gates),
        "lead": versions.lead(version),
        "overkill": versions.leading_figures(version).get("overkills"),
        "changes": changes,
        "shown": _pictures(changes),
        "parts": versions.parts(version),
        "targets": Device.objects.filter(line=line, state=Device.State.ACTIVE).count(),
        "approvals": list(promotion.approvals.select_related("by")),
        "events": audit.of_row(promotion),
        "why_answer": why_not(policies.check_can_answer_promotion, promotion, by=by),
        "why_withdraw": why_not(policies.check_can_withdraw_promotion, promotion, by=by),
        "why_rollout": why_not(policies.check_can_start_rollout, release, by=by) if release else "",
    }


def _named(gate: dict[str, Any], version: Version) -> dict[str, Any]:
    """The gate with its set's name as people know it."""
    params = gate["params"]
    return {**gate, "params": {**params, "set": versions.set_name(version, params["set"])}} if "set" in params else gate


def _pictures(changes: Changes) -> list[dict[str, Any]]:
    """Two pictures that speak most: what newly escapes before what is newly caught, then overkill."""
    words = (
        (changes.escaped, _("now missed")),
        (changes.caught, _("now caught")),
        (changes.overkilled, _("now overkilled")),
    )
    items = [
        {"capture": item.capture, "candidate": item.candidate, "word": word} for group, word in words for item in group
    ]
    return [item for item in items if item["capture"] is not None][:2]
