"""The idle worker: computes features with the recipe while there is no training to do, and stops when there is.

Every part is written down as it comes: whoever kills this or its process loses a few pictures' work, nothing else.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import shutil
import signal
import subprocess
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection
from safetensors import safe_open

from registry import bases, blobs, wakeups
from training import embeddings, jobdir, processes
from training.embeddings import SEED, Found
from training.models import Embedding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from registry.models import Line
    from training.embeddings import Basis
    from training.models import Capture

log = logging.getLogger(__name__)

TASK = "training.tasks.embed"
LOCK = 0x4C4F4F50, 0x46454154  # one embedder per site
TICK_S = 0.2
LOOK_S = 0.5  # how often it asks whether a training waits
GRACE_S = 1.0  # after SIGTERM: there is nothing to save
PAUSE_S = 300.0  # after a failure that the next try would most likely meet again
CRASHES = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}

_paused_until = 0.0


class Interrupted(Exception):
    """A training waits, or the worker is asked to end."""


class RecipeEnded(Exception):
    """The recipe ended before its work was done."""


def never() -> bool:
    return False


def wake_if_idle() -> None:
    """Call for a worker when there is nothing to train and pictures lack features. The tick asks."""
    if settings.EMBED_AT_ONCE and embeddings.idle() and any(embeddings.lines_lacking()):
        with _alone() as free:
            if free:
                wakeups.wake(TASK)


def run(*, should_stop: Callable[[], bool] = never) -> None:
    """One round: some pictures of each line. Returns at once when a training waits or another embedder works."""
    global _paused_until
    if not settings.EMBED_AT_ONCE or time.monotonic() < _paused_until or not embeddings.idle():
        return
    with _alone() as free:
        if not free:
            return
        try:
            for line, basis in embeddings.lines_lacking():
                _round(line, basis, should_stop)
        except Interrupted:
            return
        except (RecipeEnded, blobs.Missing, blobs.Damaged, OSError) as error:
            log.warning("features: %s; trying again in %d s", error or type(error).__name__, PAUSE_S)
            _paused_until = time.monotonic() + PAUSE_S
            return
    if any(embeddings.lines_lacking()):
        wakeups.wake(TASK)


@contextmanager
def _alone() -> Iterator[bool]:
    """Hold the site's lock while inside; False when another worker has it. It goes with the connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", LOCK)
        free = cursor.fetchone()[0]
    try:
        yield free
    finally:
        if free:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", LOCK)


def _round(line: Line, basis: Basis, should_stop: Callable[[], bool]) -> None:
    captures = embeddings.lacking(line, basis, settings.EMBED_AT_ONCE)
    captures = embeddings.reuse(line, basis, captures)
    if captures:
        _Run(line, basis, captures, should_stop).work()


class _Run:
    """One process of the recipe over some pictures of a line; pictures with the same bytes are computed once."""

    def __init__(self, line: Line, basis: Basis, captures: list[Capture], should_stop: Callable[[], bool]) -> None:
        self._line, self._basis, self._should_stop = line, basis, should_stop
        self._captures: dict[str, list[Capture]] = {}
        for capture in captures:
            self._captures.setdefault(capture.digest, []).append(capture)
        self._folder = Path(settings.JOBS_ROOT) / "embed"
        self._rest = b""
        self._at = 0  # the picture that the recipe is at
        self._failed = ""
        self._look_at = 0.0

    def work(self) -> None:
        self._prepare()
        argv = [*settings.RECIPE_COMMAND, "embed", str(self._folder)]
        env = processes.environment(f"embed-{uuid.uuid4()}", jobdir.threads())
        process, group = processes.start(argv, cwd=settings.BASE_DIR, log=self._folder / "log.txt", env=env)
        try:
            self._follow(process)
            status = process.wait(GRACE_S)
        except (Interrupted, subprocess.TimeoutExpired):
            processes.terminate(group)
            _wait(process, GRACE_S)
            raise Interrupted from None
        finally:
            processes.end(group, process=process)
            processes.close(process)
        if status in CRASHES:
            self._keep({list(self._captures)[self._at]: Found(problem="crashed")})
        if status != 0:
            raise RecipeEnded(self._failed or f"the recipe ended with status {status}; see {self._folder / 'log.txt'}")

    def _prepare(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        bases.unpack(self._basis.base, self._folder / "base")
        config = {
            "base_dir": str(self._folder / "base"), "preprocess": self._basis.preprocess, "threads": jobdir.threads(),
            "dims": Embedding.DIMS, "seed": SEED,
        }  # fmt: skip
        (self._folder / "config.json").write_text(json.dumps(config), "utf-8")
        with (self._folder / "items.jsonl").open("w", encoding="utf-8") as out:
            for digest in self._captures:
                row = {"id": digest, "digest": digest, "path": str(blobs.path(digest))}
                out.write(json.dumps(row) + "\n")

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        """Take in what it says until it has said all. Raises Interrupted when a training waits."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if selector.select(TICK_S):
                    data = os.read(process.stdout.fileno(), 1 << 16)
                    if not data:
                        return
                    self._feed(data)
                if time.monotonic() >= self._look_at:
                    self._look_at = time.monotonic() + LOOK_S
                    if self._should_stop() or not embeddings.idle():
                        raise Interrupted

    def _feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                said: dict[str, Any] = json.loads(line)
            except ValueError:
                log.warning("features: not an event: %r", line[:200])
                continue
            if said["event"] == "part":
                self._keep(_read_part(self._folder / said["file"]))
            elif said["event"] == "phase" and said["phase"] == "embed":
                self._at = said["done"]
            elif said["event"] == "fail":
                self._failed = f"{said['code']} {said['params']}"

    def _keep(self, found: dict[str, Found]) -> None:
        rows = [(capture, each) for digest, each in found.items() for capture in self._captures[digest]]
        for capture, each in rows:
            if each.problem:
                log.warning("capture %s has no features: %s", capture.pk, each.problem)
        embeddings.keep(self._line, self._basis, rows)


def _read_part(path: Path) -> dict[str, Found]:
    with safe_open(path, "numpy") as part:
        about = part.metadata()
        vectors, greys = part.get_tensor("vectors"), part.get_tensor("greys")
    ids, refused = json.loads(about["ids"]), json.loads(about["refused"])
    path.unlink()
    found = {
        digest: Found(vector.tolist(), grey.tobytes()) for digest, vector, grey in zip(ids, vectors, greys, strict=True)
    }
    return found | {digest: Found(problem=reason) for digest, reason in refused}


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        log.info("the recipe does not end by itself: it is killed")
