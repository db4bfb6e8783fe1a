"""The simulated camera: right facts, no label, remembers its place."""

from __future__ import annotations

import csv
import json
import threading
from pathlib import Path

import pytest

from edge.config import Home
from edge.simulate import Camera
from tests.edge.plant import picture


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    (folder / "images").mkdir(parents=True)
    with open(folder / "manifest.csv", "w", newline="", encoding="utf-8") as handle:
        rows = csv.writer(handle)
        rows.writerow(["image", "label", "lot", "part", "captured_at", "serial"])
        for n in range(4):
            (folder / "images" / f"検査 {n}.png").write_bytes(picture(n))
            rows.writerow([f"images/検査 {n}.png", "crack", f"lot-{n}", "tile", "2020-08-28T11:00:14", f"S{n}"])
    return folder / "manifest.csv"


def pictures(home: Home) -> list[Path]:
    return sorted(p for p in home.inbox.iterdir() if p.suffix != ".json")


def test_it_shows_every_row_with_its_facts_and_without_its_label(manifest: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert Camera(home, manifest).run(200, threading.Event()) == 4
    shown = pictures(home)
    assert [p.read_bytes() for p in shown] == [picture(n) for n in range(4)]
    facts = json.loads(shown[1].with_name(f"{shown[1].name}.json").read_bytes())
    assert (facts["lot"], facts["serial"], facts["part"]) == ("lot-1", "S1", "tile")
    assert facts["taken_at"] == "2020-08-28T11:00:14"
    assert "crack" not in json.dumps(facts)
    assert Camera(home, manifest).run(200, threading.Event()) == 0


def test_it_goes_on_where_it_was_and_loops_under_new_names(manifest: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    stop = threading.Event()
    threading.Timer(0.45, stop.set).start()
    first = Camera(home, manifest, loop=True).run(10, stop)
    assert 2 <= first <= 6
    stop = threading.Event()
    threading.Timer(0.6, stop.set).start()
    second = Camera(home, manifest, loop=True).run(10, stop)
    assert [int(p.name.split("-")[0]) for p in pictures(home)] == list(range(first + second))
    last = pictures(home)[-1]
    if first + second > 4:
        assert not json.loads(last.with_name(f"{last.name}.json").read_bytes())["taken_at"].startswith("2020")


def test_it_waits_when_nobody_empties_the_inbox(manifest: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    assert Camera(home, manifest, loop=True, inbox_limit=5).run(100, stop) == 6


def test_a_manifest_without_pictures_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("name\nx\n")
    with pytest.raises(ValueError, match="column `image`"):
        Camera(Home(tmp_path / "home"), tmp_path / "m.csv")
