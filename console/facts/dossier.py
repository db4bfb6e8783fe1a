"""Champion against candidate, picture by picture: who is newly caught, missed or overkilled, and how the scores lie."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import Any

BINS = 40
WIDTH, BASE, HEIGHT = 420.0, 140.0, 116.0  # of the histogram's drawing, in SVG units
LEFT = 16.0


@dataclass(frozen=True)
class Scored:
    """One picture of a set with both scores (1 - p(OK)); `champion` is None when there was none to compare with."""

    id: str
    label: int
    champion: float | None
    candidate: float
    capture: Any = None

    @property
    def bad(self) -> bool:
        return self.label != 0

    def shown_as(self, capture: Any) -> Scored:
        return replace(self, capture=capture)


@dataclass(frozen=True)
class Changes:
    """Pictures on which the two disagree, each at its own operating point; the surest disagreement first."""

    caught: list[Scored] = field(default_factory=list)
    escaped: list[Scored] = field(default_factory=list)
    overkilled: list[Scored] = field(default_factory=list)
    relieved: list[Scored] = field(default_factory=list)


def is_id(text: str) -> bool:
    """May this be a capture's id? A dossier made elsewhere names its pictures as it likes."""
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def of_set(items: list[dict[str, Any]], code: str) -> list[Scored]:
    """The dossier's pictures of one set (a golden set's code, or "val" / "test")."""
    return [
        Scored(id=str(item["id"]), label=int(item["label"]), champion=item.get("champion"), candidate=item["candidate"])
        for item in items
        if item["set"] == code
    ]


def changes(scored: list[Scored], *, champion_cut: float | None, candidate_cut: float) -> Changes:
    """What the candidate does differently: a score below a model's cut means that this model passes the part."""
    found = Changes()
    if champion_cut is None:
        return found
    for item in scored:
        if item.champion is None:
            continue
        was_ng, now_ng = item.champion >= champion_cut, item.candidate >= candidate_cut
        if was_ng == now_ng:
            continue
        if item.bad:
            (found.caught if now_ng else found.escaped).append(item)
        else:
            (found.overkilled if now_ng else found.relieved).append(item)
    for group in (found.caught, found.escaped, found.overkilled, found.relieved):
        group.sort(key=lambda item: abs(item.candidate - (item.champion or 0.0)), reverse=True)
    return found


def to_review(scored: list[Scored], *, ok_below: float, ng_from: float) -> int:
    """How many of these pictures fall into the review band."""
    return sum(ok_below <= item.candidate < ng_from for item in scored)


def x(score: float) -> float:
    """Where a score lies on the histogram's axis, in SVG units."""
    return LEFT + WIDTH * min(max(score, 0.0), 1.0)


def histogram(scored: list[Scored], thresholds: dict[str, float]) -> dict[str, Any]:
    """Stacked bars of OK and NG scores as SVG path data, the band's edges, and the lowest NG score."""
    good, bad = [0] * BINS, [0] * BINS
    for item in scored:
        (bad if item.bad else good)[min(int(item.candidate * BINS), BINS - 1)] += 1
    top = max((g + b for g, b in zip(good, bad, strict=True)), default=0) or 1
    step = WIDTH / BINS
    paths: dict[str, list[str]] = {"good": [], "bad": []}
    for index, (g, b) in enumerate(zip(good, bad, strict=True)):
        left = LEFT + index * step
        high = HEIGHT * g / top
        if g:
            paths["good"].append(_bar(left, BASE, high, step))
        if b:
            paths["bad"].append(_bar(left, BASE - high, HEIGHT * b / top, step))
    low, high_edge = x(thresholds["ok_below"]), x(thresholds["ng_from"])
    lowest = min((item.candidate for item in scored if item.bad), default=None)
    return {
        "good": "".join(paths["good"]),
        "bad": "".join(paths["bad"]),
        "n_good": sum(good),
        "n_bad": sum(bad),
        "band": f"M{low:.1f} 18H{high_edge:.1f}V{BASE:.0f}H{low:.1f}z",
        "low": _limit(thresholds["ok_below"]),
        "high": _limit(thresholds["ng_from"]),
        "cut": _limit(thresholds["operating"]),
        "lowest": None if lowest is None else _limit(lowest),
        "same_edges": abs(high_edge - low) < 16.0,  # no room for a word between them
        "crowded": abs(high_edge - low) < 50.0,  # no room for two handles
        "middle": f"{(low + high_edge) / 2:.1f}",
    }


def _bar(left: float, bottom: float, high: float, step: float) -> str:
    return f"M{left:.1f} {bottom:.1f}v-{high:.1f}h{step - 1.5:.1f}v{high:.1f}z"


def _limit(score: float) -> dict[str, Any]:
    """Figure and line of a limit: text and handle are kept inside the drawing at both ends."""
    at = x(score)
    handle = min(max(at, 24.0), LEFT + WIDTH - 8.0)
    return {
        "score": score,
        "x": f"{at:.1f}",
        "line": f"M{at:.1f} 18V146",
        "hx": f"{handle:.1f}",
        "handle": f"M{handle - 24:.1f} 146h48v19h-48z",
    }
