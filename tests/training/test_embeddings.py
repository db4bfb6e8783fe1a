"""Features of pictures: who lacks them, the idle worker that computes them, and that it never makes a training wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from django.db import connections

from registry import bases, blobs
from registry.models import BaseModel
from tests.running import wait_for
from tests.training.parts import part, saved
from tests.training.plant import RULE, Plant, import_base
from training import embedder, embeddings, jobs, processes, snapshots
from training.models import Capture, Embedding, Job

if TYPE_CHECKING:
    from collections.abc import Iterator


HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent


@pytest.fixture
def real_base(real_plant: Plant, base_bundle: Path, settings: Any) -> Plant:
    """A plant with the real base model, whose recipe is the real one."""
    settings.TRAIN_THREADS = 1
    bases.import_bundle(base_bundle, by="test")
    return real_plant


@pytest.mark.slow
def test_the_idle_worker_gives_every_picture_its_vector_and_names_those_that_cannot_be_read(
    real_base: Plant, caplog: pytest.LogCaptureFixture
) -> None:
    good = [real_base.capture(data=saved(part(n))) for n in range(3)]
    same = real_base.device()
    twin = Capture.objects.create(
        line=real_base.line, device=same, device_capture_id="t-1", digest=good[0].digest, size_bytes=1, width=160,
        height=120, mode="L", reason="band",
    )  # fmt: skip
    gone = real_base.capture(data=saved(part(9)))
    blobs.path(gone.digest).unlink()
    embedder.run()
    rows = {row.capture_id: row for row in Embedding.objects.all()}
    assert set(rows) == {row.pk for row in (*good, twin, gone)}
    assert (rows[gone.pk].vector, rows[gone.pk].problem) == (None, "missing")
    assert str(gone.pk) in caplog.text
    vectors = [np.array(rows[row.pk].vector) for row in (*good, twin)]
    assert all(abs(np.linalg.norm(vector) - 1) < 0.01 for vector in vectors)
    assert vectors[0] @ vectors[3] > 0.9999 > vectors[0] @ vectors[1]
    assert not Capture.objects.filter(embedded=False).exists()
    assert not any(embeddings.lines_lacking())


# ------------------------------------------------------------------------------------------------ a scripted recipe


class Desk:
    """A plant with a base model, and a scripted program in the recipe's place."""

    def __init__(self, plant: Plant, folder: Path, settings: Any) -> None:
        self.plant, self.settings = plant, settings
        self.script = folder / "script.json"
        settings.RECIPE_COMMAND = [sys.executable, str(HERE / "scripted_recipe.py"), str(self.script)]
        settings.TRAIN_THREADS = 1
        import_base(folder / "base")
        self.says()

    def says(self, **script: Any) -> None:
        self.script.write_text(json.dumps(script))

    def worker(self, what: str, database: str) -> subprocess.Popen[bytes]:
        names = ("BLOB_ROOT", "CACHE_ROOT", "JOBS_ROOT", "RECIPE_COMMAND", "TRAIN_THREADS")
        given = {name: str(at) if isinstance(at := getattr(self.settings, name), Path) else at for name in names}
        return subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), what, json.dumps(given)], cwd=CHECKOUT,
            env=os.environ | {"DATABASE_URL": database, "PYTHONPATH": str(CHECKOUT)},
        )  # fmt: skip


@pytest.fixture
def desk(real_plant: Plant, folders: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(embedder, "_paused_until", 0.0)
    yield Desk(real_plant, folders, settings)
    assert not recipes(), "a process of the idle worker lives on"


def recipes() -> list[int]:
    """Processes of a recipe that the idle worker of this test started."""
    mark = b"LOOPLINE_ATTEMPT=embed-"
    found = []
    for pid in (int(name) for name in os.listdir(processes.PROC) if name.isdigit()):
        try:
            if mark in (processes.PROC / str(pid) / "environ").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


@contextmanager
def working() -> Iterator[threading.Thread]:
    """The idle worker on a thread with a connection of its own."""

    def work() -> None:
        try:
            embedder.run()
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(60)
        assert not thread.is_alive()


def ready() -> int:
    return Embedding.objects.filter(vector__isnull=False).count()


def test_a_training_never_waits_for_features_even_when_the_recipe_does_not_listen(desk: Desk) -> None:
    desk.plant.lots(2, labels=(0, 1))
    for _ in range(20):
        desk.plant.capture()
    desk.says(picture_s=0.5, ignore_term=True)
    snapshot = snapshots.freeze(desk.plant.line, RULE, by=desk.plant.haneul)
    with working() as thread:
        wait_for(ready, within_s=30)
        jobs.submit(snapshot, mode="fresh", by=desk.plant.haneul)
        asked = time.monotonic()
        thread.join(10)
        assert time.monotonic() - asked < 6
    assert not recipes()
    assert 0 < ready() < 24
    embedder.run()  # and it does not begin while one waits
    assert ready() < 24
    jobs.cancel(Job.objects.get(), by=desk.plant.haneul)
    desk.says()
    embedder.run()
    assert ready() == 24


def test_a_killed_worker_takes_its_recipe_along_and_the_next_one_computes_what_lacks(
    desk: Desk, real_database: str
) -> None:
    for _ in range(8):
        desk.plant.capture()
    desk.says(picture_s=0.4)
    worker = desk.worker("embed", real_database)
    wait_for(lambda: ready() >= 2, within_s=60)
    worker.kill()
    worker.wait()
    wait_for(lambda: not recipes(), within_s=10)
    kept = set(Embedding.objects.values_list("pk", flat=True))
    assert 2 <= len(kept) < 8
    desk.says()
    embedder.run()
    assert ready() == 8
    assert kept <= set(Embedding.objects.values_list("pk", flat=True))


def test_one_embedder_per_site_works_at_a_time(desk: Desk) -> None:
    for _ in range(6):
        desk.plant.capture()
    desk.says(picture_s=0.3)
    with working():
        wait_for(ready, within_s=30)
        began = time.monotonic()
        embedder.run()
        assert time.monotonic() - began < 1
        assert ready() < 6
    assert ready() == 6


def test_a_picture_that_crashes_the_recipe_is_named_and_the_rest_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [desk.plant.capture() for _ in range(4)]
    desk.says(crash_at=rows[2].digest)
    embedder.run()
    assert (ready(), Embedding.objects.get(pk=rows[2].pk).problem) == (2, "crashed")
    embedder.run()
    assert ready() == 2  # not again at once: the next try would most likely end in the same way
    monkeypatch.setattr(embedder, "_paused_until", 0.0)
    embedder.run()
    assert ready() == 3
    assert not Capture.objects.filter(embedded=False).exists()


def test_the_same_bytes_are_not_computed_twice(desk: Desk) -> None:
    first = desk.plant.capture()
    embedder.run()
    device = desk.plant.device()
    again = Capture.objects.create(
        line=desk.plant.line, device=device, device_capture_id="again", digest=first.digest, size_bytes=1, width=24,
        height=16, mode="RGB", reason="band",
    )  # fmt: skip
    desk.settings.RECIPE_COMMAND = ["/nonexistent"]
    embedder.run()
    assert Embedding.objects.get(pk=again.pk).vector == Embedding.objects.get(pk=first.pk).vector


def test_open_pictures_come_first_and_another_base_makes_all_of_them_due_again(desk: Desk) -> None:
    decided = desk.plant.decided(0)
    waiting = desk.plant.capture()
    basis = embeddings.basis(desk.plant.line)
    assert basis is not None
    assert [row.pk for row in embeddings.lacking(desk.plant.line, basis, 10)] == [waiting.pk, decided.pk]
    embedder.run()
    assert not any(embeddings.lines_lacking())
    old = BaseModel.objects.get()
    BaseModel.objects.create(
        name="next", digest="ab" * 32, licence="x", parameters=1, bundle=old.bundle, map_digest=old.map_digest
    )
    [(line, fresh)] = embeddings.lines_lacking()
    assert fresh.digest != basis.digest
    assert {row.pk for row in embeddings.lacking(line, fresh, 10)} == {waiting.pk, decided.pk}
    embedder.run()
    assert set(Embedding.objects.values_list("basis", flat=True)) == {fresh.digest}


def test_nothing_is_asked_for_without_a_base_model(real_plant: Plant) -> None:
    real_plant.capture()
    assert embeddings.basis(real_plant.line) is None
    assert not any(embeddings.lines_lacking())
    embedder.run()
    assert embeddings.waiting(real_plant.line) == 1
