"""The pure part of a rollout: rows as they stand and the time now, in; what shall happen next, out. It touches nothing.

Rules that other fleets paid for: a stage that ended is not a stage that passed; the error share is of those that tried;
a device that took the release and fell silent counts as failed; an offline one is neither, it expires at the deadline.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_noop

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

COMMITTED = "COMMITTED"
UNTOUCHED = ("PENDING", "OFFERED")
INSTALLING = ("DOWNLOADING", "VERIFIED", "STAGED", "PROBATION")
BAD = ("REFUSED", "FAILED", "FELL_BACK")
LEFT_OUT = ("EXPIRED", "SUPERSEDED")  # neither success nor failure: they leave the denominator
SILENT_INSTALL = timedelta(minutes=5)

TOO_MANY_FAILED = gettext_noop(
    "Stage “%(stage)s”: %(failed)s of %(attempted)s devices that tried did not take the release (%(devices)s). "
    "At most %(limit)s %% may fail."
)
NOT_ENOUGH = gettext_noop(
    "Stage “%(stage)s” ended with %(committed)s of %(attempted)s devices committed. %(needed)s %% are needed."
)
NOBODY = gettext_noop("Stage “%(stage)s” ended and no device had installed the release.")


@dataclass(frozen=True)
class Part:
    """One device's part: `heard_at` is when the device last spoke."""

    id: UUID
    device: str
    state: str
    heard_at: datetime | None = None


@dataclass(frozen=True)
class Wave:
    """One stage with its parts."""

    id: UUID
    name: str
    state: str
    success_share: float
    error_share: float
    soak_s: float
    deadline_s: float
    started_at: datetime | None
    soaking_at: datetime | None
    parts: Sequence[Part] = field(default_factory=tuple)


@dataclass(frozen=True)
class Step:
    """What shall happen: `do` is start, soak, pass, fail, expire or complete; `target` the row that it happens to."""

    do: str
    target: UUID
    sentence: dict[str, Any] = field(default_factory=dict)
    exceptions: bool = False


def decide(waves: Sequence[Wave], now: datetime) -> list[Step]:
    """The next steps of a RUNNING rollout, in order; [] when there is nothing to do but wait.

    After the steps were applied it is asked again, until it says nothing. A `fail` pauses the rollout.
    """
    if late := [Step("expire", part.id) for wave in waves for part in _late(wave, now)]:
        return late
    for wave in waves:
        if wave.state in ("PASSED", "FAILED", "SKIPPED"):
            continue
        if wave.state == "WAITING":
            return [Step("start", wave.id)]
        return _judge(wave, now)
    if any(part.state in (*UNTOUCHED, *INSTALLING) for wave in waves for part in wave.parts):
        return []  # a failed stage that a person let go on: its other devices may still finish
    exceptions = any(part.state != COMMITTED for wave in waves for part in wave.parts)
    return [Step("complete", waves[-1].id, exceptions=exceptions)]


def _late(wave: Wave, now: datetime) -> Iterable[Part]:
    if wave.started_at is None or now < wave.started_at + timedelta(seconds=wave.deadline_s):
        return ()
    return [part for part in wave.parts if part.state in (*UNTOUCHED, *INSTALLING)]


def _judge(wave: Wave, now: datetime) -> list[Step]:
    committed = [part for part in wave.parts if part.state == COMMITTED]
    failed = [part for part in wave.parts if part.state in BAD or _is_silent(part, now)]
    installing = [part for part in wave.parts if part.state in INSTALLING and part not in failed]
    attempted = len(committed) + len(failed) + len(installing)
    if failed and len(failed) / attempted > wave.error_share:
        names = ", ".join(sorted(part.device for part in failed)[:5])
        return [_fail(wave, TOO_MANY_FAILED, failed=len(failed), attempted=attempted, devices=names,
                      limit=round(100 * wave.error_share))]  # fmt: skip
    if wave.state == "SOAKING":
        over = wave.soaking_at is None or now >= wave.soaking_at + timedelta(seconds=wave.soak_s)
        return [Step("pass", wave.id)] if over else []
    if installing or any(part.state in UNTOUCHED for part in wave.parts):
        return []
    if not attempted:
        return [_fail(wave, NOBODY)]
    if len(committed) / attempted < wave.success_share:
        return [_fail(wave, NOT_ENOUGH, committed=len(committed), attempted=attempted,
                      needed=round(100 * wave.success_share))]  # fmt: skip
    return [Step("soak", wave.id)]


def _is_silent(part: Part, now: datetime) -> bool:
    return part.state in INSTALLING and part.heard_at is not None and now - part.heard_at > SILENT_INSTALL


def _fail(wave: Wave, text: str, **params: Any) -> Step:
    return Step("fail", wave.id, {"text": text, "params": {"stage": wave.name, **params}})
