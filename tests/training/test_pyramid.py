"""Levels of large pictures: what a tile shows is what the decoder makes of the same place, whatever the file's kind."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edge.pictures import PictureRefused, decode
from training import pictures, pyramid
from training.pyramid import TILE, Pyramid


def file(image: Image.Image, kind: str = "PNG", **how: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def made(data: bytes, tmp_path: Path) -> Pyramid:
    pictures.write_levels(data, tmp_path / "levels" / "one")
    return Pyramid.open(tmp_path / "levels" / "one")


def pixels(jpeg: bytes | None) -> np.ndarray:
    assert jpeg is not None
    return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")).astype(int)


def noise(mode: str, width: int, height: int) -> Image.Image:
    """Slow waves: a JPEG of them stays close to the pixels."""
    across, down = np.meshgrid(np.arange(width), np.arange(height))
    grey = np.sin(across / 40) + np.cos(down / 30)
    if mode == "I;16":
        return Image.fromarray((20000 + 8000 * grey).astype(np.uint16))
    return Image.fromarray((127 + 60 * grey).astype(np.uint8)).convert(mode)


@pytest.mark.parametrize("mode", ["L", "RGB", "I;16", "CMYK", "1"])
def test_a_tile_of_the_first_level_is_the_same_place_of_the_decoded_picture(mode: str, tmp_path: Path) -> None:
    data = file(noise(mode, 3300, 900), "TIFF")
    levels, whole = made(data, tmp_path), decode(data).astype(int)
    assert (levels.width, levels.height) == (3300, 900)
    for column, row in ((0, 0), (3, 1), (6, 1)):
        part = whole[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
        found = pixels(levels.tile(0, column, row))
        assert found.shape == part.shape
        assert np.abs(found - part).mean() < (12 if mode == "1" else 3)
    assert levels.tile(0, 7, 0) is None
    assert levels.tile(levels.levels, 0, 0) is None
    assert levels.tile(0, 0, 2) is None


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_a_turned_picture_has_upright_tiles(orientation: int, tmp_path: Path) -> None:
    image, exif = Image.new("RGB", (2400, 1000)), Image.Exif()
    image.paste((255, 0, 0), (0, 0, 300, 300))
    exif[0x0112] = orientation
    data = file(image, "JPEG", exif=exif, quality=95)
    levels = made(data, tmp_path)
    assert (levels.width, levels.height) == ((2400, 1000) if orientation == 3 else (1000, 2400))
    red = {3: (4, 1), 6: (1, 0), 8: (0, 4)}[orientation]
    corner = {3: (-1, -1), 6: (0, -1), 8: (-1, 0)}[orientation]
    assert pixels(levels.tile(0, *red))[corner][0] > 200


def test_a_line_scan_picture_of_thirty_thousand_pixels_has_levels_and_a_defect_of_one_pixel_stays_visible(
    tmp_path: Path,
) -> None:
    values = np.full((2000, 30_000), 90, np.uint8)
    values[1234, 23_456] = 255
    levels = made(file(Image.fromarray(values), compress_level=1), tmp_path)
    assert levels.levels == 5
    tile = pixels(levels.tile(0, 23_456 // TILE, 1234 // TILE))
    assert tile[1234 % TILE, 23_456 % TILE, 0] > 200
    assert abs(tile[0, 0, 0] - 90) < 3
    preview = Image.open(io.BytesIO(levels.whole(1600)))
    assert preview.size == (1600, 107)


def test_a_sixteen_bit_scratch_is_in_the_tile_and_a_narrow_window_shows_it(tmp_path: Path) -> None:
    values = np.tile(np.linspace(0, 65535, 2000).astype(np.uint16), (1700, 1))
    values[800:804, 900:1000] += 200
    levels = made(file(Image.fromarray(values)), tmp_path)
    assert levels.extent is not None
    assert (levels.extent.least, levels.extent.most) == (0, 65535)
    level = float(values[810, 950])
    seen = pixels(levels.tile(0, 1, 1, (level - 400, level + 400)))
    scratch, beside = (
        seen[800 - TILE : 804 - TILE, 945 - TILE : 955 - TILE],
        seen[820 - TILE : 824 - TILE, 945 - TILE : 955 - TILE],
    )
    assert scratch.mean() - beside.mean() > 40


def test_a_picture_that_is_refused_leaves_no_levels(tmp_path: Path) -> None:
    whole = file(noise("RGB", 2000, 1800), "JPEG")
    with pytest.raises(PictureRefused, match="truncated"):
        pictures.write_levels(whole[: len(whole) // 2], tmp_path / "levels" / "cut")
    with pytest.raises(PictureRefused, match="too_many_pixels"):
        pictures.write_levels(whole, tmp_path / "levels" / "bomb", max_pixels=1000)
    assert not (tmp_path / "levels" / "cut").exists()
    assert not (tmp_path / "levels" / "bomb").exists()


def test_two_readers_who_are_first_at_once_both_find_the_levels(tmp_path: Path) -> None:
    data, folder = file(noise("L", 2000, 1700)), tmp_path / "levels" / "one"
    pyramid.build(data, folder, 10**8)
    before = (folder / "0.npy").stat().st_ino
    pyramid.build(data, folder, 10**8)
    assert (folder / "0.npy").stat().st_ino == before
    assert [entry.name for entry in folder.parent.iterdir()] == ["one"]
