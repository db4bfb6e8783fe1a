"""A tiny real base bundle and real releases for it, built with onnx and run by onnxruntime: the agent's food in tests.

Expected logits come from a second route (weights merged inline into the graph), never from the injection under test.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import safetensors.numpy
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from edge.pictures import to_pixels

SIDE, CHANNELS = 32, 16
PREPROCESS = {
    "size": [SIDE, SIDE],
    "mean": [0.5, 0.5, 0.5],
    "std": [0.25, 0.25, 0.25],
    "resize": "squash",
    "window": None,
}
TARGETS = [
    {"module": "blocks.1.conv_pw", "initializer": "w_point", "shape": [CHANNELS, 8, 1, 1], "layout": "conv1x1"},
    {"module": "neck.fc", "initializer": "w_neck", "shape": [CHANNELS, CHANNELS], "layout": "linear_t"},
]
TOLERANCE = 0.002
ALL_REVIEW = (0.0, 1.1)  # thresholds under which every picture is flagged, or none
ALL_OK = (1.1, 1.1)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def picture(seed: int, size: tuple[int, int] = (48, 40), kind: str = "PNG", level: int = 128) -> bytes:
    """A small real picture: noise around a grey level, as bytes of `kind`."""
    noise = np.random.default_rng(seed).integers(-40, 40, (size[1], size[0], 3)) + level
    out = io.BytesIO()
    Image.fromarray(np.clip(noise, 0, 255).astype(np.uint8)).save(out, kind)
    return out.getvalue()


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "w_stem": rng.normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32),
        "w_point": rng.normal(0, 0.4, (CHANNELS, 8, 1, 1)).astype(np.float32),
        "w_neck": rng.normal(0, 0.4, (CHANNELS, CHANNELS)).astype(np.float32),
        "gamma": rng.uniform(0.5, 1.5, CHANNELS).astype(np.float32),
        "beta": rng.normal(0, 0.2, CHANNELS).astype(np.float32),
        "mean": rng.normal(0, 0.2, CHANNELS).astype(np.float32),
        "var": rng.uniform(0.5, 1.5, CHANNELS).astype(np.float32),
    }


def graph(values: dict[str, np.ndarray], *, external: bool) -> bytes:
    """Conv, Conv 1x1 + BatchNorm + Relu (which the runtime fuses), pooling, MatMul. Targets external or inline."""
    initializers = []
    for name, value in values.items():
        tensor = numpy_helper.from_array(value, name)
        if external and name in {str(t["initializer"]) for t in TARGETS}:
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, text in (("location", "injected"), ("offset", "0"), ("length", str(value.nbytes))):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, text
        initializers.append(tensor)
    nodes = [
        helper.make_node("Conv", ["pixels", "w_stem"], ["stem"], strides=[4, 4], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["stem"], ["stem_on"]),
        helper.make_node("Conv", ["stem_on", "w_point"], ["point"]),
        helper.make_node("BatchNormalization", ["point", "gamma", "beta", "mean", "var"], ["normed"]),
        helper.make_node("Relu", ["normed"], ["map"]),
        helper.make_node("GlobalAveragePool", ["map"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w_neck"], ["features"]),
    ]
    made = helper.make_graph(
        nodes, "tiny",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [
            helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", CHANNELS]),
            helper.make_tensor_value_info("map", TensorProto.FLOAT, ["n", CHANNELS, SIDE // 4, SIDE // 4]),
        ],
        initializers,
    )  # fmt: skip
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if not external:
        onnx.checker.check_model(model)
    return model.SerializeToString()


@dataclass
class Base:
    values: dict[str, np.ndarray]
    graph: bytes
    targets: bytes
    map: bytes
    digest: str

    @property
    def blobs(self) -> dict[str, bytes]:
        return {sha256(data): data for data in (self.graph, self.targets, self.map)}


def make_base(seed: int = 0) -> Base:
    values = weights(seed)
    targets = safetensors.numpy.save({str(t["initializer"]): values[str(t["initializer"])] for t in TARGETS})
    data = graph(values, external=True)
    digest = sha256(b"".join(v.tobytes() for v in values.values()))
    files = {
        "graph": {"digest": sha256(data), "bytes": len(data)},
        "targets": {"digest": sha256(targets), "bytes": len(targets)},
        "weights": {"digest": digest, "bytes": 1},
    }
    described = {
        "format": 1, "name": "tiny", "digest": digest, "licence": "test", "input": {"size": [SIDE, SIDE]},
        "features": CHANNELS, "parameters": 1, "targets": TARGETS, "files": files,
    }  # fmt: skip
    return Base(values, data, targets, canonical(described), digest)


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass
class Release:
    """Bytes of a release; `manifest` may be changed and `seal`ed again to make a bad one."""

    base: Base
    manifest: dict[str, Any]
    parts: dict[str, bytes]
    blobs: dict[str, bytes] = field(default_factory=dict)
    data: bytes = b""
    digest: str = ""

    def seal(self) -> Release:
        for name, data in self.parts.items():
            self.manifest["parts"][name] = {"digest": sha256(data), "bytes": len(data)}
        self.data = canonical(self.manifest)
        self.digest = sha256(self.data)
        self.blobs = {**self.base.blobs, self.digest: self.data, **{sha256(d): d for d in self.parts.values()}}
        return self

    def write(self, home: Path) -> tuple[Path, Path]:
        """As the agent lays it out: (base folder, release folder)."""
        base, release = home / "base" / self.base.digest, home / "releases" / self.digest
        for folder in (base, release):
            folder.mkdir(parents=True, exist_ok=True)
        (base / "graph.onnx").write_bytes(self.base.graph)
        (base / "targets.safetensors").write_bytes(self.base.targets)
        (base / "base.json").write_bytes(self.base.map)
        (release / "manifest.json").write_bytes(self.data)
        for name, data in self.parts.items():
            (release / (f"{name}.json" if name == "adapter_config" else f"{name}.safetensors")).write_bytes(data)
        return base, release


def make_release(
    base: Base, seed: int = 1, *, strength: float = 0.5, thresholds: tuple[float, float] = (0.3, 0.7), classes: int = 3
) -> Release:
    """Adapter, head, golden vectors and manifest. `strength` scales the adapter: 0 is one without effect."""
    rng = np.random.default_rng(seed)
    rank, alpha = 4, 8.0
    scaling = alpha / rank
    factors = {
        "blocks.1.conv_pw": (
            rng.normal(0, 0.3, (rank, 8, 1, 1)),
            rng.normal(0, 0.3, (CHANNELS, rank, 1, 1)) * strength,
        ),
        "neck.fc": (rng.normal(0, 0.3, (rank, CHANNELS)), rng.normal(0, 0.3, (CHANNELS, rank)) * strength),
    }
    adapter = {}
    for module, (a, b) in factors.items():
        adapter[f"base_model.model.{module}.lora_A.weight"] = a.astype(np.float32)
        adapter[f"base_model.model.{module}.lora_B.weight"] = b.astype(np.float32)
    head = {
        "weight": rng.normal(0, 0.5, (classes, CHANNELS)).astype(np.float32),
        "bias": rng.normal(0, 0.2, classes).astype(np.float32),
    }
    items = [picture(100 + n, level=60 + 30 * n, kind="JPEG" if n % 2 else "PNG") for n in range(4)]
    golden = {f"item_{n:03d}": np.frombuffer(data, np.uint8) for n, data in enumerate(items)}
    logits = expected_logits(base, adapter, head, scaling, items)
    manifest = {
        "format": 1, "line": "el-1", "task": "class", "job": "job-1",
        "base": {
            "name": "tiny", "digest": base.digest, "map_digest": sha256(base.map), "map_bytes": len(base.map),
            "files": {
                "graph": {"digest": sha256(base.graph), "bytes": len(base.graph)},
                "targets": {"digest": sha256(base.targets), "bytes": len(base.targets)},
            },
        },
        "parts": {},
        "adapter": {"scaling": scaling, "rank": rank, "modules": list(factors)},
        "preprocess": dict(PREPROCESS),
        "classes": [{"index": 0, "number": 0, "code": "OK"}] + [
            {"index": n, "number": n + 2, "code": f"d{n}", "name_ko": "균열", "name_en": "crack", "critical": False}
            for n in range(1, classes)
        ],
        "thresholds": {"operating": 0.5, "ok_below": thresholds[0], "ng_from": thresholds[1]},
        "tolerance": {"logits": TOLERANCE},
        "full_bytes": 1, "delivered_bytes": 1,
    }  # fmt: skip
    parts = {
        "adapter": safetensors.numpy.save(adapter),
        "adapter_config": canonical({"r": rank, "lora_alpha": alpha, "target_modules": list(factors)}),
        "head": safetensors.numpy.save(head),
        "golden": safetensors.numpy.save({**golden, "logits": logits}),
    }
    return Release(base, manifest, parts).seal()


def expected_logits(
    base: Base, adapter: dict[str, np.ndarray], head: dict[str, np.ndarray], scaling: float, items: list[bytes]
) -> np.ndarray:
    """float32 [N, K] through a graph whose merged weights are inline."""
    merged = dict(base.values)
    for target in TARGETS:
        name, key = str(target["initializer"]), f"base_model.model.{target['module']}"
        a, b = (adapter[f"{key}.lora_{side}.weight"] for side in "AB")
        delta = scaling * b.reshape(b.shape[0], -1) @ a.reshape(a.shape[0], -1)
        delta = delta.T if target["layout"] == "linear_t" else delta
        merged[name] = (merged[name] + delta.reshape(merged[name].shape)).astype(np.float32)
    session = onnxruntime.InferenceSession(graph(merged, external=False), providers=["CPUExecutionProvider"])
    pixels = np.stack([to_pixels(item, PREPROCESS) for item in items])
    (features,) = session.run(["features"], {"pixels": pixels})
    return np.asarray(features @ head["weight"].T + head["bias"], np.float32)
