"""The agent as a real process against a real server: verdicts, flags, releases, outages and kills."""

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
from tests.edge.conftest import Device, configure, wait_for
from tests.edge.console_double import Console
from tests.edge.plant import Base, Release, make_release, picture, sha256

ALL_REVIEW = (0.0, 1.1)
ALL_OK = (1.1, 1.1)
GOOD = ["DOWNLOADING", "VERIFIED", "STAGED", "PROBATION", "COMMITTED"]


def state(home: Home) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(home.state_file.read_bytes())
    except FileNotFoundError:
        return {"counts": {}}
    return values


def committed(console: Console, deployment: str = "dep-1") -> bool:
    return console.states(deployment)[-1:] == ["COMMITTED"]


def wait_for_check_ins(console: Console, more: int) -> None:
    before = len(console.check_ins)
    wait_for(lambda: len(console.check_ins) >= before + more, "more check-ins")


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as handle:
        found = [int(n) for n in handle.read().split()]
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as handle:
            found += [int(n) for n in handle.read().split()]
    return sorted(set(found))


def test_without_a_release_every_picture_goes_to_people(device: Device, console: Console, home: Home) -> None:
    device.start()
    facts = {"lot": "로트-7", "serial": "S1", "part": "P", "shift": "night", "product": "mono",
             "taken_at": "2026-03-01T10:00:00+09:00"}  # fmt: skip
    for n in range(5):
        device.show(f"{n}.png", picture(n), **facts)
    wait_for(lambda: len(console.captures) == 5, "five captures")
    header, data = next(iter(console.captures.values()))
    assert data == picture(0)
    assert {name: header[name] for name in facts if name != "taken_at"} == {
        k: v for k, v in facts.items() if k != "taken_at"
    }
    assert (header["reason"], header["sampling_weight"], header["prediction"]) == ("no_model", 1.0, None)
    assert header["station"] == "st-3"
    assert time.mktime(time.strptime("2026-03-01T01:00:00", "%Y-%m-%dT%H:%M:%S")) > 0
    assert header["taken_at"].startswith("2026-03-01")
    wait_for(lambda: console.check_ins[-1]["counts"]["flagged"] == 5, "counts")
    assert console.check_ins[-1]["running"] == {"release_digest": None, "release_number": None, "base_digest": None}
    assert list(home.inbox.iterdir()) == []
    assert device.stop() == 0


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


def test_a_child_that_dies_later_is_replaced_and_its_picture_judged(
    device: Device, console: Console, base: Base
) -> None:
    console.assign(make_release(base, 1, thresholds=ALL_REVIEW), number=1)
    device.start()
    wait_for(lambda: committed(console), "commit")
    assert device.process is not None
    os.kill(children(device.process.pid)[0], signal.SIGKILL)
    device.show("a.png", picture(1))
    wait_for(lambda: console.captures, "judged")
    assert next(iter(console.captures.values()))[0]["prediction"]["release_number"] == 1
    assert committed(console)


def test_an_outage_keeps_everything_and_sends_each_picture_once(device: Device, console: Console, home: Home) -> None:
    device.start()
    wait_for(lambda: console.check_ins, "contact")
    console.stop()
    for n in range(30):
        device.show(f"{n:02d}.png", picture(n))
    wait_for(lambda: len(list(home.outbox.glob("*.json"))) == 30, "all in the outbox")
    device.kill()
    device.start()
    console.start()
    wait_for(lambda: len(console.captures) == 30, "all sent")
    wait_for(lambda: not list(home.outbox.iterdir()), "outbox empty")
    assert sorted(data for _, data in console.captures.values()) == sorted(picture(n) for n in range(30))


def test_a_refused_picture_lies_aside_and_nothing_else_is_affected(
    device: Device, console: Console, home: Home
) -> None:
    console.refuse.add(sha256(picture(2)))
    console.answers.append(("/captures/", 500, {}))
    device.start()
    for n in range(5):
        device.show(f"{n}.png", picture(n))
    wait_for(lambda: len(console.captures) == 4, "the others")
    wait_for(lambda: list(home.refused.glob("*.json")), "set aside")
    (note,) = home.refused.glob("*.json")
    assert json.loads(note.read_bytes())["answer"]["error"] == "truncated"
    assert note.with_suffix(".bin").read_bytes() == picture(2)
    wait_for(lambda: console.check_ins[-1]["counts"]["refused"] == 1, "counted")


def test_what_does_not_decode_on_the_device_lies_aside_too(
    device: Device, console: Console, base: Base, home: Home
) -> None:
    console.assign(make_release(base, thresholds=ALL_REVIEW), number=1)
    device.start()
    wait_for(lambda: committed(console), "commit")
    device.show("1.jpg", b"")
    device.show("2.jpg", picture(1, kind="JPEG")[:600])
    device.show("3.jpg", b"version https://git-lfs.github.com/spec/v1")
    device.show("検査 ロット#12 (2).jpg", picture(4))
    wait_for(lambda: len(console.captures) == 1, "the good one")
    notes = [json.loads(note.read_bytes()) for note in home.refused.glob("*.json")]
    assert sorted(n["answer"]["error"] for n in notes) == ["empty", "not_a_picture", "truncated"]
    assert list(home.inbox.iterdir()) == []


def test_ok_pictures_go_by_audit_and_on_request(device: Device, console: Console, base: Base) -> None:
    console.policy = {"audit_rate": 0.0, "flag_next": 0}
    console.assign(make_release(base, thresholds=ALL_OK), number=1)
    device.start()
    wait_for(lambda: committed(console), "commit")
    for n in range(10):
        device.show(f"a{n}.png", picture(n))
    wait_for(lambda: console.check_ins[-1]["counts"]["ok"] == 10, "ten judged OK")
    assert not console.captures
    console.policy = {"audit_rate": 0.0, "flag_next": 3}
    wait_for_check_ins(console, 2)
    console.policy = {"audit_rate": 0.0, "flag_next": 0}
    for n in range(10):
        device.show(f"b{n}.png", picture(n))
    wait_for(lambda: console.check_ins[-1]["counts"]["ok"] == 20, "twenty judged OK")
    wait_for(lambda: len(console.captures) == 3, "three on request")
    assert {h["reason"] for h, _ in console.captures.values()} == {"operator"}
    console.policy = {"audit_rate": 0.5, "flag_next": 0}
    wait_for_check_ins(console, 2)
    for n in range(40):
        device.show(f"c{n}.png", picture(n))
    wait_for(lambda: console.check_ins[-1]["counts"]["ok"] == 60, "sixty judged OK")
    wait_for(lambda: console.check_ins[-1]["outbox"]["waiting"] == 0, "all sent")
    audits = [h for h, _ in console.captures.values() if h["reason"] == "audit"]
    assert 8 <= len(audits) <= 32
    assert {h["sampling_weight"] for h in audits} == {2.0}


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


@pytest.mark.chaos
def test_killed_at_any_moment_the_agent_continues_and_commits(
    device: Device, console: Console, base: Base, home: Home
) -> None:
    """SIGKILL every few hundred milliseconds through download, load, swap and probation, with pictures coming."""
    console.slow_blob_s = 0.01
    console.assign(make_release(base, 1, thresholds=ALL_REVIEW), number=1)
    shown = 0
    for round_s in (0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 1.7, 1.9, 2.1):
        device.start()
        deadline = time.monotonic() + round_s
        while time.monotonic() < deadline:
            device.show(f"{shown:04d}.png", picture(shown))
            shown += 1
            time.sleep(0.05)
        device.kill()
    device.start()
    wait_for(lambda: committed(console), "commit")
    wait_for(lambda: len(console.captures) == shown, f"all {shown} pictures arrive once", 30)
    assert {data for _, data in console.captures.values()} == {picture(n) for n in range(shown)}
    order = [GOOD.index(s) for s in console.states()]
    assert order == sorted(order)
    sequences = [r["sequence"] for r in console.reports]
    assert sequences == sorted(sequences)
    counts = [c["counts"]["inspected"] for c in console.check_ins]
    assert counts == sorted(counts)
    assert device.process is not None
    (child,) = children(device.process.pid)
    assert device.stop() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_sigkill_leaves_no_child(device: Device, console: Console, base: Base) -> None:
    console.assign(make_release(base), number=1)
    device.start()
    wait_for(lambda: committed(console), "commit")
    assert device.process is not None
    found = children(device.process.pid)
    assert found
    device.kill()

    def gone() -> bool:
        return not any(os.path.exists(f"/proc/{pid}") and _alive(pid) for pid in found)

    wait_for(gone, "children end with their agent")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as handle:
            return handle.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


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


def test_one_home_has_one_agent(device: Device, console: Console, home: Home) -> None:
    device.start()
    wait_for(lambda: console.check_ins, "contact")
    second = Device(home)
    second.start()
    assert second.process is not None
    assert second.process.wait(20) == 2
    assert device.stop() == 0


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
