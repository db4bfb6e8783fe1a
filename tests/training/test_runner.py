"""The supervisor: one version per job, sentences for failures, deaths counted, and no process left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections
from django.db.models import F

from registry.clock import seconds_from_now
from registry.lifecycle import Refused
from registry.models import AuditEvent, TrackingEntry, Version
from tests.running import wait_for
from tests.training.plant import RULE, Plant, import_base
from training import jobdir, jobs, leases, processes, runner, snapshots
from training.models import Attempt, Job, JobPoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from training.models import Snapshot

HERE = Path(__file__).parent


class Bench:
    """A plant with a snapshot, and a scripted program in the recipe's place."""

    def __init__(self, plant: Plant, folder: Path, settings: Any) -> None:
        self.plant = plant
        self.script = folder / "script.json"
        settings.RECIPE_COMMAND = [sys.executable, str(HERE / "scripted_recipe.py"), str(self.script)]
        settings.TRAIN_THREADS = 1
        self.settings = settings
        import_base(folder / "base")
        plant.lots(2, labels=(0, 1))
        self.snapshot: Snapshot = snapshots.freeze(plant.line, RULE, by=plant.haneul)

    def job(self, **script: Any) -> Job:
        self.script.write_text(json.dumps(script))
        return jobs.submit(self.snapshot, mode="fresh", by=self.plant.haneul)

    def worker(self, job: Job, database: str) -> subprocess.Popen[bytes]:
        """A real process that runs the job; its recipe is in a session of its own."""
        return self._process(str(job.pk), database)

    def celery(self, database: str) -> subprocess.Popen[bytes]:
        """A real Celery worker on the queue `train`."""
        return self._process("celery", database)

    def _process(self, what: str, database: str) -> subprocess.Popen[bytes]:
        names = ("BLOB_ROOT", "CACHE_ROOT", "JOBS_ROOT", "RECIPE_COMMAND", "TRAIN_THREADS")
        given = {name: _plain(getattr(self.settings, name)) for name in names}
        return subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), what, json.dumps(given)],
            cwd=HERE.parent.parent, env=os.environ | {"DATABASE_URL": database, "PYTHONPATH": str(HERE.parent.parent)},
        )  # fmt: skip


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


@pytest.fixture
def bench(real_plant: Plant, folders: Path, settings: Any) -> Iterator[Bench]:
    yield Bench(real_plant, folders, settings)
    assert not left_over(), "a process of a test lives on"


def left_over() -> list[int]:
    """Processes that carry the mark of any attempt of this test's database."""
    return [pid for group in groups() for pid in processes.living(group)]


def groups() -> list[processes.Group]:
    return [group for job in Job.objects.all() for group in leases.groups_of(job)]


@contextmanager
def running(job: Job, **options: Any) -> Iterator[threading.Thread]:
    """`runner.run` on a thread with a connection of its own, as a worker would."""

    def work() -> None:
        try:
            runner.run(job.pk, worker="worker:test@thread", **options)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(60)
        assert not thread.is_alive()
        job.refresh_from_db()


def until(job: Job, condition: Callable[[Job], Any], within_s: float = 30) -> Any:
    def look() -> Any:
        job.refresh_from_db()
        return condition(job)

    return wait_for(look, within_s=within_s, every_s=0.05)


def stepping(job: Job) -> bool:
    return job.points.filter(step__gte=2).exists()


def test_a_job_makes_one_version_a_curve_and_a_history(bench: Bench) -> None:
    job = bench.job(steps=6, noise=True)
    runner.run(job.pk, worker="worker:test@a")
    job.refresh_from_db()
    assert (job.state, job.failure, job.deaths, job.fence) == ("SUCCEEDED", {}, 0, 1)
    version = Version.objects.get()
    assert (job.version, version.state, version.trained_by) == (version, "VALIDATED", bench.plant.haneul)
    assert version.evidence["verified"] == {"max_abs": 1e-5}
    assert TrackingEntry.objects.filter(version=version, kind="LOG_VERSION").count() == 1
    points = list(JobPoint.objects.filter(job=job).values_list("seq", "step", "val_loss"))
    assert [seq for seq, _, _ in points] == list(range(1, 8))
    assert points[-1] == (7, 6, 0.5)
    assert (job.progress["phase"], job.progress["escapes"], job.progress["epochs"]) == ("register", [1, 20], 1)
    [attempt] = Attempt.objects.all()
    assert (attempt.outcome, attempt.worker) == ("succeeded", "worker:test@a")
    assert not (jobdir.root(job) / "attempt-1" / "out").exists()
    assert list(AuditEvent.objects.filter(noun="job").order_by("id").values_list("action", "by_label")) == [
        ("job.submit", "haneul-el-1"), ("job.running", "worker:test@a"), ("job.succeeded", "worker:test@a"),
    ]  # fmt: skip


def test_the_recipe_is_offline_counts_threads_and_knows_no_secret(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    job = bench.job()
    runner.run(job.pk, worker="w")
    seen = json.loads((jobdir.root(job) / "attempt-1" / "seen-train.json").read_text())["env"]
    assert (seen["HF_HUB_OFFLINE"], seen["OMP_NUM_THREADS"]) == ("1", "1")
    assert not [name for name in seen if "URL" in name or "SECRET" in name]
    config = json.loads((jobdir.root(job) / "attempt-1" / "config.json").read_text())
    assert (config["threads"], config["job"], config["line"]) == (1, str(job.pk), "el-1")
    items = [json.loads(line) for line in (jobdir.root(job) / "attempt-1" / "items.jsonl").read_text().splitlines()]
    assert {item["split"] for item in items} == {"train", "val"}
    assert all(Path(item["path"]).is_file() for item in items)


def test_without_a_setting_the_threads_are_the_cores_that_may_be_used(settings: Any) -> None:
    settings.TRAIN_THREADS = 0
    assert jobdir.threads() == len(os.sched_getaffinity(0))


def test_a_second_wake_up_does_nothing(bench: Bench) -> None:
    job = bench.job()
    runner.run(job.pk, worker="a")
    runner.run(job.pk, worker="b")
    assert (Attempt.objects.count(), Version.objects.count()) == (1, 1)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ({"fail": "disk_full"}, "There is no space left"),
        ({"fail": "picture_unreadable"}, "cannot be read"),
        ({"fail": "adapter_does_not_fit_base"}, "clean base"),
        ({"write_out": False}, "without leaving a result"),
    ],
)
def test_a_failure_is_a_sentence_and_no_version(bench: Bench, script: dict[str, Any], sentence: str) -> None:
    job = bench.job(**script)
    runner.run(job.pk, worker="w")
    job.refresh_from_db()
    assert job.state == "FAILED"
    assert sentence in job.failure["text"]
    assert not Version.objects.exists()
    assert Attempt.objects.get().outcome == "failed"


def test_a_picture_missing_from_the_store_is_said(bench: Bench) -> None:
    job = bench.job()
    from registry import blobs
    from registry.models import BaseModel

    blobs.path(BaseModel.objects.get().bundle["files"]["graph"]["digest"]).unlink()
    runner.run(job.pk, worker="w")
    job.refresh_from_db()
    assert (job.state, "missing from the store" in job.failure["text"]) == ("FAILED", True)


def test_a_killed_recipe_goes_on_from_its_checkpoint(bench: Bench) -> None:
    job = bench.job(steps=6, die_at=4, die_times=1)
    runner.run(job.pk, worker="w")
    job.refresh_from_db()
    assert (job.state, job.deaths) == ("QUEUED", 1)
    runner.run(job.pk, worker="w")
    job.refresh_from_db()
    assert (job.state, job.fence, Version.objects.count()) == ("SUCCEEDED", 2, 1)
    assert list(job.points.filter(fence=2, loss__isnull=False).values_list("step", flat=True)) == [4, 5, 6]
    assert [attempt.outcome for attempt in job.attempts.all()] == ["died", "succeeded"]


def test_three_deaths_poison_a_job_and_others_go_on(bench: Bench) -> None:
    bad = bench.job(die_at=1)
    for _ in range(4):
        runner.run(bad.pk, worker="w")
    bad.refresh_from_db()
    assert (bad.state, bad.deaths, bad.fence) == ("POISONED", 3, 3)
    assert bad.failure["params"]["detail"] == "signal 9"
    good = bench.job()
    runner.run(good.pk, worker="w")
    good.refresh_from_db()
    assert good.state == "SUCCEEDED"


def test_a_waiting_job_is_cancelled_at_once_and_never_runs(bench: Bench) -> None:
    job = bench.job()
    jobs.cancel(job, by=bench.plant.haneul)
    runner.run(job.pk, worker="w")
    assert (job.state, Attempt.objects.count()) == ("CANCELLED", 0)
    with pytest.raises(Refused, match="has ended"):
        jobs.cancel(job, by=bench.plant.haneul)


@pytest.mark.parametrize("helpers", [0, 2])
def test_cancelling_ends_every_process_then_says_so(bench: Bench, helpers: int) -> None:
    job = bench.job(steps=10_000, helpers=helpers, ignore_term=bool(helpers))
    with running(job, grace_s=1.0):
        until(job, stepping)
        [group] = groups()
        assert len(processes.living(group)) == 1 + helpers
        asked = time.monotonic()
        jobs.cancel(job, by=bench.plant.seoyeon)
        assert job.state == "CANCELLING"
        until(job, lambda now: now.state == "CANCELLED", within_s=30)
        assert not processes.living(group)
        assert time.monotonic() - asked < 10
    assert (job.cancel_asked_by, Attempt.objects.get().outcome) == (bench.plant.seoyeon, "cancelled")
    assert not Version.objects.exists()


@pytest.mark.parametrize("delay_s", [0.0, 0.15, 0.4, 0.8, 1.3, 2.0])
def test_a_cancel_at_any_moment_leaves_an_end_and_no_process(bench: Bench, delay_s: float) -> None:
    job = bench.job(steps=10, step_s=0.05, verify_s=0.3)
    with running(job, grace_s=2.0):
        time.sleep(delay_s)
        try:
            jobs.cancel(job, by=bench.plant.haneul)
        except Refused:
            assert job.state == "SUCCEEDED"
    assert job.state in ("CANCELLED", "SUCCEEDED")
    assert Version.objects.count() == (1 if job.state == "SUCCEEDED" else 0)
    assert not Attempt.objects.filter(ended_at=None).exists()


def test_a_cancel_in_the_last_moment_wins_over_the_result(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job = bench.job()
    store = runner.versions.store_files

    def cancel_then_store(folder: Path) -> Any:
        jobs.cancel(Job.objects.get(pk=job.pk), by=bench.plant.haneul)
        return store(folder)

    monkeypatch.setattr(runner.versions, "store_files", cancel_then_store)
    runner.run(job.pk, worker="w")
    job.refresh_from_db()
    assert (job.state, Version.objects.count()) == ("CANCELLED", 0)


def test_a_worker_that_shuts_down_puts_the_job_back_without_a_death(bench: Bench) -> None:
    job = bench.job(steps=200, step_s=0.02)
    stop = threading.Event()
    with running(job, should_stop=stop.is_set):
        until(job, stepping)
        stop.set()
    assert (job.state, job.deaths, job.lease_until) == ("QUEUED", 0, None)
    assert (jobdir.root(job) / "attempt-1" / "checkpoint").is_dir()
    assert not left_over()
    bench.script.write_text(json.dumps({"steps": 200, "step_s": 0.0}))
    runner.run(job.pk, worker="w")
    job.refresh_from_db()
    assert (job.state, Version.objects.count()) == ("SUCCEEDED", 1)
    assert [attempt.outcome for attempt in job.attempts.all()] == ["stopped", "succeeded"]
    assert job.points.filter(fence=2).earliest("seq").step > 1


def test_a_worker_that_lost_its_fence_writes_nothing_more(bench: Bench) -> None:
    job = bench.job(steps=10_000)
    with running(job):
        until(job, stepping)
        Job.objects.filter(pk=job.pk).update(fence=F("fence") + 1)
    assert (job.state, job.fence) == ("RUNNING", 2)
    count, progress = job.points.count(), job.progress
    time.sleep(0.3)
    job.refresh_from_db()
    assert (job.points.count(), job.progress, Version.objects.count()) == (count, progress, 0)
    assert not left_over()


def test_a_fence_lost_at_the_very_end_registers_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job = bench.job()
    store = runner.versions.store_files

    def lose_then_store(folder: Path) -> Any:
        files = store(folder)
        Job.objects.filter(pk=job.pk).update(fence=F("fence") + 1)
        return files

    monkeypatch.setattr(runner.versions, "store_files", lose_then_store)
    runner.run(job.pk, worker="w")
    job.refresh_from_db()
    assert (job.state, job.version, Version.objects.count()) == ("RUNNING", None, 0)


def test_the_lease_is_renewed_while_the_recipe_works(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_S", 0.5)
    job = bench.job(steps=60, step_s=0.03)
    with running(job):
        first = until(job, lambda now: now.lease_until)
        until(job, lambda now: now.lease_until and now.lease_until > first)


def test_a_killed_supervisor_leaves_no_recipe_and_the_job_finishes_once(bench: Bench, real_database: str) -> None:
    job = bench.job(steps=10_000)
    worker = bench.worker(job, real_database)
    until(job, stepping, within_s=60)
    [group] = groups()
    worker.kill()
    worker.wait()
    wait_for(lambda: not processes.living(group), within_s=10)
    jobs.recover()
    job.refresh_from_db()
    assert job.state == "RUNNING"  # the lease has not run out
    Job.objects.update(lease_until=seconds_from_now(-1))
    jobs.recover()
    job.refresh_from_db()
    assert (job.state, job.deaths, job.attempts.get().outcome) == ("QUEUED", 1, "died")
    bench.script.write_text(json.dumps({"steps": 3}))
    runner.run(job.pk, worker="next")
    job.refresh_from_db()
    assert (job.state, Version.objects.count()) == ("SUCCEEDED", 1)


def test_the_next_claimant_first_ends_what_an_earlier_attempt_left(bench: Bench) -> None:
    job = bench.job()
    attempt = Attempt.objects.create(job=job, fence=0, worker="gone")
    orphan, group = start_sleeper(str(attempt.pk), jobdir.root(job))
    Attempt.objects.filter(pk=attempt.pk).update(
        pgid=group.pgid, process_started=group.started, boot_id=group.boot_id, ended_at=seconds_from_now(0)
    )
    runner.run(job.pk, worker="w")
    job.refresh_from_db()
    assert (orphan.wait(5), job.state) == (-signal.SIGKILL, "SUCCEEDED")
    processes.close(orphan)


def test_a_group_of_the_same_number_but_another_start_is_not_touched(tmp_path: Path) -> None:
    sleeper, group = start_sleeper("somebody", tmp_path)
    other = processes.Group(group.pgid, str(int(group.started) - 1), group.boot_id, "another-mark")
    other_boot = processes.Group(group.pgid, group.started, "another-boot", group.mark)
    assert not processes.living(other)
    assert not processes.living(other_boot)
    assert processes.end(other)
    assert sleeper.poll() is None
    assert processes.living(group) == {sleeper.pid}
    assert processes.end(group, process=sleeper)
    processes.close(sleeper)


def start_sleeper(mark: str, folder: Path) -> tuple[subprocess.Popen[bytes], processes.Group]:
    folder.mkdir(parents=True, exist_ok=True)
    return processes.start(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        cwd=folder, log=folder / "sleeper.txt", env=processes.environment(mark, 1),
    )  # fmt: skip


def test_a_job_finishes_while_valkey_is_away(bench: Bench) -> None:
    from channels.layers import channel_layers
    from channels_redis.core import RedisChannelLayer

    before = channel_layers.set("default", RedisChannelLayer(hosts=["redis://127.0.0.1:1/0"]))
    try:
        job = bench.job()
        runner.run(job.pk, worker="w")
    finally:
        channel_layers.set("default", before)
    job.refresh_from_db()
    assert (job.state, Version.objects.count()) == ("SUCCEEDED", 1)


def test_a_celery_worker_that_is_told_to_end_puts_its_job_back(bench: Bench, real_database: str) -> None:
    job = bench.job(steps=10_000)
    worker = bench.celery(real_database)
    try:
        wait_for(lambda: _woken(job), within_s=60, every_s=0.5)
        until(job, stepping, within_s=30)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(40) == 0
    finally:
        worker.kill()
        worker.wait()
    job.refresh_from_db()
    assert (job.state, job.deaths, job.attempts.get().outcome) == ("QUEUED", 0, "stopped")
    assert (jobdir.root(job) / "attempt-1" / "checkpoint").is_dir()


def _woken(job: Job) -> bool:
    """Wake the worker until it has the job: a message sent before it listens is not lost, but one may come late."""
    jobs.wake(job)
    job.refresh_from_db()
    return job.state == "RUNNING"


def test_a_stopped_recipe_is_ended_all_the_same(bench: Bench) -> None:
    job = bench.job(steps=10_000)
    with running(job, grace_s=0.5):
        until(job, stepping)
        os.kill(groups()[0].pgid, signal.SIGSTOP)
        jobs.cancel(job, by=bench.plant.haneul)
    assert job.state == "CANCELLED"
