"""A whole job with the real recipe and the real base model: from a frozen snapshot to a version for promotion."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from django.utils import timezone
from PIL import Image

from registry import bases
from registry.models import Version
from tests.running import wait_for
from tests.training.plant import Plant
from tests.training.test_runner import left_over, running, until
from training import golden, jobs, runner, snapshots
from training.models import Job

if TYPE_CHECKING:
    from training.models import Snapshot

SHORT = {"train": {"epochs": 2, "batch": 8, "views": ["identity"]}, "lora": {"rank": 2}, "golden_vectors": 4}


def part(seed: int, *, crack: bool) -> bytes:
    """A grey plate; a defective one has a bright line across it."""
    pixels = np.random.default_rng(seed).normal(110, 12, (96, 96)).clip(0, 255)
    if crack:
        pixels[40 + seed % 16 : 46 + seed % 16] = 250
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def snapshot(real_plant: Plant, base_bundle: Path, settings: Any) -> Snapshot:
    settings.TRAIN_THREADS = 2
    bases.import_bundle(base_bundle, by="test")
    plant = real_plant
    for lot in range(4):
        for number in range(6):
            label = number % 2
            plant.decided(label, lot=f"L{lot}", data=part(lot * 10 + number, crack=bool(label)))
    kept = [(plant.capture(lot="G", data=part(900 + n, crack=bool(n % 2))), n % 2) for n in range(6)]
    golden.create(
        plant.line, code="golden", name_ko="골든", name_en="golden", captures=kept, owner=plant.haneul,
        expires_at=timezone.now() + timedelta(days=30), leads=True, by=plant.haneul,
    )  # fmt: skip
    rule = {"val_share": 0.4, "test_share": 0.0, "seed": 0}
    return snapshots.freeze(plant.line, rule, by=plant.haneul)


@pytest.mark.slow
def test_a_real_job_is_trained_verified_and_registered(real_plant: Plant, snapshot: Snapshot) -> None:
    job = jobs.submit(snapshot, mode="fresh", config_overrides=SHORT, by=real_plant.haneul)
    runner.run(job.pk, worker="worker:test")
    job.refresh_from_db()
    assert (job.state, job.failure) == ("SUCCEEDED", {})
    version = Version.objects.get()
    assert version.state == "VALIDATED"
    assert version.evidence["verified"]["max_abs"] <= 0.002
    assert version.evidence["onnx_check"]["flips"] == 0
    candidate = version.evidence["sets"]["golden"]["candidate"]
    assert (candidate["escapes"][1], candidate["overkills"][1]) == (3, 3)
    assert version.evidence["leading"] == "golden"
    assert job.points.filter(val_loss__isnull=False).count() == 2
    assert not left_over()


@pytest.mark.slow
def test_a_real_training_is_cancelled_within_thirty_seconds(real_plant: Plant, snapshot: Snapshot) -> None:
    long = SHORT | {"train": {"epochs": 500, "batch": 4}}
    job = jobs.submit(snapshot, mode="fresh", config_overrides=long, by=real_plant.haneul)
    with running(job):
        until(job, lambda now: now.points.exists(), within_s=120)
        jobs.cancel(job, by=real_plant.haneul)
        wait_for(lambda: Job.objects.get(pk=job.pk).state == "CANCELLED", within_s=30)
        assert not left_over()
    assert not Version.objects.exists()
