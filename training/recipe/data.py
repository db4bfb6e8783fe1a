"""The pictures of a job: `items.jsonl`, their bytes, the views of them, and the order in which training sees them.

Sample order is a function of (seed, epoch) alone, so a resumed job neither skips nor repeats a picture.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge.pictures import PictureRefused, to_pixels

from .config import Config, canonical, sha256
from .events import Failed


@dataclass(frozen=True)
class Item:
    """One decided picture. `label` is the defect book's number (0 = OK); `old` means the parent was taught it
    already.
    """

    id: str
    digest: str
    path: Path
    label: int
    split: str | None
    set: str | None
    lot: str
    product: str
    old: bool


TAUGHT_FILE = "taught.json"


def read_items(job_dir: Path, parent_dir: Path | None = None) -> list[Item]:
    """Reads JOBDIR/items.jsonl; relative paths start at the job directory.

    A row may say `old` itself; else a picture is old when the parent's own record of its training names it.
    """
    record = parent_dir / TAUGHT_FILE if parent_dir else None
    taught = frozenset(json.loads(record.read_text("utf-8"))) if record and record.exists() else frozenset()
    items = []
    with (job_dir / "items.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            if not line.strip():
                continue
            row = json.loads(line)
            items.append(
                Item(
                    id=str(row["id"]),
                    digest=str(row["digest"]),
                    path=job_dir / row["path"],
                    label=int(row["label"]),
                    split=row.get("split"),
                    set=row.get("set"),
                    lot=str(row.get("lot") or ""),
                    product=str(row.get("product") or ""),
                    old=bool(row.get("old", row["digest"] in taught)),
                )
            )
    return items


def write_taught(out: Path, train: Sequence[Item], parent_dir: Path | None) -> None:
    """Leaves in a version's folder the digests of all pictures that it, or a parent before it, was trained on."""
    taught = {item.digest for item in train}
    if parent_dir and (parent_dir / TAUGHT_FILE).exists():
        taught |= set(json.loads((parent_dir / TAUGHT_FILE).read_text("utf-8")))
    (out / TAUGHT_FILE).write_bytes(canonical(sorted(taught)))


@dataclass(frozen=True)
class Splits:
    train: list[Item]
    val: list[Item]
    sets: dict[str, list[Item]]  # "val", "test" and golden-set codes, for evaluation


def split_items(items: Sequence[Item]) -> Splits:
    """An item with a set is only evaluated, whatever its split says."""
    train = [item for item in items if item.set is None and item.split == "train"]
    val = [item for item in items if item.set is None and item.split == "val"]
    sets: dict[str, list[Item]] = {"val": val}
    for item in items:
        if item.set is not None:
            sets.setdefault(item.set, []).append(item)
        elif item.split == "test":
            sets.setdefault("test", []).append(item)
    return Splits(train, val, sets)


def check_classes(splits: Splits, config: Config) -> list[dict[str, Any]]:
    """Refuses data nothing can be learned or judged from. Returns warnings ({code, params}) for what is merely thin.

    Fails with `class_missing` when a label is unknown, when OK, NG as such or a critical class is missing from
    training, or OK or a critical class from validation; with `no_ng_in_validation` when no operating point can be
    chosen.
    """
    known = {entry.number: entry for entry in config.classes}
    for item in splits.train + [item for members in splits.sets.values() for item in members]:
        if item.label not in known:
            raise Failed("class_missing", number=item.label, id=item.id, where="class_table")
    in_train = {item.label for item in splits.train}
    in_val = {item.label for item in splits.val}
    if not any(label != 0 for label in in_val):
        raise Failed("no_ng_in_validation", val=len(splits.val))
    if not any(label != 0 for label in in_train):
        raise Failed("class_missing", code="NG", where="train")
    warnings = []
    for entry in config.classes:
        for where, present in (("train", in_train), ("val", in_val)):
            if entry.number in present:
                continue
            if entry.index == 0 or entry.critical:
                raise Failed("class_missing", number=entry.number, code=entry.code, where=where)
            warnings.append({"code": "class_thin", "params": {"class": entry.code, "where": where}})
    return warnings


def read_bytes(item: Item) -> bytes:
    """The picture's bytes, checked against its digest. Fails with `picture_unreadable`."""
    try:
        data = item.path.read_bytes()
    except OSError as error:
        raise Failed("picture_unreadable", id=item.id, digest=item.digest, reason="missing") from error
    if sha256(data) != item.digest:
        raise Failed("picture_unreadable", id=item.id, digest=item.digest, reason="digest_mismatch")
    return data


def pixels_of(data: bytes, preprocess: dict[str, Any], *, id: str, digest: str = "") -> np.ndarray:
    """float32 [3, H, W]. Fails with `picture_unreadable`, naming the capture."""
    try:
        return to_pixels(data, preprocess)
    except PictureRefused as refused:
        raise Failed("picture_unreadable", id=id, digest=digest, reason=refused.code) from refused


def view_of(pixels: np.ndarray, view: str) -> np.ndarray:
    """[..., H, W] seen another way; a fixed set, so that every view can be cached."""
    if view == "identity":
        return pixels
    if view == "hflip":
        return pixels[..., ::-1]
    if view == "vflip":
        return pixels[..., ::-1, :]
    if view == "rot180":
        return pixels[..., ::-1, ::-1]
    raise ValueError(f"unknown view {view!r}")


@dataclass(frozen=True)
class Sample:
    item: Item
    view: str


def epoch_samples(train: Sequence[Item], config: Config, epoch: int) -> list[Sample]:
    """What one epoch sees, in order: every new picture once, and a `replay` share of the old ones, rotating by epoch.

    Without new pictures everything counts as new. The view of a picture walks through the views epoch by epoch, each
    picture starting at its own, so that all views are used evenly.
    """
    old = [item for item in train if item.old]
    new = [item for item in train if not item.old]
    if not new or config.mode == "fresh":
        new, old = list(train), []
    chosen = new + _replayed(old, config.replay, config.seed, epoch)
    views = config.views
    samples = [Sample(item, views[(int(item.digest[:8], 16) + epoch) % len(views)]) for item in chosen]
    order = np.random.default_rng([config.seed, 1, epoch]).permutation(len(samples))
    return [samples[i] for i in order]


def _replayed(old: Sequence[Item], share: float, seed: int, epoch: int) -> list[Item]:
    """The next `share` of every class, walking round a shuffled ring: all old pictures come before any comes twice."""
    chosen = []
    for label in sorted({item.label for item in old}):
        ring = [item for item in old if item.label == label]
        ring = [ring[i] for i in np.random.default_rng([seed, 2, label]).permutation(len(ring))]
        take = math.ceil(share * len(ring) - 1e-9)  # up, so that 1/share epochs are enough for all
        chosen += [ring[(epoch * take + i) % len(ring)] for i in range(take)]
    return chosen
