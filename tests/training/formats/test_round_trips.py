"""What is written comes back as it was: every format, odd names, odd classes, every verdict, real pictures."""

from __future__ import annotations

import csv
import hashlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.pictures import inspect
from registry.lifecycle import Refused
from tests.training.formats.conftest import CLASSES, box, labelled, read, same, written
from training import formats
from training.formats import ClassEntry, Labelled, Package, Shape

CODES = sorted(formats.FORMATS)
WORDS = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Cn", "Zl", "Zp"), exclude_characters="/\\"), min_size=1, max_size=8
).filter(lambda text: text == text.strip() and text not in {".", ".."})
SUFFIXES = st.sampled_from([".png", ".PNG", ".jpg", ".bmp", ".png.jpg"])


@st.composite
def names(draw: st.DrawFn) -> str:
    folders = draw(
        st.lists(st.sampled_from(["a", "A", "images", "labels", "b c", "b%20c", "é", "e\u0301", "불량"]), max_size=2)
    )
    stem = draw(st.sampled_from(["1", "x", "X", "x y", "x%20y", "café", "cafe\u0301", "스크래치"]) | WORDS)
    return "/".join([*folders, stem + draw(SUFFIXES)])


@st.composite
def shapes(draw: st.DrawFn, number: int, width: int, height: int) -> Shape:
    def value(end: int) -> st.SearchStrategy[float]:
        return st.floats(0, end, allow_nan=False) | st.integers(0, end).map(float)

    points = draw(
        st.lists(st.tuples(value(width), value(height)), min_size=3, max_size=5, unique=True).filter(
            lambda p: (
                max(x for x, _ in p) - min(x for x, _ in p) > 1e-3
                and max(y for _, y in p) - min(y for _, y in p) > 1e-3
            )
        )
    )
    if draw(st.booleans()):
        return Shape(number, "polygon", tuple(points))
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return box(number, min(xs), min(ys), max(xs), max(ys))


@st.composite
def packages(draw: st.DrawFn) -> tuple[Package, dict[str, bytes]]:
    codes = draw(st.lists(WORDS | st.sampled_from(["OK", "ng", "0", "A", "aaa"]), unique=True, max_size=4))
    numbers = draw(st.lists(st.integers(1, 300), unique=True, min_size=len(codes), max_size=len(codes)))
    classes = tuple(ClassEntry(n, code, draw(WORDS)) for n, code in zip(numbers, codes, strict=True))
    pictures, data = [], {}
    for name in draw(st.lists(names(), min_size=1, max_size=5, unique=True)):
        size = draw(st.tuples(st.integers(1, 60), st.integers(1, 60)))
        verdict = draw(st.sampled_from(["OK", "NG", None]))
        drawn: list[Shape] = []
        whole: list[int] = []
        if verdict == "NG" and numbers:
            drawn = [draw(shapes(n, *size)) for n in draw(st.lists(st.sampled_from(numbers), max_size=3))]
            whole = draw(st.lists(st.sampled_from(numbers), max_size=2, unique=True))
        picture, data[name] = labelled(name, size, verdict=verdict, classes=tuple(whole), shapes=tuple(drawn))
        pictures.append(picture)
    return Package(classes, tuple(pictures)), data


@pytest.mark.parametrize("code", CODES)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(made=packages())
def test_a_package_comes_back_exactly(code: str, made: tuple[Package, dict[str, bytes]]) -> None:
    package, data = made
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "package.zip")
        formats.write(package, code, pictures=data.__getitem__, out=out)
        with formats.opened(out) as archive:
            found = formats.read(archive, code, measure=inspect)
    assert found.refused == []
    assert found.matched == len(package.pictures) or code in {"yolo", "voc"}
    same(found.package, package)


@pytest.mark.parametrize("code", CODES)
def test_labels_without_pictures_find_those_that_are_here_already(code: str, tmp_path: Path) -> None:
    first, _ = labelled("a/1.png", verdict="NG", shapes=(box(2, 1, 2, 30, 20),))
    second, _ = labelled("a/2.png", verdict="OK")
    package = Package(CLASSES, (first, second))
    formats.write(package, code, pictures=None, out=tmp_path / "labels.zip")
    known = {
        "renamed.png": formats.Known(40, 20, first.digest),  # by its bytes
        "a/2.png": formats.Known(40, 20),
        "a/3.png": formats.Known(40, 20),
    }
    found = read(tmp_path / "labels.zip", code, known=known)
    assert found.refused == []
    told = {picture.name: (picture.verdict, len(picture.shapes)) for picture in found.package.pictures}
    assert told == {"renamed.png": ("NG", 1), "a/2.png": ("OK", 0)}


@pytest.mark.parametrize("code", CODES)
def test_three_pictures_of_one_base_name_stay_three(code: str, tmp_path: Path) -> None:
    pictures = [
        labelled(name, verdict="NG", shapes=(box(number, number, 2, 30, 20),))
        for name, number in (("a/1.png", 1), ("b/1.png", 2), ("b/1.jpg", 4))
    ]
    package = written(tmp_path / "out.zip", code, pictures)
    found = read(tmp_path / "out.zip", code)
    assert found.refused == []
    same(found.package, package)
    assert len({picture.digest for picture in found.package.pictures}) == 3


@pytest.mark.parametrize("code", CODES)
def test_korean_names_survive(code: str, tmp_path: Path) -> None:
    pictures = [labelled("불량/불량_스크래치_001.png", verdict="NG", classes=(1,), shapes=(box(1, 0, 0, 40, 20),))]
    package = written(tmp_path / "out.zip", code, pictures)
    same(read(tmp_path / "out.zip", code).package, package)


@pytest.mark.parametrize("code", CODES)
def test_names_that_differ_by_encoding_only_keep_their_labels(code: str, tmp_path: Path) -> None:
    names = ["café.png", "cafe\u0301.png", "CAFÉ.png", "caf%C3%A9.png", "a b.png", "a%20b.png", "a_b.png"]
    pictures = [
        labelled(name, (40, 20), verdict="NG", shapes=(box(1, place, 0, place + 1, 20),))
        for place, name in enumerate(names)
    ]
    package = written(tmp_path / "out.zip", code, pictures)
    found = read(tmp_path / "out.zip", code)
    assert len(found.package.pictures) == len(names)
    same(found.package, package)


@pytest.mark.parametrize("code", CODES)
def test_nobody_looked_and_no_defect_are_told_apart(code: str, tmp_path: Path) -> None:
    pictures = [labelled(f"none{n}.png") for n in range(2)]
    pictures += [labelled(f"ok{n}.png", verdict="OK") for n in range(2)]
    pictures += [labelled("whole.png", verdict="NG", classes=(2,)), labelled("bare.png", verdict="NG")]
    package = written(tmp_path / "out.zip", code, pictures)
    same(read(tmp_path / "out.zip", code).package, package)


@pytest.mark.parametrize("code", CODES)
def test_an_export_after_a_new_class_keeps_the_old_ids(code: str, tmp_path: Path) -> None:
    before = tuple(ClassEntry(n, c, c) for n, c in enumerate(("crack", "burr", "0", "A"), 1))
    pictures = [labelled("1.png", verdict="NG", shapes=(box(3, 0, 0, 9, 9),))]
    ids = []
    for classes in (before, (*before, ClassEntry(5, "aaa", "aaa"))):
        out = tmp_path / f"{len(classes)}.zip"
        package = written(out, code, pictures, classes=classes)
        found = read(out, code)
        same(found.package, package)
        ids.append({entry.code: found.file_ids.get(entry.number, entry.number) for entry in found.package.classes})
    assert {name: ids[1][name] for name in ids[0]} == ids[0]


@pytest.mark.parametrize("first_id", [0, 1])
def test_coco_ids_from_0_and_from_1_mean_the_same_classes(first_id: int, tmp_path: Path) -> None:
    pictures = [labelled("1.png", verdict="NG", shapes=(box(1, 0, 0, 9, 9), box(4, 0, 0, 9, 9)))]
    package = written(tmp_path / "out.zip", "coco", pictures, first_id=first_id)
    found = read(tmp_path / "out.zip", "coco")
    same(found.package, package)
    assert found.file_ids == {1: first_id, 2: first_id + 1, 4: first_id + 3}


@pytest.mark.parametrize("code", CODES)
def test_real_pictures_with_their_real_boxes_come_back(code: str, shared_data: Path, tmp_path: Path) -> None:
    root = shared_data / "magnetic-tile"
    with (root / "manifest.csv").open(encoding="utf-8", newline="") as handle:
        rows = [row for row in csv.DictReader(handle) if row["boxes"]][:6]
    assert rows
    numbers = {label: number for number, label in enumerate(sorted({row["label"] for row in rows}), 1)}
    pictures = []
    for row in rows:
        shapes = tuple(box(numbers[row["label"]], *map(float, sides)) for *sides, _ in json.loads(row["boxes"]))
        size = (int(row["width"]), int(row["height"]))
        pictures.append(Labelled(row["image"], *size, row["sha256"], "NG", (), shapes))
    package = Package(tuple(ClassEntry(n, label, label) for label, n in numbers.items()), tuple(pictures))
    formats.write(package, code, pictures=lambda name: root / name, out=tmp_path / "out.zip")
    with formats.opened(tmp_path / "out.zip") as archive:  # with the decoder in a child process, as in the console
        found = formats.read(archive, code)
    assert found.refused == []
    same(found.package, package)
    with formats.opened(tmp_path / "out.zip") as archive:
        kept = {hashlib.sha256(archive.open(name).read()).hexdigest() for name in archive.names()}
    assert {row["sha256"] for row in rows} <= kept


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"name": "../1.png"}, "relative path"),
        ({"name": "a\\1.png"}, "relative path"),
        ({"name": "1"}, "relative path"),
        ({"verdict": "OK", "shapes": (box(1, 0, 0, 9, 9),)}, "verdict is not NG"),
        ({"verdict": "NG", "shapes": (box(9, 0, 0, 9, 9),)}, "not in the class table"),
        ({"verdict": "NG", "shapes": (box(1, 0, 0, 41, 9),)}, "outside"),
        ({"verdict": "NG", "shapes": (box(1, 5, 5, 5, 9),)}, "no area"),
    ],
)
def test_what_no_format_can_hold_is_refused_before_a_file_is_there(said: dict, reason: str, tmp_path: Path) -> None:
    picture = Labelled(**({"name": "1.png", "width": 40, "height": 20} | said))
    with pytest.raises(Refused, match=reason):
        formats.write(Package(CLASSES, (picture,)), "coco", pictures=None, out=tmp_path / "out.zip")
    assert list(tmp_path.iterdir()) == []


def test_other_bytes_than_those_labelled_are_not_written(tmp_path: Path) -> None:
    picture, _ = labelled("1.png")
    with pytest.raises(Refused, match="not those that were labelled"):
        formats.write(Package((), (picture,)), "yolo", pictures=lambda name: b"other", out=tmp_path / "out.zip")
    assert list(tmp_path.iterdir()) == []
