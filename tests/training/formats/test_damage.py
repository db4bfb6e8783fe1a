"""Label files damaged in any place are read or refused; they never end in an error nobody expected."""

from __future__ import annotations

import json
import random
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from edge.pictures import inspect
from registry.lifecycle import Refused
from tests.training.formats.conftest import box, labelled, written
from training import formats
from training.formats import Found, Shape
from training.formats.model import check

ODD: list[Any] = [None, True, -1, 0, 1.5, 1e400, 10**30, "", "x", "../../x.png", [], [[]], {}, {"a": []}, [1], ["OK"]]
POLYGON = Shape(2, "polygon", ((1.0, 1.0), (9.0, 1.0), (5.0, 9.0)))


def damaged_json(value: Any, chance: random.Random) -> Any:
    """The same document with one value somewhere exchanged."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(value)
    node, key = chance.choice(places)
    if isinstance(node, dict) and chance.random() < 0.2:
        del node[key]
    else:
        node[key] = chance.choice(ODD)
    return value


def damaged_text(text: str, chance: random.Random) -> str:
    """One quoted value, word or stretch exchanged."""
    found = list(re.finditer(r'"[^"]*"|[\w.]+|>[^<]+<', text))
    spot = chance.choice(found)
    odd = chance.choice(["", "-1", "nan", "1e999", "x", "../x", "&amp;", "99999999999999999999", "1,2;3", "{", "<a/>"])
    ends = (spot.group()[0], spot.group()[-1]) if spot.group()[0] in '">' else ("", "")
    return text[: spot.start()] + ends[0] + odd + ends[1] + text[spot.end() :]


@pytest.mark.parametrize("code", sorted(formats.FORMATS))
def test_one_wrong_value_anywhere_is_read_or_refused(code: str, tmp_path: Path) -> None:
    pictures = [
        labelled("a/1.png", verdict="NG", classes=(1,), shapes=(box(1, 1, 2, 30, 20), POLYGON)),
        labelled("2.png", verdict="OK"),
        labelled("3.png"),
        labelled("4.png", verdict="NG", classes=(2,)),
    ]
    written(tmp_path / "out.zip", code, pictures)
    with zipfile.ZipFile(tmp_path / "out.zip") as source:
        files = {name: source.read(name) for name in source.namelist()}
    texts = [name for name in files if not name.endswith(".png")]
    outcomes = {"read": 0, "refused": 0}
    for seed in range(300):
        chance = random.Random(seed)
        name = chance.choice(texts)
        text = files[name].decode()
        if name.endswith(".json") and chance.random() < 0.9:
            changed = json.dumps(damaged_json(json.loads(text), chance))
        else:
            changed = damaged_text(text, chance) if text else "x"
        with zipfile.ZipFile(tmp_path / "damaged.zip", "w") as target:
            for other, data in files.items():
                target.writestr(other, changed if other == name else data)
        with formats.opened(tmp_path / "damaged.zip") as archive:
            try:
                formats.detect(archive)
                found = formats.read(archive, code, measure=inspect)
            except Refused as refused:
                found, sentence = None, str(refused)
        outcomes["read" if found else "refused"] += 1
        if found:
            _makes_sense(found)
        else:
            assert sentence
    assert min(outcomes.values()) > 0, outcomes


def _makes_sense(found: Found) -> None:
    """Nothing got through that could not be written again, but for codes of classes, which are as they came."""
    for item in found.refused:
        assert str(Refused(item["text"], **item["params"]))
        assert item["name"]
    classes = tuple(formats.ClassEntry(entry.number, f"c{n}", "") for n, entry in enumerate(found.package.classes))
    if found.package.pictures:
        check(formats.Package(classes, found.package.pictures))


def test_names_of_classes_that_unfold_to_gigabytes_are_refused_at_once(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    (tmp_path / "data.yaml").write_text(bomb + "names: [*a59]\n")
    with formats.opened(tmp_path) as archive, pytest.raises(Refused, match="must list the classes"):
        formats.read(archive, "yolo")
