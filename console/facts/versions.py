"""What the version pages say: escapes first, candidate against champion, what changes, where it comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.utils.translation import get_language
from django.utils.translation import gettext as _

from console.facts import changes as frozen_changes
from console.facts import classes, dossier, lineage
from console.facts.paging import newest_first
from console.facts.rates import rate
from registry import blobs, policies, versions
from registry.lifecycle import why_not
from registry.models import Device, Promotion, Release, Version
from training.models import Capture, GoldenSet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.facts.paging import Page
    from console.models import User
    from registry.models import Line

SHOWN = 8  # pictures of one kind of change on a page; the rest is counted
SPLITS = ("val", "test")


def listing(lines: Iterable[Line], after: str = "") -> Page:
    """Versions, newest first, each with its figures on the leading set and whether it is its line's champion."""
    page = newest_first(Version.objects.filter(line__in=lines).select_related("line", "base", "trained_by"), after)
    champions = set(
        Release.objects.filter(line__in=lines, state=Release.State.PUBLISHED).values_list("version", flat=True)
    )
    asked = dict(Promotion.objects.filter(line__in=lines, state=Promotion.State.REQUESTED).values_list("version", "pk"))
    frozen_changes.mark_versions(page.rows)
    for version in page.rows:
        version.is_champion = version.pk in champions
        version.asked = asked.get(version.pk)
        version.figures = _figures(version, leading(version))
    return page


def leading(version: Version) -> str:
    """The set that leads the comparison, as frozen at registration."""
    return str(version.evidence.get("leading", "val"))


def leading_figures(version: Version) -> dict[str, Any]:
    """The candidate's own figures on the leading set."""
    return _figures(version, leading(version))["candidate"] or {}


def lead(version: Version) -> dict[str, Any]:
    """The integer that a version is judged by: escapes on the leading set, champion and critical classes beside it."""
    code = leading(version)
    figures = _figures(version, code)
    per_class = (figures["candidate"] or {}).get("per_class", {})
    critical = [
        per_class[entry["code"]]
        for entry in version.manifest["classes"]
        if entry.get("critical") and entry["code"] in per_class
    ]
    return {
        "set": set_name(version, code),
        "candidate": rate((figures["candidate"] or {}).get("escapes")),
        "champion": rate((figures["champion"] or {}).get("escapes")),
        "critical": [sum(pair[0] for pair in critical), sum(pair[1] for pair in critical)] if critical else None,
    }


def set_name(version: Version, code: str) -> str:
    """A golden set's name in the reader's language; the splits of the snapshot by their words."""
    if code in SPLITS:
        return {"val": _("validation"), "test": _("test")}[code]
    found = GoldenSet.objects.filter(line=version.line, code=code).order_by("-number").first()
    if found is None:
        return code
    return found.name_ko if (get_language() or "").startswith("ko") else found.name_en


def comparison(version: Version) -> list[dict[str, Any]]:
    """One table per set, the leading one first: a row per class, then all escapes and overkill."""
    sets = version.evidence.get("sets", {})
    first = leading(version)
    order = [
        first,
        *(code for code in sets if code not in (first, *SPLITS)),
        *(code for code in SPLITS if code in sets and code != first),
    ]
    return [
        {"code": code, "name": set_name(version, code), "leads": code == first, "rows": _rows(version, code)}
        for code in order
        if code in sets
    ]


def _rows(version: Version, code: str) -> list[dict[str, Any]]:
    figures = _figures(version, code)
    champion, candidate = figures["champion"] or {}, figures["candidate"] or {}
    rows = [
        _row(
            entry["name"],
            champion.get("per_class", {}).get(entry["code"]),
            candidate["per_class"][entry["code"]],
            critical=bool(entry.get("critical")),
            now=entry["now"],
        )
        for entry in classes.then_and_now(version.line, version.manifest["classes"])
        if entry["number"] and entry["code"] in candidate.get("per_class", {})
    ]
    total = [
        _row(_("All escapes"), champion.get("escapes"), candidate.get("escapes"), total=True),
        _row(_("Overkill"), champion.get("overkills"), candidate.get("overkills"), total=True),
    ]
    return [*(rows if len(rows) > 1 else []), *total]


def _row(
    name: str, champion: Any, candidate: Any, *, critical: bool = False, total: bool = False, now: str = ""
) -> dict[str, Any]:
    before, after = rate(champion), rate(candidate)
    top = max((each.interval[1] for each in (before, after) if each), default=1.0) or 1.0
    diff = after.n - before.n if before and after else None
    return {
        "name": name, "now": now, "critical": critical, "total": total, "diff": diff, "fewer": abs(diff or 0),
        "better": diff is not None and diff < 0, "worse": diff is not None and diff > 0,
        "champion": before, "champion_strip": before.strip(top) if before else None,
        "candidate": after, "candidate_strip": after.strip(top) if after else None,
    }  # fmt: skip


def _figures(version: Version, code: str) -> dict[str, Any]:
    found = version.evidence.get("sets", {}).get(code) or {}
    return {"champion": found.get("champion"), "candidate": found.get("candidate")}


def scored(version: Version, code: str) -> list[dossier.Scored]:
    """The dossier's pictures of one set; nothing when its bytes are gone (the page says so)."""
    try:
        items = json.loads(blobs.read(version.dossier_digest))
    except blobs.Missing:
        return []
    return dossier.of_set(items, code)


def changes(version: Version, code: str = "") -> dossier.Changes:
    """Picture by picture, each model at its own operating point; pictures that can be shown carry their capture."""
    code = code or leading(version)
    champion = _figures(version, code)["champion"] or {}
    found = dossier.changes(
        scored(version, code),
        champion_cut=champion.get("thresholds", {}).get("operating"),
        candidate_cut=version.manifest["thresholds"]["operating"],
    )
    return _with_captures(version, found)


def _with_captures(version: Version, found: dossier.Changes) -> dossier.Changes:
    groups = [found.caught, found.escaped, found.overkilled, found.relieved]
    ids = [item.id for group in groups for item in group[:SHOWN] if dossier.is_id(item.id)]
    captures = {str(row.pk): row for row in Capture.objects.filter(line=version.line, pk__in=ids)}
    for group in groups:
        group[:SHOWN] = [item.shown_as(captures.get(item.id)) for item in group[:SHOWN]]
    return found


def thresholds(version: Version, code: str = "") -> dict[str, Any]:
    """Histogram of the candidate's scores on a set, with the limits and what they cost on it."""
    code = code or leading(version)
    items, limits = scored(version, code), version.manifest["thresholds"]
    candidate = _figures(version, code)["candidate"] or {}
    return {
        "set": set_name(version, code),
        "drawing": dossier.histogram(items, limits) if items else None,
        "escapes": candidate.get("escapes"),
        "overkills": candidate.get("overkills"),
        "review": [dossier.to_review(items, ok_below=limits["ok_below"], ng_from=limits["ng_from"]), len(items)],
        "limit_percent": f"{100 * version.line.escape_limit:g}",
    }


def parts(version: Version) -> dict[str, Any]:
    """What a device fetches, part by part, and its share of the full model; the base is counted apart."""
    names = {
        "adapter": _("Adapter"),
        "adapter_config": _("Adapter settings"),
        "head": _("Head"),
        "golden": _("Golden vectors"),
    }
    manifest, files = version.manifest, version.files
    rows = [{"name": names.get(part, part), **manifest["parts"][part]} for part in versions.PARTS]
    rows.append({"name": _("Manifest"), "digest": version.manifest_digest, "bytes": files[versions.MANIFEST]["bytes"]})
    delivered = sum(row["bytes"] for row in rows)
    full = files[versions.MODEL]["bytes"]
    base = manifest["base"]
    return {
        "rows": rows,
        "delivered": delivered,
        "full": full,
        "one_in": round(full / delivered) if delivered else None,
        "base_digest": base["digest"],
        "base_bytes": sum(file["bytes"] for file in base["files"].values()) + base.get("map_bytes", 0),
        "rank": manifest["adapter"]["rank"],
        "modules": len(manifest["adapter"]["modules"]),
        "classes": len(manifest["classes"]),
    }


def detail(version: Version, *, by: User, set_code: str) -> dict[str, Any]:
    """Everything that the page of one version says, for the set that the reader chose (else the leading one)."""
    code = set_code if set_code in version.evidence.get("sets", {}) else leading(version)
    standing = (
        Release.objects.filter(line=version.line, state=Release.State.PUBLISHED).select_related("version").first()
    )
    frozen_changes.mark_versions([version])
    promotions = list(version.promotions.select_related("requested_by"))
    releases = list(version.releases.all())
    return {
        "code": code,
        "standing": standing,
        "is_champion": standing is not None and standing.version_id == version.pk,
        "promotion": promotions[0] if promotions else None,
        "releases": releases,
        "lead": lead(version),
        "tables": comparison(version),
        "changes": changes(version, code),
        "scores": thresholds(version, code),
        "parts": parts(version),
        "class_names": classes.then_and_now(version.line, version.manifest["classes"]),
        "lineage": lineage.drawing(version, promotions=promotions, releases=releases),
        "runs_on": list(Device.objects.filter(running_digest=version.manifest_digest).order_by("code")),
        "checks": version.evidence.get("checks", []),
        "warnings": version.evidence.get("warnings", []),
        "share": 100 * version.evidence["trainable"] / version.evidence["total"]
        if version.evidence.get("total")
        else None,
        "owed": list(version.tracking_entries.filter(done_at=None)),
        "why_request": why_not(policies.check_can_request_promotion, version, by=by),
    }
