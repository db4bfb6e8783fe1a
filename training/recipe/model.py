"""Base models: the imported network, cut into the part no adapter changes (prefix) and the part adapters live in
(suffix).

A network is a list of named steps. The prefix runs in ONNX Runtime, which is several times faster than eager torch on
CPU and is the same code as on the device; on a GPU it runs in torch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from .config import sha256_file

log = logging.getLogger(__name__)

Step = tuple[str, Callable[[Tensor], Tensor]]


@dataclass(frozen=True)
class Base:
    """A base bundle on disk (`base.json`, `base.safetensors`, `graph.onnx`, `targets.safetensors`)."""

    folder: Path
    map: dict[str, Any]

    @property
    def digest(self) -> str:
        return str(self.map["digest"])

    @property
    def targets(self) -> dict[str, dict[str, Any]]:
        """Module name -> {initializer, shape, layout}."""
        return {row["module"]: row for row in self.map["targets"]}

    @property
    def graph_path(self) -> Path:
        return self.folder / "graph.onnx"


def open_base(folder: Path) -> Base:
    """Reads and checks a base bundle. Raises ValueError when a file is not the one that `base.json` names."""
    base = Base(folder, json.loads((folder / "base.json").read_text("utf-8")))
    names = {"weights": "base.safetensors", "graph": "graph.onnx", "targets": "targets.safetensors"}
    for part, name in names.items():
        found = sha256_file(folder / name)
        if found != base.map["files"][part]["digest"]:
            raise ValueError(f"{name} has digest {found}, base.json names {base.map['files'][part]['digest']}")
    return base


def build_network(name: str, **options: Any) -> nn.Module:
    """The timm network without weights. Never downloads: weights come from a local file only."""
    network: nn.Module = timm.create_model(name, pretrained=False, **options)
    return network


def load_network(base: Base) -> nn.Module:
    """The base network with its weights, in eval mode and frozen."""
    network = build_network(base.map["name"], **base.map.get("options", {}))
    network.load_state_dict(load_file(base.folder / "base.safetensors"), strict=True)
    network.requires_grad_(False)
    return network.eval()


def device_of_choice() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def steps_of(network: nn.Module) -> list[Step]:
    """The network's forward pass up to its last feature map, as named steps.

    Convolutional nets of the EfficientNet family give maps [N, C, h, w] at each step; vision transformers give token
    rows. Raises ValueError for other families: their cuts would have to be thought about first.
    """
    net: Any = network
    if hasattr(net, "conv_stem") and hasattr(net, "conv_head"):
        blocks = [(f"blocks.{i}.{j}", block) for i, stage in enumerate(net.blocks) for j, block in enumerate(stage)]
        return [
            ("stem", lambda x: net.bn1(net.conv_stem(x))),
            *blocks,
            ("head", lambda x: net.bn2(net.conv_head(x))),
        ]
    if hasattr(net, "patch_embed") and hasattr(net, "_pos_embed"):
        blocks = [(f"blocks.{i}", block) for i, block in enumerate(net.blocks)]
        return [
            ("stem", lambda x: net.norm_pre(net.patch_drop(net._pos_embed(net.patch_embed(x))))),
            *blocks,
            ("head", net.norm),
        ]
    raise ValueError(f"{type(network).__name__}: no cut is known for this family")


def cut_index(steps: list[Step], cut: str) -> int:
    """Index of the first step that belongs to the cut ("blocks.5" or "blocks.5.1"). Raises ValueError when unknown."""
    for index, (name, _) in enumerate(steps):
        if index > 0 and (name == cut or name.startswith(cut + ".")):
            return index
    raise ValueError(f"lora.cut: {cut!r} is not among {[name for name, _ in steps[1:]]}")


def run_prefix(network: nn.Module, pixels: Tensor, cut: str) -> Tensor:
    """Pixels [N, 3, H, W] to the activation at the cut."""
    steps = steps_of(network)
    hidden = pixels
    for _, step in steps[: cut_index(steps, cut)]:
        hidden = step(hidden)
    return hidden


def run_suffix(network: nn.Module, hidden: Tensor, cut: str) -> tuple[Tensor, Tensor]:
    """The activation at the cut to pooled features [N, C] and the last feature map [N, C, h, w]."""
    steps = steps_of(network)
    for _, step in steps[cut_index(steps, cut) :]:
        hidden = step(hidden)
    return pool(network, hidden)


def pool(network: nn.Module, last: Tensor) -> tuple[Tensor, Tensor]:
    net: Any = network
    if last.ndim == 4:
        return net.global_pool(last), last
    features = net.forward_head(last, pre_logits=True)
    patches = last[:, net.num_prefix_tokens :]
    grid_h, grid_w = net.patch_embed.grid_size
    return features, patches.transpose(1, 2).reshape(-1, patches.shape[2], grid_h, grid_w)


class Whole(nn.Module):
    """Pixels to (features, map): what the device's graph computes."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.net = network

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        hidden = pixels
        for _, step in steps_of(self.net):
            hidden = step(hidden)
        return pool(self.net, hidden)


class TorchPrefix:
    """The frozen prefix on a GPU."""

    def __init__(self, network: nn.Module, cut: str, device: torch.device) -> None:
        self._network, self._cut, self._device = network, cut, device

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            hidden = run_prefix(self._network, torch.from_numpy(pixels).to(self._device), self._cut)
            return hidden.float().cpu().numpy()


def adaptable_modules(network: nn.Module, cut: str | None = None) -> list[str]:
    """Names of the layers that may carry an adapter: pointwise convolutions and linear layers of the steps after the
    cut.

    Grouped convolutions are left out because their adapters cannot be merged.
    """
    net: Any = network
    steps = steps_of(network)
    first = 1 if cut is None else cut_index(steps, cut)
    inside = tuple(name + "." for name, _ in steps[first:] if name != "head")
    names = []
    for name, module in net.named_modules():
        pointwise = isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1) and module.groups == 1
        if (pointwise or isinstance(module, nn.Linear)) and (name.startswith(inside) or name == "conv_head"):
            names.append(name)
    return names
