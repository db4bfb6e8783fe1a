"""Asking for a training, and what the tick does for jobs that nobody holds."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from registry import lifecycle
from registry.lifecycle import Refused
from registry.models import BaseModel
from tests.training.plant import RULE, Plant, import_base
from training import golden, jobs, leases, policies, snapshots
from training.models import Capture, Job
from training.recipe.config import DEFAULTS

if TYPE_CHECKING:
    from training.models import Snapshot

CHECKOUT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def snapshot(plant: Plant) -> Snapshot:
    plant.lots(2, labels=(0, 1))
    return snapshots.freeze(plant.line, RULE, by=plant.haneul)


@pytest.fixture
def base(plant: Plant, folders: Path) -> BaseModel:
    made: BaseModel = import_base(folders / "base")
    return made


def test_a_job_keeps_all_that_it_will_be_trained_with(plant: Plant, snapshot: Snapshot, base: BaseModel) -> None:
    made = golden.create(
        plant.line, code="golden", name_ko="g", name_en="g", captures=[(plant.decided(1), 1)], owner=plant.haneul,
        expires_at=timezone.now() + timedelta(days=1), leads=True, by=plant.haneul,
    )  # fmt: skip
    job = jobs.submit(
        snapshot, mode="fresh", config_overrides={"train": {"epochs": 3}, "replay": 0.5, "seed": None}, by=plant.haneul
    )
    assert (job.state, job.number, job.config["train"]["epochs"], job.config["train"]["batch"]) == ("QUEUED", 1, 3, 32)
    assert (job.config["replay"], job.config["leading_set"], job.config["escape_limit"]) == (0.5, made.code, 0.1)
    assert job.config["base"]["digest"] == base.digest
    assert job.config["preprocess"]["size"] == base.bundle["input"]["size"]
    assert job.woken_at is not None
    assert DEFAULTS["train"]["epochs"] != 3, "the defaults were changed"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"train": {"epochs": 0}}, "epochs must lie from 1"),
        ({"train": {"lr": 5}}, "lr must lie"),
        ({"train": {"views": ["spin"]}}, "cannot be used"),
        ({"lora": {"rank": "many"}}, "cannot be used"),
        ({"lora": 8}, "cannot be used"),
        ({"optimizer": "sgd"}, "optimizer is not one"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    plant: Plant, snapshot: Snapshot, base: BaseModel, overrides: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Refused, match=sentence):
        jobs.submit(snapshot, mode="fresh", config_overrides=overrides, by=plant.haneul)
    assert not Job.objects.exists()


def test_there_is_nothing_to_continue_without_a_champion(plant: Plant, snapshot: Snapshot, base: BaseModel) -> None:
    with pytest.raises(Refused, match="no champion"):
        jobs.submit(snapshot, mode="continue", by=plant.haneul)
    with pytest.raises(Refused, match="neither"):
        jobs.submit(snapshot, mode="stack", by=plant.haneul)


def test_without_a_base_model_nothing_can_be_trained(plant: Plant, snapshot: Snapshot) -> None:
    with pytest.raises(Refused, match="no base model"):
        jobs.submit(snapshot, mode="fresh", by=plant.haneul)


def test_a_viewer_submits_and_cancels_nothing(plant: Plant, snapshot: Snapshot, base: BaseModel) -> None:
    with pytest.raises(Refused, match="roles"):
        jobs.submit(snapshot, mode="fresh", by=plant.viewer)
    job = jobs.submit(snapshot, mode="fresh", by=plant.haneul)
    with pytest.raises(Refused, match="roles"):
        jobs.cancel(job, by=plant.viewer)
    assert job.state == "QUEUED"


def test_an_ended_job_can_be_asked_for_again_as_a_new_one(plant: Plant, snapshot: Snapshot, base: BaseModel) -> None:
    job = jobs.submit(snapshot, mode="fresh", config_overrides={"train": {"epochs": 2}}, by=plant.haneul)
    with pytest.raises(Refused, match="once it failed"):
        jobs.requeue(job, by=plant.haneul)
    jobs.cancel(job, by=plant.haneul)
    again = jobs.requeue(job, by=plant.seoyeon)
    assert (again.number, again.config, again.submitted_by) == (2, job.config, plant.seoyeon)
    assert lifecycle.why_not(policies.check_can_requeue, again, by=plant.seoyeon) != ""


@pytest.fixture
def held(plant: Plant, snapshot: Snapshot, base: BaseModel) -> leases.Held:
    job = jobs.submit(snapshot, mode="fresh", by=plant.haneul)
    got = leases.claim(job.pk, worker="w")
    assert got is not None
    return got


def expire(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(lease_until=timezone.now() - timedelta(seconds=1))


def test_the_tick_leaves_a_living_lease_alone(held: leases.Held) -> None:
    jobs.recover()
    held.job.refresh_from_db()
    assert (held.job.state, held.job.deaths) == ("RUNNING", 0)


def test_the_tick_counts_deaths_and_poisons_at_the_third(held: leases.Held) -> None:
    job = held.job
    for death in range(1, 4):
        expire(job)
        jobs.recover()
        job.refresh_from_db()
        assert job.deaths == death
        if death < 3:
            assert job.state == "QUEUED"
            assert leases.claim(job.pk, worker="w") is not None
    assert job.state == "POISONED"
    assert job.failure["params"]["deaths"] == 3
    assert list(job.attempts.values_list("outcome", flat=True)) == ["died"] * 3


def test_a_worker_that_comes_back_after_the_tick_finds_its_fence_gone(held: leases.Held) -> None:
    expire(held.job)
    jobs.recover()
    with pytest.raises(leases.LeaseLost):
        leases.check(held, renew=True)
    with pytest.raises(leases.LeaseLost):
        leases.succeed(held)
    second = leases.claim(held.job.pk, worker="other")
    assert second is not None
    with pytest.raises(leases.LeaseLost):
        leases.write(held, progress={"phase": "train"})
    leases.check(second, renew=True)


def test_the_tick_finishes_a_cancel_whose_worker_vanished(plant: Plant, held: leases.Held) -> None:
    jobs.cancel(held.job, by=plant.haneul)
    jobs.recover()
    held.job.refresh_from_db()
    assert held.job.state == "CANCELLING"
    expire(held.job)
    jobs.recover()
    held.job.refresh_from_db()
    assert (held.job.state, held.attempt.job.attempts.get().outcome) == ("CANCELLED", "cancelled")


def test_a_forgotten_job_is_woken_again_and_a_fresh_one_is_not(
    plant: Plant, snapshot: Snapshot, base: BaseModel
) -> None:
    forgotten, fresh = (jobs.submit(snapshot, mode="fresh", by=plant.haneul) for _ in range(2))
    long_ago = timezone.now() - timedelta(minutes=5)
    Job.objects.filter(pk=forgotten.pk).update(woken_at=long_ago)
    woken = fresh.woken_at
    jobs.recover()
    forgotten.refresh_from_db()
    fresh.refresh_from_db()
    assert forgotten.woken_at > long_ago + timedelta(minutes=4)
    assert fresh.woken_at == woken


def test_only_one_of_two_claims_gets_the_job(held: leases.Held) -> None:
    assert leases.claim(held.job.pk, worker="second") is None


@pytest.mark.parametrize("model", [Capture, Job])
def test_every_move_that_the_table_does_not_name_is_refused(
    plant: Plant, snapshot: Snapshot, base: BaseModel, model: type[Capture] | type[Job]
) -> None:
    row: Any = plant.capture() if model is Capture else jobs.submit(snapshot, mode="fresh", by=plant.haneul)
    states = list(model.State.values)
    assert set(model.MOVES) == set(states)
    for old in states:
        for new in states:
            model.objects.filter(pk=row.pk).update(state=old)
            row.refresh_from_db()
            if new in model.MOVES[old]:
                lifecycle.move(row, new, by="test")
                assert row.state == new
            else:
                with pytest.raises(Refused):
                    lifecycle.move(row, new, by="test")
                assert row.state == old


def test_web_and_workers_never_import_torch() -> None:
    code = (
        "import sys, django; django.setup()\n"
        "import training.tasks, training.runner, training.jobs, training.captures, registry.tasks, console.celery\n"
        "import console.asgi, console.urls\n"
        "from django.urls import get_resolver; get_resolver().url_patterns\n"
        "print([name for name in ('torch', 'timm', 'peft') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
