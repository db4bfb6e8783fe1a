"""Pictures of made-up parts: large shapes, as parts have them, and a little noise; and copies that show the same."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 160, 120


def part(seed: int, *, width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """A part with marks where the seed says."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:height, 0:width]
    pixels = np.full((height, width), 110.0)
    for _ in range(8):
        y, x, size, depth = rng.uniform(0, height), rng.uniform(0, width), rng.uniform(8, 40), rng.uniform(-70, 90)
        pixels += depth * np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / size**2)
    return Image.fromarray((pixels + rng.normal(0, 3, pixels.shape)).clip(0, 255).astype(np.uint8))


def saved(image: Image.Image, kind: str = "PNG", **how: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def brighter(image: Image.Image, by: float) -> Image.Image:
    return image.point(lambda value: min(255, round(value * by)))


def cut(image: Image.Image, pixels: int) -> Image.Image:
    width, height = image.size
    return image.crop((pixels, 0, width, height - pixels))
