"""Activations at the cut, from the cache or computed: the only way that training and evaluation see a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .cache import PrefixCache, cache_key
from .data import Item, Sample, pixels_of, read_bytes, view_of
from .graph import GraphPrefix
from .lora import merged_targets
from .model import Base, TorchPrefix, device_of_choice, load_network

BATCH = 8  # larger ones are no faster on CPU and cost memory: the early maps are large


def make_prefix(base: Base, cut: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Pixels float32 [N, 3, H, W] to the activation at the cut, on whatever this machine is fastest with."""
    device = device_of_choice()
    if device.type == "cuda":
        return TorchPrefix(load_network(base).to(device), cut, device)
    if cut not in base.map["cuts"]:
        raise ValueError(f"lora.cut: {cut!r} is not among {sorted(base.map['cuts'])}")
    return GraphPrefix(base.graph_path, base.map["cuts"][cut], merged_targets(base, None), threads)


class Activations:
    """float16 activations of (item, view) at one cut. Missing ones are computed, also when lost during training."""

    def __init__(self, base: Base, cut: str, preprocess: dict[str, Any], cache: PrefixCache, threads: int) -> None:
        self.base, self.cut, self.preprocess, self.cache = base, cut, preprocess, cache
        self._threads = threads
        self._prefix: Callable[[np.ndarray], np.ndarray] | None = None
        self.computed = 0

    def prepare(self, wanted: Sequence[Sample], tell: Callable[[int, int], None], check: Callable[[], None]) -> None:
        """Computes what the cache lacks; each picture is decoded once for all its views. `check` may raise to stop."""
        missing: dict[str, tuple[Item, list[str]]] = {}
        for sample in wanted:
            if self._key(sample) not in self.cache:
                views = missing.setdefault(sample.item.digest, (sample.item, []))[1]
                if sample.view not in views:
                    views.append(sample.view)
        total = sum(len(views) for _, views in missing.values())
        done, batch = 0, []
        tell(0, total)
        for item, views in missing.values():
            check()
            pixels = pixels_of(read_bytes(item), self.preprocess, id=item.id, digest=item.digest)
            batch += [(Sample(item, view), view_of(pixels, view)) for view in views]
            while len(batch) >= BATCH:
                self._compute(batch[:BATCH])
                batch = batch[BATCH:]
                done += BATCH
                tell(done, total)
        if batch:
            self._compute(batch)
            tell(total, total)

    def get(self, samples: Sequence[Sample]) -> torch.Tensor:
        """float32 [N, ...] in the order asked for."""
        found = [self.cache.get(self._key(sample)) for sample in samples]
        for start in range(0, len(samples), BATCH):
            lost = [i for i in range(start, min(start + BATCH, len(samples))) if found[i] is None]
            if not lost:
                continue
            batch = []
            for i in lost:
                item = samples[i].item
                pixels = pixels_of(read_bytes(item), self.preprocess, id=item.id, digest=item.digest)
                batch.append((samples[i], view_of(pixels, samples[i].view)))
            for i, activation in zip(lost, self._compute(batch), strict=True):
                found[i] = activation
        return torch.from_numpy(np.stack([array.astype(np.float32) for array in found if array is not None]))

    def _compute(self, batch: Sequence[tuple[Sample, np.ndarray]]) -> list[np.ndarray]:
        if self._prefix is None:
            self._prefix = make_prefix(self.base, self.cut, self._threads)
        pixels = np.ascontiguousarray(np.stack([view for _, view in batch]))
        # Rounded here and not only on disk, so that a value is the same whether it came from the cache or not.
        values = list(self._prefix(pixels).astype(np.float16))
        for (sample, _), value in zip(batch, values, strict=True):
            self.cache.put(self._key(sample), value)
        self.computed += len(batch)
        return values

    def _key(self, sample: Sample) -> str:
        return cache_key(sample.item.digest, self.preprocess, self.base.digest, self.cut, sample.view)
