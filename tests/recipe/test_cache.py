"""The prefix cache loses nothing but time, whatever happens to its files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from training.recipe.cache import PrefixCache, cache_key

PREPROCESS = {"size": [64, 64], "mean": [0.5] * 3}


def array(seed: int, shape: tuple[int, ...] = (4, 8, 8)) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


@pytest.mark.parametrize("shape", [(3,), (5, 7), (4, 8, 8), (2, 3, 4, 5)])
def test_what_is_put_comes_back_exactly(tmp_path: Path, shape: tuple[int, ...]) -> None:
    cache = PrefixCache(tmp_path, 1 << 20)
    cache.put("ab" * 32, array(1, shape))
    found = PrefixCache(tmp_path, 1 << 20).get("ab" * 32)
    assert found is not None
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, array(1, shape))


def test_every_part_of_the_key_matters() -> None:
    keys = {
        cache_key(digest, preprocess, base, cut, view)
        for digest in ("d1", "d2")
        for preprocess in (PREPROCESS, {**PREPROCESS, "size": [96, 64]})
        for base in ("b1", "b2")
        for cut in ("blocks.5", "blocks.6")
        for view in ("identity", "hflip")
    }
    assert len(keys) == 32


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "header"])
def test_a_damaged_entry_counts_as_missing_and_is_removed(tmp_path: Path, damage: str) -> None:
    cache = PrefixCache(tmp_path, 1 << 20)
    cache.put("cd" * 32, array(2))
    (path,) = tmp_path.glob("??/*.act")
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-5] ^= 1
    elif damage == "header":
        data[6] = 2  # dimensions
    path.write_bytes(b"" if damage == "empty" else data[: len(data) // 2] if damage == "cut" else data)
    assert cache.get("cd" * 32) is None
    assert not path.exists()


def test_over_its_cap_it_drops_what_was_used_longest_ago(tmp_path: Path) -> None:
    size = array(0).nbytes + 32
    cache = PrefixCache(tmp_path, 10 * size)
    for number in range(10):
        cache.put(f"{number:064x}", array(number))
        (path,) = tmp_path.glob(f"??/{number:064x}.act")
        os.utime(path, (1000 + number, 1000 + number))
    assert cache.get(f"{0:064x}") is not None  # used now, so it stays
    cache.put(f"{10:064x}", array(10))
    assert cache.get(f"{0:064x}") is not None
    assert cache.get(f"{10:064x}") is not None
    assert cache.get(f"{1:064x}") is None
    assert sum(path.stat().st_size for path in tmp_path.glob("??/*")) <= 10 * size


def test_a_folder_that_cannot_be_written_costs_only_the_saving(tmp_path: Path) -> None:
    cache = PrefixCache(tmp_path, 1 << 20)
    (tmp_path / "ef").write_text("a file where a folder should be")
    cache.put("ef" * 32, array(3))
    assert cache.get("ef" * 32) is None
