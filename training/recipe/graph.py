"""ONNX side of a base model: injecting weights, cutting off the prefix, and building the merged model.

Weights that an adapter may target are *external* initializers, handed over when a session is made: ONNX Runtime then
optimises with the real values. Overriding an ordinary initializer instead is silently ignored by its graph optimiser.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

PROVIDERS = ["CPUExecutionProvider"]
EXTERNAL_LOCATION = "injected"  # no such file: a session made without injection fails instead of using wrong weights


def options(threads: int) -> onnxruntime.SessionOptions:
    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = threads
    chosen.inter_op_num_threads = 1
    chosen.log_severity_level = 3
    chosen.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the cores are shared with other processes
    chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return chosen


def open_session(
    model: bytes | Path, weights: Mapping[str, np.ndarray], threads: int = 1
) -> onnxruntime.InferenceSession:
    """A session on a graph whose external initializers take `weights` (float32, ONNX layout, by initializer name)."""
    chosen = options(threads)
    if weights:
        names = list(weights)
        values = [
            onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(weights[name], np.float32)) for name in names
        ]
        chosen.add_external_initializers(names, values)
    return onnxruntime.InferenceSession(model if isinstance(model, bytes) else str(model), chosen, providers=PROVIDERS)


def make_external(model: onnx.ModelProto, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Turns the named initializers into external ones, in place, and returns their values."""
    wanted, values = set(names), {}
    for tensor in model.graph.initializer:
        if tensor.name not in wanted:
            continue
        value = numpy_helper.to_array(tensor)
        values[tensor.name] = value.copy()
        tensor.ClearField("raw_data")
        tensor.ClearField("float_data")
        tensor.data_location = TensorProto.EXTERNAL
        del tensor.external_data[:]
        for key, text in (("location", EXTERNAL_LOCATION), ("offset", "0"), ("length", str(value.nbytes))):
            tensor.external_data.add(key=key, value=text)
    if missing := wanted - set(values):
        raise ValueError(f"not initializers of the graph: {sorted(missing)}")
    return values


def load_graph(path: Path) -> onnx.ModelProto:
    """The graph with its external initializers left open."""
    return onnx.load(str(path), load_external_data=False)


def make_inline(model: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> None:
    """Puts values into external initializers, in place. Raises KeyError when one is not given."""
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            value = np.ascontiguousarray(weights[tensor.name], np.float32)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def prefix_of(path: Path, tensor: str) -> onnx.ModelProto:
    """The part of the graph that computes `tensor` from the pixels."""
    model = load_graph(path)
    graph = model.graph
    needed, kept = {tensor}, []
    for node in reversed(graph.node):  # ONNX keeps nodes in topological order
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(name for name in node.input if name)
    if "pixels" not in needed:
        raise ValueError(f"{tensor!r} does not depend on the pixels")
    initializers = [item for item in graph.initializer if item.name in needed]
    nodes = list(reversed(kept))
    cut = helper.make_graph(
        nodes, "prefix", list(graph.input), [helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None)],
        initializer=initializers,
    )  # fmt: skip
    return helper.make_model(cut, opset_imports=list(model.opset_import), ir_version=model.ir_version)


def merged_model(
    path: Path, weights: Mapping[str, np.ndarray], head_weight: np.ndarray, head_bias: np.ndarray
) -> onnx.ModelProto:
    """The whole model of a version: pixels [N, 3, H, W] to logits [N, K], all weights inside."""
    model = load_graph(path)
    make_inline(model, weights)
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(head_weight, np.float32), "head.weight"))
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(head_bias, np.float32), "head.bias"))
    graph.node.append(
        helper.make_node("Gemm", ["features", "head.weight", "head.bias"], ["logits"], name="head", transB=1)
    )
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", int(head_bias.shape[0])]))
    onnx.checker.check_model(model)
    return model


class GraphPrefix:
    """The frozen prefix in ONNX Runtime: pixels [N, 3, H, W] to the activation at the cut."""

    def __init__(self, path: Path, tensor: str, weights: Mapping[str, np.ndarray], threads: int) -> None:
        model = prefix_of(path, tensor)
        make_inline(model, weights)
        self._session = open_session(model.SerializeToString(), {}, threads)

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        return np.asarray(self._session.run(None, {"pixels": pixels})[0])
