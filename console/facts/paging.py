"""Long lists are paged by key: the next page starts after the last row shown, whatever arrived meanwhile."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.models import QuerySet

SIZE = 50


@dataclass(frozen=True)
class Page:
    """One page of rows. `after` is the cursor that it was asked with, `next` that of the next page ("" on the last)."""

    rows: list[Any]
    after: str
    next: str

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def newest_first(query: QuerySet[Any], after: str = "", *, size: int = SIZE) -> Page:
    """The page of `query` below the key `after` (keys rise with time: UUIDv7 or serial); a bad cursor is no cursor."""
    key = _key(query, after)
    ordered = query.order_by("-pk") if key is None else query.filter(pk__lt=key).order_by("-pk")
    return _page(ordered, after if key is not None else "", "pk", size)


def by_code(query: QuerySet[Any], after: str = "", *, size: int = 100) -> Page:
    """The page of `query` above the code `after`, in the order of codes."""
    return _page((query.filter(code__gt=after) if after else query).order_by("code"), after, "code", size)


def _page(ordered: QuerySet[Any], after: str, key: str, size: int) -> Page:
    found = list(ordered[: size + 1])
    return Page(rows=found[:size], after=after, next=str(getattr(found[size - 1], key)) if len(found) > size else "")


def _key(query: QuerySet[Any], after: str) -> uuid.UUID | int | None:
    if not after:
        return None
    try:
        return int(after) if query.model._meta.pk.get_internal_type() == "BigAutoField" else uuid.UUID(after)
    except ValueError:
        return None
