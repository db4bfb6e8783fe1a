"""Wake-up calls: run a job, look after jobs. The rows say what to do; a call may come twice, late, or not at all."""

from __future__ import annotations

import mmap
import os
import socket
from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down
from django.utils import timezone

from training import embedder, explanations, jobs, opinions, runner, transfer_runner, transfers

# One shared byte: the signal comes in the worker's main process, jobs run in a child that was forked after this line.
_stopping = mmap.mmap(-1, 1)


@worker_shutting_down.connect
def _on_shutdown(**_: Any) -> None:
    _stopping[0] = 1


def _should_stop(parent: int) -> bool:
    """The worker is told to end, or its main process is gone: another worker shall have the job at once."""
    return _stopping[0] == 1 or os.getppid() != parent


@shared_task(name="training.tasks.run_job")
def run_job(job_id: str) -> None:
    """Run this job if it is queued; acknowledged early, without a time limit."""
    parent = os.getppid()
    runner.run(job_id, worker=f"worker:train@{socket.gethostname()}", should_stop=lambda: _should_stop(parent))


@shared_task(name="training.tasks.run_transfer")
def run_transfer(transfer_id: str) -> None:
    """Do this import or export if it is queued and confirmed."""
    parent = os.getppid()
    transfer_runner.run(
        transfer_id, worker=f"worker:default@{socket.gethostname()}", should_stop=lambda: _should_stop(parent)
    )


@shared_task(name="training.tasks.look_at_transfer")
def look_at_transfer(transfer_id: str) -> None:
    """Say what importing this archive would do."""
    transfer_runner.look(transfer_id)


@shared_task(name="training.tasks.explain")
def explain(explanation_id: str) -> None:
    """Say what the champion makes of a picture, if somebody still waits for it."""
    explanations.compute(explanation_id)


@shared_task(name="training.tasks.clear")
def clear() -> None:
    """Nightly: what only takes room."""
    transfers.clear_archives(timezone.now())


@shared_task(name="training.tasks.embed")
def embed() -> None:
    """Compute features of some pictures if there is nothing to train."""
    parent = os.getppid()
    embedder.run(should_stop=lambda: _should_stop(parent))


@shared_task(name="training.tasks.tick")
def tick() -> None:
    """Every 15 s: wake what was forgotten, take in hand what lost its worker."""
    jobs.recover()
    transfers.recover()
    embedder.wake_if_idle()
    opinions.settle()
    explanations.recover()
