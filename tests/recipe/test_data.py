"""What training sees, in which order, and which data is refused by which code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recipe.conftest import CLASSES, PREPROCESS, Row, picture
from training.recipe.config import Config, read_config
from training.recipe.data import (
    Item,
    check_classes,
    epoch_samples,
    pixels_of,
    read_bytes,
    read_items,
    split_items,
    view_of,
)
from training.recipe.events import Failed

Rows = Callable[..., list[Row]]


@pytest.fixture
def loaded(tmp_path: Path, rows: Rows) -> Callable[..., tuple[Config, list[Item]]]:
    """Config and items of a job that needs no base model."""
    import json

    def load(items: list[Row], **changes: Any) -> tuple[Config, list[Item]]:
        config = {
            "line": "l", "job": "j", "base_dir": "base", "preprocess": PREPROCESS, "classes": CLASSES, **changes,
        }  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "items.jsonl").write_text("\n".join(map(json.dumps, items)))
        return read_config(tmp_path), read_items(tmp_path)

    return load


def ids(samples: list[Any]) -> list[str]:
    return [sample.item.id for sample in samples]


def test_order_is_a_function_of_seed_and_epoch(loaded: Any, rows: Rows) -> None:
    config, items = loaded(rows(20, 0, "train"), seed=5)
    first = epoch_samples(items, config, 0)
    assert first == epoch_samples(items, config, 0)
    assert ids(first) != ids(epoch_samples(items, config, 1))
    other, _ = loaded(rows(0, 0, "train"), seed=6)
    assert ids(first) != ids(epoch_samples(items, other, 0))


def test_every_picture_comes_once_per_epoch_and_in_all_views_over_the_epochs(loaded: Any, rows: Rows) -> None:
    config, items = loaded(rows(10, 0, "train"))
    seen = [epoch_samples(items, config, epoch) for epoch in range(2)]
    assert all(sorted(ids(samples)) == sorted(item.id for item in items) for samples in seen)
    assert {(sample.item.id, sample.view) for samples in seen for sample in samples} == {
        (item.id, view) for item in items for view in ("identity", "hflip")
    }


def test_replay_brings_a_share_of_the_old_pictures_each_epoch_and_all_of_them_in_turn(loaded: Any, rows: Rows) -> None:
    old = [{**row, "old": True} for row in rows(20, 0, "train")]
    config, items = loaded(old + rows(10, 50, "train"), mode="continue", parent_dir="parent", replay=0.25)
    epochs = [epoch_samples(items, config, epoch) for epoch in range(4)]
    for samples in epochs:
        assert sum(sample.item.old for sample in samples) in (5, 6)  # a quarter of each class
        assert sum(not sample.item.old for sample in samples) == 10
        assert {sample.item.label for sample in samples if sample.item.old} == {0, 3}
    assert len({sample.item.id for samples in epochs for sample in samples if sample.item.old}) == 20


def test_a_fresh_training_knows_no_old_pictures(loaded: Any, rows: Rows) -> None:
    old = [{**row, "old": True} for row in rows(20, 0, "train")]
    config, items = loaded(old + rows(10, 50, "train"))
    assert len(epoch_samples(items, config, 0)) == 30


def test_a_picture_of_a_set_is_never_trained_on(loaded: Any, rows: Rows) -> None:
    _, items = loaded(rows(6, 0, "train", "golden") + rows(6, 10, "test") + rows(6, 20, "val") + rows(6, 30, "train"))
    splits = split_items(items)
    assert {item.id for item in splits.train} == {f"capture-{n}" for n in range(30, 36)}
    assert {name: len(members) for name, members in splits.sets.items()} == {"val": 6, "golden": 6, "test": 6}


CRITICAL = [*CLASSES, {"index": 2, "number": 9, "code": "short", "critical": True}]


@pytest.mark.parametrize(
    ("train", "val", "classes", "code", "params"),
    [
        ([0, 3], [0, 0], CLASSES, "no_ng_in_validation", {"val": 2}),
        ([0, 0], [0, 3], CLASSES, "class_missing", {"code": "NG", "where": "train"}),
        ([3, 3], [0, 3], CLASSES, "class_missing", {"code": "OK", "where": "train"}),
        ([0, 3], [3, 3], CLASSES, "class_missing", {"code": "OK", "where": "val"}),
        ([0, 3], [0, 3], CRITICAL, "class_missing", {"code": "short", "where": "train"}),
        ([0, 3, 9], [0, 3], CRITICAL, "class_missing", {"code": "short", "where": "val"}),
        ([0, 3, 7], [0, 3], CLASSES, "class_missing", {"number": 7, "where": "class_table"}),
    ],
)
def test_data_nothing_can_be_learned_from_is_refused_by_name(
    loaded: Any, rows: Rows, train: list[int], val: list[int], classes: list[Any], code: str, params: dict[str, Any]
) -> None:
    items = [{**row, "label": label} for row, label in zip(rows(len(train), 0, "train"), train, strict=True)]
    items += [{**row, "label": label} for row, label in zip(rows(len(val), 50, "val"), val, strict=True)]
    config, read = loaded(items, classes=classes)
    with pytest.raises(Failed) as failed:
        check_classes(split_items(read), config)
    assert failed.value.code == code
    assert failed.value.params.items() >= params.items()


def test_a_thin_class_that_is_not_critical_is_only_a_warning(loaded: Any, rows: Rows) -> None:
    more = [*CLASSES, {"index": 2, "number": 9, "code": "stain"}]
    config, items = loaded(rows(6, 0, "train") + rows(6, 12, "val"), classes=more)
    warnings = check_classes(split_items(items), config)
    assert [warning["params"] for warning in warnings] == [
        {"class": "stain", "where": "train"},
        {"class": "stain", "where": "val"},
    ]


def test_an_unreadable_picture_is_named(loaded: Any, rows: Rows, tmp_path: Path) -> None:
    _, (item, swapped, gone) = loaded(rows(3, 0, "train"))
    assert pixels_of(read_bytes(item), PREPROCESS, id=item.id).shape == (3, 64, 64)
    swapped.path.write_bytes(picture(99, False))
    gone.path.unlink()
    for broken, reason in ((swapped, "digest_mismatch"), (gone, "missing")):
        with pytest.raises(Failed) as failed:
            read_bytes(broken)
        assert failed.value.code == "picture_unreadable"
        assert failed.value.params == {"id": broken.id, "digest": broken.digest, "reason": reason}
    with pytest.raises(Failed) as failed:
        pixels_of(item.path.read_bytes()[:200], PREPROCESS, id=item.id)
    assert failed.value.params["reason"] == "truncated"
    assert failed.value.params["id"] == item.id


def test_views_turn_pixels_and_nothing_else() -> None:
    pixels = np.arange(12).reshape(1, 3, 4)
    assert view_of(pixels, "hflip")[0, 0].tolist() == [3, 2, 1, 0]
    assert view_of(pixels, "vflip")[0, :, 0].tolist() == [8, 4, 0]
    np.testing.assert_array_equal(view_of(pixels, "rot180"), np.rot90(pixels, 2, axes=(1, 2)))


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "merge"}, {"mode": "continue"}, {"train": {"views": ["sideways"]}}, {"escape_limit": 1.5},
        {"lora": {"rank": 0}}, {"classes": CLASSES[:1]}, {"classes": CLASSES[::-1]}, {"golden_vectors": 0},
    ],
)  # fmt: skip
def test_a_config_that_makes_no_sense_is_refused(loaded: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        loaded([], **changes)
