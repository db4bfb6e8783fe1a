"""One decoder for all: preview, recipe and agent see the same pixels of the same bytes, whatever kind of picture it is.

The vectors are lossless, so that the digests of their decoded pixels hold on every machine: an upgrade that turned or
windowed a picture otherwise would move what people have drawn on it.
"""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from django.urls import reverse
from PIL import Image

from console import previews
from edge.pictures import decode, inspect, to_pixels
from tests.training import plant as plants
from training import captures
from training.recipe.data import pixels_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.training.plant import Plant

WIDE, HIGH, CORNER = 40, 20, 8
PREPROCESS = {"size": [32, 32], "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2], "resize": "fit"}


def saved(image: Image.Image, kind: str, **how: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def marked(mode: str) -> Image.Image:
    """Grey, with a bright (or red) square in the upper left corner."""
    if mode in ("I;16", "F"):
        values = np.full((HIGH, WIDE), 1000.0)
        values[:CORNER, :CORNER] = 3000
        return Image.fromarray(values.astype(np.uint16 if mode == "I;16" else np.float32))
    image = Image.new("RGB", (WIDE, HIGH), (90, 90, 90))
    image.paste((255, 0, 0) if mode in ("RGB", "RGBA", "CMYK", "P", "PA") else (255, 255, 255), (0, 0, CORNER, CORNER))
    if mode == "PA":
        return image.convert("P").convert("PA")
    return image.convert(mode)


def vectors() -> dict[str, bytes]:
    found = {f"mode {mode}": saved(marked(mode), "TIFF") for mode in ("1", "L", "I;16", "F", "RGB", "RGBA", "CMYK")}
    found |= {f"png {mode}": saved(marked(mode), "PNG") for mode in ("L", "LA", "P", "RGBA", "I;16")}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        found[f"turned {orientation}"] = saved(marked("RGB"), "PNG", exif=exif)
    pages = [marked("L"), Image.new("L", (WIDE, HIGH), 7)]
    found["two pages"] = saved(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    twelve = np.random.default_rng(5).integers(1000, 1010, (HIGH, WIDE)).astype(np.uint16)
    twelve[5:9, 5:9] += 30
    found["12 bits in 16"] = saved(Image.fromarray(twelve), "TIFF")
    return found


VECTORS = vectors()
DECODED: dict[str, str] = {
    "12 bits in 16": "7f2789a4b30154fa",
    "mode 1": "0a85409703256fdc",
    "mode CMYK": "604b4b53a194ebdf",
    "mode F": "46450624fad7eaf1",
    "mode I;16": "46450624fad7eaf1",
    "mode L": "27e1561e5a8a46e3",
    "mode RGB": "604b4b53a194ebdf",
    "mode RGBA": "604b4b53a194ebdf",
    "png I;16": "46450624fad7eaf1",
    "png L": "27e1561e5a8a46e3",
    "png LA": "27e1561e5a8a46e3",
    "png P": "9c9dd62dca4842fb",
    "png RGBA": "604b4b53a194ebdf",
    "turned 1": "604b4b53a194ebdf",
    "turned 2": "b3a379e1d8b0ecf2",
    "turned 3": "ed60c0869b9e9722",
    "turned 4": "d96327269eda9979",
    "turned 5": "606f73c181b830ba",
    "turned 6": "07f8de93108aa182",
    "turned 7": "8595d9db65b6d1b2",
    "turned 8": "93cd096ca46c9c86",
    "two pages": "27e1561e5a8a46e3",
}


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_the_decoded_pixels_of_a_vector_never_change(name: str) -> None:
    assert hashlib.sha256(decode(VECTORS[name]).tobytes()).hexdigest()[:16] == DECODED[name]


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_preview_recipe_and_agent_see_the_same_picture(name: str, plant: Plant, settings: Any) -> None:
    data = VECTORS[name]
    agent, recipe = to_pixels(data, PREPROCESS), pixels_of(data, PREPROCESS, id="x")
    assert agent.tobytes() == recipe.tobytes()
    capture, _ = captures.import_one(plant.line, data, {}, by=plant.haneul)
    whole = decode(data)
    info = inspect(data)
    assert (capture.height, capture.width) == (info.height, info.width) == whole.shape[:2]
    shown = np.asarray(Image.open(io.BytesIO(previews.read(capture, "stage")))).astype(int)
    assert shown.shape == whole.shape
    assert np.abs(shown - whole.astype(int)).mean() < 8


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_corner_is_where_exif_says_in_preview_and_tensor(orientation: int, plant: Plant) -> None:
    data = VECTORS[f"turned {orientation}"]
    right, low = {1: (0, 0), 2: (1, 0), 3: (1, 1), 4: (0, 1), 5: (0, 0), 6: (1, 0), 7: (1, 1), 8: (0, 1)}[orientation]
    whole = decode(data)
    assert whole.shape[:2] == ((HIGH, WIDE) if orientation < 5 else (WIDE, HIGH))
    capture, _ = captures.import_one(plant.line, data, {}, by=plant.haneul)
    preview = np.asarray(Image.open(io.BytesIO(previews.read(capture, "thumb"))).convert("RGB"))
    for pixels in (whole, preview):
        spot = pixels[-3 if low else 2, -3 if right else 2].astype(int)
        assert spot[0] > 200 > 90 > spot[1], (orientation, spot)


def test_a_step_of_two_hundred_counts_in_sixteen_bits_is_in_preview_and_tensor(plant: Plant) -> None:
    values = np.tile(np.linspace(20000, 24000, 300).astype(np.uint16), (200, 1))
    values[90:110, 100:200] += 200
    data = saved(Image.fromarray(values), "TIFF")
    capture, _ = captures.import_one(plant.line, data, {}, by=plant.haneul)
    preview = np.asarray(Image.open(io.BytesIO(previews.read(capture, "stage"))).convert("L")).astype(int)
    assert preview[95:105, 120:180].mean() - preview[60:70, 120:180].mean() > 8
    tensor = to_pixels(data, {**PREPROCESS, "size": [200, 300]})[0]
    assert (tensor[95:105, 120:180] - tensor[60:70, 120:180]).mean() > 0.1


def test_the_lines_window_is_the_one_that_recipe_and_devices_get_and_a_reviewers_window_changes_no_score(
    plant: Plant, client: Any, folders: Path
) -> None:
    from training import jobs, snapshots

    plant.line.window_low, plant.line.window_high = 990.0, 1050.0
    plant.line.save()
    plants.import_base(folders / "base")
    plant.lots(6)
    snapshot = snapshots.freeze(plant.line, plants.RULE, by=plant.haneul)
    assert jobs.submit(snapshot, mode="fresh", by=plant.haneul).config["preprocess"]["window"] == [990.0, 1050.0]
    data = VECTORS["12 bits in 16"]
    seen = decode(data, (990.0, 1050.0))[:, :, 0].astype(int)
    assert seen[5:9, 5:9].min() - np.delete(seen, slice(5, 9), 0).max() > 60
    person = plant.haneul
    capture, _ = captures.import_one(plant.line, data, {}, by=person)
    before = type(capture).objects.values("score", "verdict", "prediction", "row_version").get(pk=capture.pk)
    client.force_login(person)
    page = client.get(reverse("capture-picture", args=[capture.pk]), {"low": "0", "high": "65535"})
    assert np.asarray(Image.open(io.BytesIO(page.content)).convert("L")).max() < 10  # a window that shows nothing
    assert type(capture).objects.values("score", "verdict", "prediction", "row_version").get(pk=capture.pk) == before


def test_a_deep_picture_is_as_bright_wherever_it_is_shown(
    plant: Plant, client: Any, settings: Any, tmp_path: Path
) -> None:
    settings.CACHE_ROOT = tmp_path / "cache"
    values = np.tile(np.linspace(300, 3000, 2000).astype(np.uint16), (1700, 1))
    person = plant.haneul
    small, _ = captures.import_one(plant.line, saved(Image.fromarray(values[:300, ::4]), "TIFF"), {}, by=person)
    large, _ = captures.import_one(plant.line, saved(Image.fromarray(values), "TIFF"), {}, by=person)
    client.force_login(person)

    def grey(address: str) -> float:
        return float(np.asarray(Image.open(io.BytesIO(client.get(address).content)).convert("L")).mean())

    means = [grey(reverse("capture-picture", args=[row.pk]) + f"?size={size}")
             for row in (small, large) for size in ("thumb", "stage")]  # fmt: skip
    levels = previews.level_count(large)
    tiles = [grey(reverse("capture-tile", args=[large.pk, 0, column, row])) for column in range(4) for row in range(4)]
    assert levels == 1
    assert max(means) - min(means) < 5, means
    assert abs(np.mean(tiles) - np.mean(means)) < 12  # the last column of tiles is narrower than the others


def test_the_original_with_its_tags_comes_back_bit_by_bit(plant: Plant, client: Any) -> None:
    exif = Image.Exif()
    tags = {271: "camera", 272: "LS-8K", 305: "grab 2.1", 306: "2026:11:30 06:00:00", 315: "S3", 37510: "x" * 70_000}
    for tag, value in tags.items():
        exif[tag] = value
    data = saved(marked("RGB"), "TIFF", exif=exif, tiffinfo={65_000: "private", 270: "station 3"})
    person = plant.haneul
    capture, _ = captures.import_one(plant.line, data, {"file_name": "불량_스크래치_001.tif"}, by=person)
    client.force_login(person)
    answer = client.get(reverse("capture-original", args=[capture.pk]))
    assert hashlib.sha256(answer.content).hexdigest() == hashlib.sha256(data).hexdigest() == capture.digest
    assert "filename*=utf-8''" in answer["Content-Disposition"].lower()
