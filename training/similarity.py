"""Pictures nearest to a picked one, on its own line and under its filters: by the vector index, never by a walk.

The features say what looks alike to a network that never saw a defect book: an order to look in, not a judgement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connection, transaction
from django.db.models import Q, Value
from pgvector.django import CosineDistance

from registry import counters
from training import counts
from training.models import IN_QUEUE, Capture, Embedding

if TYPE_CHECKING:
    from uuid import UUID

    from registry.models import Line

MOST = 600  # an order by similarity ends here: what comes later is not similar
EXACT_BELOW = 20_000  # open pictures: so few are compared one by one, and none is missed


def picked(capture: UUID, line: Line) -> Embedding | None:
    """What a picture of the line is compared by; None while it has no features, or cannot have any."""
    return Embedding.objects.filter(capture=capture, line=line, vector__isnull=False).first()


def nearest(
    capture: UUID, line: Line, *, where: Q, waiting: bool = False, count: int = MOST
) -> list[tuple[UUID, float]]:
    """[(capture id, similarity)] of the line's pictures that fit `where`, most similar first, the picked one too.

    `waiting`: only those in the queue.
    """
    origin = picked(capture, line)
    if origin is None:
        return []
    fitting = where & IN_QUEUE if waiting else where
    rows = Capture.objects.filter(fitting, line=line, embedding__basis=origin.basis, embedding__vector__isnull=False)
    distance = CosineDistance("embedding__vector", origin.vector)
    if waiting and counters.value(line, counts.NEW) <= EXACT_BELOW:
        distance = distance + Value(0.0)  # an expression that the index does not know
    else:
        rows = rows.filter(embedding__line=line)  # said of the features, too: else none of their indexes fits
    with transaction.atomic():
        search_on()
        found = list(rows.annotate(distance=distance).order_by("distance").values_list("pk", "distance")[:count])
    return [(pk, 1 - apart) for pk, apart in sorted(found, key=lambda pair: (pair[1], pair[0]))]


def search_on() -> None:
    """Inside a transaction: the index goes on until a filtered search is full, in an order that is nearly right."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = 100")
