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
from training.models import Capture, Embedding, NearDuplicate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from registry.models import Line

CANDIDATES = 20  # per picture: twins beyond them are tied through each other
# Measured with the base model of the sample plant on 500 magnet tiles, 192 circuit boards, 1,000 solar cells and 247
# pictures of a ball screw, and on changed copies of 100 of each. Found of the copies: saved as PNG or JPEG at quality
# 95 or 75, made smaller by a tenth, 3 % brighter or darker: 100 %; JPEG at quality 50: 93 to 100 %; cut by three
# pixels: 89 to 100 %. Paired with another part: no tile, no board, 24 cells (those looked at are one cell taken twice)
# and four pictures of the ball screw (one thread at two positions).
SURE = 0.0005  # so little left unexplained is the same picture on any line
LITTLE = 0.005
CUT, CLOSE = 0.027, 0.975  # a cut leaves more unexplained; then the vectors must be close
STANDS_OUT = 0.1  # of what the lower quarter of the other candidates leaves: parts of some lines all look alike
USUAL = 0.03  # what others leave, where there are too few to say
FEW = 4


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
    """(other capture, how much of each other they explain) of the candidates that are the same picture."""
    near = Embedding.objects.filter(line=line, basis=row.basis, vector__isnull=False).exclude(capture=row.capture_id)
    near = near.exclude(capture__digest=row.capture.digest)  # the same bytes are tied already
    ranked = near.annotate(distance=CosineDistance("vector", row.vector)).order_by("distance")
    rows = list(ranked.values_list("capture_id", "grey", "distance")[:CANDIDATES])
    own = bytes(row.grey or b"")
    unexplained = [1 - agreement(own, bytes(grey or b"")) for _other, grey, _distance in rows]
    bound = STANDS_OUT * _of_others(unexplained)
    for (other, _grey, distance), left in zip(rows, unexplained, strict=True):
        alike = left <= LITTLE or (left <= CUT and 1 - distance >= CLOSE)
        if left <= SURE or (alike and left <= bound):
            yield other, 1 - left


def _of_others(unexplained: Sequence[float]) -> float:
    """What another part of this line leaves unexplained when it looks much like this one."""
    others = [left for left in unexplained if left > SURE]
    return float(np.quantile(others, 0.25)) if len(others) >= FEW else USUAL


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


def names(line: Line) -> dict[UUID, list[str]]:
    """Capture -> the pairs that it is one of, each under a name of its own."""
    found: dict[UUID, list[str]] = {}
    for pk, a, b in NearDuplicate.objects.filter(line=line).values_list("pk", "a_id", "b_id"):
        for capture in (a, b):
            found.setdefault(capture, []).append(str(pk))
    return found


def not_compared(line: Line, captures: set[UUID]) -> int:
    """How many of these decided pictures have nothing that they could be compared by, not yet or never."""
    fresh = Capture.objects.filter(line=line, embedded=False, state=Capture.State.DECIDED).values_list("pk", flat=True)
    never = Embedding.objects.filter(line=line, vector=None).exclude(problem="").values_list("pk", flat=True)
    return len(captures.intersection([*fresh, *never]))


def of(capture: Capture, at_most: int) -> list[tuple[Capture, float]]:
    """[(other capture, similarity)] of the pairs that this picture is in, most similar first."""
    rows = NearDuplicate.objects.filter(Q(a=capture) | Q(b=capture)).select_related("a", "b").order_by("-similarity")
    return [(row.b if row.a_id == capture.pk else row.a, row.similarity) for row in rows[:at_most]]


def pairs_of(captures: Iterable[Capture]) -> Iterable[tuple[Capture, Capture]]:
    """(picture, other) of every pair that one of these pictures is in."""
    asked = {capture.pk: capture for capture in captures}
    rows = NearDuplicate.objects.filter(Q(a__in=asked) | Q(b__in=asked)).select_related("a", "b").order_by("id")
    for row in rows:
        yield from ((asked[one.pk], other) for one, other in ((row.a, row.b), (row.b, row.a)) if one.pk in asked)
