"""The child process on real onnxruntime: an adapter counts, and one that does not fit or does nothing is refused."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import safetensors.numpy

from edge.config import Settings
from edge.inference import Engine, EngineDied
from edge.manifest import ReleaseRefused
from edge.pictures import PictureRefused, to_pixels
from tests.edge.plant import PREPROCESS, Base, Release, make_base, make_release, picture, sha256

SETTINGS = Settings(server="http://nowhere", device="dev-1")


def start(release: Release, tmp_path: Path) -> Engine:
    base, folder = release.write(tmp_path)
    return Engine.start(base, folder, release.digest, SETTINGS, tmp_path / "log")


def refusal(release: Release, tmp_path: Path) -> ReleaseRefused:
    with pytest.raises(ReleaseRefused) as caught:
        start(release, tmp_path).close()
    return caught.value


def changed(release: Release, part: str, **tensors: np.ndarray) -> Release:
    """The release with other tensors in one part, sealed again: bytes and digests agree, the content does not fit."""
    values = safetensors.numpy.load(release.parts[part])
    release.parts[part] = safetensors.numpy.save({**values, **tensors})
    return release.seal()


def test_a_release_loads_and_judges_as_the_merged_graph_does(base: Base, tmp_path: Path) -> None:
    release = make_release(base)
    engine = start(release, tmp_path)
    judged = engine.judge(picture(7))
    engine.close()
    assert engine.digest == release.digest
    assert engine.max_abs < 1e-4
    golden = safetensors.numpy.load(release.parts["golden"])
    assert np.isclose(sum(judged.probabilities), 1, atol=1e-5)
    assert judged.score == pytest.approx(1 - judged.probabilities[0], abs=1e-5)
    assert judged.map is not None
    assert (judged.map["w"], judged.map["h"], len(judged.map["values"])) == (8, 8, 64)
    assert max(judged.map["values"]) == 255
    engine = start(release, tmp_path)
    for n in range(4):
        expected = np.exp(golden["logits"][n]) / np.exp(golden["logits"][n]).sum()
        assert engine.judge(golden[f"item_{n:03d}"].tobytes()).probabilities == pytest.approx(expected, abs=1e-4)
    engine.close()


def test_two_adapters_give_two_answers_on_one_base(base: Base, tmp_path: Path) -> None:
    scores = []
    for seed in (1, 2):
        engine = start(make_release(base, seed), tmp_path)
        scores.append(engine.judge(picture(7)).score)
        engine.close()
    assert abs(scores[0] - scores[1]) > 0.01


def test_the_obvious_way_to_inject_weights_is_ignored_by_the_runtime(base: Base) -> None:
    """Why external initializers are used: if this ever fails, the runtime got better and nothing is lost."""
    from tests.edge.plant import graph

    inline = graph(base.values, external=False)
    pixels = to_pixels(picture(7), PREPROCESS)[None]
    before = onnxruntime.InferenceSession(inline, providers=["CPUExecutionProvider"]).run(["map"], {"pixels": pixels})
    options = onnxruntime.SessionOptions()
    changed = onnxruntime.OrtValue.ortvalue_from_numpy(base.values["w_point"] + 1)
    options.add_initializer("w_point", changed)
    session = onnxruntime.InferenceSession(inline, options, providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(["map"], {"pixels": pixels})[0], before[0])


def test_an_adapter_without_effect_is_refused(base: Base, tmp_path: Path) -> None:
    assert refusal(make_release(base, strength=0.0), tmp_path).code == "adapter_has_no_effect"


def test_an_adapter_that_the_runtime_would_ignore_is_refused_by_the_golden_vectors(base: Base, tmp_path: Path) -> None:
    release = make_release(base)
    adapter = safetensors.numpy.load(release.parts["adapter"])
    zeros = {name: np.zeros_like(value) for name, value in adapter.items() if "lora_B" in name}
    assert refusal(changed(release, "adapter", **zeros), tmp_path).code == "golden_mismatch"


def test_a_slightly_wrong_adapter_is_refused(base: Base, tmp_path: Path) -> None:
    release = make_release(base)
    key = "base_model.model.blocks.1.conv_pw.lora_B.weight"
    value = safetensors.numpy.load(release.parts["adapter"])[key]
    assert refusal(changed(release, "adapter", **{key: value * 1.2}), tmp_path).code == "golden_mismatch"


def test_wrong_shapes_and_unknown_modules_are_refused(base: Base, tmp_path: Path) -> None:
    key = "base_model.model.neck.fc.lora_A.weight"
    wide = changed(make_release(base), "adapter", **{key: np.ones((4, 5), np.float32)})
    assert refusal(wide, tmp_path).code == "adapter_does_not_fit_base"
    unknown = {f"base_model.model.nowhere.lora_{side}.weight": np.ones((4, 4), np.float32) for side in "AB"}
    assert refusal(changed(make_release(base), "adapter", **unknown), tmp_path).code == "adapter_does_not_fit_base"
    release = make_release(base)
    release.manifest["adapter"]["modules"].append("nowhere")
    assert refusal(release.seal(), tmp_path).code == "adapter_does_not_fit_base"


def test_not_finite_weights_are_refused(base: Base, tmp_path: Path) -> None:
    key = "base_model.model.neck.fc.lora_A.weight"
    broken = changed(make_release(base), "adapter", **{key: np.full((4, 16), np.nan, np.float32)})
    assert refusal(broken, tmp_path).code == "not_finite"
    head = changed(make_release(base), "head", bias=np.full(3, np.inf, np.float32))
    assert refusal(head, tmp_path).code == "not_finite"


def test_a_head_for_other_classes_is_refused(base: Base, tmp_path: Path) -> None:
    release = make_release(base)
    release.manifest["classes"].append({"index": 3, "number": 9, "code": "new"})
    assert refusal(release.seal(), tmp_path).code == "adapter_does_not_fit_base"


def test_the_bytes_that_are_opened_are_the_bytes_that_are_checked(base: Base, tmp_path: Path) -> None:
    release = make_release(base)
    base_folder, folder = release.write(tmp_path)
    for path in (folder / "head.safetensors", base_folder / "graph.onnx", folder / "manifest.json"):
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(ReleaseRefused) as caught:
            Engine.start(base_folder, folder, release.digest, SETTINGS, tmp_path / "log")
        assert (caught.value.code, caught.value.params["file"]) == ("digest_mismatch", path.name)
        path.write_bytes(good)


def test_an_adapter_for_another_base_is_refused(base: Base, tmp_path: Path) -> None:
    release = make_release(base)
    other = make_base(seed=9)
    release.manifest["base"] = make_release(other).manifest["base"]
    release.base = other
    assert refusal(release.seal(), tmp_path).code == "golden_mismatch"
    mixed = make_release(base)
    mixed.manifest["base"]["files"]["targets"] = {"digest": sha256(other.targets), "bytes": len(other.targets)}
    mixed.base = Base(base.values, base.graph, other.targets, base.map, base.digest)
    assert refusal(mixed.seal(), tmp_path).code == "base_mismatch"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 2),
        (("thresholds",), {"operating": 0.5, "ok_below": 0.8, "ng_from": 0.2}),
        (("preprocess", "size"), [0, 32]),
        (("preprocess", "resize"), "crop"),
        (("classes",), []),
        (("adapter", "scaling"), "2"),
        (("parts", "head"), {"digest": "../../etc/passwd", "bytes": 1}),
        (("tolerance", "logits"), 1e9),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(
    base: Base, tmp_path: Path, path: tuple[str, ...], value: object
) -> None:
    release = make_release(base)
    place = release.manifest
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    if path[0] == "parts":  # sealing would write it again
        from tests.edge.plant import canonical

        release.data = canonical(release.manifest)
        release.digest = sha256(release.data)
    else:
        release.seal()
    assert refusal(release, tmp_path).code == "manifest_invalid"


def test_a_picture_that_does_not_decode_is_refused_and_the_next_one_is_judged(base: Base, tmp_path: Path) -> None:
    engine = start(make_release(base), tmp_path)
    for data, code in ((b"", "empty"), (b"no picture", "not_a_picture"), (picture(1)[:500], "truncated")):
        with pytest.raises(PictureRefused) as caught:
            engine.judge(data)
        assert caught.value.code == code
    assert 0 <= engine.judge(picture(1)).score <= 1
    assert 0 <= engine.judge(picture(1, size=(1500, 1000))).score <= 1  # longer than a pipe holds
    engine.close()


def test_the_child_that_is_killed_is_noticed_and_ends_with_its_agent(base: Base, tmp_path: Path) -> None:
    engine = start(make_release(base), tmp_path)
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineDied):
        engine.judge(picture(1))
    engine = start(make_release(base), tmp_path)
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(engine.pid, 0)
