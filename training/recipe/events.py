"""How the recipe talks to the process that started it: JSON lines out, and dying with it.

Stdout carries events and nothing else, so a library's stray print must not reach it. A recipe whose supervisor is gone
must not go on holding cores and GPU memory: the supervisor's death is seen at once, by two independent ways.
"""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, NoReturn, TextIO

FAIL_CODES = (
    "out_of_memory",
    "non_finite_loss",
    "no_ng_in_validation",
    "class_missing",
    "picture_unreadable",
    "disk_full",
    "adapter_does_not_fit_base",
    "crashed",
)
STEP_EVENTS_PER_S = 4.0
EXIT_OK, EXIT_FAILED, EXIT_STOPPED = 0, 1, 143
_PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """The work cannot go on, for a reason a plant engineer can act on. `code` is one of `FAIL_CODES`."""

    def __init__(self, code: str, /, **params: Any) -> None:
        if code not in FAIL_CODES:
            raise ValueError(f"unknown fail code {code!r}")
        super().__init__(f"{code} {params}")
        self.code = code
        self.params = params


class Stopped(Exception):
    """SIGTERM arrived; what was worth keeping is in the checkpoint."""


class Events:
    """Writes events to `stream`, one JSON object per line. Step events are thinned to a few per second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last_step = -math.inf

    def emit(self, event: str, **fields: Any) -> None:
        self._stream.write(json.dumps({"event": event, **fields}, ensure_ascii=False, allow_nan=False) + "\n")
        self._stream.flush()

    def phase(self, phase: str, done: int, of: int) -> None:
        self.emit("phase", phase=phase, done=done, of=of)

    def step(self, *, last: bool = False, **fields: Any) -> None:
        """The last step of an epoch is always told; others at most `STEP_EVENTS_PER_S` times a second."""
        now = time.monotonic()
        if last or now - self._last_step >= 1 / STEP_EVENTS_PER_S:
            self._last_step = now
            self.emit("step", **fields)


def own_stdout() -> Events:
    """Keeps the real stdout for events and turns file descriptor 1, for Python and C alike, to stderr."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return Events(stream)


def die_with_supervisor() -> None:
    """Ends this process and its group when the supervisor dies.

    The kernel's death signal covers a supervisor killed outright; end-of-file on stdin covers one that lives in another
    PID namespace or whose starting thread ended. Neither needs the main thread, which may be inside a long C call.
    """
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died between our start and the call above
        _end_group()

    def wait_for_end() -> None:
        while True:
            try:
                if not os.read(0, 4096):
                    _end_group()
            except OSError:
                _end_group()

    threading.Thread(target=wait_for_end, name="supervisor-watch", daemon=True).start()


def _end_group() -> NoReturn:
    # Only a group of our own is killed: started by hand in a pipeline, the group is the shell's.
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(EXIT_FAILED)


class StopRequest:
    """SIGTERM turns this on; loops ask `check()` between batches."""

    def __init__(self) -> None:
        self.asked = False

    def install(self) -> StopRequest:
        signal.signal(signal.SIGTERM, self._on_signal)
        return self

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True

    def check(self) -> None:
        if self.asked:
            raise Stopped


def failure_of(error: BaseException) -> Failed:
    """The `Failed` that tells a person what this exception means; "crashed" when nothing more is known."""
    if isinstance(error, Failed):
        return error
    text = str(error).lower()
    if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate" in text:
        return Failed("out_of_memory", detail=str(error)[:300])
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failed("disk_full", path=str(error.filename or ""))
    return Failed("crashed", kind=type(error).__name__, detail=str(error)[:300])
