"""What the champion said of a picture when somebody asked, as the picture's page shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from console import sentences
from console.facts.classes import name_then
from training import explanations
from training.models import Verdict

if TYPE_CHECKING:
    from registry.models import Version
    from training.models import Capture


@dataclass(frozen=True)
class Asked:
    """`pending`: a worker computes it. Without an answer, `problem` says why."""

    version: Version
    pending: bool
    problem: str = ""
    verdict: str = ""
    score: float | None = None
    name: str = ""
    share: float | None = None
    map: dict[str, Any] | None = None


def asked(capture: Capture) -> Asked | None:
    """The newest answer about this picture; None when nobody asked."""
    row = explanations.newest(capture)
    if row is None:
        return None
    if row.done_at is None or not row.answer:
        return Asked(row.version, pending=row.done_at is None, problem=sentences.render(row.failure))
    cuts, answer = row.version.manifest["thresholds"], row.answer
    verdict = Verdict.REVIEW
    if answer["score"] < cuts["ok_below"]:
        verdict = Verdict.OK
    elif answer["score"] >= cuts["ng_from"]:
        verdict = Verdict.NG
    entry, share = max(
        zip(row.version.manifest["classes"], answer["probabilities"], strict=True), key=lambda pair: pair[1]
    )
    return Asked(
        row.version, pending=False, verdict=verdict, score=answer["score"], name=name_then(entry), share=share,
        map=answer["map"],
    )  # fmt: skip
