"""A whole training on small pictures: its files, its repeatability, and what it does when something is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors.numpy import load_file

from tests.recipe.conftest import CHECKOUT, CLASSES, PREPROCESS, SIZE, Heard, Row
from training.recipe import fit as fit_module
from training.recipe import train as train_module
from training.recipe.cache import PrefixCache, cache_key
from training.recipe.config import sha256_file
from training.recipe.data import read_items
from training.recipe.events import Events, Failed, Stopped, StopRequest
from training.recipe.export import PARTS, OnnxCheck
from training.recipe.graph import open_session
from training.recipe.model import Whole, load_network, open_base
from training.recipe.train import evaluate, train, warm
from training.recipe.verify import verify

MakeJob = Callable[..., Path]
Rows = Callable[..., list[Row]]


def run(job_dir: Path, stop: StopRequest | None = None, heard: Heard | None = None) -> Heard:
    heard = heard or Heard()
    train(job_dir, Events(heard), stop or StopRequest())
    return heard


def train_and_verify(job_dir: Path) -> None:
    run(job_dir)
    verify(job_dir, Events(Heard()))


def adapter_bytes(job_dir: Path) -> bytes:
    return (job_dir / "out" / "adapter_model.safetensors").read_bytes()


def test_a_training_leaves_a_version_that_passes_the_clean_base_gate(make_job: MakeJob, small_items: list[Row]) -> None:
    job_dir = make_job("job", small_items, train={"epochs": 6, "batch": 16, "lr": 0.01})
    heard = run(job_dir)
    out = job_dir / "out"
    manifest = json.loads((out / "manifest.json").read_text())
    result = json.loads((out / "result.json").read_text())

    assert manifest["classes"] == CLASSES
    assert manifest["preprocess"] == PREPROCESS
    for part, name in PARTS.items():
        assert manifest["parts"][part] == {"digest": sha256_file(out / name), "bytes": (out / name).stat().st_size}
    assert manifest["full_bytes"] == (out / "model.onnx").stat().st_size
    assert manifest["thresholds"] == result["thresholds"]
    assert (out / "golden.safetensors").stat().st_size <= 150_000
    assert result["onnx_check"]["flips"] == 0
    assert result["onnx_check"]["items"] == 36
    assert result["sets"]["golden"]["champion"] is None
    assert result["sets"]["golden"]["candidate"]["escapes"][1] == 4
    assert result["sets"]["golden"]["candidate"]["auroc"] > 0.9  # it learned
    assert {row["id"] for row in result["dossier"] if row["set"] == "golden"} == {
        row["id"] for row in small_items if row["set"]
    }
    epochs = heard.named("epoch")
    assert [event["epoch"] for event in epochs] == [1, 2, 3, 4, 5, 6]
    assert heard.named("step")[-1]["step"] == heard.named("step")[-1]["of"] == 18
    assert epochs[-1]["val_loss"] < epochs[0]["val_loss"]

    gate = Heard()
    verify(job_dir, Events(gate))
    assert gate.named("verified")[0]["max_abs"] <= manifest["tolerance"]["logits"]


def test_the_files_load_with_plain_peft_and_plain_onnx(
    make_job: MakeJob, small_items: list[Row], small_base: Path
) -> None:
    from peft import PeftModel

    job_dir = make_job("job", small_items)
    run(job_dir)
    out = job_dir / "out"
    base = open_base(small_base)
    network = PeftModel.from_pretrained(load_network(base), str(out)).eval()
    head = load_file(out / "head.safetensors")
    pixels = np.random.default_rng(0).normal(size=(2, 3, SIZE, SIZE)).astype(np.float32)
    with torch.inference_mode():
        features, _ = Whole(network.get_base_model())(torch.from_numpy(pixels))
    (logits,) = open_session(out / "model.onnx", {}).run(None, {"pixels": pixels})
    np.testing.assert_allclose(logits, features.numpy() @ head["weight"].T + head["bias"], atol=1e-4)
    model = onnx.load(str(out / "model.onnx"))
    onnx.checker.check_model(model)
    assert [o.name for o in model.graph.output] == ["logits"]


def test_the_same_job_twice_gives_the_same_bytes_and_another_seed_does_not(
    make_job: MakeJob, small_items: list[Row], tmp_path: Path
) -> None:
    jobs = [make_job(name, small_items, job="same", seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    for job_dir in jobs[:1]:
        run(job_dir)
    shutil.rmtree(tmp_path / "cache")  # cached or computed makes no difference either
    for job_dir in jobs[1:]:
        run(job_dir)
    first, second, other = ((job_dir / "out" / "manifest.json").read_bytes() for job_dir in jobs)
    assert first == second
    assert first != other


def test_a_stopped_training_goes_on_from_its_checkpoint_to_the_same_result(
    make_job: MakeJob, small_items: list[Row]
) -> None:
    whole = make_job("whole", small_items, job="same")
    run(whole)
    cut = make_job("cut", small_items, job="same")
    stop = StopRequest()

    def ask_in_the_middle_of_epoch_two(event: dict[str, Any]) -> None:
        stop.asked = stop.asked or (event["event"] == "epoch" and event["epoch"] == 1)

    with pytest.raises(Stopped):
        run(cut, stop, Heard(ask_in_the_middle_of_epoch_two))
    assert not (cut / "out").exists()
    kept = sorted(path.name for path in (cut / "checkpoint").iterdir())
    assert kept == ["00000003"]
    heard = run(cut)
    assert heard.named("epoch")[0]["epoch"] == 2
    assert adapter_bytes(cut) == adapter_bytes(whole)


def test_a_checkpoint_of_other_data_or_a_damaged_one_is_not_used(make_job: MakeJob, small_items: list[Row]) -> None:
    job_dir = make_job("job", small_items)
    run(job_dir)
    expected = adapter_bytes(job_dir)
    kept = sorted((job_dir / "checkpoint").iterdir())
    assert len(kept) == 2
    (kept[1] / "tensors.safetensors").write_bytes(b"torn")
    heard = run(job_dir)
    assert [event["epoch"] for event in heard.named("epoch")] == [3]  # from the one before
    assert adapter_bytes(job_dir) == expected
    config = json.loads((job_dir / "config.json").read_text())
    (job_dir / "config.json").write_text(json.dumps({**config, "seed": 9}))
    assert [event["epoch"] for event in run(job_dir).named("epoch")] == [1, 2, 3]


def test_continuing_keeps_the_parents_shape_and_rows_and_replays_what_it_was_taught(
    make_job: MakeJob, small_items: list[Row], rows: Rows
) -> None:
    parent = make_job("parent", small_items)
    run(parent)
    new = rows(24, 300, "train", product="poly") + rows(12, 400, "val", product="poly")
    more = [*CLASSES, {"index": 2, "number": 9, "code": "stain"}]
    child = make_job(
        "child", small_items + new, mode="continue", parent_dir=str(parent / "out"), champion_dir=str(parent / "out"),
        classes=more, lora={"rank": 8, "alpha": 8.0, "cut": "blocks.4"}, train={"epochs": 1, "batch": 16, "lr": 1e-6},
    )  # fmt: skip
    items = read_items(child, parent / "out")
    assert {item.id for item in items if item.old} == {row["id"] for row in small_items if row["split"] == "train"}
    run(child)
    result = json.loads((child / "out" / "result.json").read_text())
    codes = [warning["code"] for warning in result["warnings"]]
    assert "lora_from_parent" in codes
    ours = load_file(child / "out" / "head.safetensors")["weight"]
    theirs = load_file(parent / "out" / "head.safetensors")["weight"]
    np.testing.assert_allclose(ours[:2], theirs, atol=1e-4)
    assert ours.shape[0] == 3
    golden = result["sets"]["golden"]
    before = json.loads((parent / "out" / "result.json").read_text())["sets"]["golden"]["candidate"]
    assert golden["champion"] == before  # judged again, the champion is what it was
    assert golden["champion_reset"]["escapes"][1] == 4
    assert golden["champion_matched"]["escapes"][0] <= golden["candidate"]["escapes"][0]
    taught = json.loads((child / "out" / "taught.json").read_text())
    assert set(taught) == {row["digest"] for row in small_items + new if row["split"] == "train"}


def test_batchnorm_left_awake_makes_an_adapter_that_the_gate_refuses(
    make_job: MakeJob, small_items: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fault every naive loop has: train() at each step wakes BatchNorm, whose statistics are not shipped.
    monkeypatch.setattr(fit_module, "hold_frozen", lambda model: model.train())
    job_dir = make_job("job", small_items)
    with pytest.raises(Failed) as failed:
        run(job_dir)
    assert failed.value.params["where"] == "onnx"  # the training's own comparison sees it already
    # With that first net away, the second must hold.
    shutil.rmtree(job_dir / "checkpoint")
    monkeypatch.setattr(train_module, "check_onnx", lambda *_: OnnxCheck(0, 0, 0.0))
    with pytest.raises(Failed) as failed:
        train_and_verify(job_dir)
    assert failed.value.code == "adapter_does_not_fit_base"
    assert failed.value.params["where"] in ("torch", "onnx")


def test_the_gate_refuses_bytes_that_the_manifest_does_not_name(make_job: MakeJob, small_items: list[Row]) -> None:
    job_dir = make_job("job", small_items)
    run(job_dir)
    head = job_dir / "out" / "head.safetensors"
    data = bytearray(head.read_bytes())
    data[-1] ^= 1
    head.write_bytes(data)
    with pytest.raises(Failed) as failed:
        verify(job_dir, Events(Heard()))
    assert failed.value.code == "adapter_does_not_fit_base"
    assert failed.value.params["where"] == "head.safetensors"


def test_a_loss_that_is_not_finite_stops_and_names_the_picture(
    make_job: MakeJob, small_items: list[Row], small_base: Path, tmp_path: Path
) -> None:
    victim = small_items[7]
    cache = PrefixCache(tmp_path / "cache", 1 << 28)
    heard = Heard()
    job_dir = make_job("job", small_items)
    run(job_dir, heard=heard)
    shutil.rmtree(job_dir / "checkpoint")
    base = open_base(small_base)
    for view in ("identity", "hflip"):
        key = cache_key(victim["digest"], PREPROCESS, base.digest, "blocks.3", view)
        good = cache.get(key)
        if good is not None:
            cache.put(key, np.full_like(good, np.inf))
    with pytest.raises(Failed) as failed:
        run(job_dir)
    assert failed.value.code == "non_finite_loss"
    assert victim["id"] in failed.value.params["ids"]
    assert len(failed.value.params["ids"]) == 1


def test_losing_the_cache_while_training_costs_only_time(
    make_job: MakeJob, small_items: list[Row], tmp_path: Path
) -> None:
    kept, lost = make_job("kept", small_items, job="same"), make_job("lost", small_items, job="same")
    run(kept)

    def lose(event: dict[str, Any]) -> None:
        if event["event"] == "epoch":
            shutil.rmtree(tmp_path / "cache")

    run(lost, heard=Heard(lose))
    assert adapter_bytes(lost) == adapter_bytes(kept)


def test_a_warmed_cache_leaves_nothing_of_the_prefix_to_compute(make_job: MakeJob, small_items: list[Row]) -> None:
    job_dir = make_job("job", small_items)
    warm(job_dir, Events(Heard()), StopRequest())
    run(job_dir)
    assert json.loads((job_dir / "out" / "result.json").read_text())["prefix"]["computed"] == 0


def test_evaluate_again_gives_the_same_figures(make_job: MakeJob, small_items: list[Row]) -> None:
    job_dir = make_job("job", small_items)
    run(job_dir)
    evaluate(job_dir, Events(Heard()), StopRequest())
    again = json.loads((job_dir / "evaluation.json").read_text())
    result = json.loads((job_dir / "out" / "result.json").read_text())
    assert again["sets"] == result["sets"]


def test_importing_the_package_imports_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, training.recipe, training.recipe.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=False).returncode == 0


def test_the_packaged_base_is_efficientnet_lite0(base_bundle: Path) -> None:
    document = json.loads((base_bundle / "base.json").read_text())
    assert document["features"] == 1280
    assert document["parameters"] == 3_371_008  # lite0 without its classifier
    assert {"blocks.5", "blocks.5.3", "blocks.6"} <= set(document["cuts"])
    assert (base_bundle / "graph.onnx").stat().st_size < 2_000_000  # what adapters may target is outside
