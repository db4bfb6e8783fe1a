"""A tiny real base bundle and the output files of a job on it: real ONNX graphs, safetensors, PEFT's adapter format.

Expected logits are those of the merged model, run by onnxruntime: an agent that loads the release must reproduce them.
"""

from __future__ import annotations

import hashlib
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from safetensors.numpy import save

from edge.pictures import to_pixels

if TYPE_CHECKING:
    from pathlib import Path

SIDE, STEM, FEATURES, RANK, ALPHA = 32, 8, 16, 4, 8.0
MODULE, INITIALIZER = "blocks.0.conv_pw", "w_point"
PREPROCESS = {
    "size": [SIDE, SIDE],
    "mean": [0.5, 0.5, 0.5],
    "std": [0.25, 0.25, 0.25],
    "resize": "squash",
    "window": None,
}
CLASSES = [
    {"index": 0, "number": 0, "code": "OK", "name_ko": "양품", "name_en": "OK", "critical": False},
    {"index": 1, "number": 1, "code": "crack", "name_ko": "균열", "name_en": "crack", "critical": False},
]


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def entry(data: bytes) -> dict[str, Any]:
    return {"digest": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def base_weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "w_stem": rng.normal(0, 0.3, (STEM, 3, 3, 3)).astype(np.float32),
        INITIALIZER: rng.normal(0, 0.4, (FEATURES, STEM, 1, 1)).astype(np.float32),
    }


def write_base(folder: Path, seed: int = 0) -> dict[str, Any]:
    """A base bundle as `python -m training.recipe import-base` leaves it; returns base.json."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = base_weights(seed)
    files = {
        "weights": save(weights),
        "graph": _graph(weights, head=None),
        "targets": save({INITIALIZER: weights[INITIALIZER]}),
    }
    for key, name in {"weights": "base.safetensors", "graph": "graph.onnx", "targets": "targets.safetensors"}.items():
        (folder / name).write_bytes(files[key])
    described = {
        "format": 1,
        "name": "tiny",
        "digest": entry(files["weights"])["digest"],
        "licence": "Apache-2.0",
        "input": {"size": [SIDE, SIDE]},
        "features": FEATURES,
        "parameters": sum(value.size for value in weights.values()),
        "targets": [
            {"module": MODULE, "initializer": INITIALIZER, "shape": [FEATURES, STEM, 1, 1], "layout": "conv1x1"}
        ],
        "files": {key: entry(data) for key, data in files.items()},
    }
    (folder / "base.json").write_bytes(canonical(described))
    return described


def write_out(
    folder: Path,
    base_folder: Path,
    *,
    line: str,
    job: str,
    seed: int = 1,
    classes: list[dict[str, Any]] | None = None,
    sets: dict[str, Any] | None = None,
    dossier: list[dict[str, Any]] | None = None,
    flips: int = 0,
) -> dict[str, Any]:
    """The `out/` folder of a job, every file real; returns the manifest. Other seeds give other weights."""
    folder.mkdir(parents=True, exist_ok=True)
    table = classes or CLASSES
    rng = np.random.default_rng(seed)
    described = json.loads((base_folder / "base.json").read_bytes())
    down = rng.normal(0, 0.3, (RANK, STEM, 1, 1)).astype(np.float32)
    up = rng.normal(0, 0.3, (FEATURES, RANK, 1, 1)).astype(np.float32)
    head = {
        "weight": rng.normal(0, 0.5, (len(table), FEATURES)).astype(np.float32),
        "bias": rng.normal(0, 0.2, len(table)).astype(np.float32),
    }
    weights = base_weights()
    delta = ALPHA / RANK * (up.reshape(FEATURES, RANK) @ down.reshape(RANK, STEM))
    weights[INITIALIZER] = weights[INITIALIZER] + delta.reshape(FEATURES, STEM, 1, 1).astype(np.float32)
    model = _graph(weights, head=head)
    items = [_picture(100 + n) for n in range(4)]
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"pixels": np.stack([to_pixels(item, PREPROCESS) for item in items])})
    prefix = f"base_model.model.{MODULE}"
    golden = {f"item_{n:03d}": np.frombuffer(data, np.uint8) for n, data in enumerate(items)}
    files = {
        "adapter_model.safetensors": save({f"{prefix}.lora_A.weight": down, f"{prefix}.lora_B.weight": up}),
        "adapter_config.json": canonical(
            {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": [MODULE], "bias": "none"}
        ),
        "head.safetensors": save(head),
        "golden.safetensors": save({**golden, "logits": logits.astype(np.float32)}),
        "model.onnx": model,
    }
    manifest = {
        "format": 1,
        "line": line,
        "task": "class",
        "job": job,
        "base": {
            "name": described["name"],
            "digest": described["digest"],
            "files": {key: described["files"][key] for key in ("graph", "targets")},
            "map_digest": entry((base_folder / "base.json").read_bytes())["digest"],
            "map_bytes": (base_folder / "base.json").stat().st_size,
        },
        "parts": {
            "adapter": entry(files["adapter_model.safetensors"]),
            "adapter_config": entry(files["adapter_config.json"]),
            "head": entry(files["head.safetensors"]),
            "golden": entry(files["golden.safetensors"]),
        },
        "adapter": {"scaling": ALPHA / RANK, "rank": RANK, "modules": [MODULE]},
        "preprocess": PREPROCESS,
        "classes": table,
        "thresholds": {"operating": 0.5, "ok_below": 0.3, "ng_from": 0.7},
        "tolerance": {"logits": 0.002},
        "full_bytes": len(model),
        "delivered_bytes": sum(len(data) for name, data in files.items() if name != "model.onnx"),
    }
    result = {
        "metrics": {},
        "thresholds": manifest["thresholds"],
        "trainable": down.size + up.size,
        "total": 1000,
        "trainable_share": 0.02,
        "pictures_per_s": 60.0,
        "seconds": {"prefix": 1.0, "train": 2.0, "evaluate": 0.5, "export": 0.5, "total": 4.0},
        "peak_memory_mb": 900,
        "onnx_check": {"items": 200, "flips": flips, "max_abs": 1e-5},
        "sets": sets if sets is not None else {"val": {"champion": None, "candidate": figures(1, 20, 2, 40)}},
        "dossier": dossier or [{"id": "c1", "set": "val", "label": 1, "champion": None, "candidate": 0.9}],
        "warnings": [],
    }
    files["manifest.json"] = canonical(manifest)
    files["result.json"] = canonical(result)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return manifest


def figures(escapes: int, ng: int, overkills: int, ok: int, **per_class: list[int]) -> dict[str, Any]:
    """One side of a comparison in result.json's form."""
    return {
        "escapes": [escapes, ng],
        "overkills": [overkills, ok],
        "auroc": 0.9,
        "per_class": per_class or {"crack": [escapes, ng]},
        "thresholds": {"operating": 0.5},
    }


def _picture(seed: int) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 255, (40, 48, 3)).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).save(out, "PNG")
    return out.getvalue()


def _graph(weights: dict[str, np.ndarray], *, head: dict[str, np.ndarray] | None) -> bytes:
    """Without a head: features and map, the adapter's target external. With one: the merged model with logits."""
    initializers = []
    for name, value in weights.items():
        tensor = numpy_helper.from_array(value, name)
        if head is None and name == INITIALIZER:
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, text in (("location", "injected"), ("offset", "0"), ("length", str(value.nbytes))):
                part = tensor.external_data.add()
                part.key, part.value = key, text
        initializers.append(tensor)
    nodes = [
        helper.make_node("Conv", ["pixels", "w_stem"], ["stem"], strides=[4, 4], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["stem"], ["stem_on"]),
        helper.make_node("Conv", ["stem_on", INITIALIZER], ["point"]),
        helper.make_node("Relu", ["point"], ["map"]),
        helper.make_node("GlobalAveragePool", ["map"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
    ]
    if head is None:
        outputs = [
            helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", FEATURES]),
            helper.make_tensor_value_info("map", TensorProto.FLOAT, ["n", FEATURES, SIDE // 4, SIDE // 4]),
        ]
    else:
        nodes.append(helper.make_node("Gemm", ["features", "w_head", "b_head"], ["logits"], transB=1))
        initializers += [
            numpy_helper.from_array(head["weight"], "w_head"),
            numpy_helper.from_array(head["bias"], "b_head"),
        ]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", len(head["bias"])])]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])
    made = helper.make_graph(nodes, "tiny", [pixels], outputs, initializers)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if head is not None:
        onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
