"""The one place where a state changes, and the one way in which a rule says no.

`move()` is a single compare-and-set: two workers that move the same row at the same moment cannot both succeed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from django.db import models, transaction
from django.db.models import F
from django.utils.translation import gettext, gettext_noop

from registry import audit, events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from registry.audit import Actor


class Refused(Exception):
    """A rule said no. `text` is a translatable sentence fit for the user; `params` fill its placeholders."""

    def __init__(self, text: str, **params: Any) -> None:
        super().__init__(text, params)
        self.text = text
        self.params = params

    def __str__(self) -> str:
        return gettext(self.text) % self.params if self.params else gettext(self.text)

    def as_json(self) -> dict[str, Any]:
        """The stored form: rendered again in the language of whoever reads it."""
        return {"text": self.text, "params": self.params}


class Stateful(Protocol):
    """A model with a life: `State` choices, a `MOVES` table, a `row_version` and topics to announce."""

    pk: Any
    state: str
    row_version: int
    MOVES: dict[str, tuple[str, ...]]

    def topics(self) -> Iterable[str]: ...


CANNOT_MOVE = gettext_noop("%(noun)s %(name)s is %(state)s and cannot become %(to)s. Reload the page to see its state.")


def sources(obj: Stateful, to: str) -> list[str]:
    """The states from which `obj` may become `to`, as its MOVES table says."""
    return [state for state, targets in obj.MOVES.items() if to in targets]


def move(
    obj: Any,
    to: str,
    *,
    by: Actor,
    reason: str = "",
    only_from: Iterable[str] | None = None,
    where: dict[str, Any] | None = None,
    audited: bool = True,
    **fields: Any,
) -> None:
    """Move `obj` to state `to` and set `fields` in the same UPDATE; raises Refused when no row was in a fitting state.

    `where` adds conditions to the compare-and-set (a fence, for example). `only_from` narrows the MOVES table.
    Steps of captures and deployments pass `audited=False`: their history rows are their record.
    """
    model: type[models.Model] = type(obj)
    allowed = sources(obj, to)
    if only_from is not None:
        allowed = [state for state in allowed if state in set(only_from)]
    old = obj.state
    with transaction.atomic():
        changed = model._default_manager.filter(pk=obj.pk, state__in=allowed, **(where or {})).update(
            state=to, row_version=F("row_version") + 1, **fields
        )
        if not changed:
            reread(obj)
            raise Refused(
                CANNOT_MOVE, noun=model._meta.verbose_name, name=str(obj), state=obj.get_state_display(), to=to.lower()
            )
        reread(obj)
        if audited:
            audit.record(
                by, f"{model._meta.model_name}.{to.lower()}", obj, old={"state": old}, new={"state": to}, reason=reason
            )
        events.announce(*obj.topics())


def reread(obj: models.Model) -> None:
    """`refresh_from_db`, but the line, site or person read with it are kept: only what has no life of its own."""
    kept = {
        field.name: (getattr(obj, field.attname), getattr(obj, field.name))
        for field in obj._meta.concrete_fields
        if isinstance(field, models.ForeignKey) and field.is_cached(obj) and not hasattr(field.related_model, "MOVES")
    }
    obj.refresh_from_db()
    for name, (key, row) in kept.items():
        if getattr(obj, f"{name}_id") == key:
            setattr(obj, name, row)


def touch(obj: Any, **fields: Any) -> None:
    """Change fields that are not the state (progress, counters of a life) and announce it, under the row's own lock."""
    model: type[models.Model] = type(obj)
    with transaction.atomic():
        model._default_manager.filter(pk=obj.pk).update(row_version=F("row_version") + 1, **fields)
        reread(obj)
        events.announce(*obj.topics())


def why_not(check: Callable[..., None], *args: Any, **kwargs: Any) -> str:
    """The sentence with which a check would refuse, in the reader's language; "" when it would not."""
    try:
        check(*args, **kwargs)
    except Refused as refused:
        return str(refused)
    return ""
