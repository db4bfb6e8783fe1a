"""A picture that is larger than a screen as levels of half the size each: pixel for pixel what its bytes hold, so that
the reader's browser loads what it shows and nobody decodes 60 million pixels for a thumbnail. Safe to delete.

Written by the bounded child that decodes (training.pictures_child); reading takes a slice of a file.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge import pictures

TILE = 512
SMALLEST = 1600  # no level has a longest side below this
ROWS = 512  # halved at a time: the memory of a level is not needed twice
META = "levels.json"

Window = tuple[float, float]


def build(data: bytes, folder: Path, max_pixels: int) -> None:
    """Write the levels of these bytes into `folder`, which appears whole or not at all. Raises PictureRefused."""
    values = pictures.stored(data, max_pixels)
    if values.dtype.byteorder == ">":
        values = values.astype(values.dtype.newbyteorder("="))
    meta: dict[str, object] = {"width": values.shape[1], "height": values.shape[0]}
    if values.ndim == 2 and values.dtype != np.uint8:
        try:
            found = pictures.extent_of(values)
        except ValueError as error:
            raise pictures.PictureRefused("unsupported", detail=str(error)) from error
        meta |= {"least": found.least, "most": found.most, "low": found.low, "high": found.high}
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        for level in range(level_count(values.shape[1], values.shape[0])):
            if level:
                values = _halved(values)
            np.save(fresh / f"{level}.npy", values)
        (fresh / META).write_text(json.dumps(meta))
        os.rename(fresh, folder)
    except OSError:
        if not folder.exists():  # else somebody else was first, with the same levels
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def level_count(width: int, height: int) -> int:
    """How many levels a picture of this size has: halved as long as the result is not smaller than a screen."""
    count, longest = 1, max(width, height)
    while longest >= 2 * SMALLEST:
        count, longest = count + 1, (longest + 1) // 2
    return count


def _halved(values: np.ndarray) -> np.ndarray:
    """[H, W(, 3)] -> [ceil(H/2), ceil(W/2)(, 3)]: means of 2 x 2, the last row and column repeated where odd."""
    height, width = values.shape[:2]
    small = np.empty(((height + 1) // 2, (width + 1) // 2, *values.shape[2:]), values.dtype)
    for top in range(0, height, ROWS):
        part = values[top : top + ROWS]
        odd = [(0, part.shape[0] % 2), (0, part.shape[1] % 2), (0, 0)][: values.ndim]
        part = np.pad(part, odd, mode="edge")
        four = [part[down::2, across::2].astype(np.float64) for down in (0, 1) for across in (0, 1)]
        mean = (four[0] + four[1] + four[2] + four[3]) / 4
        rows = mean if values.dtype.kind == "f" else np.rint(mean)
        small[top // 2 : top // 2 + rows.shape[0]] = rows.astype(values.dtype)
    return small


@dataclass(frozen=True)
class Pyramid:
    """The levels in a folder. `window`: the one that the whole picture gives itself; None for 8 bits."""

    folder: Path
    width: int
    height: int
    extent: pictures.Extent | None

    @classmethod
    def open(cls, folder: Path) -> Pyramid:
        """Raises FileNotFoundError."""
        meta = json.loads((folder / META).read_text())
        os.utime(folder)  # what nobody looks at goes first when room is needed
        deep = pictures.Extent(meta["least"], meta["most"], meta["low"], meta["high"]) if "least" in meta else None
        return cls(folder, meta["width"], meta["height"], deep)

    @property
    def levels(self) -> int:
        return level_count(self.width, self.height)

    def tile(self, level: int, column: int, row: int, window: Window | None = None) -> bytes | None:
        """A JPEG of at most TILE x TILE pixels; None where the level has no such tile."""
        if not 0 <= level < self.levels:
            return None
        values = self._level(level)
        part = values[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
        return pictures.as_jpeg(self._shown(part, window)) if part.size else None

    def whole(self, longest: int, window: Window | None = None) -> bytes:
        """The whole picture as a JPEG, from the smallest level that is large enough."""
        level = self.levels - 1
        while level and max(self.width, self.height) >> level < longest:
            level -= 1
        return pictures.as_jpeg(self._shown(self._level(level), window), longest)

    def _level(self, level: int) -> np.ndarray:
        values: np.ndarray = np.load(self.folder / f"{level}.npy", mmap_mode="r", allow_pickle=False)
        return values

    def _shown(self, values: np.ndarray, window: Window | None) -> np.ndarray:
        if window is None and self.extent:
            window = (self.extent.low, self.extent.high)
        return np.ascontiguousarray(pictures.shown(values, window))
