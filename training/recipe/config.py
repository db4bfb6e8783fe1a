"""What a job asks for: `config.json` of a job directory, read once and checked.

The supervisor writes it; a wrong value is a fault of the caller and raises ValueError with the key's name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VIEWS = ("identity", "hflip", "vflip", "rot180")
MODES = ("fresh", "continue")
# Measured on solar cells (elpv, 450 mono cells, 224 px, one split by lot, AUROC on held-out lots): the last stage gives
# 0.941 after 4 epochs, 0.939 after 6, 0.943 after 8, 0.944 after 12; the last two stages 0.968 after 12 at about four
# times the time per picture. A plant that has the minutes sets "blocks.5" and 12.
DEFAULTS: dict[str, Any] = {
    "seed": 0,
    "lora": {"rank": 8, "alpha": 16.0, "cut": "blocks.6"},
    "train": {"epochs": 8, "batch": 32, "lr": 0.002, "views": ["identity", "hflip"], "weight_decay": 0.01},
    "replay": 0.3,
    "golden_vectors": 12,
}
DEFAULT_CACHE_BYTES = 4 << 30
TOLERANCE = 0.002  # largest difference of a logit between torch and ONNX Runtime that a device accepts


@dataclass(frozen=True)
class ClassEntry:
    """One column of the head. `index` counts columns, 0 is OK; `number` is the defect book's stable id."""

    index: int
    number: int
    code: str
    critical: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        known = {"index": self.index, "number": self.number, "code": self.code}
        return {**self.extra, **known, **({} if self.index == 0 else {"critical": self.critical})}


@dataclass(frozen=True)
class Config:
    """One job. Paths are absolute or relative to the job directory."""

    seed: int
    threads: int
    line: str
    job: str
    mode: str
    base_dir: Path
    parent_dir: Path | None
    champion_dir: Path | None
    rank: int
    alpha: float
    cut: str
    epochs: int
    batch: int
    lr: float
    weight_decay: float
    views: tuple[str, ...]
    replay: float
    preprocess: dict[str, Any]
    classes: tuple[ClassEntry, ...]
    escape_limit: float
    critical: frozenset[int]
    cache_dir: Path
    cache_max_bytes: int
    golden_vectors: int

    @property
    def index_of(self) -> dict[int, int]:
        """Defect book number -> column of the head."""
        return {entry.number: entry.index for entry in self.classes}


def read_classes(rows: list[Mapping[str, Any]], critical: frozenset[int] = frozenset()) -> tuple[ClassEntry, ...]:
    """The class table of a config or manifest. Raises ValueError unless indices are 0..K-1 in order and 0 is number
    0.
    """
    entries = tuple(
        ClassEntry(
            index=int(row["index"]),
            number=int(row["number"]),
            code=str(row["code"]),
            critical=bool(row.get("critical", False)) or int(row["number"]) in critical,
            extra={k: v for k, v in row.items() if k not in ("index", "number", "code", "critical")},
        )
        for row in rows
    )
    if [entry.index for entry in entries] != list(range(len(entries))) or len(entries) < 2:
        raise ValueError("classes: indices must be 0..K-1 in order, with at least OK and one defect class")
    if entries[0].number != 0 or len({entry.number for entry in entries}) != len(entries):
        raise ValueError("classes: number 0 (OK) comes first and no number twice")
    return entries


def read_config(job_dir: Path) -> Config:
    """Reads JOBDIR/config.json. Raises ValueError or KeyError naming the key."""
    raw = json.loads((job_dir / "config.json").read_text("utf-8"))
    lora = DEFAULTS["lora"] | (raw.get("lora") or {})
    train = DEFAULTS["train"] | (raw.get("train") or {})
    critical = frozenset(int(number) for number in raw.get("critical", ()))
    classes = read_classes(raw["classes"], critical)
    config = Config(
        seed=int(raw.get("seed", DEFAULTS["seed"])),
        threads=int(raw.get("threads", 2)),
        line=str(raw["line"]),
        job=str(raw["job"]),
        mode=str(raw.get("mode", "fresh")),
        base_dir=job_dir / raw["base_dir"],
        parent_dir=job_dir / raw["parent_dir"] if raw.get("parent_dir") else None,
        champion_dir=job_dir / raw["champion_dir"] if raw.get("champion_dir") else None,
        rank=int(lora["rank"]),
        alpha=float(lora["alpha"]),
        cut=str(lora["cut"]),
        epochs=int(train["epochs"]),
        batch=int(train["batch"]),
        lr=float(train["lr"]),
        weight_decay=float(train["weight_decay"]),
        views=tuple(train["views"]),
        replay=float(raw.get("replay", DEFAULTS["replay"])),
        preprocess=dict(raw["preprocess"]),
        classes=classes,
        escape_limit=float(raw.get("escape_limit", 0.0)),
        critical=frozenset(entry.number for entry in classes if entry.critical),
        cache_dir=job_dir / raw.get("cache_dir", "cache"),
        cache_max_bytes=int(raw.get("cache_max_bytes", DEFAULT_CACHE_BYTES)),
        golden_vectors=min(16, int(raw.get("golden_vectors", DEFAULTS["golden_vectors"]))),
    )
    _check(config)
    return config


def _check(config: Config) -> None:
    if config.mode not in MODES:
        raise ValueError(f"mode: {config.mode!r} is not one of {MODES}")
    if config.mode == "continue" and config.parent_dir is None:
        raise ValueError("parent_dir: mode continue needs one")
    if not config.views or any(view not in VIEWS for view in config.views):
        raise ValueError(f"train.views: {config.views} are not all of {VIEWS}")
    if not 0 <= config.escape_limit < 1 or not 0 <= config.replay <= 1:
        raise ValueError("escape_limit and replay are shares between 0 and 1")
    if min(config.rank, config.epochs, config.batch, config.threads) < 1 or config.lr <= 0 or config.alpha <= 0:
        raise ValueError("lora.rank, lora.alpha, train.epochs, train.batch, train.lr and threads are positive")
    if config.golden_vectors < 1:
        raise ValueError("golden_vectors: a version without one cannot be checked")
    if len(config.preprocess["size"]) != 2:
        raise ValueError("preprocess.size: [height, width]")


def canonical(document: Any) -> bytes:
    """JSON with one possible spelling, so that its SHA-256 names the document."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
