"""The training loop: AdamW on adapter and head over cached activations, resumable, deterministic by seed."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from peft import PeftModel
from torch import nn
from torch.nn import functional

from .checkpoint import Checkpoints
from .config import Config
from .data import Item, Sample, Splits, epoch_samples
from .evaluate import choose_thresholds, rates, scores_of
from .events import Events, Failed, Stopped, StopRequest
from .judge import Judge, to_device
from .lora import hold_frozen, trainable
from .model import run_suffix

log = logging.getLogger(__name__)

WARMUP_SHARE = 0.1
CLIP_NORM = 1.0
LABEL_SMOOTHING = 0.05
NAMED_PICTURES = 32  # at most so many ids in a failure


@dataclass(frozen=True)
class Fitted:
    steps: int
    pictures: int
    seconds: float


def class_weights(train: Sequence[Item], config: Config) -> torch.Tensor:
    """float32 [K]: each class that is present pulls equally on the loss, however rare; mean 1 over one epoch's
    samples.
    """
    counts = np.zeros(len(config.classes))
    for sample in epoch_samples(train, config, 0):
        counts[config.index_of[sample.item.label]] += 1
    present = counts > 0
    weights = np.zeros_like(counts)
    weights[present] = counts.sum() / (present.sum() * counts[present])
    return torch.tensor(weights, dtype=torch.float32)


def learning_rate(step: int, of: int, peak: float) -> float:
    """Linear warm-up over the first tenth, then cosine to zero."""
    warmup = max(1, round(WARMUP_SHARE * of))
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, of - warmup)))


def fit(
    model: PeftModel,
    judge: Judge,
    splits: Splits,
    config: Config,
    checkpoints: Checkpoints,
    events: Events,
    stop: StopRequest,
) -> Fitted:
    """Trains in place. Raises Failed("non_finite_loss") naming pictures, Stopped after writing a checkpoint."""
    head = judge.head
    parameters = [*trainable(model), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay)
    device = head.weight.device
    weights = class_weights(splits.train, config).to(device)
    per_epoch = math.ceil(len(epoch_samples(splits.train, config, 0)) / config.batch)
    steps = per_epoch * config.epochs
    step = checkpoints.resume(model, head, optimizer)
    if step:
        log.info("resumed from the checkpoint at step %d of %d", step, steps)
    began, pictures = time.monotonic(), 0
    try:
        while step < steps:
            epoch = step // per_epoch
            samples = epoch_samples(splits.train, config, epoch)
            for within in range(step % per_epoch, per_epoch):
                stop.check()
                batch = samples[within * config.batch : (within + 1) * config.batch]
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(step, steps, config.lr)
                loss = _step(model, judge, batch, weights, optimizer, config, step)
                step += 1
                pictures += len(batch)
                pace = pictures / max(1e-6, time.monotonic() - began)
                events.step(
                    last=within == per_epoch - 1, step=step, of=steps, epoch=epoch + 1, loss=round(loss, 5),
                    pictures_per_s=round(pace, 1), eta_s=round((steps - step) * config.batch / pace, 1),
                )  # fmt: skip
            _tell_epoch(judge, splits.val, config, epoch, weights, events, stop)
            checkpoints.save(step, model, head, optimizer)
    except Stopped:
        checkpoints.save(step, model, head, optimizer)
        raise
    return Fitted(steps=step, pictures=pictures, seconds=time.monotonic() - began)


def _step(
    model: PeftModel,
    judge: Judge,
    batch: Sequence[Sample],
    weights: torch.Tensor,
    optimizer: torch.optim.Optimizer,
    config: Config,
    step: int,
) -> float:
    hold_frozen(model)
    hidden = to_device(judge.activations.get(batch), weights.device)
    labels = torch.tensor([config.index_of[sample.item.label] for sample in batch], device=weights.device)
    features, _ = run_suffix(judge.network, hidden, judge.cut)
    losses = weighted_loss(judge.head(features), labels, weights)
    loss = losses.mean()
    if not torch.isfinite(loss):
        bad = [sample.item.id for sample, value in zip(batch, losses.tolist(), strict=True) if not math.isfinite(value)]
        raise Failed("non_finite_loss", step=step + 1, ids=bad[:NAMED_PICTURES])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
    if not torch.isfinite(norm):
        raise Failed("non_finite_loss", step=step + 1, ids=[sample.item.id for sample in batch][:NAMED_PICTURES])
    optimizer.step()
    return float(loss.detach())


def weighted_loss(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Per picture, float32 [N]. Weighted outside cross_entropy, whose own weighted mean would undo a batch of one
    class.
    """
    losses = functional.cross_entropy(logits.float(), labels, reduction="none", label_smoothing=LABEL_SMOOTHING)
    return losses * weights[labels]


def _tell_epoch(
    judge: Judge,
    val: Sequence[Item],
    config: Config,
    epoch: int,
    weights: torch.Tensor,
    events: Events,
    stop: StopRequest,
) -> None:
    logits = judge.logits(val, stop.check)
    labels = np.array([item.label for item in val])
    columns = torch.tensor([config.index_of[item.label] for item in val])
    # A class that training lacks has weight 0; here every picture counts.
    loss = weighted_loss(torch.from_numpy(logits), columns, torch.where(weights > 0, weights, 1.0).cpu()).mean()
    scores = scores_of(logits)
    thresholds = choose_thresholds(scores, labels, config.escape_limit, config.critical)
    measured = rates(scores, labels, thresholds, config.classes)
    events.emit(
        "epoch", epoch=epoch + 1, of=config.epochs, val_loss=round(float(loss), 5),
        escapes=measured["escapes"], overkills=measured["overkills"],
    )  # fmt: skip
    log.info(
        "epoch %d of %d: validation loss %.4f, escapes %d/%d, overkills %d/%d", epoch + 1, config.epochs, float(loss),
        *measured["escapes"], *measured["overkills"],
    )  # fmt: skip
