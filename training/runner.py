"""Does a job: holds its lease, supervises the recipe's processes, relays what they say, and commits the result once.

The supervisor never imports torch. It writes nothing without its fence, leaves no process behind whatever happens, and
its own death is seen by the recipe (end of stdin) and by `jobs.recover` (lease).
"""

from __future__ import annotations

import logging
import os
import selectors
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction

from registry import blobs, versions
from registry.lifecycle import Refused
from training import failures, jobdir, leases, processes
from training.leases import CancelAsked, Held, LeaseLost
from training.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from registry.versions import Files
    from training.processes import Group

log = logging.getLogger(__name__)

POLL_S = 1.0
GRACE_S = 20.0  # for a checkpoint after SIGTERM
TICK_S = 0.2
NO_SPACE = (28, 122)  # ENOSPC, EDQUOT


class WorkerStopping(Exception):
    """The worker is asked to shut down."""


class RecipeFailed(Exception):
    """The recipe said why it cannot go on."""

    def __init__(self, failure: dict[str, object]) -> None:
        super().__init__(str(failure))
        self.failure = failure


class RecipeDied(Exception):
    """The recipe ended without a word: killed from outside, or crashed in native code."""


def never() -> bool:
    return False


def run(job_id: UUID | str, *, worker: str, should_stop: Callable[[], bool] = never, grace_s: float = GRACE_S) -> None:
    """Claim the job and see it through; returns at once when it is not queued (any more).

    `should_stop` is asked a few times a second: True ends the recipe with a checkpoint and puts the job back.
    """
    held = leases.claim(job_id, worker=worker)
    if held is None:
        log.info("job %s is not queued; nothing to do", job_id)
        return
    supervisor = _Supervisor(held, should_stop, grace_s)
    try:
        supervisor.work()
    finally:
        supervisor.leave_nothing()


class _Supervisor:
    def __init__(self, held: Held, should_stop: Callable[[], bool], grace_s: float) -> None:
        self.held = held
        self.job = held.job
        self.relay = Relay(held)
        self._should_stop = should_stop
        self._grace_s = grace_s
        self._process: subprocess.Popen[bytes] | None = None
        self._group: Group | None = None
        now = time.monotonic()
        self._poll_at, self._renewed_at = now, now

    def work(self) -> None:
        """One attempt, whatever its end."""
        try:
            self._attempt()
        except CancelAsked:
            self._cancel()
        except WorkerStopping:
            self._stop()
        except LeaseLost:
            log.warning("job %s: the lease of fence %d is lost; nothing more is written", self.job.pk, self.held.fence)
        except RecipeDied as died:
            self._died(str(died))
        except RecipeFailed as failed:
            self._fail(failed.failure)
        except Refused as refused:
            self._fail(refused.as_json())
        except (blobs.Missing, blobs.Damaged) as error:
            self._fail(failures.sentence("blob_missing", {"digest": str(error)[:12]}))
        except OSError as error:
            log.exception("job %s", self.job.pk)
            code = "disk_full" if error.errno in NO_SPACE else "supervisor"
            self._fail(failures.sentence(code, {"kind": type(error).__name__}))

    def _attempt(self) -> None:
        for group in leases.groups_of(self.job):
            if not processes.end(group):
                raise RecipeDied("a process of an earlier attempt does not end")
        folder = jobdir.prepare(self.held)
        self._look(renew=True)
        self._recipe("train", folder)
        self._recipe("verify", folder)
        if self.relay.verified is None or not (folder / jobdir.OUT / versions.RESULT).is_file():
            raise RecipeFailed(failures.sentence("no_result"))
        self.relay.phase("register")
        self.relay.flush(force=True)
        files = versions.store_files(folder / jobdir.OUT)
        self._look(renew=True)
        self._commit(folder, files)
        jobdir.clear(self.job)

    # ---------------------------------------------------------------------------------------- the recipe's processes

    def _recipe(self, command: str, folder: Path) -> None:
        """Run one command of the recipe to its end. Raises RecipeFailed, RecipeDied, and what `_look` does."""
        argv = [*settings.RECIPE_COMMAND, command, str(folder)]
        env = processes.environment(str(self.held.attempt.pk), jobdir.threads())
        self.relay.start_process()
        self._process, self._group = processes.start(
            argv, cwd=settings.BASE_DIR, log=jobdir.log_file(self.job), env=env
        )
        leases.record_group(self.held, self._group)
        self._watch(self._process)
        status = self._process.wait()
        if not self.leave_nothing():  # helpers that outlived their leader
            raise RecipeDied("a process of the training does not end")
        self._guarded(lambda: self.relay.flush(force=True))
        if self.relay.failed is not None:
            raise RecipeFailed(failures.sentence(self.relay.failed["code"], self.relay.failed["params"]))
        if status != 0:
            raise RecipeDied(f"signal {-status}" if status < 0 else f"exit status {status}")
        if not self.relay.done:
            raise RecipeFailed(failures.sentence("no_result"))

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Relay its events until it ends, and look at the job meanwhile."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                ended = process.poll() is not None
                talking = self._read(selector, 0 if ended else TICK_S)
                if ended and not talking:
                    return
                self._guarded(self.relay.flush)
                self._guarded(self._look)
                if self._should_stop():
                    raise WorkerStopping
                if not selector.get_map():
                    time.sleep(TICK_S)  # it closed its stdout and lives on

    def _read(self, selector: selectors.BaseSelector, wait_s: float) -> bool:
        """Feed what has come to the relay; True when something came."""
        if not selector.get_map():
            return False
        for key, _ in selector.select(wait_s):
            data = os.read(key.fd, 1 << 16)
            if data:
                self.relay.feed(data)
                return True
            selector.unregister(key.fileobj)
        return False

    def _look(self, *, renew: bool = False) -> None:
        """Once a second: cancelled? still ours? Every 15 s: renew the lease."""
        now = time.monotonic()
        if now < self._poll_at and not renew:
            return
        renew = renew or now - self._renewed_at >= leases.RENEW_S
        leases.check(self.held, renew=renew)
        self._poll_at = now + POLL_S
        if renew:
            self._renewed_at = now

    def _guarded(self, call: Callable[[], None]) -> None:
        """A database that is away for a moment does not end a training; one that is away for a lease does."""
        try:
            call()
        except (OperationalError, InterfaceError) as error:
            log.warning("job %s: the database does not answer (%s)", self.job.pk, error)
            connection.close()
            self._poll_at = time.monotonic() + POLL_S
            if time.monotonic() - self._renewed_at > leases.LEASE_S:
                raise LeaseLost from error

    def _ask_to_end(self) -> None:
        """SIGTERM, then time for a checkpoint; what it still says is read, so that it cannot hang on a full pipe."""
        process, group = self._process, self._group
        if process is None or group is None or process.stdout is None:
            return
        processes.terminate(group)
        deadline = time.monotonic() + self._grace_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while process.poll() is None and time.monotonic() < deadline:
                if not self._read(selector, TICK_S) and not selector.get_map():
                    time.sleep(TICK_S)

    def leave_nothing(self) -> bool:
        """End whatever lives of this attempt; True when nothing does."""
        process, group = self._process, self._group
        if process is None or group is None:
            return True
        gone = processes.end(group, process=process)
        if gone:
            processes.close(process)
            self._process = self._group = None
        else:
            log.error("job %s: processes %s do not end", self.job.pk, sorted(processes.living(group)))
        return gone

    # -------------------------------------------------------------------------------------------- ends

    def _commit(self, folder: Path, files: Files) -> None:
        """Version and job in one transaction that checks the fence: at most one version, whoever else tries."""
        job = self.job
        with transaction.atomic():
            leases.write(self.held)  # holds the row until the end: no cancel and no other claim between here and there
            leases.check(self.held, renew=False)
            version = versions.register(
                line=job.line, job_id=job.pk, job_number=job.number, snapshot_id=job.snapshot_id,
                snapshot_number=job.snapshot.number, snapshot_digest=job.snapshot.digest, base=jobdir.base_of(job),
                parent=job.parent, champion=job.champion, out_dir=folder / jobdir.OUT, submitted_by=job.submitted_by,
                worker=self.held.worker, config=job.config, files=files, verified=self.relay.verified,
            )  # fmt: skip
            leases.succeed(self.held, version=version)

    def _cancel(self) -> None:
        """A cancelled job is CANCELLED only once nothing of it lives."""
        self._ask_to_end()
        if self.leave_nothing():
            self._ended(leases.cancelled, self.held)
            jobdir.clear(self.job)

    def _stop(self) -> None:
        self._ask_to_end()
        if self.leave_nothing():
            self._ended(leases.give_back, self.held)

    def _fail(self, failure: dict[str, object]) -> None:
        self.leave_nothing()
        self._ended(leases.fail, self.held, failure)
        jobdir.clear(self.job)

    def _died(self, detail: str) -> None:
        if not self.leave_nothing():
            return  # the lease runs out, and the tick counts the death
        try:
            leases.count_death(self.job, self.held.fence, by=self.held.worker, code="died", detail=detail)
        except Refused:
            self._ended(leases.cancelled, self.held)

    def _ended(self, how: Callable[..., None], *args: object) -> None:
        """Write an end; a cancel that came at the last moment wins, a lost lease writes nothing."""
        try:
            how(*args)
        except CancelAsked:
            leases.cancelled(self.held)
        except LeaseLost:
            log.warning("job %s: the lease was lost at the very end; nothing is written", self.job.pk)
