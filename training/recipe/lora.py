"""Adapters: PEFT's LoRA on the layers after the cut, plus a head of our own.

Files are PEFT's own format. The head is kept apart because PEFT loses or refuses heads in several ways; BatchNorm of
the frozen base never leaves eval mode, else the adapter fits a base that nobody has (`hold_frozen`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils.save_and_load import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import safe_open
from safetensors.numpy import load_file as load_numpy
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .config import canonical
from .model import Base, adaptable_modules

ADAPTER_FILE, ADAPTER_CONFIG, HEAD_FILE = "adapter_model.safetensors", "adapter_config.json", "head.safetensors"
METADATA_KEY = "loopline"
_PREFIX = "base_model.model."


def attach(network: nn.Module, cut: str, rank: int, alpha: float, seed: int) -> PeftModel:
    """Wraps the network with fresh LoRA pairs (B = 0: outputs unchanged). The network is changed in place."""
    torch.manual_seed(seed)
    wrapped = get_peft_model(
        network,
        LoraConfig(
            r=rank, lora_alpha=alpha, lora_dropout=0.0, bias="none", target_modules=adaptable_modules(network, cut)
        ),
    )
    if not isinstance(wrapped, PeftModel):
        raise TypeError("peft returned a mixed model")
    return wrapped


def hold_frozen(model: nn.Module) -> None:
    """Puts every layer of the base into eval mode. Call before each step: `train()` anywhere would wake BatchNorm.

    In train mode BatchNorm's running statistics follow the training pictures; they belong to the base, are not shipped,
    and the adapter then fits nothing (25 % agreement, measured).
    """
    model.eval()


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def adapter_state(model: PeftModel) -> dict[str, Tensor]:
    """The LoRA pairs under PEFT's file keys, on the CPU, ordered by key."""
    state = get_peft_model_state_dict(model)
    return {key: state[key].detach().cpu().contiguous().clone() for key in sorted(state)}


def set_adapter_state(model: PeftModel, state: Mapping[str, Tensor]) -> None:
    """Raises ValueError when keys or shapes are not those of this adapter: PEFT itself would skip them silently."""
    own = {key: tuple(tensor.shape) for key, tensor in get_peft_model_state_dict(model).items()}
    given = {key: tuple(tensor.shape) for key, tensor in state.items()}
    if own != given:
        raise ValueError(f"adapter does not match: {sorted(set(own.items()) ^ set(given.items()))[:4]}")
    set_peft_model_state_dict(model, {key: tensor.clone() for key, tensor in state.items()})  # it edits its argument


def save_adapter(model: PeftModel, cut: str, base: Base, folder: Path) -> dict[str, Any]:
    """Writes PEFT's two files so that the same adapter gives the same bytes. Returns the config."""
    # In the tensor file's metadata, because plain PEFT warns about keys of its config that it does not know; in one
    # entry, because safetensors writes several in random order and equal adapters would differ in their digests.
    metadata = {METADATA_KEY: canonical({"base_digest": base.digest, "cut": cut}).decode()}
    save_file(adapter_state(model), folder / ADAPTER_FILE, metadata=metadata)
    config = model.peft_config["default"].to_dict()
    config.update(
        target_modules=adaptable_modules_of(model),
        inference_mode=True,
        base_model_name_or_path=base.map["name"],
    )
    plain = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    (folder / ADAPTER_CONFIG).write_bytes(canonical(json.loads(json.dumps(plain, default=str))))
    return plain


def adaptable_modules_of(model: PeftModel) -> list[str]:
    """Full names of the layers that carry a pair. PEFT may have shortened its own list to endings."""
    return sorted({key.removeprefix(_PREFIX).split(".lora_")[0] for key in adapter_state(model)})


@dataclass(frozen=True)
class Adapter:
    """An adapter's bytes as numbers: PEFT's keys, float32."""

    tensors: dict[str, np.ndarray]
    rank: int
    alpha: float
    cut: str
    base_digest: str

    @property
    def scaling(self) -> float:
        return self.alpha / self.rank

    @property
    def modules(self) -> list[str]:
        return sorted({key.removeprefix(_PREFIX).split(".lora_")[0] for key in self.tensors})


def read_adapter(folder: Path) -> Adapter:
    """Reads PEFT's two files. Raises ValueError for a variant whose delta is not scaling * B @ A."""
    config = json.loads((folder / ADAPTER_CONFIG).read_text("utf-8"))
    if config.get("use_dora") or config.get("use_rslora") or config.get("rank_pattern") or config.get("alpha_pattern"):
        raise ValueError("adapter_config.json: only plain LoRA can be delivered")
    with safe_open(folder / ADAPTER_FILE, "np") as stored:
        own = json.loads((stored.metadata() or {}).get(METADATA_KEY, "{}"))
    return Adapter(
        tensors={key: value.astype(np.float32) for key, value in load_numpy(folder / ADAPTER_FILE).items()},
        rank=int(config["r"]),
        alpha=float(config["lora_alpha"]),
        cut=own.get("cut", ""),
        base_digest=own.get("base_digest", ""),
    )


def merged_targets(base: Base, adapter: Adapter | None) -> dict[str, np.ndarray]:
    """Values of the graph's external initializers with the adapter added: W + scaling * B @ A, float32, ONNX layout.

    With None, the base's own values. Raises ValueError when the adapter names a layer that the base does not offer.
    """
    values = load_numpy(base.folder / "targets.safetensors")
    if adapter is None:
        return values
    offered = base.targets
    for module in adapter.modules:
        if module not in offered:
            raise ValueError(f"the base offers no layer {module}")
        row = offered[module]
        down = adapter.tensors[f"{_PREFIX}{module}.lora_A.weight"].reshape(adapter.rank, -1)
        up = adapter.tensors[f"{_PREFIX}{module}.lora_B.weight"].reshape(-1, adapter.rank)
        delta = adapter.scaling * (up @ down)
        if row["layout"] == "linear_t":
            delta = delta.T
        values[row["initializer"]] = values[row["initializer"]] + delta.reshape(row["shape"]).astype(np.float32)
    return values


def new_head(features: int, classes: int, seed: int) -> nn.Linear:
    torch.manual_seed(seed + 1)
    head = nn.Linear(features, classes)
    nn.init.normal_(head.weight, std=0.01)
    nn.init.zeros_(head.bias)
    return head


def save_head(head: nn.Linear, folder: Path) -> None:
    tensors = {"weight": head.weight, "bias": head.bias}
    save_file({key: tensor.detach().float().cpu().contiguous() for key, tensor in tensors.items()}, folder / HEAD_FILE)


def load_head(folder: Path) -> nn.Linear:
    tensors = load_file(folder / HEAD_FILE)
    classes, features = tensors["weight"].shape
    head = nn.Linear(features, classes)
    head.load_state_dict(tensors)
    return head


def grow_head(parent: nn.Linear, parent_numbers: list[int], numbers: list[int], seed: int) -> nn.Linear:
    """A head for today's class table: rows of known defect-book numbers are taken over, new classes start small."""
    head = new_head(parent.in_features, len(numbers), seed)
    with torch.no_grad():
        for row, number in enumerate(numbers):
            if number in parent_numbers:
                head.weight[row] = parent.weight[parent_numbers.index(number)]
                head.bias[row] = parent.bias[parent_numbers.index(number)]
    return head
