"""A version's files: adapter, head, golden vectors, merged ONNX model, manifest. Their bytes are what people approve.

The merged model is the device's own graph with the merged weights inside, so what is checked here against torch is what
runs on the line; nothing is traced again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from safetensors.numpy import load_file, save_file

from edge.pictures import preview

from .config import TOLERANCE, Config, canonical, sha256, sha256_file
from .data import Item, pixels_of, read_bytes
from .evaluate import Thresholds, scores_of
from .events import Failed
from .graph import GraphPrefix, merged_model, open_session
from .judge import Judge
from .lora import ADAPTER_CONFIG, ADAPTER_FILE, HEAD_FILE, merged_targets, read_adapter, save_adapter, save_head
from .model import Base

GOLDEN_FILE, MODEL_FILE, MANIFEST_FILE, RESULT_FILE = (
    "golden.safetensors", "model.onnx", "manifest.json", "result.json",
)  # fmt: skip
PARTS = {"adapter": ADAPTER_FILE, "adapter_config": ADAPTER_CONFIG, "head": HEAD_FILE, "golden": GOLDEN_FILE}
GOLDEN_MAX_BYTES = 140_000
GOLDEN_LONGEST = (224, 192, 160, 128, 112, 96, 80, 64)
CHECKED_ITEMS = 200
CHECK_BATCH = 8
FORMAT = 1


def golden_vectors(
    judge: Judge, items: Sequence[Item], count: int, preprocess: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Small encoded pictures with the logits this model, as it was trained, gives for them.

    OK and NG alternate, in digest order. The pictures shrink until the file stays under `GOLDEN_MAX_BYTES`; they are
    test vectors, so their looks do not matter, only that every machine decodes the same pixels.
    """
    ordered = sorted(items, key=lambda item: item.digest)
    ok, ng = [i for i in ordered if i.label == 0], [i for i in ordered if i.label != 0]
    mixed = [item for pair in zip(ok, ng, strict=False) for item in pair]
    mixed += ok[len(mixed) // 2 :] + ng[len(mixed) // 2 :]
    chosen = mixed[:count]
    window = tuple(preprocess["window"]) if preprocess.get("window") else None
    originals = [read_bytes(item) for item in chosen]
    small: list[bytes] = []
    for longest in GOLDEN_LONGEST:
        small = [preview(data, longest, window) for data in originals]
        if sum(map(len, small)) <= GOLDEN_MAX_BYTES:
            break
    pixels = np.stack([pixels_of(data, preprocess, id=item.id) for data, item in zip(small, chosen, strict=True)])
    vectors = {f"item_{i:03d}": np.frombuffer(data, np.uint8) for i, data in enumerate(small)}
    return {**vectors, "logits": judge.logits_of_pixels(pixels)}


def golden_pixels(path: Path, preprocess: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Pixels [N, 3, H, W] and expected logits [N, K] of a golden file."""
    tensors = load_file(path)
    names = sorted(name for name in tensors if name.startswith("item_"))
    return np.stack([pixels_of(tensors[name].tobytes(), preprocess, id=name) for name in names]), tensors["logits"]


@dataclass(frozen=True)
class OnnxCheck:
    items: int
    flips: int
    max_abs: float


def check_onnx(
    judge: Judge, model: Path, items: Sequence[Item], thresholds: Thresholds, threads: int, check: Callable[[], None],
    tell: Callable[[int, int], None],
) -> OnnxCheck:  # fmt: skip
    """Compares the merged model in ONNX Runtime with the trained torch model on real pictures, from their bytes.

    What this version added is compared on every picture: merging, adapters, head. The frozen prefix is the same graph
    for all versions, was compared with torch at import, and is compared again by the golden vectors, whole in torch;
    running it in eager torch for 200 pictures here would take longer than the training.
    Fails with `adapter_does_not_fit_base` when a verdict or a top class flips or a logit is off by more than the
    tolerance.
    """
    session = open_session(model, {}, threads)
    base = judge.activations.base
    prefix = GraphPrefix(base.graph_path, base.map["cuts"][judge.cut], merged_targets(base, None), threads)
    flips, worst = 0, 0.0
    for start in range(0, len(items), CHECK_BATCH):
        check()
        batch = items[start : start + CHECK_BATCH]
        pixels = np.stack(
            [pixels_of(read_bytes(i), judge.activations.preprocess, id=i.id, digest=i.digest) for i in batch]
        )
        ours = judge.logits_of_hidden(torch.from_numpy(prefix(pixels)))
        theirs = np.asarray(session.run(None, {"pixels": pixels})[0])
        worst = max(worst, float(np.abs(ours - theirs).max()))
        verdicts = [(scores_of(logits) >= thresholds.operating, logits.argmax(axis=1)) for logits in (ours, theirs)]
        flips += int(((verdicts[0][0] != verdicts[1][0]) | (verdicts[0][1] != verdicts[1][1])).sum())
        tell(start + len(batch), len(items))
    if flips or not worst <= TOLERANCE:
        raise Failed("adapter_does_not_fit_base", max_abs=worst, flips=flips, items=len(items), where="onnx")
    return OnnxCheck(len(items), flips, worst)


def write_version(
    out: Path, model: PeftModel, judge: Judge, base: Base, config: Config, thresholds: Thresholds,
    golden_items: Sequence[Item],
) -> dict[str, Any]:  # fmt: skip
    """Writes all files but `result.json` into `out` and returns the manifest."""
    save_adapter(model, config.cut, base, out)
    save_head(judge.head, out)
    vectors = golden_vectors(judge, golden_items, config.golden_vectors, config.preprocess)
    save_file(vectors, out / GOLDEN_FILE)
    adapter = read_adapter(out)
    weights = merged_targets(base, adapter)
    head = judge.head
    merged = merged_model(
        base.graph_path, weights, head.weight.detach().cpu().numpy(), head.bias.detach().cpu().numpy()
    )
    (out / MODEL_FILE).write_bytes(merged.SerializeToString())
    del merged, weights
    gc.collect()
    digests = {part: sha256_file(out / name) for part, name in PARTS.items()}
    sizes = {part: (out / name).stat().st_size for part, name in PARTS.items()}
    map_bytes = (base.folder / "base.json").read_bytes()
    manifest = {
        "format": FORMAT,
        "line": config.line,
        "task": "class",
        "job": config.job,
        "base": {
            "name": base.map["name"],
            "digest": base.digest,
            "files": {part: base.map["files"][part] for part in ("graph", "targets")},
            "map_digest": sha256(map_bytes),
            "map_bytes": len(map_bytes),
        },
        "parts": {part: {"digest": digests[part], "bytes": sizes[part]} for part in PARTS},
        "adapter": {"scaling": adapter.scaling, "rank": adapter.rank, "modules": adapter.modules},
        "preprocess": config.preprocess,
        "classes": [entry.as_json() for entry in config.classes],
        "thresholds": thresholds.as_json(),
        "tolerance": {"logits": TOLERANCE},
        "full_bytes": (out / MODEL_FILE).stat().st_size,
        "delivered_bytes": sum(sizes.values()),
    }
    (out / MANIFEST_FILE).write_bytes(canonical(manifest))
    return manifest
