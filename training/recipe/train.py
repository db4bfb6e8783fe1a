"""One job from its directory to a version's files: the order of the phases, and the report on it."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .cache import PrefixCache
from .checkpoint import Checkpoints
from .config import Config, canonical, read_classes, read_config, sha256
from .data import Item, Sample, Splits, check_classes, read_items, split_items, write_taught
from .evaluate import Thresholds, choose_thresholds, matched_cut, rates, scores_of
from .events import Events, StopRequest
from .export import CHECKED_ITEMS, MANIFEST_FILE, MODEL_FILE, RESULT_FILE, check_onnx, write_version
from .fit import fit
from .judge import Judge, open_judge, timm_network
from .lora import attach, grow_head, load_head, new_head, read_adapter, set_adapter_state, trainable
from .model import Base, device_of_choice, load_network, open_base
from .prefix import Activations

log = logging.getLogger(__name__)

Warnings = list[dict[str, Any]]


def train(job_dir: Path, events: Events, stop: StopRequest) -> None:
    """Trains JOBDIR and leaves JOBDIR/out whole, or not at all. Raises Failed or Stopped."""
    began = time.monotonic()
    seconds: dict[str, float] = {}
    config = read_config(job_dir)
    torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    splits = split_items(read_items(job_dir, config.parent_dir))
    warnings = check_classes(splits, config)
    base = open_base(config.base_dir)
    config = _lora_of_parent(config, warnings)
    cache = PrefixCache(config.cache_dir, config.cache_max_bytes)
    activations = Activations(base, config.cut, config.preprocess, cache, config.threads)
    champion = _open_champion(config, base, cache, warnings)
    log.info(
        "%s on %s: adapter of rank %d from %s on, %d epochs in batches of %d, seed %d, %d threads; "
        "%d pictures to train on, %s", config.mode, base.map["name"], config.rank, config.cut, config.epochs,
        config.batch, config.seed, config.threads, len(splits.train),
        ", ".join(f"{len(items)} in {name}" for name, items in splits.sets.items()),
    )  # fmt: skip
    events.phase("load", 1, 1)

    mark = time.monotonic()
    _prepare(activations, champion, splits, config, events, stop)
    if cache.dropped:
        warnings.append({"code": "cache_too_small", "params": {"dropped": cache.dropped}})
    seconds["load"], seconds["prefix"] = mark - began, time.monotonic() - mark
    log.info("prefix: %d activations computed in %.1f s", activations.computed, seconds["prefix"])

    model, judge = _start(base, config, activations)
    checkpoints = Checkpoints(job_dir / "checkpoint", _fingerprint(config, splits, base))
    events.phase("train", 0, 1)
    fitted = fit(model, judge, splits, config, checkpoints, events, stop)
    seconds["train"] = fitted.seconds
    log.info("trained: %d steps, %d pictures in %.1f s", fitted.steps, fitted.pictures, fitted.seconds)
    events.phase("train", 1, 1)

    mark = time.monotonic()
    report = evaluate_sets(judge, champion, splits, config, events, stop)
    seconds["evaluate"], mark = time.monotonic() - mark, time.monotonic()
    assert judge.thresholds is not None
    out = job_dir / "out"
    fresh = job_dir / f".out.{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    golden = splits.sets.get("golden") or splits.val
    real = _real_items(splits)
    events.phase("export", 0, len(real))
    write_taught(fresh, splits.train, config.parent_dir)
    manifest = write_version(fresh, model, judge, base, config, judge.thresholds, golden)
    checked = check_onnx(
        judge, fresh / MODEL_FILE, real, judge.thresholds, config.threads, stop.check,
        lambda done, of: events.phase("export", done, of),
    )  # fmt: skip
    seconds["export"], seconds["total"] = time.monotonic() - mark, time.monotonic() - began
    count = sum(parameter.numel() for parameter in [*trainable(model), *judge.head.parameters()])
    total = int(base.map["parameters"]) + count
    result = {
        **report,
        "metrics": {"auroc": report["sets"]["val"]["candidate"]["auroc"]},
        "trainable": count,
        "total": total,
        "trainable_share": count / total,
        "pictures_per_s": round(fitted.pictures / max(1e-6, fitted.seconds), 2),
        "seconds": {key: round(value, 3) for key, value in seconds.items()},
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "onnx_check": {"items": checked.items, "flips": checked.flips, "max_abs": checked.max_abs},
        "prefix": {"computed": activations.computed, "cut": config.cut},
        "full_bytes": manifest["full_bytes"],
        "delivered_bytes": manifest["delivered_bytes"],
        "warnings": warnings,
    }
    (fresh / RESULT_FILE).write_text(json.dumps(result, indent=1, sort_keys=True, allow_nan=False), "utf-8")
    log.info(
        "exported: %d bytes to deliver, %d in full; torch and ONNX agree on %d of %d pictures, at most %.2g apart",
        manifest["delivered_bytes"], manifest["full_bytes"], checked.items - checked.flips, checked.items,
        checked.max_abs,
    )  # fmt: skip
    for warning in warnings:
        log.warning("%s %s", warning["code"], warning["params"])
    stop.check()
    shutil.rmtree(out, ignore_errors=True)
    fresh.rename(out)


def warm(job_dir: Path, events: Events, stop: StopRequest) -> None:
    """Fills the prefix cache with what training JOBDIR will need, so that pressing Train starts at the suffix."""
    config = read_config(job_dir)
    splits = split_items(read_items(job_dir, config.parent_dir))
    base = open_base(config.base_dir)
    config = _lora_of_parent(config, [])
    cache = PrefixCache(config.cache_dir, config.cache_max_bytes)
    _prepare(
        Activations(base, config.cut, config.preprocess, cache, config.threads), None, splits, config, events, stop
    )


def evaluate(job_dir: Path, events: Events, stop: StopRequest) -> None:
    """Judges JOBDIR/out again on JOBDIR/items.jsonl, with its own thresholds; writes JOBDIR/evaluation.json."""
    config = read_config(job_dir)
    torch.set_num_threads(config.threads)
    splits = split_items(read_items(job_dir))
    base = open_base(config.base_dir)
    warnings: Warnings = []
    cache = PrefixCache(config.cache_dir, config.cache_max_bytes)
    champion = _open_champion(config, base, cache, warnings)
    candidate = open_judge(job_dir / "out", base, cache, config.threads)
    for judge in [candidate, *([champion] if champion else [])]:
        _prepare_items(judge.activations, _evaluated(splits), events, stop)
    report = evaluate_sets(candidate, champion, splits, config, events, stop)
    document = {**report, "warnings": warnings}
    (job_dir / "evaluation.json").write_text(json.dumps(document, indent=1, sort_keys=True), "utf-8")


def evaluate_sets(
    candidate: Judge, champion: Judge | None, splits: Splits, config: Config, events: Events, stop: StopRequest
) -> dict[str, Any]:
    """`thresholds`, `sets` and `dossier` of a result. A candidate without thresholds gets them from validation here.

    Both judges are measured at their own thresholds. Two more rows answer "would a new threshold have been enough?":
    `champion_reset`, at thresholds chosen anew on this validation with the same limit; and `champion_matched`, at the
    highest cut that lets no more escape of these very pictures than the candidate does. No threshold that keeps that
    many escapes overkills less, so a candidate below it in overkills is better whatever the threshold.
    """
    names = [name for name, items in splits.sets.items() if items]
    sets: dict[str, Any] = {}
    dossier: list[dict[str, Any]] = []
    reset: Thresholds | None = None
    for done, name in enumerate(names):  # "val" is first
        events.phase("evaluate", done, len(names))
        items = splits.sets[name]
        labels = np.array([item.label for item in items])
        ours = scores_of(candidate.logits(items, stop.check))
        theirs = scores_of(champion.logits(items, stop.check)) if champion else None
        if name == "val":
            if candidate.thresholds is None:
                candidate.thresholds = choose_thresholds(ours, labels, config.escape_limit, config.critical)
            if theirs is not None:
                reset = choose_thresholds(theirs, labels, config.escape_limit, config.critical)
        assert candidate.thresholds is not None
        row: dict[str, Any] = {
            "champion": None,
            "champion_reset": None,
            "champion_matched": None,
            "candidate": rates(ours, labels, candidate.thresholds, config.classes),
        }
        if champion and champion.thresholds and theirs is not None:
            row["champion"] = rates(theirs, labels, champion.thresholds, config.classes)
            row["champion_reset"] = rates(theirs, labels, reset, config.classes) if reset else None
            matched = matched_cut(theirs, labels, row["candidate"]["escapes"][0])
            row["champion_matched"] = rates(theirs, labels, matched, config.classes) if matched else None
        sets[name] = row
        log.info("%s: %s", name, ", ".join(f"{who} {_in_words(found)}" for who, found in row.items() if found))
        for index, item in enumerate(items):
            dossier.append({
                "id": item.id, "set": name, "label": item.label,
                "champion": None if theirs is None else round(float(theirs[index]), 6),
                "candidate": round(float(ours[index]), 6),
            })  # fmt: skip
    events.phase("evaluate", len(names), len(names))
    assert candidate.thresholds is not None
    return {"thresholds": candidate.thresholds.as_json(), "sets": sets, "dossier": dossier}


def _in_words(measured: dict[str, Any]) -> str:
    escapes, overkills = measured["escapes"], measured["overkills"]
    return f"escapes {escapes[0]}/{escapes[1]} overkills {overkills[0]}/{overkills[1]}"


def _lora_of_parent(config: Config, warnings: Warnings) -> Config:
    """Continuing an adapter means keeping its shape: the parent's rank, scaling and cut win over the config's."""
    if config.mode != "continue" or config.parent_dir is None:
        return config
    parent = read_adapter(config.parent_dir)
    kept = replace(config, rank=parent.rank, alpha=parent.alpha, cut=parent.cut)
    if kept != config:
        warnings.append({"code": "lora_from_parent", "params": {"rank": parent.rank, "cut": parent.cut}})
    return kept


def _open_champion(config: Config, base: Base, cache: PrefixCache, warnings: Warnings) -> Judge | None:
    if config.champion_dir is None:
        return None
    try:
        return open_judge(config.champion_dir, base, cache, config.threads)
    except ValueError as error:
        warnings.append({"code": "champion_not_comparable", "params": {"detail": str(error)[:200]}})
        return None


def _start(base: Base, config: Config, activations: Activations) -> tuple[Any, Judge]:
    """The network with a fresh adapter and head, or with the parent's to go on from."""
    model = attach(load_network(base), config.cut, config.rank, config.alpha, config.seed)
    numbers = [entry.number for entry in config.classes]
    head = new_head(int(base.map["features"]), len(numbers), config.seed)
    if config.mode == "continue" and config.parent_dir is not None:
        manifest = json.loads((config.parent_dir / MANIFEST_FILE).read_text("utf-8"))
        if manifest["base"]["digest"] != base.digest:
            raise ValueError("parent_dir: its adapter was made for another base")
        parent = read_adapter(config.parent_dir)
        set_adapter_state(model, {key: torch.from_numpy(value) for key, value in parent.tensors.items()})
        before = [entry.number for entry in read_classes(manifest["classes"])]
        head = grow_head(load_head(config.parent_dir), before, numbers, config.seed)
    device = device_of_choice()
    model.to(device)
    if device.type == "cpu":
        model.to(memory_format=torch.channels_last)
    judge = Judge(timm_network(model), head.to(device), config.cut, activations, config.classes)
    return model, judge


def _prepare(
    activations: Activations, champion: Judge | None, splits: Splits, config: Config, events: Events, stop: StopRequest
) -> None:
    wanted = [Sample(item, view) for item in splits.train for view in config.views]
    wanted += [Sample(item, "identity") for item in _evaluated(splits)]
    events.phase("prefix", 0, len(wanted))
    activations.prepare(wanted, lambda done, of: events.phase("prefix", done, of), stop.check)
    if champion:
        _prepare_items(champion.activations, _evaluated(splits), events, stop)


def _prepare_items(activations: Activations, items: Sequence[Item], events: Events, stop: StopRequest) -> None:
    wanted = [Sample(item, "identity") for item in items]
    activations.prepare(wanted, lambda done, of: events.phase("prefix", done, of), stop.check)


def _evaluated(splits: Splits) -> list[Item]:
    return [item for items in splits.sets.values() for item in items]


def _real_items(splits: Splits) -> list[Item]:
    """Pictures for the ONNX check: those nothing was trained on first, spread evenly over all of them."""
    items = _evaluated(splits) or splits.train
    if len(items) <= CHECKED_ITEMS:
        return items
    return [items[i * len(items) // CHECKED_ITEMS] for i in range(CHECKED_ITEMS)]


def _fingerprint(config: Config, splits: Splits, base: Base) -> str:
    """What a checkpoint is a checkpoint of: everything that decides the sequence of steps."""
    document = {
        "items": [[item.digest, item.label, item.old] for item in splits.train],
        "config": [
            config.seed, config.mode, config.rank, config.alpha, config.cut, config.epochs, config.batch, config.lr,
            config.weight_decay, list(config.views), config.replay, config.preprocess,
            [entry.number for entry in config.classes],
        ],
        "parent": sha256((config.parent_dir / MANIFEST_FILE).read_bytes()) if config.parent_dir else None,
        "base": base.digest,
    }  # fmt: skip
    return sha256(canonical(document))
