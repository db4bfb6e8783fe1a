"""The audit log: append-only, and `record()` is its one door. The database refuses anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from registry.models import AuditEvent

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

    Actor = AbstractBaseUser | str


def label(by: Actor) -> str:
    """How an actor is written in the log: the person's login name, or a machine's label such as `worker:train@host`."""
    return by if isinstance(by, str) else by.get_username()


def record(
    by: Actor,
    action: str,
    obj: Any,
    *,
    old: dict[str, Any] | None = None,
    new: dict[str, Any] | None = None,
    reason: str = "",
    refused: bool = False,
) -> None:
    """Append one event. `by`: a person or a machine's label; `action`: `noun.verb`; `old`, `new`: plain JSON."""
    line = obj if obj._meta.model_name == "line" else getattr(obj, "line", None)
    AuditEvent.objects.create(
        by=None if isinstance(by, str) else by,  # type: ignore[misc]  # the custom user of the console
        by_label=label(by),
        action=action,
        noun=obj._meta.model_name,
        object_id=str(obj.pk),
        name=str(obj)[:120],
        line=line,
        old=old or {},
        new=new or {},
        reason=reason,
        refused=refused,
    )
