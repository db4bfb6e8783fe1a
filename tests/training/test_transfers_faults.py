"""Archives as people really send them: broken files, other tools' names and classes, the same thing twice."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

import pytest

from registry import blobs, counters
from registry.lifecycle import Refused
from registry.models import DefectClass
from tests.training.archives import (
    BOX,
    annotated,
    exported,
    imported,
    other_line,
    ran,
    received,
    said,
    yolo,
    zipped,
)
from tests.training.plant import picture
from training import captures, counts, queue, transfers
from training.models import Capture, Decision, Transfer

if TYPE_CHECKING:
    from tests.training.plant import Plant

# ------------------------------------------------------------------------------------------------ faults met elsewhere


def test_broken_files_among_good_ones_are_listed_and_the_good_ones_come_in(plant: Plant) -> None:
    files = {f"{n:03d}.png": picture() for n in range(45)}
    files |= {
        "empty.jpg": b"", "half.png": picture(width=200, height=200)[:900], "text.jpg": b"no picture",
        "page.jpg": b"<!doctype html><p>hello", "header.png": picture()[:33],
    }  # fmt: skip
    row = imported(plant.line, plant.haneul, zipped(files))
    assert row.state == Transfer.State.DONE
    assert row.format == transfers.PICTURES
    assert (row.report["rows"], row.report["created"], row.report["refused_count"]) == (50, 45, 5)
    reasons = {entry["name"]: entry["text"] for entry in row.report["refused"]}
    assert set(reasons) == {"empty.jpg", "half.png", "text.jpg", "page.jpg", "header.png"}
    assert reasons["empty.jpg"] == "The file is empty."
    assert Capture.objects.filter(line=plant.line).count() == 45
    assert counters.value(plant.line, counts.NEW) == 45


def test_only_broken_pictures_are_a_failure(plant: Plant) -> None:
    row = imported(plant.line, plant.haneul, zipped({"1.png": b"x", "2.png": b"y"}))
    assert row.state == Transfer.State.FAILED
    assert "None of the 2 pictures" in str(Refused(row.failure["text"], **row.failure["params"]))
    assert len(row.report["refused"]) == 2


def test_a_zip_of_korean_windows_is_read_and_shown_as_it_was_meant(plant: Plant) -> None:
    out = io.BytesIO()
    names = ["불량\\스크래치_001.png", "양품\\정상_001.png"]
    with zipfile.ZipFile(out, "w") as target:
        for n, name in enumerate(names):
            target.writestr(f"{n}" * len(name.encode("cp949")), picture())  # a place for its bytes
    data = out.getvalue()
    for n, name in enumerate(names):
        raw = name.encode("cp949")
        data = data.replace(f"{n}".encode() * len(raw), raw)
    row = received(plant.line, plant.haneul, data)
    assert row.look["names"] == ["불량/스크래치_001.png", "양품/정상_001.png"]
    transfers.confirm(row, by=plant.haneul)
    assert ran(row).report["created"] == 2
    assert set(Capture.objects.values_list("file_name", flat=True)) == {"불량/스크래치_001.png", "양품/정상_001.png"}


def test_a_missing_label_file_is_nobodys_word_and_an_empty_one_says_ok(plant: Plant) -> None:
    pictures = {f"{n}": picture() for n in range(6)}
    labels = {"0": "0 0.5 0.5 0.2 0.2\n", "1": "1 0.5 0.5 0.2 0.2\n\n", "2": "", "3": ""}
    row = received(plant.line, plant.haneul, yolo(labels, pictures))
    assert row.look["verdicts"] == {"OK": 2, "NG": 2, "none": 2}
    assert [(entry["code"], entry["how"]) for entry in row.look["classes"]] == [("crack", "book"), ("burr", "new")]
    transfers.confirm(row, by=plant.haneul)
    report = ran(row).report
    assert (report["decided"], report["undecided"], report["classes_added"]) == (4, 2, ["burr"])
    assert Capture.objects.filter(decision__verdict="OK").count() == 2


@pytest.mark.parametrize("index", ["3", "-1", "1.0"])
def test_a_class_index_beyond_the_list_is_told_and_nothing_is_imported(index: str, plant: Plant) -> None:
    row = received(plant.line, plant.haneul, yolo({"0": f"{index} 0.5 0.5 0.2 0.2"}, {"0": picture()}))
    params = row.look["failure"]["params"]
    assert (params["file"], params["line"], params["index"], params["last"]) == ("labels/0.txt", 1, index, 2)
    with pytest.raises(Refused, match="is not a whole number from 0 to 2"):
        transfers.confirm(row, by=plant.haneul)
    assert not Capture.objects.exists()


def test_labels_for_other_pictures_are_refused_with_five_examples(plant: Plant) -> None:
    plant.capture(file_name="mine.png")
    labels = {f"other-{n}": "0 0.5 0.5 0.2 0.2" for n in range(8)}
    row = received(plant.line, plant.haneul, yolo(labels, {}))
    sentence = str(Refused(row.look["failure"]["text"], **row.look["failure"]["params"]))
    assert sentence.startswith("None of the 8 labels")
    assert sum(f"other-{n}" in sentence for n in range(8)) == 5


def test_labels_made_elsewhere_find_captures_by_file_name(plant: Plant) -> None:
    first, second = plant.capture(file_name="lot 7/불량 1.png"), plant.capture(file_name="2.png")
    same = [plant.capture(file_name="3.png"), plant.capture(file_name="3.png")]
    labels = {"불량_1": "0 0.5 0.5 0.5 0.5", "2": "", "3": "0 0.5 0.5 0.5 0.5"}
    row = imported(plant.line, plant.haneul, yolo(labels, {}))
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.decision.verdict, second.decision.verdict) == ("NG", "OK")  # type: ignore[union-attr]
    assert first.decision.regions[0]["points"] == [[6.0, 4.0], [18.0, 12.0]]  # type: ignore[union-attr]
    assert [entry["text"] for entry in row.report["refused"]] == ["Several pictures could be meant: %(examples)s."]
    assert not any(Capture.objects.get(pk=row.pk).decision for row in same)


def test_a_second_import_adds_nothing(plant: Plant) -> None:
    annotated(plant)
    data = exported(plant.line, plant.haneul, "coco", show="all")
    line, engineer = other_line()
    imported(line, engineer, data)
    before = said(line), Decision.objects.count(), DefectClass.objects.count(), counters.values(line)
    again = imported(line, engineer, data)
    assert (again.report["created"], again.report["known"], again.report["decided"]) == (0, 7, 0)
    assert again.report["refused"] == []
    assert again.report["classes_added"] == []
    assert (said(line), Decision.objects.count(), DefectClass.objects.count(), counters.values(line)) == before


def test_ten_new_ones_among_a_hundred(plant: Plant) -> None:
    first = {f"{n}.png": picture() for n in range(30)}
    imported(plant.line, plant.haneul, zipped(first))
    second = {f"renamed-{name}": data for name, data in first.items()} | {f"new-{n}.png": picture() for n in range(3)}
    report = imported(plant.line, plant.haneul, zipped(second)).report
    assert (report["created"], report["known"]) == (3, 30)
    assert Capture.objects.count() == 33


def test_what_a_device_sent_is_decided_not_doubled(plant: Plant) -> None:
    data = picture()
    device = plant.device()
    Capture.objects.create(
        line=plant.line, device=device, device_capture_id="d1", digest=blobs.put(data), size_bytes=len(data), width=24,
        height=16, mode="RGB", reason="band",
    )  # fmt: skip
    report = imported(plant.line, plant.haneul, yolo({"1": "0 0.5 0.5 0.5 0.5"}, {"1": data})).report
    assert (report["created"], report["known"], report["decided"]) == (0, 1, 1)
    assert Capture.objects.get().decision.verdict == "NG"  # type: ignore[union-attr]


def test_a_capture_that_was_decided_otherwise_is_left_alone(plant: Plant) -> None:
    row = plant.decided(0, file_name="1.png")
    decision = row.decision
    report = imported(plant.line, plant.haneul, yolo({"1": "0 0.5 0.5 0.5 0.5"}, {})).report
    row.refresh_from_db()
    assert row.decision == decision
    assert [(entry["name"], "decided otherwise here" in entry["text"]) for entry in report["refused"]] == [
        ("1.png", True)
    ]


def test_a_picture_that_somebody_is_deciding_is_listed_with_their_name(plant: Plant) -> None:
    row = plant.capture(file_name="1.png")
    queue.claim_one(row, by=plant.seoyeon)
    report = imported(plant.line, plant.haneul, yolo({"1": ""}, {})).report
    assert report["decided"] == 0
    assert str(plant.seoyeon) in report["refused"][0]["params"]["person"]


def test_classes_are_matched_whatever_their_case_and_ok_is_a_verdict(plant: Plant) -> None:
    labels = {"1": "0 0.5 0.5 0.5 0.5", "2": "1 0.5 0.5 0.5 0.5"}
    row = imported(plant.line, plant.haneul, yolo(labels, {n: picture() for n in "12"}, names="[CRACK, ok]"))
    assert row.report["classes_added"] == []
    assert sorted(map(str, said(plant.line).values())) == sorted(
        map(str, [("NG", ["crack"], [("crack", "box", [[6.0, 4.0], [18.0, 12.0]])]), ("OK", [], [])])
    )


def test_names_that_differ_only_by_folder_or_suffix_are_three_pictures(plant: Plant) -> None:
    data = {"a/1.png": picture(), "b/1.png": picture(), "b/1.jpg": picture()}
    imported(plant.line, plant.haneul, zipped(data))
    assert set(Capture.objects.values_list("file_name", flat=True)) == set(data)
    for row in Capture.objects.all():
        captures.decide(row, verdict="NG", regions=[BOX], by=plant.haneul)
    out = zipfile.ZipFile(io.BytesIO(exported(plant.line, plant.haneul, "yolo"))).namelist()
    assert len([name for name in out if name.startswith("labels/")]) == len(set(out) & set(out)) // 2 - 1 == 3


def test_a_manifest_says_lot_and_label(plant: Plant) -> None:
    table = (
        "image,label,lot,serial\nimg/1.png,Crack,L7,S1\nimg/2.png,OK,L7,S2\nimg/3.png,unlabelled,L8,S3\nno.png,OK,,\n"
    )
    files = {"set/manifest.csv": table.encode("cp949")} | {f"set/img/{n}.png": picture() for n in (1, 2, 3, 4)}
    row = imported(plant.line, plant.haneul, zipped(files))
    assert row.format == transfers.MANIFEST
    assert (row.report["created"], row.report["decided"], row.report["refused_count"]) == (3, 2, 1)
    rows = {c.serial: (c.lot, c.decision and c.decision.verdict) for c in Capture.objects.select_related("decision")}
    assert rows == {"S1": ("L7", "NG"), "S2": ("L7", "OK"), "S3": ("L8", None)}


def test_what_is_no_zip_is_refused_at_the_door(plant: Plant) -> None:
    incoming = blobs.Incoming()
    incoming.write(picture())
    with pytest.raises(Refused, match=r"cat\.png is not a zip file"):
        transfers.receive(plant.line, incoming, file_name="cat.png", by=plant.haneul)
    incoming.discard()
    row = received(plant.line, plant.haneul, b"PK but nothing more", "cut.zip")
    assert row.look["failure"]["params"] == {"name": "cut.zip"}
    assert not Capture.objects.exists()
