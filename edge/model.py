"""Base plus adapter plus head as one model, from bytes whose digests were checked; runs in the inference child only.

Weights are injected as external initializers. `SessionOptions.add_initializer` would be ignored without a word wherever
graph optimisation fused the weight, so the golden vectors also prove that the outputs left those of the bare base.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import safetensors
import safetensors.numpy

from edge.manifest import ReleaseRefused, parse_base, parse_manifest, part_file, sha256
from edge.pictures import PictureRefused, activation_map, to_pixels

_PROVIDER = "CPUExecutionProvider"
_PREFIX = "base_model.model."


class Model:
    """A loaded release. Single-threaded use."""

    def __init__(
        self,
        digest: str,
        manifest: dict[str, Any],
        session: onnxruntime.InferenceSession,
        head: tuple[np.ndarray, np.ndarray],
        golden: tuple[list[bytes], np.ndarray],
    ) -> None:
        self.digest = digest
        self.manifest = manifest
        self._session = session
        self._weight, self._bias = head
        self._pixels = [_golden_pixels(data, manifest["preprocess"]) for data in golden[0]]
        self._expected = golden[1]
        self.max_abs = float("nan")

    @classmethod
    def load(cls, base_folder: Path, release_folder: Path, digest: str, threads: int) -> Model:
        """Raises ReleaseRefused with the reason when anything does not fit."""
        manifest_bytes = _opened(release_folder / "manifest.json", digest)
        manifest = parse_manifest(manifest_bytes)
        parts = {
            name: _opened(release_folder / part_file(name), part["digest"]) for name, part in manifest["parts"].items()
        }
        base = parse_base(_opened(base_folder / "base.json", manifest["base"]["map_digest"]), manifest)
        graph = _opened(base_folder / "graph.onnx", manifest["base"]["files"]["graph"]["digest"])
        targets = _tensors(_opened(base_folder / "targets.safetensors", manifest["base"]["files"]["targets"]["digest"]))
        if {target["initializer"] for target in base["targets"]} != set(targets):
            raise ReleaseRefused("base_mismatch", detail="base.json and targets.safetensors name different weights")
        head = _head(_tensors(parts["head"]), len(manifest["classes"]), int(base["features"]))
        golden = _golden(parts["golden"], len(manifest["classes"]))
        merged = merge(targets, base["targets"], _tensors(parts["adapter"]), manifest["adapter"])
        model = cls(sha256(manifest_bytes), manifest, open_session(graph, merged, threads), head, golden)
        model.max_abs = max(model.check_golden() for _ in range(3))  # a flaky result is not a result
        if manifest["adapter"]["modules"]:
            bare = open_session(graph, targets, threads)
            away = float(np.abs(model._logits_of_golden(bare) - model._logits_of_golden(model._session)).max())
            if not away >= 10 * manifest["tolerance"]["logits"]:
                raise ReleaseRefused("adapter_has_no_effect", max_abs=away)
        return model

    def judge(self, picture: bytes) -> dict[str, Any]:
        """Fields of a Judgement. Raises PictureRefused; ends the process on non-finite output, which is no verdict."""
        started = time.monotonic()
        features, heat = self._run(self._session, to_pixels(picture, self.manifest["preprocess"]))
        probabilities = softmax(self._head(features))
        if not np.isfinite(probabilities).all():
            raise FloatingPointError("the model's output is not finite")
        defect = int(np.argmax(probabilities[1:])) + 1
        return {
            "score": float(1.0 - probabilities[0]),
            "probabilities": [round(float(p), 6) for p in probabilities],
            "map": activation_map(heat, self._weight[defect] - self._weight[0]),
            "ms": (time.monotonic() - started) * 1000,
        }

    def check_golden(self) -> float:
        """Largest difference to the expected logits. Raises ReleaseRefused above the tolerance."""
        logits = self._logits_of_golden(self._session)
        if not np.isfinite(logits).all():
            raise ReleaseRefused("not_finite")
        max_abs = float(np.abs(logits - self._expected).max())
        tolerance = self.manifest["tolerance"]["logits"]
        if max_abs > tolerance:
            raise ReleaseRefused("golden_mismatch", max_abs=max_abs, tolerance=tolerance)
        return max_abs

    def _logits_of_golden(self, session: onnxruntime.InferenceSession) -> np.ndarray:
        return np.stack([self._head(self._run(session, pixels)[0]) for pixels in self._pixels])

    def _run(self, session: onnxruntime.InferenceSession, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        features, heat = session.run(["features", "map"], {"pixels": pixels[None]})
        return features[0], heat[0]

    def _head(self, features: np.ndarray) -> np.ndarray:
        """float32 [C] to logits [K], summed in float64: a thousand products in float32 depend on the order."""
        return np.asarray(self._weight @ features.astype(np.float64) + self._bias, np.float32)


def open_session(graph: bytes, weights: dict[str, np.ndarray], threads: int) -> onnxruntime.InferenceSession:
    """A session on the CPU with `weights` in place of the graph's external initializers. Raises ReleaseRefused."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle between pictures, not spinning
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(w, np.float32)) for w in weights.values()]
    try:
        options.add_external_initializers(list(weights), values)
        session = onnxruntime.InferenceSession(graph, options, providers=[_PROVIDER])
    except Exception as error:  # the runtime's exceptions have no common base but this
        raise ReleaseRefused("load_failed", detail=str(error)[:500]) from error
    if session.get_providers() != [_PROVIDER]:
        raise ReleaseRefused("load_failed", detail=f"runs on {session.get_providers()}")
    if {"features", "map"} - {output.name for output in session.get_outputs()}:
        raise ReleaseRefused("base_mismatch", detail="the graph lacks features or map")
    return session


def merge(
    targets: dict[str, np.ndarray],
    layout: list[dict[str, Any]],
    adapter: dict[str, np.ndarray],
    plan: dict[str, Any],
) -> dict[str, np.ndarray]:
    """Base weights plus scaling * B @ A, in each target's own layout. Raises ReleaseRefused when something is off.

    `adapter` has PEFT's keys `base_model.model.<module>.lora_A.weight` [r, in(, 1, 1)] and `lora_B` [out, r(, 1, 1)].
    """
    by_module = {target["module"]: target for target in layout}
    left = dict(adapter)
    merged = dict(targets)
    for module in plan["modules"]:
        a, b = (left.pop(f"{_PREFIX}{module}.lora_{side}.weight", None) for side in "AB")
        target = by_module.get(module)
        if a is None or b is None or target is None:
            raise ReleaseRefused("adapter_does_not_fit_base", module=module)
        base = targets[target["initializer"]]
        a, b = a.reshape(a.shape[0], -1).astype(np.float64), b.reshape(b.shape[0], -1).astype(np.float64)
        rows, columns = _rows_columns(base.shape, target["layout"], module)
        if b.shape[0] != rows or a.shape[1] != columns or b.shape[1] != a.shape[0]:
            raise ReleaseRefused("adapter_does_not_fit_base", module=module, shapes=[list(a.shape), list(b.shape)])
        delta = float(plan["scaling"]) * (b @ a)
        if target["layout"] == "linear_t":
            delta = delta.T
        merged[target["initializer"]] = (base.astype(np.float64) + delta.reshape(base.shape)).astype(np.float32)
    if left:
        raise ReleaseRefused("adapter_does_not_fit_base", unknown=sorted(left)[:5])
    if not all(np.isfinite(weight).all() for weight in merged.values()):
        raise ReleaseRefused("not_finite", detail="merged weights")
    return merged


def _rows_columns(shape: tuple[int, ...], layout: str, module: str) -> tuple[int, int]:
    """(out, in) of a weight in its ONNX layout."""
    if layout == "conv1x1" and len(shape) == 4 and shape[2:] == (1, 1):
        return shape[0], shape[1]
    if layout == "linear" and len(shape) == 2:
        return shape[0], shape[1]
    if layout == "linear_t" and len(shape) == 2:
        return shape[1], shape[0]
    raise ReleaseRefused("base_mismatch", module=module, layout=layout, shape=list(shape))


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits.astype(np.float64) - float(np.max(logits)))
    return np.asarray(shifted / shifted.sum())


def _opened(path: Path, digest: str) -> bytes:
    """The bytes of a file, checked after opening: what was verified is what is used."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ReleaseRefused("digest_mismatch", file=path.name, detail=str(error)) from error
    if sha256(data) != digest:
        raise ReleaseRefused("digest_mismatch", file=path.name)
    return data


def _tensors(data: bytes) -> dict[str, np.ndarray]:
    try:
        tensors: dict[str, np.ndarray] = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError) as error:
        raise ReleaseRefused("load_failed", detail=f"safetensors: {error}") from error
    return tensors


def _head(tensors: dict[str, np.ndarray], classes: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    weight, bias = tensors.get("weight"), tensors.get("bias")
    if weight is None or bias is None or weight.shape != (classes, features) or bias.shape != (classes,):
        raise ReleaseRefused("adapter_does_not_fit_base", part="head", classes=classes, features=features)
    return weight.astype(np.float64), bias.astype(np.float64)


def _golden(data: bytes, classes: int) -> tuple[list[bytes], np.ndarray]:
    tensors = _tensors(data)
    logits = tensors.pop("logits", np.zeros((0, classes), np.float32))
    names = sorted(tensors)
    if not names or names != [f"item_{n:03d}" for n in range(len(names))] or logits.shape != (len(names), classes):
        raise ReleaseRefused("manifest_invalid", part="golden", items=len(names), logits=list(logits.shape))
    return [tensors[name].astype(np.uint8).tobytes() for name in names], logits


def _golden_pixels(data: bytes, preprocess: dict[str, Any]) -> np.ndarray:
    try:
        return to_pixels(data, preprocess)
    except PictureRefused as error:
        raise ReleaseRefused("picture_unreadable", reason=error.code) from error
