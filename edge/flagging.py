"""From a score to a verdict, and from a verdict to the question whether people shall see the picture.

Pure functions: no disk, no network, no clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from edge.protocol import Reason, Verdict


@dataclass(frozen=True)
class Flag:
    """Why a picture goes to people. `sampling_weight`: how many pictures it stands for when rates are estimated."""

    reason: Reason
    sampling_weight: float


def verdict(score: float, thresholds: Mapping[str, float]) -> Verdict:
    """Below `ok_below` OK, from `ng_from` on NG, between them REVIEW. `score` is 1 - p(OK)."""
    if score < thresholds["ok_below"]:
        return "OK"
    return "NG" if score >= thresholds["ng_from"] else "REVIEW"


def flag(judged: Verdict | None, *, device: str, index: int, audit_rate: float, asked: bool) -> Flag | None:
    """Whether picture number `index` of this device goes to people.

    No verdict (no release): always. REVIEW: always. Asked for by an operator: always. Else an OK-judged picture is
    drawn with probability `audit_rate` and then stands for 1/rate pictures.
    """
    if judged is None:
        return Flag("no_model", 1.0)
    if judged == "REVIEW":
        return Flag("band", 1.0)
    if asked:
        return Flag("operator", 1.0)
    if judged == "OK" and draw(device, index) < audit_rate:
        return Flag("audit", 1.0 / audit_rate)
    return None


def draw(device: str, index: int) -> float:
    """Uniform in [0, 1), a function of device and picture number: needs no saved generator, repeats for an auditor."""
    digest = hashlib.sha256(f"audit\n{device}\n{index}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2.0**53  # 53 bits: a float holds them all, so never 1.0
