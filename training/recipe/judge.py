"""One version as a judge: base + adapter + head + preprocessing + thresholds, giving logits for pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .cache import PrefixCache
from .config import ClassEntry, read_classes
from .data import Item, Sample
from .evaluate import Thresholds
from .lora import attach, load_head, read_adapter, set_adapter_state
from .model import Base, Whole, device_of_choice, load_network, run_suffix
from .prefix import Activations

BATCH = 32


@dataclass
class Judge:
    """`network` carries its adapter, unmerged or merged; both are frozen here."""

    network: nn.Module
    head: nn.Linear
    cut: str
    activations: Activations
    classes: tuple[ClassEntry, ...]
    thresholds: Thresholds | None = None

    def logits(self, items: Sequence[Item], check: Callable[[], None] = lambda: None) -> np.ndarray:
        """float32 [N, K] by way of the cached activations, identity view, as on the device."""
        out = [np.zeros((0, len(self.classes)), np.float32)]
        for start in range(0, len(items), BATCH):
            check()
            hidden = self.activations.get([Sample(item, "identity") for item in items[start : start + BATCH]])
            out.append(self.logits_of_hidden(hidden))
        return np.concatenate(out)

    def logits_of_hidden(self, hidden: torch.Tensor) -> np.ndarray:
        """float32 [N, K] from float32 activations at the cut."""
        self.network.eval()
        with torch.inference_mode():
            features, _ = run_suffix(self.network, to_device(hidden, self.head.weight.device), self.cut)
            logits: np.ndarray = self.head(features).float().cpu().numpy()
        return logits

    def logits_of_pixels(self, pixels: np.ndarray) -> np.ndarray:
        """float32 [N, K] through the whole network in float32, from pixels [N, 3, H, W]: nothing cached."""
        self.network.eval()
        device = next(self.head.parameters()).device
        whole = Whole(self.network)
        out = []
        with torch.inference_mode():
            for start in range(0, len(pixels), 4):  # small batches keep the early, large maps in the CPU's caches
                features, _ = whole(torch.from_numpy(pixels[start : start + 4]).to(device))
                out.append(self.head(features).float().cpu().numpy())
        return np.concatenate(out)


def to_device(hidden: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Maps go channels-last, which CPUs and tensor cores convolve faster."""
    if hidden.ndim == 4:
        return hidden.to(device, memory_format=torch.channels_last)
    return hidden.to(device)


def timm_network(model: Any) -> nn.Module:
    """The network inside PEFT's wrapper, with the adapter in place."""
    network: nn.Module = model.get_base_model()
    return network


def open_judge(folder: Path, base: Base, cache: PrefixCache, threads: int) -> Judge:
    """A version's files as a judge on this base. Raises ValueError when the adapter belongs to another base or
    shape.
    """
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    if manifest["base"]["digest"] != base.digest:
        raise ValueError(f"made for base {manifest['base']['digest'][:12]}, not {base.digest[:12]}")
    adapter = read_adapter(folder)
    model = attach(load_network(base), adapter.cut, adapter.rank, adapter.alpha, seed=0)
    set_adapter_state(model, {key: torch.from_numpy(value) for key, value in adapter.tensors.items()})
    model.requires_grad_(False)
    device = device_of_choice()
    return Judge(
        network=timm_network(model).to(device),
        head=load_head(folder).to(device).requires_grad_(False),
        cut=adapter.cut,
        activations=Activations(base, adapter.cut, manifest["preprocess"], cache, threads),
        classes=read_classes(manifest["classes"]),
        thresholds=Thresholds.of(manifest["thresholds"]),
    )
