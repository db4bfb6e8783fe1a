"""Rates drawn in a table: counts, Wilson's 95 % interval, and the strip that shows both on a common axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from registry.intervals import wilson

WIDTH = 200.0  # of the strip, in SVG units


@dataclass(frozen=True)
class Rate:
    """`n` of `of` parts; shares are 0..1. With of = 0 nothing is known and the interval is everything."""

    n: int
    of: int

    @property
    def share(self) -> float:
        return self.n / self.of if self.of else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.n, self.of)

    @property
    def low(self) -> str:
        return f"{100 * self.interval[0]:.1f}"

    @property
    def high(self) -> str:
        return f"{100 * self.interval[1]:.1f}"

    def strip(self, top: float) -> dict[str, str]:
        """Paths of interval and value on an axis from 0 to `top` (a share)."""
        low, high = (min(edge / top, 1.0) * WIDTH for edge in self.interval)
        value = max(min(self.share / top, 1.0) * WIDTH, 1.0)
        return {"bar": f"M{low:.1f} 8.5H{high:.1f}", "value": f"M{value:.1f} 2V15"}


def rate(pair: Any) -> Rate | None:
    """A rate from stored `[n, of]`; None where nothing was measured."""
    return Rate(int(pair[0]), int(pair[1])) if pair and pair[1] else None
