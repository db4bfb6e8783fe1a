"""Checkpoints of a job: adapter, head and optimizer as safetensors plus a JSON state; the last two are kept.

Written beside, fsynced, renamed: after a power cut the folder holds whole checkpoints only. Never pickle.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import torch
from peft import PeftModel
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from .lora import adapter_state, set_adapter_state

KEEP = 2
TENSORS, STATE = "tensors.safetensors", "state.json"


class Checkpoints:
    """`fingerprint` names what is being trained on what: checkpoints of anything else are ignored."""

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder, self.fingerprint = folder, fingerprint

    def save(self, step: int, model: PeftModel, head: nn.Linear, optimizer: torch.optim.Optimizer) -> None:
        tensors = {f"adapter/{key}": value for key, value in adapter_state(model).items()}
        tensors |= {f"head/{key}": value.detach().cpu().contiguous() for key, value in head.state_dict().items()}
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{index}/{key}": value.detach().cpu().contiguous() for key, value in state.items()}
        temporary = self.folder / f".{step:08d}.{os.getpid()}"
        temporary.mkdir(parents=True, exist_ok=True)
        save_file(tensors, temporary / TENSORS)
        (temporary / STATE).write_text(json.dumps({"step": step, "fingerprint": self.fingerprint}), "utf-8")
        for name in (TENSORS, STATE):
            _sync(temporary / name)
        final = self.folder / f"{step:08d}"
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
        _sync(self.folder)
        for old in self._all()[:-KEEP]:
            shutil.rmtree(old)

    def resume(self, model: PeftModel, head: nn.Linear, optimizer: torch.optim.Optimizer) -> int:
        """Loads the newest usable checkpoint and returns its step; 0 when there is none."""
        for folder in reversed(self._all()):
            try:
                state = json.loads((folder / STATE).read_text("utf-8"))
                tensors = load_file(folder / TENSORS)
            except (OSError, ValueError, SafetensorError):
                continue  # a damaged one: the one before it is whole
            if state.get("fingerprint") != self.fingerprint:
                continue
            set_adapter_state(model, _part(tensors, "adapter/"))
            head.load_state_dict(_part(tensors, "head/"))
            loaded = optimizer.state_dict()
            loaded["state"] = {}
            for key, value in _part(tensors, "optimizer/").items():
                index, name = key.split("/")
                loaded["state"].setdefault(int(index), {})[name] = value
            optimizer.load_state_dict(loaded)
            return int(state["step"])
        return 0

    def _all(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("[0-9]*") if path.is_dir())


def _part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
