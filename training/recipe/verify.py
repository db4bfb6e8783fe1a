"""The clean-base gate: a version's bytes, reloaded on a clean base in a process that never trained, must give its
outputs.

It catches what no training curve shows: statistics that moved with the training, layers that were skipped on loading,
an adapter that the device's runtime would ignore.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from torch import nn

from .config import read_config, sha256_file
from .events import Events, Failed
from .export import GOLDEN_FILE, MANIFEST_FILE, PARTS, golden_pixels
from .graph import open_session
from .lora import load_head, merged_targets, read_adapter
from .model import Base, Whole, load_network, open_base

log = logging.getLogger(__name__)

DISTINCT = 10.0  # times the tolerance that at least one golden vector must be away from the bare base


def verify(job_dir: Path, events: Events) -> None:
    """Checks JOBDIR/out and emits `verified`. Fails with `adapter_does_not_fit_base`."""
    config = read_config(job_dir)
    torch.set_num_threads(config.threads)
    events.phase("verify", 0, 3)
    out = job_dir / "out"
    manifest = json.loads((out / MANIFEST_FILE).read_text("utf-8"))
    base = open_base(config.base_dir)
    check_digests(out, manifest, base)
    pixels, expected = golden_pixels(out / GOLDEN_FILE, manifest["preprocess"])
    tolerance = float(manifest["tolerance"]["logits"])
    events.phase("verify", 1, 3)

    try:
        by_torch, bare = torch_logits(out, base, pixels)
        events.phase("verify", 2, 3)
        by_graph = graph_logits(out, base, pixels, config.threads)
    except (ValueError, KeyError, RuntimeError) as error:
        raise Failed("adapter_does_not_fit_base", where="load", detail=str(error)[:300]) from error
    apart = {"torch": _worst(by_torch, expected), "onnx": _worst(by_graph, expected)}
    for where, distance in apart.items():
        if not distance <= tolerance:
            raise Failed("adapter_does_not_fit_base", where=where, max_abs=distance, tolerance=tolerance)
    effect = _worst(bare, expected)
    if effect < DISTINCT * tolerance:
        raise Failed("adapter_does_not_fit_base", where="bare_base", max_abs=effect, tolerance=DISTINCT * tolerance)
    events.phase("verify", 3, 3)
    log.info(
        "verified on a clean base: %d golden vectors, torch %.2g and ONNX %.2g apart, bare base %.2g", len(expected),
        apart["torch"], apart["onnx"], effect,
    )  # fmt: skip
    events.emit("verified", max_abs=max(apart.values()), vectors=len(expected), effect=effect)


def check_digests(out: Path, manifest: dict[str, Any], base: Base) -> None:
    """The bytes on disk are those that the manifest names."""
    if manifest["base"]["digest"] != base.digest:
        raise Failed(
            "adapter_does_not_fit_base", where="base_digest", wanted=manifest["base"]["digest"], found=base.digest
        )
    for part, name in PARTS.items():
        found = sha256_file(out / name)
        if found != manifest["parts"][part]["digest"]:
            raise Failed("adapter_does_not_fit_base", where=name, wanted=manifest["parts"][part]["digest"], found=found)


def torch_logits(out: Path, base: Base, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits [N, K] with the adapter loaded by plain PEFT and merged, and with the bare base under the same head."""
    head = load_head(out).eval()
    bare = _logits(load_network(base), head, pixels)
    network = PeftModel.from_pretrained(load_network(base), str(out), is_trainable=False).merge_and_unload()
    return _logits(network.eval(), head, pixels), bare


def graph_logits(out: Path, base: Base, pixels: np.ndarray, threads: int) -> np.ndarray:
    """Logits [N, K] as a device computes them: adapter injected into the graph, head in numpy."""
    weights = merged_targets(base, read_adapter(out))
    session = open_session(base.graph_path, weights, threads)
    features = np.asarray(session.run(["features"], {"pixels": pixels})[0])
    head = load_head(out)
    logits: np.ndarray = features @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    return logits


def _logits(network: nn.Module, head: nn.Linear, pixels: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        features, _ = Whole(network)(torch.from_numpy(pixels))
        logits = head(features).numpy()
    return np.asarray(logits)


def _worst(found: np.ndarray, expected: np.ndarray) -> float:
    if found.shape != expected.shape:
        return float("inf")
    return float(np.abs(found - expected).max())
