"""SIGKILL during a job, of worker, recipe, web, Valkey: each time the job finishes once, and nothing is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.running import Running, wait_for

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]

WITHIN_S = 400  # a quiet machine needs a tenth of it
FEW_EPOCHS = {"train": {"epochs": 3, "views": ["identity"]}}


@pytest.fixture(scope="module")
def console(django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A console with services of its own, with a base model and a few dozen decided pictures of real cells."""
    from tests.conftest import CHECKOUT, ROOT

    running = Running(checkout=CHECKOUT, state=ROOT / "chaos", env={})
    with running, django_db_blocker.unblock(), running.database():
        from django.conf import settings

        blobs = settings.BLOB_ROOT
        settings.BLOB_ROOT = running.state / "blobs"
        try:
            from console.sample import plant, turns
            from console.sample.cells import Size

            turns.import_base(lambda _: None)
            size = Size(golden=1, held_out={"mono": 1, "poly": 1}, limit={"mono": 6, "poly": 0})
            plant.make(lambda _: None, size)
            yield running
        finally:
            settings.BLOB_ROOT = blobs


def submitted(running: Running) -> Any:
    from console.sample import plant, turns
    from training import jobs

    line, engineer = plant.line(), plant.person("haneul")
    snapshot = line.snapshots.first() or turns.freeze(line, products=["mono"], by=engineer)
    return jobs.submit(snapshot, mode="fresh", config_overrides=FEW_EPOCHS, by=engineer)


def in_training(job: Any) -> bool:
    """The recipe runs, and has begun with the steps or with what comes before them."""
    job.refresh_from_db()
    assert job.state in ("QUEUED", "RUNNING"), (job.state, job.failure)
    return job.state == "RUNNING" and job.progress.get("phase") in ("prefix", "train") and bool(recipes(job))


def recipes(job: Any) -> list[psutil.Process]:
    """Living processes of this job's recipe, by its directory on the command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        mine = "training.recipe" in words and any(str(job.pk) in word for word in words)
        if mine and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def assert_finished_once(job: Any, tracking_uri: str) -> None:
    from registry.models import TrackingEntry, Version

    def ended() -> bool:
        job.refresh_from_db()
        return job.state in job.ENDED

    wait_for(ended, within_s=WITHIN_S, every_s=0.5)
    assert job.state == "SUCCEEDED", (job.state, job.failure, [a.outcome for a in job.attempts.all()])
    assert Version.objects.filter(job_id=job.pk).count() == 1
    assert [attempt.outcome for attempt in job.attempts.all()].count("succeeded") == 1
    wait_for(
        lambda: not TrackingEntry.objects.filter(version__job_id=job.pk, done_at=None).exists(),
        within_s=WITHIN_S,
        every_s=0.5,
    )
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)
    registered = client.search_model_versions(f"tags.`loopline.job` = '{job.pk}'")
    assert len(registered) == 1, registered
    wait_for(lambda: not recipes(job), within_s=30)


def tracking_uri(running: Running) -> str:
    from console import embedded

    return embedded.addresses(running.state).mlflow


@pytest.mark.parametrize("victim", ["train", "recipe", "web", "valkey"])
def test_a_job_finishes_once_although_this_is_killed(console: Running, victim: str) -> None:
    job = submitted(console)
    wait_for(lambda: in_training(job), within_s=WITHIN_S, every_s=0.05)
    if victim == "recipe":
        os.kill(recipes(job)[0].pid, signal.SIGKILL)
    else:
        old = console.kill_child(victim)
        console.wait_for_restart(victim, old, within_s=120)
    assert_finished_once(job, tracking_uri(console))
    job.refresh_from_db()
    assert job.deaths == (1 if victim in ("train", "recipe") else 0)


def test_a_cancelled_job_leaves_no_process(console: Running) -> None:
    from console.sample import plant
    from training import jobs

    job = submitted(console)
    wait_for(lambda: in_training(job), within_s=WITHIN_S, every_s=0.05)
    jobs.cancel(job, by=plant.person("haneul"))

    def cancelled() -> bool:
        job.refresh_from_db()
        return job.state == "CANCELLED"

    wait_for(cancelled, within_s=30)
    assert recipes(job) == []
    folder = Path(console.state) / "jobs" / str(job.pk)
    assert not folder.exists() or not list(folder.rglob("*.safetensors"))
