"""How far two people agree beyond chance: Cohen's kappa of one class against all others, with its interval. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from registry.intervals import Z

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST = 20  # pairs; below that the interval covers nearly everything


@dataclass(frozen=True)
class Kappa:
    value: float
    low: float
    high: float


def cohen(pairs: Sequence[tuple[int, int]], of: int) -> Kappa | None:
    """Kappa of "is class `of`" over pairs of answers to the same pictures.

    None with too few pairs, and where chance alone would agree always: both said the same of every picture.
    Source: Cohen, Educ. Psychol. Meas. 20 (1960) 37; the interval is from its large-sample standard error.
    """
    n = len(pairs)
    if n < FEWEST:
        return None
    observed = sum((a == of) == (b == of) for a, b in pairs) / n
    first, second = sum(a == of for a, _b in pairs) / n, sum(b == of for _a, b in pairs) / n
    chance = first * second + (1 - first) * (1 - second)
    if chance == 1:
        return None
    value = (observed - chance) / (1 - chance)
    half = Z * math.sqrt(observed * (1 - observed) / n) / (1 - chance)
    return Kappa(value, max(-1.0, value - half), min(1.0, value + half))
