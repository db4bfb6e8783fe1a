"""What a promotion is judged by, computed from the evidence frozen at registration. A gate that blocks must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_noop

from registry.intervals import wilson

if TYPE_CHECKING:
    from registry.models import Version

CLEAN_BASE = gettext_noop(
    "Reloaded on a clean base in a new process, it gave the same outputs (largest difference %(max_abs)s)."
)
CLEAN_BASE_UNKNOWN = gettext_noop("It was not reloaded on a clean base in a new process.")
ONNX = gettext_noop("The exported model decides like the trained one: %(flips)s of %(items)s pictures differ.")
CRITICAL = gettext_noop("No critical defect escapes on %(set)s: %(escapes)s of %(of)s.")
CRITICAL_NONE = gettext_noop("No class of this line is critical.")
CRITICAL_UNSEEN = gettext_noop("%(set)s holds no picture of the critical class %(class)s.")
ESCAPES = gettext_noop(
    "Escapes on %(set)s are not above the champion's: "
    "%(candidate)s of %(of)s, champion %(champion)s of %(champion_of)s."
)
MORE_ESCAPES = gettext_noop(
    "More defects escape on %(set)s than the champion's: "
    "%(candidate)s of %(of)s, champion %(champion)s of %(champion_of)s."
)
FIRST = gettext_noop("There is no champion to compare with.")
KEPT = gettext_noop(
    "Old knowledge is kept on %(set)s: %(candidate)s of %(of)s escape, champion %(champion)s of %(champion_of)s."
)
NOT_KEPT = gettext_noop(
    "Old knowledge is lost on %(set)s: %(candidate)s of %(of)s escape, champion %(champion)s of %(champion_of)s."
)


def gates(version: Version) -> list[dict[str, Any]]:
    """[{"code", "text", "params", "passed", "blocking"}], in the order in which a page shows them.

    Blocking: clean base, ONNX agreement, critical classes. The comparisons with the champion are shown to the approver,
    who decides: a line that turns to another product may want them to differ.
    """
    evidence = version.evidence
    leading = evidence.get("leading", "val")
    rows = [_clean_base(evidence), _onnx(evidence), *_critical(version, leading)]
    sets = evidence.get("sets", {})
    if not any(entry.get("champion") for entry in sets.values()):
        return [*rows, _gate("escapes", FIRST, {}, passed=True, blocking=False)]
    for code in [leading, *(code for code in sets if code not in (leading, "val", "test"))]:
        entry = sets.get(code) or {}
        if entry.get("champion") and entry.get("candidate"):
            rows.append(_compared(code, entry, leads=code == leading))
    return rows


def _gate(code: str, text: str, params: dict[str, Any], *, passed: bool, blocking: bool) -> dict[str, Any]:
    return {"code": code, "text": text, "params": params, "passed": passed, "blocking": blocking}


def _clean_base(evidence: dict[str, Any]) -> dict[str, Any]:
    verified = evidence.get("verified")
    if not verified:
        return _gate("clean_base", CLEAN_BASE_UNKNOWN, {}, passed=False, blocking=True)
    passed = all(check["passed"] for check in evidence["checks"] if check["code"] == "clean_base")
    return _gate("clean_base", CLEAN_BASE, {"max_abs": f"{verified['max_abs']:.2g}"}, passed=passed, blocking=True)


def _onnx(evidence: dict[str, Any]) -> dict[str, Any]:
    found = evidence.get("onnx_check") or {"items": 0, "flips": 0}
    params = {"flips": found["flips"], "items": found["items"]}
    return _gate("onnx", ONNX, params, passed=found["items"] > 0 and found["flips"] == 0, blocking=True)


def _critical(version: Version, leading: str) -> list[dict[str, Any]]:
    critical = [entry["code"] for entry in version.manifest["classes"] if entry.get("critical")]
    if not critical:
        return [_gate("critical", CRITICAL_NONE, {}, passed=True, blocking=True)]
    candidate = (version.evidence.get("sets", {}).get(leading) or {}).get("candidate") or {}
    counts = candidate.get("per_class", {})
    rows = []
    for code in critical:
        escapes, of = counts.get(code, (0, 0))
        if of == 0:
            rows.append(
                _gate("critical", CRITICAL_UNSEEN, {"set": leading, "class": code}, passed=False, blocking=True)
            )
        else:
            params = {"set": leading, "escapes": escapes, "of": of, "class": code}
            rows.append(_gate("critical", CRITICAL, params, passed=escapes == 0, blocking=True))
    return rows


def _compared(code: str, entry: dict[str, Any], *, leads: bool) -> dict[str, Any]:
    """On the leading set escapes must not rise at all; on earlier sets not beyond the champion's interval."""
    (candidate, of), (champion, champion_of) = entry["candidate"]["escapes"], entry["champion"]["escapes"]
    params = {"set": code, "candidate": candidate, "of": of, "champion": champion, "champion_of": champion_of}
    share = candidate / of if of else 0.0
    if leads:
        passed = share <= (champion / champion_of if champion_of else 0.0)
        return _gate("escapes", ESCAPES if passed else MORE_ESCAPES, params, passed=passed, blocking=False)
    passed = share <= wilson(champion, champion_of)[1]
    return _gate("kept", KEPT if passed else NOT_KEPT, params, passed=passed, blocking=False)
