"""Inspection language: from scores and labels to thresholds, escapes and overkills. Pure numpy.

score = 1 - p(OK); a part is called NG when its score reaches the operating threshold. Escape: an NG part called OK.
Overkill: an OK part called NG. Rates are always [n, of].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .config import ClassEntry

# The review band, chosen on validation around the operating threshold:
#   ok_below  where only half the allowed escapes remain below: what a device passes by itself is twice as safe as
#   asked; ng_from   the lowest threshold from which 9 of 10 parts called NG are NG: what a device rejects by itself is
# worth it; then the band is narrowed from both ends until at most 30 % of validation is inside, so that people are
# asked about the doubtful third and never about everything.
BAND_ESCAPE_SHARE = 0.5
BAND_PRECISION = 0.9
BAND_MAX_SHARE = 0.30


@dataclass(frozen=True)
class Thresholds:
    """score < ok_below: OK. score >= ng_from: NG. Between: REVIEW. `operating` is the single cut of all rates."""

    operating: float
    ok_below: float
    ng_from: float

    def as_json(self) -> dict[str, float]:
        return {"operating": self.operating, "ok_below": self.ok_below, "ng_from": self.ng_from}

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Thresholds:
        return cls(float(raw["operating"]), float(raw["ok_below"]), float(raw["ng_from"]))


def scores_of(logits: np.ndarray) -> np.ndarray:
    """1 - p(OK), float64 [N], from logits [N, K] with OK in column 0."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    exponent = np.exp(shifted)
    scores: np.ndarray = 1.0 - exponent[:, 0] / exponent.sum(axis=1)
    return scores


def highest_cut(
    scores: np.ndarray, labels: np.ndarray, escape_limit: float, critical: frozenset[int] = frozenset()
) -> float:
    """The highest threshold that keeps escapes within the limit: zero of critical classes, else floor(limit * NG).

    It is laid half-way down to the next lower score, so that it does not hang on the last digit of one picture.
    Raises ValueError without an NG part.
    """
    is_ng = labels != 0
    ng = np.sort(scores[is_ng])
    if ng.size == 0:
        raise ValueError("no NG part to choose a threshold on")
    bound = ng[int(np.floor(escape_limit * ng.size + 1e-9))]
    is_critical = np.isin(labels, sorted(critical))
    if is_critical.any():
        bound = min(bound, scores[is_critical].min())
    below = scores[scores < bound]
    return float((bound + (below.max() if below.size else 0.0)) / 2)


def choose_thresholds(
    scores: np.ndarray, labels: np.ndarray, escape_limit: float, critical: frozenset[int] = frozenset()
) -> Thresholds:
    """Operating threshold and review band on validation scores [N] with labels [N] (defect-book numbers, 0 = OK)."""
    operating = highest_cut(scores, labels, escape_limit, critical)
    low = min(operating, highest_cut(scores, labels, escape_limit * BAND_ESCAPE_SHARE, critical))
    candidates = np.sort(scores[scores >= operating])
    high = 1.0
    for cut in candidates:
        called = scores >= cut
        if (labels[called] != 0).mean() >= BAND_PRECISION:
            high = float(cut)
            break
    high = max(high, operating)
    inside = np.sort(scores[(scores >= low) & (scores < high)])
    allowed = int(BAND_MAX_SHARE * scores.size)
    if inside.size > allowed:
        below, above = inside[inside < operating], inside[inside >= operating]
        keep_below = min(below.size, max(allowed - above.size, round(allowed * below.size / inside.size)))
        keep_above = allowed - keep_below
        low = float(below[below.size - keep_below]) if keep_below else operating
        high = float(above[keep_above]) if keep_above < above.size else high
    return Thresholds(operating=operating, ok_below=min(low, operating), ng_from=max(high, operating))


def matched_cut(scores: np.ndarray, labels: np.ndarray, escapes: int) -> Thresholds | None:
    """The highest cut at which at most `escapes` NG parts of these escape; without a band. None without NG parts."""
    ng = np.sort(scores[labels != 0])
    if not ng.size:
        return None
    cut = float(ng[escapes]) if escapes < ng.size else 1.0
    return Thresholds(cut, cut, cut)


def auroc(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """Probability that an NG part scores above an OK part (ties count half). None when one kind is missing."""
    ng, ok = scores[labels != 0], np.sort(scores[labels == 0])
    if not ng.size or not ok.size:
        return None
    below = np.searchsorted(ok, ng, side="left") + np.searchsorted(ok, ng, side="right")
    return float(below.sum() / (2 * ng.size * ok.size))


def rates(
    scores: np.ndarray, labels: np.ndarray, thresholds: Thresholds, classes: Sequence[ClassEntry]
) -> dict[str, Any]:
    """Escapes, overkills, AUROC, per class escapes, and the share that the device would ask people about."""
    called_ng = scores >= thresholds.operating
    is_ng = labels != 0
    band = (scores >= thresholds.ok_below) & (scores < thresholds.ng_from)
    per_class = {}
    for entry in classes:
        if entry.index and (labels == entry.number).any():
            of_class = labels == entry.number
            per_class[entry.code] = [int((of_class & ~called_ng).sum()), int(of_class.sum())]
    area = auroc(scores, labels)
    return {
        "escapes": [int((is_ng & ~called_ng).sum()), int(is_ng.sum())],
        "overkills": [int((~is_ng & called_ng).sum()), int((~is_ng).sum())],
        "review": [int(band.sum()), int(labels.size)],
        "auroc": None if area is None else round(area, 6),
        "per_class": per_class,
        "thresholds": thresholds.as_json(),
    }


def wilson(n: int, of: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson 95 % interval of n/of; (0, 1) without any trial."""
    if of == 0:
        return 0.0, 1.0
    share, zz = n / of, z * z
    centre = (share + zz / (2 * of)) / (1 + zz / of)
    half = z * np.sqrt(share * (1 - share) / of + zz / (4 * of * of)) / (1 + zz / of)
    return float(max(0.0, centre - half)), float(min(1.0, centre + half))
