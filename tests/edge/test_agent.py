"""The agent on the line as a real process: verdicts, flags, outages, bad pictures and kills."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from edge.config import Home
from tests.edge.conftest import GOOD, Device, children, committed, is_alive, wait_for, wait_for_check_ins
from tests.edge.console_double import Console
from tests.edge.plant import ALL_OK, ALL_REVIEW, Base, make_release, picture, sha256


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
    wait_for(lambda: len(console.captures) == shown, f"all {shown} pictures arrive once")
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
        return not any(os.path.exists(f"/proc/{pid}") and is_alive(pid) for pid in found)

    wait_for(gone, "children end with their agent")


def test_one_home_has_one_agent(device: Device, console: Console, home: Home) -> None:
    device.start()
    wait_for(lambda: console.check_ins, "contact")
    second = Device(home)
    second.start()
    assert second.process is not None
    assert second.process.wait(20) == 2
    assert device.stop() == 0
