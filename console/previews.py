"""Pictures for browsers, made once from the original bytes and kept by digest and size; safe to delete at any time."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from django.conf import settings

from edge.pictures import extent, preview
from registry import blobs
from training import pictures, pyramid
from training.pyramid import Pyramid

if TYPE_CHECKING:
    from pathlib import Path

    from training.models import Capture

SIZES = {"thumb": 320, "stage": 1600}
FORMAT = 1  # raise it when edge.pictures.preview draws the same bytes another way


Window = tuple[float, float]


def deep(capture: Capture) -> bool:
    """Has it more than 8 bits of grey, so that a window decides what can be seen?"""
    return capture.mode.startswith("I") or capture.mode == "F"


def line_window(capture: Capture) -> Window | None:
    """(black, white) that the line's settings give to its 16-bit pictures."""
    low, high = capture.line.window_low, capture.line.window_high
    return None if low is None or high is None else (low, high)


def name(capture: Capture, size: str, window: Window | None = None) -> str:
    """What names a preview beyond doubt: bytes, size, and the window that makes 16-bit greys visible."""
    shown = window or line_window(capture)
    part = f"-{shown[0]:g}-{shown[1]:g}" if shown else ""
    return f"{capture.digest}-{SIZES[size]}{part}-{FORMAT}"


def large(capture: Capture) -> bool:
    """Is the stage smaller than the picture? Then its browser loads the part it shows as tiles."""
    return max(capture.width, capture.height) > SIZES["stage"]


def level_count(capture: Capture) -> int:
    """How many levels its tiles have; 0 for a picture that is shown whole."""
    return pyramid.level_count(capture.width, capture.height) if large(capture) else 0


def read(capture: Capture, size: str, window: Window | None = None) -> bytes:
    """JPEG bytes; raises blobs.Missing, blobs.Damaged or PictureRefused.

    A reader's own `window` is drawn anew each time: a slider that moves would fill the disk.
    """
    kept = _path(capture, size)
    if window is None:
        with contextlib.suppress(FileNotFoundError):
            return kept.read_bytes()
    shown = window or line_window(capture)
    if large(capture):
        made = _levels(capture).whole(SIZES[size], shown)
    else:
        made = preview(blobs.read(capture.digest), SIZES[size], shown)
    if window is None:
        _keep(kept, made)
    return made


def tile(capture: Capture, level: int, column: int, row: int, window: Window | None = None) -> bytes | None:
    """JPEG bytes of one tile of a large picture, None where it has none; raises as `read` does."""
    return _levels(capture).tile(level, column, row, window or line_window(capture)) if large(capture) else None


def _levels(capture: Capture) -> Pyramid:
    """The levels of a large picture, made at the first look at it."""
    folder = settings.CACHE_ROOT / "levels" / capture.digest[:2] / f"{capture.digest}-{FORMAT}"
    try:
        return Pyramid.open(folder)
    except FileNotFoundError:
        pictures.write_levels(blobs.read(capture.digest), folder)
        trim(settings.CACHE_ROOT / "levels", settings.LEVELS_MAX_BYTES)
        return Pyramid.open(folder)


def levels(capture: Capture) -> dict[str, float | bool]:
    """Least and greatest stored value of a deep picture and the window it is shown through (`line`: by the line's)."""
    found = _levels(capture).extent if large(capture) else extent(blobs.read(capture.digest))
    assert found is not None  # what is not deep is not asked for
    low, high = line_window(capture) or (found.low, found.high)
    return {
        "least": found.least,
        "most": found.most,
        "low": low,
        "high": high,
        "line": line_window(capture) is not None,
    }


def trim(root: Path, most_bytes: int) -> None:
    """Remove what was looked at longest ago until the folders below `root` take no more than this."""
    found = [(folder.stat().st_mtime, folder) for folder in root.glob("*/*") if not folder.name.startswith("tmp")]
    sizes = {folder: sum(file.stat().st_size for file in folder.iterdir()) for _at, folder in found}
    total = sum(sizes.values())
    for _at, folder in sorted(found)[:-1]:  # the newest is the one that was just made
        if total <= most_bytes:
            break
        shutil.rmtree(folder, ignore_errors=True)
        total -= sizes[folder]


def _path(capture: Capture, size: str) -> Path:
    return settings.CACHE_ROOT / "previews" / capture.digest[:2] / f"{name(capture, size)}.jpg"


def _keep(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    os.replace(fresh, path)  # two readers may make the same one; either is right
