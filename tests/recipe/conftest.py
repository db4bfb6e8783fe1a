"""Small real networks with random weights, and pictures that can be learned: bright cells, some with a dark crack."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import pytest
from PIL import Image

CHECKOUT = Path(__file__).resolve().parents[2]
SIZE = 64
CLASSES = [
    {"index": 0, "number": 0, "code": "OK"},
    {"index": 1, "number": 3, "code": "crack", "name_ko": "균열", "name_en": "crack", "critical": False},
]
PREPROCESS = {"size": [SIZE, SIZE], "mean": [0.5] * 3, "std": [0.5] * 3, "resize": "squash", "window": None}


def import_small(folder: Path, name: str, size: int) -> Path:
    """A base bundle of one of timm's test networks with random weights of a fixed seed."""
    import torch
    from safetensors.torch import save_file

    from training.recipe.bases import import_base
    from training.recipe.model import build_network

    torch.manual_seed(7)
    network = build_network(name)
    # As after pretraining: statistics that fit what comes in, so that activations stay in range through all layers.
    network.train()
    with torch.no_grad():
        for _ in range(20):
            network(torch.randn(16, 3, size, size))
    weights = folder / "weights.safetensors"
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's exporter warns about its own internals
        import_base(folder / "base", name=name, weights=weights, size=(size, size))
    return folder / "base"


@pytest.fixture(scope="session")
def small_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolutional base of 0.1 M parameters for 64 x 64 pixels."""
    return import_small(tmp_path_factory.mktemp("conv"), "test_efficientnet", SIZE)


@pytest.fixture(scope="session")
def small_vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vision transformer of 0.3 M parameters for 160 x 160 pixels."""
    return import_small(tmp_path_factory.mktemp("vit"), "test_vit", 160)


def picture(seed: int, cracked: bool, product: str = "mono") -> bytes:
    """PNG of a cell: noise around grey, stripes for "poly", a dark diagonal when cracked."""
    rng = np.random.default_rng(seed)
    pixels = rng.normal(150, 12, (SIZE, SIZE))
    if product == "poly":
        pixels += 25 * np.sin(np.arange(SIZE) / 3)[None, :]
    if cracked:
        start = int(rng.integers(5, 25))
        for i in range(35):
            pixels[start + i, max(0, start + i - 3) : start + i + 3] -= 90
    out = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(out, "PNG")
    return out.getvalue()


Row = dict[str, Any]


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., list[Row]]:
    """Writes pictures and returns their lines of items.jsonl, every third one cracked."""
    folder = tmp_path / "pictures"
    folder.mkdir()

    def make(count: int, first: int, split: str | None, set: str | None = None, product: str = "mono") -> list[Row]:
        made = []
        for seed in range(first, first + count):
            data = picture(seed, seed % 3 == 0, product)
            digest = hashlib.sha256(data).hexdigest()
            (folder / digest).write_bytes(data)
            made.append({
                "id": f"capture-{seed}", "digest": digest, "path": str(folder / digest),
                "label": 3 if seed % 3 == 0 else 0, "split": split, "set": set, "lot": f"lot-{seed // 8}",
                "product": product,
            })  # fmt: skip
        return made

    return make


@pytest.fixture
def make_job(tmp_path: Path, small_base: Path) -> Callable[..., Path]:
    """Writes a job directory. Keyword arguments replace keys of the config."""

    def make(name: str, items: list[Row], **changes: Any) -> Path:
        job_dir = tmp_path / name
        job_dir.mkdir()
        config = {
            "seed": 1, "threads": 1, "line": "el-1", "job": name, "base_dir": str(small_base), "parent_dir": None,
            "champion_dir": None, "mode": "fresh", "lora": {"rank": 4, "alpha": 8.0, "cut": "blocks.3"},
            "train": {"epochs": 3, "batch": 16, "lr": 0.005, "views": ["identity", "hflip"], "weight_decay": 0.01},
            "replay": 0.5, "preprocess": PREPROCESS, "classes": CLASSES, "escape_limit": 0.1, "critical": [],
            "cache_dir": str(tmp_path / "cache"), "cache_max_bytes": 1 << 28, "golden_vectors": 4, **changes,
        }  # fmt: skip
        (job_dir / "config.json").write_text(json.dumps(config), "utf-8")
        (job_dir / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items), "utf-8")
        return job_dir

    return make


@pytest.fixture
def small_items(rows: Callable[..., list[Row]]) -> list[Row]:
    return rows(48, 0, "train") + rows(24, 100, "val") + rows(12, 200, None, "golden")


class Heard(io.StringIO):
    """A stream for `Events` that remembers, and can act on, what is written."""

    def __init__(self, on_event: Callable[[dict[str, Any]], None] = lambda event: None) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []
        self._on_event = on_event

    def write(self, text: str) -> int:
        event = json.loads(text)
        self.events.append(event)
        self._on_event(event)
        return len(text)

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]


class Recipe:
    """The command line, as a supervisor starts it: a session of its own, stdin held by us until `let_go`."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "training.recipe", *arguments],
                cwd=CHECKOUT, text=True, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=stderr,
            )  # fmt: skip
        assert self.process.stdout is not None
        self.stdout = self.process.stdout

    def wait_for(self, name: str) -> dict[str, Any]:
        for line in self.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == name:
                return event
        raise AssertionError(f"ended before {name}: {self.log.read_text()[-2000:]}")

    def finish(self) -> list[dict[str, Any]]:
        """Waits for the end by itself and returns the remaining events."""
        events = [json.loads(line) for line in self.stdout]
        self.process.wait(60)
        return events

    def let_go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Recipe]]:
    started: list[Recipe] = []

    def begin(*arguments: str) -> Recipe:
        started.append(Recipe(tmp_path / f"log-{len(started)}.txt", *arguments))
        return started[-1]

    yield begin
    for recipe in started:
        if recipe.process.poll() is None:
            recipe.process.kill()
            recipe.process.wait()
        recipe.let_go()
        recipe.stdout.close()
