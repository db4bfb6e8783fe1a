"""What pictures are compared by: a short vector from the frozen base, and a small grey copy for telling twins apart.

Parts of the result are written as they are done: whoever ends this process at any moment loses one part, no more.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import save_file

from edge.pictures import PictureRefused, decode, normalise, resize

from .config import canonical
from .data import Item, read_bytes
from .events import Events, Failed, StopRequest
from .graph import open_session
from .lora import merged_targets
from .model import Base, Whole, device_of_choice, load_network, open_base

log = logging.getLogger(__name__)

BATCH = 8
PART = 16  # pictures in one file of the result
GREY = 24  # side of the grey copy, in pixels

Features = Callable[[np.ndarray], np.ndarray]


@dataclass
class Part:
    """Pictures that are done but not written yet. `refused`: (id, why) of those that cannot be decoded."""

    ids: list[str] = field(default_factory=list)
    vectors: list[np.ndarray] = field(default_factory=list)
    greys: list[np.ndarray] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids) + len(self.refused)


def embed(folder: Path, events: Events, stop: StopRequest) -> None:
    """Reads config.json and items.jsonl of the folder; writes part-*.safetensors and names each in a `part` event."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    items = _read_items(folder)
    base = open_base(folder / config["base_dir"])
    features = _features(base, int(config["threads"]))
    project = projection(int(base.map["features"]), int(config["dims"]), int(config["seed"]))
    part, batch, began, parts = Part(), [], time.monotonic(), 0
    for index, item in enumerate(items):
        stop.check()
        events.phase("embed", index, len(items))  # before decoding: a crash in there names its picture
        try:
            batch.append((item, *_seen(item, config["preprocess"])))
        except Failed as failed:
            part.refused.append((item.id, str(failed.params["reason"])))
        last = index + 1 == len(items)
        if len(batch) == BATCH or last:
            _take(part, batch, features, project)
            batch = []
        if part and (len(part) + len(batch) >= PART or last):
            _take(part, batch, features, project)
            batch = []
            _write(folder / f"part-{parts:05d}.safetensors", part, events)
            part, parts = Part(), parts + 1
    log.info("%d pictures in %.1f s", len(items), time.monotonic() - began)


def projection(features: int, dims: int, seed: int) -> np.ndarray:
    """float32 [features, dims] of equal signs and sizes at random: keeps angles, and is the same on every machine.

    The signs are bits of a hash, not of a random generator whose stream may change with a library's version.
    """
    count = features * dims
    stream = hashlib.shake_256(f"loopline projection {seed} {features} {dims}".encode()).digest(math.ceil(count / 8))
    bits = np.unpackbits(np.frombuffer(stream, np.uint8))[:count].reshape(features, dims)
    return (bits.astype(np.float32) * 2 - 1) / np.float32(math.sqrt(dims))


def grey_of(seen: np.ndarray) -> np.ndarray:
    """uint8 [GREY * GREY] of a decoded picture: small enough to keep, large enough to tell two parts apart."""
    small = Image.fromarray(seen).convert("L").resize((GREY, GREY), Image.Resampling.BICUBIC)
    return np.asarray(small, np.uint8).reshape(-1)


def _read_items(folder: Path) -> list[Item]:
    with (folder / "items.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    return [
        Item(id=str(row["id"]), digest=str(row["digest"]), path=folder / row["path"], label=0, split=None, set=None,
             lot="", product="", old=False)
        for row in rows
    ]  # fmt: skip


def _seen(item: Item, preprocess: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The picture as the base wants it, and its grey copy. Fails with `picture_unreadable`."""
    window = preprocess.get("window")
    try:
        seen = decode(read_bytes(item), (float(window[0]), float(window[1])) if window else None)
    except PictureRefused as refused:
        raise Failed("picture_unreadable", id=item.id, digest=item.digest, reason=refused.code) from refused
    return normalise(resize(seen, preprocess), preprocess), grey_of(seen)


def _features(base: Base, threads: int) -> Features:
    """Pixels float32 [N, 3, H, W] to pooled features [N, C], on whatever this machine is fastest with."""
    device = device_of_choice()
    if device.type != "cuda":
        session = open_session(base.graph_path, merged_targets(base, None), threads)
        return lambda pixels: np.asarray(session.run(["features"], {"pixels": pixels})[0])
    whole = Whole(load_network(base).to(device))

    def on_gpu(pixels: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            found: np.ndarray = whole(torch.from_numpy(pixels).to(device))[0].float().cpu().numpy()
        return found

    return on_gpu


def _take(
    part: Part, batch: list[tuple[Item, np.ndarray, np.ndarray]], features: Features, project: np.ndarray
) -> None:
    """Add the vectors of a batch: projected, and of length 1."""
    if not batch:
        return
    vectors = features(np.ascontiguousarray(np.stack([pixels for _, pixels, _ in batch]))) @ project
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    for (item, _, grey), vector, length in zip(batch, vectors, lengths, strict=True):
        if not math.isfinite(float(length[0])) or length[0] == 0:
            part.refused.append((item.id, "no_features"))
            continue
        part.ids.append(item.id)
        part.vectors.append((vector / length).astype(np.float32))
        part.greys.append(grey)


def _write(path: Path, part: Part, events: Events) -> None:
    """Under its name only once it is whole."""
    dims, side = (len(part.vectors[0]), len(part.greys[0])) if part.ids else (0, 0)
    tensors: dict[str, np.ndarray] = {
        "vectors": np.asarray(part.vectors, np.float32).reshape(-1, dims),
        "greys": np.asarray(part.greys, np.uint8).reshape(-1, side),
    }
    fresh = path.with_suffix(".tmp")
    save_file(
        tensors, fresh,
        metadata={"ids": canonical(part.ids).decode(), "refused": canonical(part.refused).decode()},
    )  # fmt: skip
    fresh.rename(path)
    events.emit("part", file=path.name, count=len(part))
