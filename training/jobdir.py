"""The folder of a job's attempt: what the recipe reads and writes. Pictures stay in the blob store, named by digest.

Each attempt has a folder of its own, so that a process that was given up on cannot write into a later one's result;
only the checkpoint moves on. The log is the job's.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings

from registry import bases, blobs, classes, versions
from registry.models import BaseModel
from training import golden, processes
from training.models import GoldenItem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training.leases import Held
    from training.models import Job

CHECKPOINT = "checkpoint"
OUT = "out"
HEAVY = (CHECKPOINT, OUT, "base", "parent", "champion")


def root(job: Job) -> Path:
    return Path(settings.JOBS_ROOT) / str(job.pk)


def log_file(job: Job) -> Path:
    """What the recipe wrote to stderr, over all attempts; it may not exist yet."""
    return root(job) / "log.txt"


def folder_of(held: Held) -> Path:
    return root(held.job) / f"attempt-{held.fence}"


def threads() -> int:
    """How many threads the recipe gets: the setting, else the cores that this worker may use."""
    return int(settings.TRAIN_THREADS) or processes.cores()


def prepare(held: Held) -> Path:
    """Write config, pictures and models for the recipe; go on from the last attempt's checkpoint. Returns the folder.

    Raises blobs.Missing or blobs.Damaged.
    """
    job, folder = held.job, folder_of(held)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _take_over_checkpoint(job, folder)
    base = base_of(job)
    bases.unpack(base, folder / "base")
    for name, version in (("parent", job.parent), ("champion", job.champion)):
        if version is not None:
            versions.unpack(version, folder / name)
    config = recipe_config(job, folder)
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True, ensure_ascii=False), "utf-8")
    with (folder / "items.jsonl").open("w", encoding="utf-8") as out:
        for item in items(job):
            out.write(json.dumps(item, ensure_ascii=False) + "\n")
    return folder


def base_of(job: Job) -> BaseModel:
    return BaseModel.objects.get(pk=job.config["base"]["id"])


def recipe_config(job: Job, folder: Path) -> dict[str, Any]:
    """`config.json` as the recipe reads it. Paths are absolute."""
    asked = job.config
    return {
        "seed": asked["seed"],
        "threads": threads(),
        "line": job.line.code,
        "job": str(job.pk),
        "mode": asked["mode"],
        "base_dir": str(folder / "base"),
        "parent_dir": str(folder / "parent") if job.parent else None,
        "champion_dir": str(folder / "champion") if job.champion else None,
        "lora": asked["lora"],
        "train": asked["train"],
        "replay": asked["replay"],
        "preprocess": asked["preprocess"],
        "classes": job.snapshot.classes,
        "escape_limit": asked["escape_limit"],
        "critical": [entry["number"] for entry in job.snapshot.classes if entry.get("critical")],
        "cache_dir": str(Path(settings.CACHE_ROOT) / "prefix"),
        "cache_max_bytes": int(settings.CACHE_MAX_BYTES),
        "golden_vectors": asked["golden_vectors"],
    }


def items(job: Job) -> Iterator[dict[str, Any]]:
    """Pictures to train and judge on (the snapshot's), then those to judge on only (golden sets), in a fixed order."""
    wanted = ("capture_id", "capture__digest", "label", "split", "capture__lot", "capture__product")
    for row in job.snapshot.items.order_by("capture_id").values_list(*wanted).iterator(5000):
        yield _item(row[0], row[1], row[2], row[3], None, row[4], row[5])
    known, meant = {entry["number"] for entry in job.snapshot.classes}, classes.meanings(job.line)
    for golden_set in golden.current(job.line):
        rows = GoldenItem.objects.filter(golden_set=golden_set).order_by("capture_id")
        for row in rows.values_list("capture_id", "capture__digest", "label", "capture__lot", "capture__product"):
            label = row[2] if row[2] in known else meant.get(row[2], row[2])  # it may have been merged since
            if label in known:
                yield _item(row[0], row[1], label, None, golden_set.code, row[3], row[4])


def _item(
    pk: Any, digest: str, label: int, split: str | None, set_code: str | None, lot: str, product: str
) -> dict[str, Any]:
    path = str(blobs.path(digest))
    return {"id": str(pk), "digest": digest, "path": path, "label": label, "split": split, "set": set_code, "lot": lot,
            "product": product}  # fmt: skip


def _take_over_checkpoint(job: Job, folder: Path) -> None:
    attempts = sorted(root(job).glob("attempt-*"), key=lambda path: -int(path.name.rsplit("-", 1)[1]))
    for former in attempts:
        if former != folder and (former / CHECKPOINT).is_dir():
            # A rename: whoever still writes there finds its folder gone.
            (former / CHECKPOINT).rename(folder / CHECKPOINT)
            break
    for former in attempts:
        if former != folder:
            shutil.rmtree(former, ignore_errors=True)


def clear(job: Job) -> None:
    """Give the disk back once a job has ended: everything but log, config and list of pictures."""
    for folder in root(job).glob("attempt-*"):
        for name in HEAVY:
            shutil.rmtree(folder / name, ignore_errors=True)
