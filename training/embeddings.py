"""What pictures are compared by: which pictures have it, which lack it, and how it is kept. Computing is embedder's."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import transaction

from registry import versions
from registry.models import BaseModel, Line
from training import jobs, near_duplicates
from training.models import IN_QUEUE, Capture, Embedding, Job
from training.recipe.config import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from django.db.models import QuerySet

FORMAT = 1  # raise it when the recipe makes other features of the same picture and base
SEED = 0
COUNTED = 1000  # how far pages count what waits


@dataclass(frozen=True)
class Basis:
    """Everything that the features of a line's pictures depend on; rows of one digest can be compared."""

    base: BaseModel
    preprocess: dict[str, Any]
    digest: str


@dataclass(frozen=True)
class Found:
    """What came of one picture: a vector and a grey copy, or the problem that there is."""

    vector: Any = None  # 256 numbers
    grey: bytes | None = None
    problem: str = ""


def basis(line: Line) -> Basis | None:
    """The base of the line's champion, else the newest one; None while there is none."""
    champion = versions.champion(line)
    base = champion.base if champion else jobs.newest_base()
    if base is None:
        return None
    preprocess = jobs.preprocess(line, base)
    named = [FORMAT, base.digest, preprocess, Embedding.DIMS, SEED]
    return Basis(base, preprocess, hashlib.sha256(canonical(named)).hexdigest())


def idle() -> bool:
    """Is there no training to do? One must never wait for features."""
    return not Job.objects.filter(state__in=(Job.State.QUEUED, Job.State.RUNNING, Job.State.CANCELLING)).exists()


def lines_lacking() -> Iterator[tuple[Line, Basis]]:
    """The lines with a base model on which a picture has no features of it yet."""
    for line in Line.objects.order_by("code"):
        found = basis(line)
        if found and any(rows.exists() for rows in (_without(line), *_outdated(line, found.digest))):
            yield line, found


def lacking(line: Line, wanted: Basis, at_most: int) -> list[Capture]:
    """Pictures to compute next: open ones as they wait, then the newest others, then those of an earlier base."""
    fresh = _without(line)
    found: list[Capture] = []
    for rows in (
        fresh.filter(IN_QUEUE).order_by("received_at", "id"),
        fresh.exclude(IN_QUEUE).order_by("-received_at", "-id"),
        *_outdated(line, wanted.digest),
    ):
        found += rows.only("id", "digest")[: at_most - len(found)]
    return found


def waiting(line: Line) -> int:
    """How many pictures of the line have no features yet; counted up to COUNTED."""
    return _without(line)[:COUNTED].count()


def reuse(line: Line, wanted: Basis, captures: Iterable[Capture]) -> list[Capture]:
    """Give pictures whose bytes are known already what is known of them; returns the others."""
    captures = list(captures)
    rows = Embedding.objects.filter(basis=wanted.digest, capture__digest__in={row.digest for row in captures})
    known = {row.capture.digest: row for row in rows.select_related("capture")}
    same = [(row, known[row.digest]) for row in captures if row.digest in known]
    keep(line, wanted, [(row, Found(of.vector, bytes(of.grey) if of.grey else None, of.problem)) for row, of in same])
    return [row for row in captures if row.digest not in known]


def keep(line: Line, of: Basis, found: Iterable[tuple[Capture, Found]]) -> None:
    """Write down what came of these pictures, and with it which of them show the same as others of the line."""
    rows = [
        Embedding(capture=capture, line=line, basis=of.digest, vector=each.vector, grey=each.grey, problem=each.problem)
        for capture, each in found
    ]
    with transaction.atomic():
        Embedding.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["capture"],
            update_fields=["line", "basis", "vector", "grey", "problem"],
        )  # fmt: skip
        Capture.objects.filter(pk__in=[row.pk for row in rows]).update(embedded=True)
        near_duplicates.record(line, [row for row in rows if row.vector is not None])


def _without(line: Line) -> QuerySet[Capture]:
    return Capture.objects.filter(line=line, embedded=False)


def _outdated(line: Line, digest: str) -> list[QuerySet[Capture]]:
    """Two ranges of an index, where "not equal" would be a walk."""
    rows = Capture.objects.filter(embedding__line=line)
    return [rows.filter(embedding__basis__lt=digest), rows.filter(embedding__basis__gt=digest)]
