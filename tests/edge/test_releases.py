"""Releases on a real agent process: fetched, proven, swapped, watched, refused, fallen back from."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from edge.config import Home
from tests.edge.conftest import GOOD, Device, children, committed, configure, wait_for, wait_for_check_ins
from tests.edge.console_double import Console
from tests.edge.plant import ALL_REVIEW, Base, Release, make_release, picture, sha256


def state(home: Home) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(home.state_file.read_bytes())
    except FileNotFoundError:
        return {"counts": {}}
    return values


def bad_releases(base: Base) -> dict[str, Release]:
    """Ways to be wrong that the device must find out by itself."""
    ignored = make_release(base, 5, strength=0.0)
    corrupt = make_release(base, 5)
    adapter = safetensors.numpy.load(corrupt.parts["adapter"])
    key = "base_model.model.neck.fc.lora_B.weight"
    corrupt.parts["adapter"] = safetensors.numpy.save({**adapter, key: adapter[key] + np.float32(0.3)})
    corrupt.seal()
    flipped = make_release(base, 5)
    head = bytearray(flipped.parts["head"])
    head[-1] ^= 1
    flipped.blobs[sha256(flipped.parts["head"])] = bytes(head)
    longer = make_release(base, 5)
    longer.blobs[sha256(longer.parts["head"])] = longer.parts["head"] + b"more"
    missing = make_release(base, 5)
    del missing.blobs[sha256(missing.parts["golden"])]
    return {"adapter_has_no_effect": ignored, "golden_mismatch": corrupt, "digest_mismatch": flipped,
            "too_long": longer, "not_found": missing}  # fmt: skip


def test_a_release_is_fetched_proven_committed_and_judges(
    device: Device, console: Console, base: Base, home: Home
) -> None:
    release = make_release(base, thresholds=ALL_REVIEW)
    console.assign(release, number=3)
    device.start()
    wait_for(lambda: committed(console), "commit")
    assert console.states() == GOOD
    last = console.reports[-1]
    assert last["loaded_digest"] == release.digest
    assert last["max_abs"] < 0.002
    assert last["delivered_bytes"] == len(release.data) + sum(map(len, release.parts.values()))
    assert last["base_bytes"] == len(base.graph) + len(base.targets) + len(base.map)
    assert [r["sequence"] for r in console.reports] == [1, 2, 3, 4, 5]
    device.show("a.png", picture(7))
    wait_for(lambda: console.captures, "a capture")
    ((header, _),) = console.captures.values()
    prediction = header["prediction"]
    assert (prediction["release_number"], prediction["verdict"], header["reason"]) == (3, "REVIEW", "band")
    assert prediction["score"] == pytest.approx(1 - prediction["probabilities"][0], abs=1e-4)
    assert prediction["map"]["w"] * prediction["map"]["h"] == len(prediction["map"]["values"])
    wait_for(lambda: console.check_ins[-1]["running"]["release_number"] == 3, "check-in")
    assert console.check_ins[-1]["running"]["release_digest"] == release.digest
    assert console.check_ins[-1]["running"]["base_digest"] == base.digest
    assert device.stop() == 0


def test_a_second_release_brings_the_adapter_only_and_no_picture_is_dropped(
    device: Device, console: Console, base: Base, home: Home
) -> None:
    console.assign(make_release(base, 1, thresholds=ALL_REVIEW), number=1)
    device.start()
    wait_for(lambda: committed(console), "first commit")
    second = make_release(base, 2, thresholds=ALL_REVIEW)
    shown = 0
    for n in range(20):
        device.show(f"{n:03d}.png", picture(n))
        shown += 1
    console.assign(second, number=2, deployment="dep-2")
    while not committed(console, "dep-2"):
        device.show(f"{shown:03d}.png", picture(shown))
        shown += 1
        time.sleep(0.02)
        assert shown < 1500
    wait_for(lambda: len(console.captures) == shown, "every picture judged and sent")
    numbers = [header["prediction"]["release_number"] for header, _ in console.captures.values()]
    assert set(numbers) == {1, 2}
    assert console.reports[-1]["base_bytes"] == 0
    assert console.reports[-1]["delivered_bytes"] == len(second.data) + sum(map(len, second.parts.values()))
    assert sorted(p.name for p in home.bases.iterdir()) == [base.digest]
    assert device.stop() == 0


def test_going_back_is_a_higher_number_on_older_bytes_and_a_lower_number_is_refused(
    device: Device, console: Console, base: Base
) -> None:
    first, second = make_release(base, 1), make_release(base, 2)
    for number, release in ((1, first), (2, second), (3, first)):
        console.assign(release, number, deployment=f"dep-{number}")
        if number == 1:
            device.start()
        wait_for(lambda n=number: committed(console, f"dep-{n}"), f"commit {number}")
    assert console.reports[-1]["loaded_digest"] == first.digest
    assert console.reports[-1]["delivered_bytes"] == 0
    for deployment, number in (("dep-4", 2), ("dep-5", 3)):
        console.assign(second, number, deployment=deployment)
        wait_for(lambda d=deployment: console.states(d) == ["REFUSED"], "refusal")
        assert console.reports[-1]["code"] == "release_number_falls"
    device.kill()
    device.start()
    console.assign(second, 2, deployment="dep-6")
    wait_for(lambda: console.states("dep-6") == ["REFUSED"], "refusal after a restart")
    wait_for(lambda: console.check_ins[-1]["running"]["release_number"] == 3, "still the third")


@pytest.mark.parametrize(
    "code", ["adapter_has_no_effect", "golden_mismatch", "digest_mismatch", "too_long", "not_found"]
)
def test_a_bad_release_is_refused_and_the_old_one_goes_on(
    device: Device, console: Console, base: Base, home: Home, code: str
) -> None:
    good = make_release(base, 1, thresholds=ALL_REVIEW)
    console.assign(good, number=1)
    device.start()
    wait_for(lambda: committed(console), "first commit")
    bad = bad_releases(base)[code]
    console.blobs.clear()
    console.assign(bad, number=2, deployment="dep-2")
    for n in range(10):
        device.show(f"{n}.png", picture(n))
    wait_for(lambda: console.states("dep-2")[-1:] in (["REFUSED"], ["FAILED"]), "refusal")
    assert console.reports[-1]["code"] == code
    assert "PROBATION" not in console.states("dep-2")
    device.show("after.png", picture(99))
    wait_for(lambda: len(console.captures) == 11, "all judged")
    assert {header["prediction"]["release_number"] for header, _ in console.captures.values()} == {1}
    reports = len(console.reports)
    wait_for_check_ins(console, 3)
    assert len(console.reports) == reports  # not tried again and again
    console.assign(make_release(base, 2), number=3, deployment="dep-3")
    wait_for(lambda: committed(console, "dep-3"), "a good one afterwards")


def test_a_child_that_dies_on_probation_gives_way_to_the_old_release(
    device: Device, console: Console, base: Base, home: Home
) -> None:
    configure(home, probation_s=30.0, probation_frames=1000)
    console.assign(make_release(base, 1, thresholds=ALL_REVIEW), number=1)
    device.start()
    wait_for(lambda: "PROBATION" in console.states(), "probation")
    assert device.process is not None
    os.kill(children(device.process.pid)[-1], signal.SIGKILL)
    device.show("a.png", picture(1))
    wait_for(lambda: console.states()[-1] == "FELL_BACK", "fall back to nothing")
    wait_for(lambda: console.captures, "the picture is not lost")
    assert next(iter(console.captures.values()))[0]["reason"] == "no_model"
    device.stop()
    configure(home)
    device.start()
    console.assign(make_release(base, 2, thresholds=ALL_REVIEW), number=2, deployment="dep-2")
    wait_for(lambda: committed(console, "dep-2"), "commit")
    device.stop()
    configure(home, probation_s=30.0, probation_frames=1000)
    device.start()
    console.assign(make_release(base, 3, thresholds=ALL_REVIEW), number=3, deployment="dep-3")
    wait_for(lambda: "PROBATION" in console.states("dep-3"), "probation")
    old, new = children(device.process.pid)
    os.kill(max(old, new), signal.SIGKILL)
    device.show("b.png", picture(2))
    wait_for(lambda: console.states("dep-3")[-1] == "FELL_BACK", "fall back")
    assert console.reports[-1]["code"] == "child_died"
    wait_for(lambda: len(console.captures) == 2, "the picture is judged")
    header = next(h for h, data in console.captures.values() if data == picture(2))
    assert header["prediction"]["release_number"] == 2
    wait_for(lambda: console.check_ins[-1]["running"]["release_number"] == 2, "the old one runs")


def test_a_download_that_breaks_off_goes_on_where_it_was(device: Device, console: Console, base: Base) -> None:
    release = make_release(base)
    console.cut_blobs = {sha256(release.parts["golden"]): 3000, sha256(base.graph): 500}
    console.assign(release, number=1)
    device.start()
    wait_for(lambda: committed(console), "commit")
    assert (sha256(release.parts["golden"]), "bytes=3000-") in console.blob_requests
    assert (sha256(base.graph), "bytes=500-") in console.blob_requests
    total = len(release.data) + sum(map(len, release.parts.values()))
    assert console.reports[-1]["delivered_bytes"] == total


def test_an_unwanted_release_is_not_switched_on(device: Device, console: Console, base: Base) -> None:
    console.unwanted_at = {"STAGED"}
    console.assign(make_release(base), number=1)
    device.start()
    wait_for(lambda: "STAGED" in console.states(), "staged")
    wait_for_check_ins(console, 3)
    assert console.check_ins[-1]["running"]["release_digest"] is None
    assert "PROBATION" not in console.states()


def test_a_report_that_was_lost_is_sent_when_the_server_is_back(device: Device, console: Console, base: Base) -> None:
    configure(device.home, probation_s=3.0, probation_frames=1000)
    console.assign(make_release(base), number=1)
    device.start()
    wait_for(lambda: "PROBATION" in console.states(), "probation")
    console.stop()
    wait_for(lambda: state(device.home)["deployment"]["reported"] == "COMMITTED", "committed while offline")
    device.kill()
    device.start()
    time.sleep(1)
    console.start()
    wait_for(lambda: committed(console), "told")
    assert console.states() == GOOD


def test_a_damaged_release_on_disk_gives_way_at_the_next_start(
    device: Device, console: Console, base: Base, home: Home
) -> None:
    first, second = make_release(base, 1), make_release(base, 2)
    console.assign(first, number=1)
    device.start()
    wait_for(lambda: committed(console), "first")
    console.assign(second, number=2, deployment="dep-2")
    wait_for(lambda: committed(console, "dep-2"), "second")
    device.stop()
    head = home.releases / second.digest / "head.safetensors"
    head.write_bytes(head.read_bytes()[:-1] + b"\xff")
    device.start()
    wait_for(lambda: console.states("dep-2")[-1] == "FELL_BACK", "said so")
    assert console.reports[-1]["code"] == "digest_mismatch"
    assert console.reports[-1]["loaded_digest"] == first.digest


def test_a_release_that_the_disk_lost_is_installed_again_when_it_is_still_assigned(
    device: Device, console: Console, base: Base, home: Home
) -> None:
    release = make_release(base)
    console.assign(release, number=1)
    device.start()
    wait_for(lambda: committed(console), "commit")
    device.stop()
    shutil.rmtree(home.releases)
    shutil.rmtree(home.bases)
    device.start()
    wait_for(lambda: console.check_ins[-1]["running"]["release_digest"] == release.digest, "it runs again")
    wait_for(lambda: committed(console), "and is said to")
