"""The champion is asked about a picture: the answer is the one that a device with it would give."""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from edge.manifest import part_file
from edge.model import Model
from registry import bases, blobs, versions
from registry.lifecycle import Refused
from tests.registry import plant as records
from training import captures, explanations
from training.models import Explanation

if TYPE_CHECKING:
    from pathlib import Path

    from tests.registry.plant import Plant
    from training.models import Capture


@pytest.fixture
def plant(db: None, folders: Path) -> Plant:
    return records.make(folders)


def capture(plant: Plant, turned: int = 0) -> Capture:
    out = io.BytesIO()
    Image.linear_gradient("L").rotate(turned).save(out, "PNG")
    return captures.import_one(plant.line, out.getvalue(), {}, by=plant.engineer)[0]


def on_a_device(plant: Plant, picture: Capture, folder: Path) -> dict[str, Any]:
    """What the agent's own code says of it."""
    version = versions.champion(plant.line)
    assert version is not None
    bases.unpack(version.base, folder / "base")
    versions.unpack(version, folder / "files")
    release = folder / "release"
    release.mkdir()
    shutil.copy(folder / "files" / "manifest.json", release / "manifest.json")
    for name, part in version.manifest["parts"].items():
        (release / part_file(name)).write_bytes(blobs.read(part["digest"]))
    model = Model.load(folder / "base", release, version.manifest_digest, 1)
    return model.judge(blobs.read(picture.digest))


@pytest.mark.slow
def test_the_worker_says_what_a_device_would_say(plant: Plant, tmp_path: Path) -> None:
    picture = capture(plant)
    with pytest.raises(Refused, match="no champion yet"):
        explanations.ask(picture, by=plant.engineer)
    plant.release(1)
    row = explanations.ask(picture, by=plant.engineer)
    assert explanations.ask(picture, by=plant.trainer).pk == row.pk
    explanations.compute(row.pk)
    row.refresh_from_db()
    device = on_a_device(plant, picture, tmp_path / "device")
    assert row.done_at is not None
    assert row.failure == {}
    assert row.answer["probabilities"] == pytest.approx(device["probabilities"], abs=2e-4)
    assert row.answer["score"] == pytest.approx(device["score"], abs=2e-4)
    assert (row.answer["map"] is None) == (device["map"] is None)
    if device["map"]:
        assert row.answer["map"]["values"] == pytest.approx(device["map"]["values"], abs=2)
    before = row.done_at
    explanations.compute(row.pk)  # a second call changes nothing
    row.refresh_from_db()
    assert row.done_at == before


@pytest.mark.slow
def test_a_picture_whose_bytes_are_gone_has_a_sentence_and_can_be_asked_again(plant: Plant) -> None:
    plant.release(1)
    picture = capture(plant, 90)
    kept = blobs.read(picture.digest)
    blobs.path(picture.digest).unlink()
    row = explanations.ask(picture, by=plant.engineer)
    explanations.compute(row.pk)
    row.refresh_from_db()
    assert row.done_at is not None
    assert row.failure["text"] == explanations.NOT_COMPUTED
    blobs.put(kept)
    explanations.ask(picture, by=plant.engineer)
    explanations.compute(row.pk)
    row.refresh_from_db()
    assert row.failure == {}
    assert row.answer["score"] > 0


def test_a_viewer_asks_nothing_and_three_dead_workers_end_it(plant: Plant) -> None:
    plant.release(1)
    picture = capture(plant, 180)
    viewer = records.person("viewer", plant.line, "viewer")
    with pytest.raises(Refused):
        explanations.ask(picture, by=viewer)
    row = explanations.ask(picture, by=plant.engineer)
    Explanation.objects.filter(pk=row.pk).update(tries=explanations.MOST_TRIES)
    explanations.compute(row.pk)
    row.refresh_from_db()
    assert row.done_at is not None
    assert row.failure["text"] == explanations.NOT_COMPUTED
