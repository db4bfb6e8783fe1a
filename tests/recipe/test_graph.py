"""An adapter injected into the device's graph must act as it does in torch. Real ONNX Runtime, all optimisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from tests.recipe.conftest import SIZE
from training.recipe.graph import GraphPrefix, load_graph, merged_model, open_session
from training.recipe.judge import timm_network
from training.recipe.lora import attach, merged_targets, new_head, read_adapter, save_adapter
from training.recipe.model import Whole, load_network, open_base, run_prefix

CASES = [("small_base", "blocks.2", SIZE), ("small_vit", "blocks.3", 160)]


def trained_adapter(base_dir: Path, cut: str, out: Path) -> nn.Module:
    """A network whose adapter does something, its files written to `out`."""
    base = open_base(base_dir)
    model = attach(load_network(base), cut, rank=4, alpha=8.0, seed=3)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    save_adapter(model, cut, base, out)
    return timm_network(model)


@pytest.mark.parametrize(("fixture", "cut", "size"), CASES)
def test_injected_adapter_changes_the_outputs_to_those_of_the_merged_torch_model(
    fixture: str, cut: str, size: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    base = open_base(request.getfixturevalue(fixture))
    network = trained_adapter(base.folder, cut, tmp_path)
    pixels = np.random.default_rng(0).normal(size=(3, 3, size, size)).astype(np.float32)
    with torch.inference_mode():
        expected, last = (tensor.numpy() for tensor in Whole(network)(torch.from_numpy(pixels)))
    bare = open_session(base.graph_path, merged_targets(base, None)).run(None, {"pixels": pixels})
    injected = open_session(base.graph_path, merged_targets(base, read_adapter(tmp_path))).run(None, {"pixels": pixels})
    assert np.abs(injected[0] - bare[0]).max() > 0.05
    np.testing.assert_allclose(injected[0], expected, atol=1e-4)
    np.testing.assert_allclose(injected[1], last, atol=1e-3)
    # The batch is open.
    for count in (1, 2, 3):
        one = open_session(base.graph_path, merged_targets(base, None)).run(None, {"pixels": pixels[:count]})
        np.testing.assert_allclose(one[0], bare[0][:count], atol=1e-4)


def test_a_graph_without_injected_weights_does_not_load(small_base: Path) -> None:
    with pytest.raises(Exception, match="injected"):
        onnxruntime.InferenceSession(str(small_base / "graph.onnx"), providers=["CPUExecutionProvider"])


def test_the_merged_model_gives_the_logits_of_injection_and_head(small_base: Path, tmp_path: Path) -> None:
    base = open_base(small_base)
    trained_adapter(small_base, "blocks.2", tmp_path)
    head = new_head(int(base.map["features"]), 3, seed=1)
    weight, bias = head.weight.detach().numpy(), head.bias.detach().numpy()
    weights = merged_targets(base, read_adapter(tmp_path))
    model = merged_model(base.graph_path, weights, weight, bias).SerializeToString()
    pixels = np.random.default_rng(1).normal(size=(5, 3, SIZE, SIZE)).astype(np.float32)
    (logits,) = open_session(model, {}).run(None, {"pixels": pixels})
    features, _ = open_session(base.graph_path, weights).run(None, {"pixels": pixels})
    np.testing.assert_allclose(logits, features @ weight.T + bias, atol=1e-4)


@pytest.mark.parametrize(("fixture", "cut", "size"), CASES)
def test_the_prefix_graph_gives_torchs_activation_at_every_cut(
    fixture: str, cut: str, size: int, request: pytest.FixtureRequest
) -> None:
    base = open_base(request.getfixturevalue(fixture))
    network = load_network(base)
    pixels = np.random.default_rng(2).normal(size=(2, 3, size, size)).astype(np.float32)
    for name, tensor in base.map["cuts"].items():
        found = GraphPrefix(base.graph_path, tensor, merged_targets(base, None), 1)(pixels)
        with torch.inference_mode():
            expected = run_prefix(network, torch.from_numpy(pixels), name).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-4, err_msg=name)


def test_the_graph_says_nothing_about_the_machine_that_exported_it(small_base: Path) -> None:
    graph = load_graph(small_base / "graph.onnx")
    assert not any(node.metadata_props or node.doc_string for node in graph.graph.node)
    data = (small_base / "graph.onnx").read_bytes()
    assert b"site-packages" not in data
    assert b"/root" not in data


def test_a_base_whose_file_was_changed_is_refused(small_base: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(small_base, tmp_path / "base")
    with (tmp_path / "base" / "graph.onnx").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(ValueError, match=r"graph\.onnx"):
        open_base(tmp_path / "base")


def test_an_adapter_for_a_layer_the_base_does_not_offer_is_refused(
    small_base: Path, small_vit: Path, tmp_path: Path
) -> None:
    trained_adapter(small_vit, "blocks.3", tmp_path)
    with pytest.raises(ValueError, match="offers no layer"):
        merged_targets(open_base(small_base), read_adapter(tmp_path))
