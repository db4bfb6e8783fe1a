"""What `loop` measures and says: seconds per step, memory of the whole process tree, the table and the JSON line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil

from registry.intervals import wilson

SETS = ("golden", "era1", "era2")
SAMPLE_EVERY_S = 5.0  # walking the page tables of twenty processes costs about a second


@dataclass
class Report:
    """`seconds` by step in order of playing; `figures` are the other keys of the JSON line."""

    seconds: dict[str, float] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    say: Callable[[str], None] = print

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step; its seconds are kept when it fails, too."""
        began = time.monotonic()
        self.say(f"  {name} ...")
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - began, 1)

    def line(self) -> dict[str, Any]:
        """The JSON line: every promised key, `ok` last."""
        return {"seconds": self.seconds, **self.figures, "failures": self.failures, "ok": not self.failures}

    def table(self) -> str:
        rows = [f"  {name:<34}{seconds:>8.1f} s" for name, seconds in self.seconds.items()]
        rows.append("")
        for name in SETS:
            for who in ("champion_live", "champion", "candidate"):
                rates = (self.figures.get(name) or {}).get(who)
                if rates:
                    rows.append(f"  {name:<8}{who:<14}{_rate('escapes', rates)}   {_rate('overkills', rates)}")
        for key in ("pictures_per_s", "trainable_share", "full_bytes", "delivered_bytes", "peak_memory_mb"):
            if key in self.figures:
                rows.append(f"  {key:<34}{self.figures[key]:>10,}")
        for device in self.figures.get("devices", []):
            rows.append(f"  {device['id']:<10}{device['state']:<12}{device['digest'][:16]}")
        rows.extend(f"  NOT OK: {failure}" for failure in self.failures)
        return "\n".join(rows)


def _rate(noun: str, rates: dict[str, list[int]]) -> str:
    n, of = rates[noun]
    low, high = wilson(n, of)
    return f"{noun} {n:>3}/{of:<4} {100 * n / of if of else 0:5.1f} % (95 % {100 * low:.1f} to {100 * high:.1f})"


def judge(figures: dict[str, Any]) -> list[str]:
    """Why the candidate may not be called better, or old knowledge was lost; empty when neither holds.

    Better: on the held-out pictures of the new product, one of escapes and overkills is not above the champion's and
    the other is below, with both held to the same escapes: a champion that rejects every part of a product that it
    never saw has no escapes, and no use. Kept: escapes on the old product, each at its live cut, stay within the
    champion's 95 % interval.
    """
    failures = []
    champion, candidate = figures["era2"]["champion"], figures["era2"]["candidate"]
    escapes = candidate["escapes"][0] - champion["escapes"][0]
    overkills = candidate["overkills"][0] - champion["overkills"][0]
    if not ((escapes <= 0 and overkills < 0) or (escapes < 0 and overkills <= 0)):
        failures.append(f"not better on the new product: escapes {escapes:+d}, overkills {overkills:+d}")
    n, of = figures["era1"]["champion"]["escapes"]
    now, now_of = figures["era1"]["candidate"]["escapes"]
    if now_of and now / now_of > wilson(n, of)[1]:
        failures.append(f"old knowledge was lost: escapes on the old product rose from {n}/{of} to {now}/{now_of}")
    return failures


class MemoryWatch:
    """The highest sum of proportional set sizes of this process and everything that it started, sampled."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(SAMPLE_EVERY_S):
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    total += process.memory_full_info().pss
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue  # it ended between listing and reading
            self.peak_bytes = max(self.peak_bytes, total)
