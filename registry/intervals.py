"""How sure a counted rate is: the interval that stands beside every rate."""

from __future__ import annotations

import math

Z = 1.959964  # 95 %


def wilson(n: float, of: float) -> tuple[float, float]:
    """Wilson's 95 % interval of n / of, as two shares from 0 to 1; (0, 1) when nothing was counted.

    Not whole where a weighted count stands for so many equal ones.

    Source: Wilson, JASA 22 (1927) 209.
    """
    if of <= 0:
        return 0.0, 1.0
    share, square = n / of, Z * Z
    middle = share + square / (2 * of)
    half = Z * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    scale = 1 + square / of
    # Exact at the ends, where floating point would leave a trace of the other side.
    return (0.0 if n == 0 else max(0.0, (middle - half) / scale)), (
        1.0 if n == of else min(1.0, (middle + half) / scale)
    )
