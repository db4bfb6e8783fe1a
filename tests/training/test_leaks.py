"""What a leak costs, on real pictures: the same simple model looks near-perfect after a random split, and is not.

Nearest neighbour on gradients of 1,031 magnet tiles, one tile under several lamps. docs/snapshots.md and the builder
page quote these figures.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np
import pytest
from PIL import Image

from registry.intervals import wilson
from training import splitting
from training.splitting import TRAIN, VAL, Picture

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.needs_shared_data
SHARE, SEED = 0.2, 0
CELLS, ANGLES = 8, 9


def gradients(path: Path) -> np.ndarray:
    """Histograms of edge directions in 8 x 8 cells of a small grey picture, each cell of length one."""
    grey = np.asarray(Image.open(path).convert("L").resize((64, 64)), float)
    down, right = np.gradient(grey)
    strength = np.hypot(down, right)
    angle = np.minimum((np.arctan2(down, right) % np.pi / np.pi * ANGLES).astype(int), ANGLES - 1)
    size = grey.shape[0] // CELLS
    cells = [
        np.bincount(angle[top : top + size, left : left + size].ravel(), cut.ravel(), ANGLES)
        for top in range(0, 64, size)
        for left in range(0, 64, size)
        for cut in (strength[top : top + size, left : left + size],)
    ]
    found = np.stack(cells)
    return np.asarray((found / (np.linalg.norm(found, axis=1, keepdims=True) + 1e-6)).ravel())


def right(features: np.ndarray, labels: np.ndarray, judged: np.ndarray) -> tuple[int, int]:
    """How many of the judged pictures have the class of their nearest neighbour among the others."""
    known, asked = features[~judged], features[judged]
    distance = (asked**2).sum(1)[:, None] + (known**2).sum(1)[None] - 2 * asked @ known.T
    hits = labels[~judged][distance.argmin(1)] == labels[judged]
    return int(hits.sum()), len(hits)


@pytest.fixture(scope="module")
def tiles(shared_data: Path) -> tuple[list[Picture], np.ndarray]:
    """The tiles as splitting knows captures, and their features."""
    folder = shared_data / "magnetic-tile"
    with (folder / "manifest.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = {name: number for number, name in enumerate(["OK", *sorted({row["label"] for row in rows} - {"OK"})])}
    pictures = [
        Picture(UUID(int=at), UUID(int=at), row["sha256"], row["lot"], "", "tile", numbers[row["label"]])
        for at, row in enumerate(rows)
    ]
    return pictures, np.stack([gradients(folder / row["image"]) for row in rows])


def sides_of_lots(pictures: list[Picture], judged: np.ndarray) -> dict[str, set[bool]]:
    found: dict[str, set[bool]] = defaultdict(set)
    for picture, side in zip(pictures, judged, strict=True):
        found[picture.lot].add(bool(side))
    return found


def test_a_random_split_looks_near_perfect_and_a_split_by_lot_does_not(
    tiles: tuple[list[Picture], np.ndarray],
) -> None:
    pictures, features = tiles
    labels = np.array([picture.label for picture in pictures])
    at_random = np.zeros(len(pictures), bool)
    at_random[np.random.default_rng(SEED).permutation(len(pictures))[: int(SHARE * len(pictures))]] = True

    groups = splitting.groups(pictures)
    dealt = splitting.deal(groups, {}, {TRAIN: 1 - SHARE, VAL: SHARE, "test": 0.0}, SEED)
    by_lot = np.zeros(len(pictures), bool)
    for group in groups:
        for picture in group.pictures:
            by_lot[picture.id.int] = dealt[group.name + str(group.pictures[0].id)] == VAL

    leaked, honest = right(features, labels, at_random), right(features, labels, by_lot)
    for name, (hits, of) in (("random", leaked), ("by lot", honest)):
        low, high = wilson(hits, of)
        print(f"{name}: {hits} / {of} = {100 * hits / of:.1f} %, 95 % {100 * low:.1f}-{100 * high:.1f} %")
    assert leaked == (200, 206)  # docs/snapshots.md and the builder page quote both
    assert honest == (142, 219)
    assert sum(len(sides) == 2 for sides in sides_of_lots(pictures, at_random).values()) > 50
    assert all(len(sides) == 1 for sides in sides_of_lots(pictures, by_lot).values())
