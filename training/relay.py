"""The recipe's events on their way to the page: points of the curve and the job's progress, 4 times a second."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import Max

from training import leases
from training.models import JobPoint

if TYPE_CHECKING:
    from training.leases import Held

log = logging.getLogger(__name__)

EVERY_S = 0.25
MAX_LINE = 1 << 20
PHASES = ("load", "prefix", "train", "evaluate", "export", "verify", "register")


class Relay:
    """Takes the recipe's stdout in pieces; `flush` writes what came, under the job's fence."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._rest = b""
        self._points: list[JobPoint] = []
        self._progress: dict[str, Any] = dict(held.job.progress)
        self._dirty = False
        self._last = 0.0
        self._step: int | None = None
        self._seq = held.job.points.aggregate(last=Max("seq"))["last"] or 0
        self.failed: dict[str, Any] | None = None
        self.done = False
        self.verified: dict[str, Any] | None = None

    def feed(self, data: bytes) -> None:
        """Bytes as they come from the pipe, cut anywhere."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                self._take(line)
        if len(self._rest) > MAX_LINE:
            log.warning("job %s: a line of more than %d bytes on stdout was dropped", self._held.job.pk, MAX_LINE)
            self._rest = b""

    def start_process(self) -> None:
        """A new process begins: what the former one said of its end no longer counts."""
        self._rest, self.done, self.failed = b"", False, None

    def phase(self, name: str) -> None:
        """The supervisor's own phase."""
        self._merge(phase=name, done=0, of=0)

    def flush(self, *, force: bool = False) -> None:
        """Write points and progress; raises leases.LeaseLost when the job is not ours any more."""
        now = time.monotonic()
        if not self._dirty or (not force and now - self._last < EVERY_S):
            return
        points = list(self._points)
        with transaction.atomic():
            leases.write(self._held, progress=self._progress)  # holds the row: one writer of `seq` at a time
            JobPoint.objects.bulk_create(points)
        self._points = self._points[len(points) :]
        self._dirty, self._last = False, now

    def _take(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, KeyError, TypeError):
            log.warning("job %s: not an event on stdout: %r", self._held.job.pk, line[:200])
            return
        if kind == "phase":
            self._merge(phase=str(event.get("phase", "")), done=event.get("done", 0), of=event.get("of", 0))
        elif kind == "step":
            self._on_step(event)
        elif kind == "epoch":
            self._on_epoch(event)
        elif kind == "fail":
            self.failed = {"code": str(event.get("code", "crashed")), "params": event.get("params") or {}}
        elif kind == "verified":
            self.verified = {key: value for key, value in event.items() if key != "event"}
        elif kind == "done":
            self.done = True

    def _on_step(self, event: dict[str, Any]) -> None:
        self._step = event.get("step")
        figures = {key: event.get(key) for key in ("step", "epoch", "loss", "pictures_per_s")}
        self._add(**figures)
        self._merge(
            phase="train",
            done=self._step,
            of=event.get("of"),
            steps=event.get("of"),
            eta_s=event.get("eta_s"),
            **figures,
        )

    def _on_epoch(self, event: dict[str, Any]) -> None:
        figures = {key: event.get(key) for key in ("epoch", "val_loss", "escapes", "overkills")}
        self._add(step=self._step, **figures)
        self._merge(phase="train", epochs=event.get("of"), **figures)

    def _add(self, **figures: Any) -> None:
        self._seq += 1
        self._points.append(JobPoint(job=self._held.job, fence=self._held.fence, seq=self._seq, **figures))
        self._dirty = True

    def _merge(self, **changes: Any) -> None:
        self._progress = self._progress | changes
        self._dirty = True
