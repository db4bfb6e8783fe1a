"""Pictures that show the same in other bytes: encoded again, cut by a few pixels, a little brighter.

The vector index proposes, the grey copies decide: vectors of two good parts can be as close as those of one picture
saved twice, and a strong JPEG moves a vector further than another part does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from django.db.models import Q
from pgvector.django import CosineDistance

from training import similarity
from training.models import Embedding, NearDuplicate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from django.db.models import QuerySet

    from registry.models import Line
    from training.models import Capture

CANDIDATES = 10  # per picture: more of the same are tied through each other
NEAR = 0.85
SAME = 0.97


def record(line: Line, rows: Sequence[Embedding]) -> None:
    """Find and keep the near duplicates of these pictures on their line; inside a transaction."""
    keys = [row.capture_id for row in rows]
    NearDuplicate.objects.filter(Q(a__in=keys) | Q(b__in=keys)).delete()  # of an earlier base
    found: dict[tuple[UUID, UUID], float] = {}
    similarity.search_on()
    for row in rows:
        for other, share in _of(line, row):
            a, b = sorted((row.capture_id, other))
            found[a, b] = share
    NearDuplicate.objects.bulk_create(
        NearDuplicate(line=line, a_id=a, b_id=b, similarity=share) for (a, b), share in found.items()
    )


def _of(line: Line, row: Embedding) -> Iterable[tuple[UUID, float]]:
    near = Embedding.objects.filter(line=line, basis=row.basis, vector__isnull=False).exclude(capture=row.capture_id)
    near = near.exclude(capture__digest=row.capture.digest)  # the same bytes are tied already
    ranked = near.annotate(distance=CosineDistance("vector", row.vector)).order_by("distance")
    for other, grey, distance in ranked.values_list("capture_id", "grey", "distance")[:CANDIDATES]:
        if 1 - distance < NEAR:
            return
        share = agreement(bytes(row.grey or b""), bytes(grey))
        if share >= SAME:
            yield other, share


def agreement(one: bytes, other: bytes) -> float:
    """How much of one grey copy the other explains, 0 to 1: the lesser of both ways."""
    first, second = _square(one), _square(other)
    return min(_explained(first, second), _explained(second, first))


def _square(grey: bytes) -> np.ndarray:
    side = int(len(grey) ** 0.5)
    return np.frombuffer(grey, np.uint8).astype(np.float64).reshape(side, side)


def _explained(seen: np.ndarray, by: np.ndarray) -> float:
    """Share of the variance that one linear fit explains: other brightness and contrast, moved, and stretched a bit.

    A cut of some pixels moves a small copy by less than one of its own: its slopes say what that changes.
    """
    side = len(by)
    down, right = np.gradient(by)
    y, x = np.mgrid[0:side, 0:side] / (side - 1) - 0.5
    inside = (slice(1, -1), slice(1, -1))  # at the rim the slopes are one-sided
    known = np.stack([part[inside].ravel() for part in (np.ones_like(by), by, right, down, right * x, down * y)], 1)
    target = seen[inside].ravel()
    left = target - known @ np.linalg.lstsq(known, target, rcond=None)[0]
    spread = float(target.var())
    return max(0.0, 1 - float(left.var()) / spread) if spread > 1 else float(left.var() < 1)


def ties(line: Line) -> list[tuple[UUID, UUID]]:
    """All pairs of the line."""
    return list(NearDuplicate.objects.filter(line=line).values_list("a_id", "b_id"))


def of(capture: Capture) -> QuerySet[NearDuplicate]:
    """The pairs that this picture is in."""
    return NearDuplicate.objects.filter(Q(a=capture) | Q(b=capture)).select_related("a", "b").order_by("-similarity")
