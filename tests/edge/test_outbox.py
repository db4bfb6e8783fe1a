"""The outbox on a real disk: within its budget, complete after a crash, never dropping in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.outbox import Outbox, capture_id


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("outbox", "refused"):
        (tmp_path / name).mkdir()
    return tmp_path / "outbox", tmp_path / "refused"


def header(reason: str) -> dict[str, Any]:
    return {"reason": reason, "lot": "로트"}


def ids(outbox: Outbox) -> list[str]:
    found = []
    while (waiting := outbox.first()) is not None:
        found.append(waiting.id)
        outbox.done(waiting)
    return found


def test_captures_come_out_in_the_order_they_went_in_also_after_a_restart(folders: tuple[Path, Path]) -> None:
    outbox = Outbox(*folders, 1000)
    for name in ("c", "a", "b"):
        assert outbox.put(name, header("band"), b"x" * 10)
    again = Outbox(*folders, 1000)
    assert again.waiting() == (3, 30)
    first = again.first()
    assert first is not None
    assert again.header(first) == header("band")
    assert again.picture(first).read_bytes() == b"x" * 10
    again.put("d", header("band"), b"y")
    assert ids(again) == ["c", "a", "b", "d"]
    assert list(folders[0].iterdir()) == []


def test_the_same_capture_is_kept_once(folders: tuple[Path, Path]) -> None:
    outbox = Outbox(*folders, 1000)
    name = capture_id("dev", "a.png", "digest", "2026-01-01")
    assert name == capture_id("dev", "a.png", "digest", "2026-01-01")
    assert name != capture_id("dev", "b.png", "digest", "2026-01-01")
    assert outbox.put(name, header("band"), b"x")
    assert outbox.put(name, header("band"), b"x")
    assert outbox.waiting() == (1, 1)


def test_a_full_outbox_drops_the_oldest_audit_samples_first_and_counts_them(folders: tuple[Path, Path]) -> None:
    outbox = Outbox(*folders, 50)
    for name, reason in (("b1", "band"), ("a1", "audit"), ("o1", "operator"), ("a2", "audit"), ("n1", "no_model")):
        outbox.put(name, header(reason), b"x" * 10)
    assert outbox.put("b2", header("band"), b"x" * 10)
    assert outbox.put("b3", header("band"), b"x" * 20)
    assert outbox.take_dropped() == {"audit": 2, "no_model": 1}
    assert outbox.take_dropped() == {}
    assert outbox.waiting() == (4, 50)
    assert ids(Outbox(*folders, 50)) == ["b1", "o1", "b2", "b3"]


def test_a_newcomer_does_not_push_out_what_is_wanted_more(folders: tuple[Path, Path]) -> None:
    outbox = Outbox(*folders, 20)
    outbox.put("b1", header("band"), b"x" * 10)
    outbox.put("o1", header("operator"), b"x" * 10)
    assert not outbox.put("a1", header("audit"), b"x" * 10)
    assert not outbox.put("big", header("operator"), b"x" * 30)
    assert outbox.take_dropped() == {"audit": 1, "operator": 1}
    assert ids(outbox) == ["b1", "o1"]


def test_a_refused_capture_lies_aside_with_the_answer_and_the_rest_goes_on(folders: tuple[Path, Path]) -> None:
    outbox = Outbox(*folders, 1000, refused_max_files=2)
    for n in range(4):
        outbox.put(f"c{n}", header("band"), b"x")
    for _ in range(3):
        first = outbox.first()
        assert first is not None
        outbox.refuse(first, {"status": 422, "error": "truncated"})
    assert sorted(p.name for p in folders[1].iterdir()) == ["c1.bin", "c1.json", "c2.bin", "c2.json"]
    assert ids(Outbox(*folders, 1000)) == ["c3"]


def test_what_a_power_cut_leaves_is_swept_and_damage_stays_apart(folders: tuple[Path, Path]) -> None:
    outbox = Outbox(*folders, 1000)
    outbox.put("good", header("band"), b"x")
    outbox.put("bad", header("band"), b"x")
    (folders[0] / "bad.json").write_text("{")
    (folders[0] / "alone.bin").write_bytes(b"picture without a header")
    (folders[0] / ".good.json.1-1.tmp").write_bytes(b"half")
    again = Outbox(*folders, 1000)
    assert again.waiting() == (1, 1)
    assert sorted(p.name for p in folders[0].iterdir()) == ["good.bin", "good.json"]
    assert (folders[1] / "bad.bin").exists()


def test_one_that_makes_the_server_stumble_lets_the_others_pass(folders: tuple[Path, Path]) -> None:
    outbox = Outbox(*folders, 1000)
    for name in ("a", "b", "c"):
        outbox.put(name, header("band"), b"x")
    first = outbox.first()
    assert first is not None
    outbox.postpone(first)
    assert ids(outbox) == ["b", "c", "a"]
