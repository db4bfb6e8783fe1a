"""Files that other tools left: read as they are, or refused with a sentence that says where the fault is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils.translation import gettext

from registry.lifecycle import Refused
from tests.training.formats.conftest import CLASSES, box, labelled, png, read, unpacked, written
from training import formats
from training.formats import Known, Package

Foreign = Callable[[dict[str, bytes | str]], Path]
PICTURE = png(40, 20)
OBJECT = """</object><object><name>added</name>
  <bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox></object>"""
ADDED = '<Labels name="x" toName="image"><Label value="added"/></Labels>'
NAMES = "names: [crack, burr, scratch]\n"
BOX = "0 0.5 0.5 0.5 0.5\n"


def sentences(found: formats.Found) -> list[str]:
    return [gettext(item["text"]) % item["params"] if item["params"] else item["text"] for item in found.refused]


def coco(images: list[dict], annotations: list[dict], categories: dict[int, str]) -> str:
    rows = [{"id": number, "name": name} for number, name in categories.items()]
    return json.dumps({"images": images, "annotations": annotations, "categories": rows})


def image(number: int, name: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "file_name": name, "width": 40, "height": 20, **more}


def annotation(image_id: int, category: Any, **more: Any) -> dict[str, Any]:
    return {"id": 7, "image_id": image_id, "category_id": category, "bbox": [1, 2, 10, 5], **more}


def test_six_yolo_pictures_are_two_boxed_two_empty_two_not_looked_at(foreign: Foreign) -> None:
    files: dict[str, bytes | str] = {f"images/train/{n}.png": png(40, 20, n) for n in range(6)}
    files |= {
        "labels/train/0.txt": BOX,
        "labels/train/1.txt": BOX,
        "labels/train/2.txt": "",
        "labels/train/3.txt": "\n",
    }
    found = read(foreign(files | {"data.yaml": NAMES}), "yolo")
    assert found.refused == []
    told = {picture.name[-5]: picture.verdict for picture in found.package.pictures}
    assert told == {"0": "NG", "1": "NG", "2": "OK", "3": "OK", "4": None, "5": None}
    assert found.package.pictures[0].shapes == (box(1, 10, 5, 30, 15),)
    assert found.file_ids == {1: 0, 2: 1, 3: 2}


@pytest.mark.parametrize("index", ["3", "-1", "1.0", "crack", "99999999999999999999"])
def test_a_yolo_index_without_a_class_names_file_line_index_and_range(index: str, foreign: Foreign) -> None:
    files = {"images/1.png": PICTURE, "labels/1.txt": BOX + BOX.replace("0", index, 1), "data.yaml": NAMES}
    with pytest.raises(Refused) as refused:
        read(foreign(files), "yolo")
    assert str(refused.value) == (f"labels/1.txt, line 2: class index {index} is not a whole number from 0 to 2.")


def test_an_empty_last_line_is_no_fault(foreign: Foreign) -> None:
    found = read(foreign({"images/1.png": PICTURE, "labels/1.txt": BOX + "\n \n", "classes.txt": "crack\n\n"}), "yolo")
    assert found.refused == []
    assert len(found.package.pictures[0].shapes) == 1


@pytest.mark.parametrize("line", ["0 0.5 0.5 0.5", "0 0.5 0.5 0.5 nan", "0 0.5 0.5 0.5 0.5 0.9", "0 a b c d"])
def test_a_yolo_line_that_says_nothing_refuses_its_picture_only(line: str, foreign: Foreign) -> None:
    files = {"images/1.png": PICTURE, "images/2.png": png(40, 20, 2), "labels/1.txt": BOX + line, "labels/2.txt": BOX}
    found = read(foreign(files | {"data.yaml": NAMES}), "yolo")
    assert [picture.name for picture in found.package.pictures] == ["images/2.png"]
    assert [item["params"] for item in found.refused] == [{"file": "labels/1.txt", "line": 2}]


def test_darknet_and_sparse_tables_are_read(foreign: Foreign) -> None:
    files = {
        "obj_train_data/1.png": PICTURE,
        "obj_train_data/1.txt": "1" + BOX[1:],
        "train.txt": "obj_train_data/1.png",
    }
    found = read(foreign(files | {"obj.names": "a\nb\n", "obj.data": "classes = 2"}), "yolo")
    assert found.refused == []
    assert [(entry.number, entry.code) for entry in found.package.classes] == [(1, "a"), (2, "b")]
    assert found.package.pictures[0].shapes[0].number == 2


def test_labels_for_other_pictures_are_refused_with_five_examples(foreign: Foreign) -> None:
    files = {f"labels/other{n}.txt": BOX for n in range(7)} | {"images/1.png": PICTURE, "data.yaml": NAMES}
    with pytest.raises(Refused, match="None of the 7 labels") as refused:
        read(foreign(files), "yolo", known={"2.png": Known(40, 20)})
    assert refused.value.params["examples"].count("other") == 5


def test_a_label_goes_to_no_picture_when_two_share_its_name(foreign: Foreign) -> None:
    files = {"b/1.png": PICTURE, "b/1.jpg": png(40, 20, 1), "b/1.txt": BOX, "b/2.png": png(40, 20, 2), "b/2.txt": ""}
    found = read(foreign(files | {"data.yaml": NAMES}), "yolo")
    assert [picture.name for picture in found.package.pictures] == ["b/2.png"]
    assert sentences(found) == ["Several pictures could be meant: b/1.jpg, b/1.png."]


def test_a_label_of_another_folder_is_not_the_label_of_this_one(foreign: Foreign) -> None:
    files = {"images/b/1.png": PICTURE, "labels/a/1.txt": BOX, "images/c.png": png(40, 20, 1), "labels/c.txt": ""}
    found = read(foreign(files | {"data.yaml": NAMES}), "yolo")
    assert {picture.name: picture.verdict for picture in found.package.pictures} == {
        "images/b/1.png": None,
        "images/c.png": "OK",
    }
    assert [item["name"] for item in found.refused] == ["images/a/1"]


@pytest.mark.parametrize(
    ("picture", "label"),
    [
        ("café.png", "cafe\u0301.txt"),
        ("cafe\u0301.png", "caf%C3%A9.txt"),
        ("a b.png", "a%20b.txt"),
        ("a b.png", "a_b.txt"),
        ("Part.PNG", "part.txt"),
        ("불량 1.png", "%EB%B6%88%EB%9F%89%201.txt"),
    ],
)
def test_a_label_whose_name_was_encoded_otherwise_finds_its_picture(picture: str, label: str, foreign: Foreign) -> None:
    found = read(foreign({f"images/{picture}": PICTURE, f"labels/{label}": BOX, "data.yaml": NAMES}), "yolo")
    assert [(p.name, p.verdict) for p in found.package.pictures] == [(f"images/{picture}", "NG")]


def test_four_names_that_differ_by_encoding_pair_four_of_four_without_our_file(tmp_path: Path) -> None:
    names = ["café 1.png", "cafe\u0301 1.png", "CAFÉ 1.png", "caf%C3%A9%201.png"]
    pictures = [labelled(name, verdict="NG", shapes=(box(1, n, 0, n + 9, 20),)) for n, name in enumerate(names)]
    written(tmp_path / "out.zip", "yolo", pictures)
    folder = unpacked(tmp_path / "out.zip", tmp_path / "unpacked")
    (folder / "loopline.json").unlink()
    found = read(folder, "yolo")
    assert found.refused == []
    by_digest = {picture.digest: picture.shapes[0].points[0][0] for picture in found.package.pictures}
    wanted = {picture.digest: float(n) for n, (picture, _) in enumerate(pictures)}
    assert by_digest == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("first", [0, 1, 3])
def test_coco_keeps_the_ids_of_the_file(first: int, foreign: Foreign) -> None:
    categories = {first + 2: "zz", first: "aa", first + 1: "mm"}
    found = read(
        foreign({"a.json": coco([image(5, "1.png")], [annotation(5, first + 2)], categories), "images/1.png": PICTURE}),
        "coco",
    )
    assert {found.file_ids[entry.number]: entry.code for entry in found.package.classes} == categories
    shape = found.package.pictures[0].shapes[0]
    assert shape == box(found.package.classes[0].number, 1, 2, 11, 7)
    assert found.package.pictures[0].verdict == "NG"


def test_a_coco_category_that_is_not_there_stops_the_import(foreign: Foreign) -> None:
    files = {"a.json": coco([image(5, "1.png")], [annotation(5, 9)], {1: "a", 4: "b"}), "1.png": PICTURE}
    with pytest.raises(Refused, match=r"a\.json, annotation 7: category 9 is not one of 1, 4\."):
        read(foreign(files), "coco")


def test_masks_other_sizes_and_shapes_outside_refuse_their_picture_only(foreign: Foreign) -> None:
    images = [image(n, f"{n}.png") for n in range(1, 6)]
    images[1] |= {"width": 20, "height": 40}
    annotations = [
        annotation(1, 1, segmentation={"counts": [1], "size": [20, 40]}, iscrowd=1),
        annotation(2, 1),
        annotation(3, 1, bbox=[30, 2, 20, 5]),
        annotation(4, 1, bbox=[30, 2, 10.6, 5]),
        annotation(5, 1, bbox=[30, 2, 0, 5]),
    ]
    files: dict[str, bytes | str] = {f"images/{n}.png": png(40, 20, n) for n in range(1, 6)}
    found = read(foreign(files | {"a.json": coco(images, annotations, {1: "a"})}), "coco")
    assert [picture.name for picture in found.package.pictures] == ["images/4.png"]
    assert found.package.pictures[0].shapes == (box(1, 30, 2, 40, 7),)
    told = dict(zip([item["name"] for item in found.refused], sentences(found), strict=True))
    assert "mask" in told["1.png"]
    assert told["2.png"] == "The labels are for 20 × 40 pixels, the picture shows 40 × 20."
    assert "outside" in told["3.png"]
    assert "no area" in told["5.png"]


def test_a_picture_that_is_none_and_one_that_is_missing_are_named(foreign: Foreign) -> None:
    files = {"a.json": coco([image(1, "1.png"), image(2, "2.png"), image(3, "3.png")], [], {}), "1.png": PICTURE}
    found = read(foreign(files | {"2.png": "text"}), "coco")
    assert [picture.name for picture in found.package.pictures] == ["1.png"]
    assert sorted(item["name"] for item in found.refused) == ["2.png", "3.png"]


def test_an_exchanged_picture_does_not_get_the_labels_of_the_old_one(tmp_path: Path) -> None:
    written(tmp_path / "out.zip", "coco", [labelled("1.png", verdict="OK"), labelled("2.png", verdict="OK")])
    folder = unpacked(tmp_path / "out.zip", tmp_path / "unpacked")
    (folder / "images/1.png").write_bytes(png(40, 20, 200))
    found = read(folder, "coco")
    assert [picture.name for picture in found.package.pictures] == ["2.png"]
    assert sentences(found) == ["The file is not the one that was labelled: its bytes differ."]


def test_voc_counts_from_one_and_numbers_classes_as_they_come(foreign: Foreign) -> None:
    xml = """<annotation><filename>1.png</filename><size><width>40</width><height>20</height></size>
      <object><name>zz</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>40</xmax><ymax>20</ymax></bndbox></object>
      <object><name>aa</name><bndbox><xmin>0</xmin><ymin>1</ymin><xmax>9.5</xmax><ymax>9</ymax></bndbox></object>
      </annotation>"""
    found = read(foreign({"Annotations/1.xml": xml, "JPEGImages/1.png": PICTURE}), "voc")
    assert [(entry.number, entry.code) for entry in found.package.classes] == [(1, "zz"), (2, "aa")]
    assert found.package.pictures[0].shapes == (box(1, 0, 1, 40, 20), box(2, 0, 0, 9.5, 9))


def test_a_voc_box_that_somebody_moved_counts_more_than_our_exact_one(tmp_path: Path) -> None:
    written(tmp_path / "out.zip", "voc", [labelled("1.png", verdict="NG", shapes=(box(1, 1.5, 2, 30, 20),))])
    folder = unpacked(tmp_path / "out.zip", tmp_path / "unpacked")
    file = folder / "Annotations/1.xml"
    file.write_text(file.read_text().replace("<xmax>30</xmax>", "<xmax>25</xmax>"))
    assert read(folder, "voc").package.pictures[0].shapes == (box(1, 1, 2, 25, 20),)


@pytest.mark.parametrize("root", ["annotation", "annotations"])
def test_entities_and_outside_files_in_xml_are_refused(root: str, foreign: Foreign) -> None:
    for inner in ('<!ENTITY a "aaaa">', '<!ENTITY a SYSTEM "file:///etc/passwd">'):
        xml = f"<!DOCTYPE x [{inner}]><{root}><filename>&a;</filename></{root}>"
        with pytest.raises(Refused, match="DTD"):
            read(foreign({"a.xml": xml}), {"annotation": "voc", "annotations": "cvat"}[root])


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.json", "[" * 100_000, "coco"),
        ("a.json", '{"images": 3, "categories": []}', "coco"),
        ("data.yaml", "[" * 100_000, "yolo"),
        ("data.yaml", "names: 3", "yolo"),
        ("data.yaml", "!!python/object/apply:os.system [id]", "yolo"),
        ("a.xml", "<annotations><image", "cvat"),
        ("a.json", '[{"data": 3}, 3]', "label_studio"),
    ],
)
def test_broken_files_are_refused_with_a_sentence(name: str, text: str, code: str, foreign: Foreign) -> None:
    with formats.opened(foreign({name: text, "1.png": PICTURE})) as archive, pytest.raises(Refused) as refused:
        formats.read(archive, code)
    assert str(refused.value)


def test_cvat_keeps_labels_turned_boxes_and_tags(foreign: Foreign) -> None:
    xml = """<annotations><version>1.1</version><meta><job><labels><label><name>burr</name></label>
      <label><name>OK</name></label></labels></job></meta>
      <image id="0" name="x/1.png" width="40" height="20">
        <box label="burr" xtl="10" ytl="5" xbr="20" ybr="15" rotation="90.0" occluded="0"/><tag label="crack"/></image>
      <image id="1" name="2.png" width="40" height="20"><tag label="OK"/></image>
      <image id="2" name="3.png" width="40" height="20"/>
      <image id="3" name="4.png" width="40" height="20"><polyline label="burr" points="1,1;2,2"/></image>
      </annotations>"""
    files: dict[str, bytes | str] = {f"images/{n}.png": png(40, 20, n) for n in (2, 3, 4)}
    found = read(foreign(files | {"annotations.xml": xml, "images/x/1.png": PICTURE}), "cvat")
    assert [(entry.number, entry.code) for entry in found.package.classes] == [(1, "burr"), (2, "crack")]
    told = {picture.name: picture for picture in found.package.pictures}
    assert {name: picture.verdict for name, picture in told.items()} == {
        "images/x/1.png": "NG", "images/2.png": "OK", "images/3.png": None,
    }  # fmt: skip
    assert told["images/x/1.png"].classes == (2,)
    corners = told["images/x/1.png"].shapes[0].points
    assert [value for point in corners for value in point] == pytest.approx([20, 5, 20, 15, 10, 15, 10, 5])
    assert sentences(found) == ["annotations.xml: “polyline” is neither a box nor a polygon nor a tag."]


@pytest.mark.parametrize(
    "address",
    [
        "/data/local-files/?d=plant/a%20b.png",
        "/data/upload/3/0a1b2c3d-a%20b.png",
        "s3://bucket/line/a b.png",
        "http://ls.plant.example/media/a%20b.png?x=1",
        "a b.png",
    ],
)
def test_label_studio_tasks_find_their_picture_by_its_address(address: str, foreign: Foreign) -> None:
    region = {"type": "rectanglelabels", "from_name": "label", "to_name": "image", "original_width": 40}
    region |= {"original_height": 20, "image_rotation": 0}
    region["value"] = {"x": 25, "y": 25, "width": 50, "height": 50, "rotation": 0, "rectanglelabels": ["burr"]}
    skipped = {"was_cancelled": True, "result": []}
    task = {"id": 1, "data": {"image": address}, "annotations": [skipped, {"result": [region]}]}
    found = read(foreign({"export.json": json.dumps([task]), "images/a b.png": PICTURE}), "label_studio")
    assert found.refused == []
    assert found.package.pictures[0].shapes == (box(1, 10, 5, 30, 15),)


def test_label_studio_tells_skipped_from_no_defect_and_refuses_contradictions(foreign: Foreign) -> None:
    ok = {"type": "choices", "from_name": "good", "value": {"choices": ["OK"]}}
    crack = {"type": "choices", "from_name": "kind", "value": {"choices": ["crack"]}}
    brush = {"type": "brushlabels", "value": {"format": "rle", "rle": [1], "brushlabels": ["burr"]}}
    results: list[list[dict] | None] = [None, [], [ok], [crack], [ok, crack], [brush]]
    tasks = [
        {"id": n, "data": {"image": f"{n}.png"}, "annotations": [] if result is None else [{"result": result}]}
        for n, result in enumerate(results)
    ]
    files: dict[str, bytes | str] = {f"{n}.png": png(40, 20, n) for n in range(6)}
    found = read(foreign(files | {"export.json": json.dumps(tasks)}), "label_studio")
    told = {picture.name: picture.verdict for picture in found.package.pictures}
    assert told == {"0.png": None, "1.png": "OK", "2.png": "OK", "3.png": "NG"}
    assert sorted(item["name"] for item in found.refused) == ["4.png", "5.png"]


def test_what_people_changed_in_our_yolo_package_counts(tmp_path: Path) -> None:
    pictures = [labelled("1.png"), labelled("2.png", verdict="NG", shapes=(box(1, 0, 0, 9, 9),))]
    written(tmp_path / "out.zip", "yolo", [*pictures, labelled("3.png", verdict="OK")])
    folder = unpacked(tmp_path / "out.zip", tmp_path / "unpacked")
    (folder / "labels/1.txt").write_text(BOX)
    (folder / "labels/2.txt").write_text("")
    (folder / "labels/3.txt").unlink()
    told = {picture.name: picture.verdict for picture in read(folder, "yolo").package.pictures}
    assert told == {"1.png": "NG", "2.png": "OK", "3.png": None}


@pytest.mark.parametrize("code", ["coco", "yolo", "voc", "label_studio", "cvat"])
def test_a_class_that_others_added_to_our_package_moves_no_old_number(code: str, tmp_path: Path) -> None:
    how = {"first_id": 0} if code == "coco" else {}
    written(tmp_path / "out.zip", code, [labelled("1.png", verdict="NG", shapes=(box(4, 0, 0, 9, 9),))], **how)
    folder = unpacked(tmp_path / "out.zip", tmp_path / "unpacked")
    file, old, new = {
        "coco": ("annotations/instances.json", '"categories": [', '"categories": [{"id": 4, "name": "added"},'),
        "yolo": ("data.yaml", "3: '0'", "3: '0'\n  4: added"),
        "voc": ("Annotations/1.xml", "</object>", OBJECT),
        "label_studio": ("config.xml", "<RectangleLabels ", ADDED + "<RectangleLabels "),
        "cvat": ("annotations.xml", "<labels>", "<labels><label><name>added</name></label>"),
    }[code]  # fmt: skip
    text = (folder / file).read_text()
    assert text.count(old) == 1
    (folder / file).write_text(text.replace(old, new))
    found = read(folder, code)
    assert found.refused == []
    numbers = {entry.code: entry.number for entry in found.package.classes}
    assert numbers == {"crack": 1, "burr": 2, "0": 4, "added": 5}
    assert found.package.pictures[0].shapes[0].number == 4
    assert {entry.name for entry in found.package.classes} == {"균열", "버", "zero", "added"}


def test_several_formats_in_one_archive_are_not_guessed_between(foreign: Foreign) -> None:
    files = {"a.json": coco([], [], {}), "a.xml": "<annotations/>", "1.png": PICTURE}
    with formats.opened(foreign(files)) as archive:
        assert formats.detect(archive) is None
        with pytest.raises(Refused, match="no annotation format"):
            formats.read(archive, "createml")


def test_an_archive_with_nothing_in_it_is_refused(foreign: Foreign) -> None:
    with pytest.raises(Refused, match="neither labels nor pictures"):
        read(foreign({"data.yaml": NAMES}), "yolo")
    with pytest.raises(Refused, match="no picture to write"):
        formats.write(Package(CLASSES, ()), "coco", pictures=None, out=Path("never.zip"))
