"""What we write, read by the parsers that others read with: pycocotools and supervision."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image, ImageOps
from pycocotools.coco import COCO

from edge.pictures import decode
from tests.training.formats.conftest import CLASSES, box, labelled, read, same, unpacked, written
from training.formats import Labelled, Shape

TRIANGLE = Shape(4, "polygon", ((2.5, 1.0), (30.0, 3.5), (10.0, 18.0)))


@pytest.fixture(scope="module")
def supervision() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it says that it runs without OpenCV
        import supervision

    return supervision


@pytest.fixture
def boxed() -> list[tuple[Labelled, bytes]]:
    """Boxes on whole pixels, an empty picture, one nobody looked at."""
    shapes = (box(1, 3, 2, 30, 20), box(4, 0, 0, 40, 10))
    return [
        labelled("불량 1.png", verdict="NG", shapes=shapes, classes=(2,)),
        labelled("ok.png", verdict="OK"),
        labelled("none.png"),
    ]


@pytest.fixture
def drawn() -> list[tuple[Labelled, bytes]]:
    return [labelled("a.png", verdict="NG", shapes=(box(1, 3, 2, 30, 20), TRIANGLE)), labelled("ok.png", verdict="OK")]


def sides(shape: Shape) -> list[float]:
    xs, ys = zip(*shape.points, strict=True)
    return [min(xs), min(ys), max(xs), max(ys)]


def loaded(dataset: Any) -> dict[str, list[tuple[str, list[float]]]]:
    """File name -> (class name, sides) of a dataset of supervision."""
    return {
        Path(path).name: [
            (dataset.classes[number], [float(v) for v in xyxy])
            for xyxy, number in zip(found.xyxy, found.class_id, strict=True)
        ]
        for path, _, found in dataset
    }


def wanted(pictures: list[tuple[Labelled, bytes]]) -> dict[str, list[tuple[str, list[float]]]]:
    codes = {entry.number: entry.code for entry in CLASSES}
    return {p.name: [(codes[shape.number], sides(shape)) for shape in p.shapes] for p, _ in pictures}


def close(found: dict[str, Any], expected: dict[str, Any], slack: float = 1e-3) -> None:
    assert set(found) == set(expected)
    for name in found:
        assert [code for code, _ in found[name]] == [code for code, _ in expected[name]]
        for (_, one), (_, other) in zip(found[name], expected[name], strict=True):
            assert one == pytest.approx(other, abs=slack), name


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools on numpy 2
@pytest.mark.parametrize("first_id", [0, 1])
def test_pycocotools_reads_the_same_boxes_rings_and_names(
    first_id: int, drawn: list[tuple[Labelled, bytes]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "out.zip", "coco", drawn, first_id=first_id)
    folder = unpacked(tmp_path / "out.zip", tmp_path / "unpacked")
    coco = COCO(str(folder / "annotations/instances.json"))
    capsys.readouterr()
    assert {row["id"]: row["name"] for row in coco.loadCats(coco.getCatIds())} == {
        entry.number - 1 + first_id: entry.code for entry in CLASSES
    }
    for picture, _ in drawn:
        image = next(row for row in coco.dataset["images"] if row["file_name"] == picture.name)
        found = coco.loadAnns(coco.getAnnIds(imgIds=image["id"]))
        for row, shape in zip(found, picture.shapes, strict=True):
            left, top, right, bottom = sides(shape)
            assert row["bbox"] == [left, top, right - left, bottom - top]
            if shape.kind == "polygon":
                mask = coco.annToMask(row)
                assert mask.shape == (picture.height, picture.width)
                assert mask.sum() == pytest.approx(row["area"], rel=0.1)


def test_supervision_reads_our_coco(supervision: ModuleType, boxed: list[Any], tmp_path: Path) -> None:
    written(tmp_path / "out.zip", "coco", boxed)
    folder = unpacked(tmp_path / "out.zip", tmp_path / "unpacked")
    dataset = supervision.DetectionDataset.from_coco(str(folder / "images"), str(folder / "annotations/instances.json"))
    close(loaded(dataset), wanted(boxed))


def test_supervision_reads_our_yolo(supervision: ModuleType, boxed: list[Any], tmp_path: Path) -> None:
    written(tmp_path / "out.zip", "yolo", boxed)
    folder = unpacked(tmp_path / "out.zip", tmp_path / "unpacked")
    dataset = supervision.DetectionDataset.from_yolo(
        str(folder / "images"), str(folder / "labels"), str(folder / "data.yaml")
    )
    assert dataset.classes == ["crack", "burr", "unused_3", "0"]
    close(loaded(dataset), wanted(boxed))


def test_supervision_reads_our_yolo_polygons(supervision: ModuleType, drawn: list[Any], tmp_path: Path) -> None:
    package = written(tmp_path / "out.zip", "yolo", drawn)
    folder = unpacked(tmp_path / "out.zip", tmp_path / "unpacked")
    dataset = supervision.DetectionDataset.from_yolo(
        str(folder / "images"), str(folder / "labels"), str(folder / "data.yaml"), force_masks=True
    )
    close(loaded(dataset), wanted(drawn), slack=1)
    masks = next(found.mask for path, _, found in dataset if Path(path).name == "a.png")
    assert masks[0].sum() == pytest.approx(27 * 18, rel=0.1)
    same(read(tmp_path / "out.zip", "yolo").package, package)


def test_supervision_reads_our_voc(supervision: ModuleType, boxed: list[Any], tmp_path: Path) -> None:
    written(tmp_path / "out.zip", "voc", boxed)
    folder = unpacked(tmp_path / "out.zip", tmp_path / "unpacked")
    dataset = supervision.DetectionDataset.from_pascal_voc(str(folder / "JPEGImages"), str(folder / "Annotations"))
    close(loaded(dataset), wanted(boxed))


@pytest.mark.parametrize("code", ["coco", "yolo", "voc"])
def test_we_read_what_supervision_writes(code: str, supervision: ModuleType, boxed: list[Any], tmp_path: Path) -> None:
    written(tmp_path / "out.zip", "coco", boxed)
    folder = unpacked(tmp_path / "out.zip", tmp_path / "unpacked")
    dataset = supervision.DetectionDataset.from_coco(str(folder / "images"), str(folder / "annotations/instances.json"))
    out = tmp_path / "foreign"
    if code == "coco":
        dataset.as_coco(str(out / "images"), str(out / "annotations.json"))
    elif code == "yolo":
        dataset.as_yolo(str(out / "images"), str(out / "labels"), str(out / "data.yaml"))
    else:
        dataset.as_pascal_voc(str(out / "images"), str(out / "annotations"))
    found = read(out, code)
    assert found.refused == []
    codes = {entry.number: entry.code for entry in found.package.classes}
    told = {
        Path(p.name).name: [(codes[shape.number], sides(shape)) for shape in p.shapes] for p in found.package.pictures
    }
    close(told, wanted(boxed))


def turned_jpeg(orientation: int) -> bytes:
    """40 x 20 as stored, its first corner red, to be turned as EXIF says."""
    pixels = np.full((20, 40, 3), 255, np.uint8)
    pixels[:8, :16] = (255, 0, 0)
    exif = Image.Exif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=95, exif=exif, subsampling=0)
    return out.getvalue()


def is_red(folder: Path, name: str, left: float, top: float, right: float, bottom: float) -> bool:
    """What Pillow, and not we, shows in this box is red, and nothing else is."""
    with Image.open(folder / "images" / name) as stored:
        pixels = np.asarray(ImageOps.exif_transpose(stored).convert("RGB")).astype(int)
    red = (pixels[:, :, 0] > 200) & (pixels[:, :, 1] < 80)
    inside = red[round(top) : round(bottom), round(left) : round(right)]
    return bool(inside.size and inside.mean() > 0.95 and inside.sum() > 0.95 * red.sum())


def test_a_box_on_the_red_corner_is_on_it_in_every_orientation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = []
    for orientation in range(1, 9):
        data = turned_jpeg(orientation)
        pixels = decode(data).astype(int)
        ys, xs = np.nonzero((pixels[:, :, 0] > 200) & (pixels[:, :, 1] < 80))
        shape = box(1, float(xs.min()), float(ys.min()), float(xs.max() + 1), float(ys.max() + 1))
        height, width = pixels.shape[:2]
        pictures.append((Labelled(f"{orientation}.jpg", width, height, "", "NG", (), (shape,)), data))
    written(tmp_path / "coco.zip", "coco", pictures)
    folder = unpacked(tmp_path / "coco.zip", tmp_path / "coco")
    coco = COCO(str(folder / "annotations/instances.json"))
    capsys.readouterr()
    reds = []
    for image in coco.dataset["images"]:
        (row,) = coco.loadAnns(coco.getAnnIds(imgIds=image["id"]))
        left, top, width, height = row["bbox"]
        reds.append(is_red(folder, image["file_name"], left, top, left + width, top + height))
    assert reds == [True] * 8
    written(tmp_path / "yolo.zip", "yolo", pictures)
    folder = unpacked(tmp_path / "yolo.zip", tmp_path / "yolo")
    assert yaml.safe_load((folder / "data.yaml").read_text())["names"][0] == "crack"
    reds = []
    for picture, _ in pictures:
        index, *values = (folder / "labels" / picture.name).with_suffix(".txt").read_text().split()
        assert index == "0"
        x, y, w, h = (float(value) for value in values)
        size = (20, 40) if int(picture.name[0]) >= 5 else (40, 20)
        ends = ((x - w / 2) * size[0], (y - h / 2) * size[1], (x + w / 2) * size[0], (y + h / 2) * size[1])
        reds.append(is_red(folder, picture.name, *ends))
    assert reds == [True] * 8
    for code in ("coco", "yolo"):
        found = read(tmp_path / f"{code}.zip", code)
        assert found.refused == []
        assert {(p.name, p.width, p.height) for p in found.package.pictures} == {
            (p.name, p.width, p.height) for p, _ in pictures
        }


def test_labels_made_on_the_unturned_picture_are_refused(tmp_path: Path) -> None:
    picture = Labelled("6.jpg", 40, 20, "", "NG", (), (box(1, 0, 0, 16, 8),))
    written(tmp_path / "out.zip", "cvat", [(picture, turned_jpeg(6)), labelled("ok.png", verdict="OK")])
    found = read(tmp_path / "out.zip", "cvat")
    assert [p.name for p in found.package.pictures] == ["ok.png"]
    assert found.refused[0]["params"] == {"width": 40, "height": 20, "shown_width": 20, "shown_height": 40}
