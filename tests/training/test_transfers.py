"""Imports and exports of annotated pictures: what goes out comes in again, what is broken is named, nothing twice."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings

from registry import blobs, counters, events, lines
from registry.lifecycle import Refused
from registry.models import DefectClass, Line
from tests.registry.plant import person
from tests.running import wait_for
from tests.training.plant import RULE, SET_UP, picture
from training import captures, counts, formats, snapshots, transfer_runner, transfers
from training.models import Capture, Decision, Transfer

if TYPE_CHECKING:
    from console.models import User
    from tests.training.plant import Plant

BOX = {"number": 1, "kind": "box", "points": [[2.0, 3.0], [10.5, 12.25]]}
POLYGON = {"number": 2, "kind": "polygon", "points": [[1.0, 1.0], [20.0, 2.5], [12.0, 14.0]]}
WORKER = "worker:test"


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        for name, data in files.items():
            target.writestr(name, data)
    return out.getvalue()


def received(line: Line, by: User, data: bytes, name: str = "archive.zip") -> Transfer:
    incoming = blobs.Incoming()
    try:
        incoming.write(data)
        row = transfers.receive(line, incoming, file_name=name, by=by)
    finally:
        incoming.discard()
    transfer_runner.look(row.pk)
    row.refresh_from_db()
    return row


def imported(line: Line, by: User, data: bytes, *, code: str = "") -> Transfer:
    row = received(line, by, data)
    if code:
        transfers.look_as(row, code=code, by=by)
        transfer_runner.look(row.pk)
    transfers.confirm(row, by=by)
    return ran(row)


def exported(line: Line, by: User, code: str, **options: Any) -> bytes:
    row = ran(transfers.ask_export(line, code=code, options=options, by=by))
    assert row.state == Transfer.State.DONE, row.failure
    return blobs.read(row.digest)


def ran(row: Transfer) -> Transfer:
    transfer_runner.run(row.pk, worker=WORKER)
    row.refresh_from_db()
    return row


def other_line(code: str = "el-9") -> tuple[Line, User]:
    line = lines.create_line(Line.objects.first().site, code=code, name=code.upper(), by=SET_UP)  # type: ignore[union-attr]
    return line, person(f"engineer-{code}", line, "engineer")


def said(line: Line) -> dict[str, Any]:
    """digest -> verdict, class codes with the main one first, regions with codes: what a line knows."""
    codes = dict(DefectClass.objects.filter(line=line).values_list("number", "code"))
    found = {}
    for row in Capture.objects.filter(line=line).select_related("decision"):
        decision = row.decision
        found[row.digest] = decision and (
            decision.verdict,
            [codes[number] for number in decision.classes],
            [(codes[r["number"]], r["kind"], r["points"]) for r in decision.regions],
        )
    return found


def annotated(plant: Plant) -> None:
    """Boxes, polygons, classes without a shape, OK, and one that nobody decided; names that differ by little."""
    lines.add_class(plant.line, code="스크래치", name_ko="스크래치", name_en="scratch", by=SET_UP)
    by = plant.haneul
    for name, verdict, classes, regions in (
        ("불량_스크래치_001.png", "NG", [], [BOX, POLYGON]),
        ("a/1.png", "NG", [2, 1], [BOX]),  # main class has no shape
        ("b/1.png", "OK", [], []),
        ("b/1.PNG", "NG", [1, 2], [BOX]),  # main class is drawn, the other is not
        ("x %20 y.png", "NG", [1], []),
        ("", "OK", [], []),
    ):
        row = plant.capture(file_name=name)
        captures.decide(row, verdict=verdict, classes=classes, regions=regions, by=by)
    plant.capture(file_name="open.png")


# ------------------------------------------------------------------------------------------------ round trips


@pytest.mark.parametrize("code", formats.FORMATS)
def test_what_goes_out_comes_into_another_line_as_it_was(code: str, plant: Plant) -> None:
    annotated(plant)
    data = exported(plant.line, plant.haneul, code, show="all")
    line, engineer = other_line()
    lines.add_class(line, code="OTHER", name_en="other", by=SET_UP)  # numbers differ there
    row = imported(line, engineer, data)
    assert row.state == Transfer.State.DONE, row.failure
    assert row.format == code
    assert said(line) == said(plant.line)
    assert row.report["refused"] == []
    assert {key: row.report[key] for key in ("rows", "created", "known", "decided", "undecided")} == {
        "rows": 7, "created": 7, "known": 0, "decided": 6, "undecided": 1,
    }  # fmt: skip
    assert row.report["classes_added"] == ["crack", "스크래치"]
    assert {decision.by for decision in Decision.objects.filter(capture__line=line)} == {engineer}


@pytest.mark.parametrize("code", formats.FORMATS)
def test_labels_alone_find_the_pictures_that_are_here(code: str, plant: Plant) -> None:
    annotated(plant)
    data = exported(plant.line, plant.haneul, code, show="all", with_pictures=False)
    line, engineer = other_line()
    for digest in said(plant.line):
        captures.import_one(line, blobs.read(digest), {"file_name": "renamed.png"}, by=engineer)
    row = imported(line, engineer, data)
    assert row.state == Transfer.State.DONE, row.failure
    assert said(line) == said(plant.line)
    assert (row.report["created"], row.report["known"], row.report["decided"]) == (0, 7, 6)


@pytest.mark.parametrize("first_id", [0, 1])
def test_coco_ids_stay_when_a_class_is_added(first_id: int, plant: Plant) -> None:
    for code in ("burr", "0", "A"):
        lines.add_class(plant.line, code=code, name_en=code, by=SET_UP)
    captures.decide(plant.capture(file_name="1.png"), verdict="NG", regions=[BOX], by=plant.haneul)

    def ids() -> dict[str, int]:
        with zipfile.ZipFile(io.BytesIO(exported(plant.line, plant.haneul, "coco", first_id=first_id))) as archive:
            content = json.loads(archive.read("annotations/instances.json"))
        return {entry["name"]: entry["id"] for entry in content["categories"]}

    before = ids()
    lines.add_class(plant.line, code="aaa", name_en="aaa", by=SET_UP)
    after = ids()
    assert before == {"crack": first_id, "burr": first_id + 1, "0": first_id + 2, "A": first_id + 3}
    assert after == before | {"aaa": first_id + 4}


def test_an_export_takes_what_its_filters_choose(plant: Plant) -> None:
    plant.decided(0, lot="L1", file_name="1.png", product="mono")
    plant.decided(1, lot="L2", file_name="1.png", product="mono")
    plant.decided(1, lot="L2", file_name="1.png", product="poly")
    plant.capture(lot="L2", file_name="1.png", product="mono")
    for options, wanted in (({}, 3), ({"lot": "L2"}, 2), ({"lot": "L2", "product": "mono"}, 1), ({"show": "all"}, 4)):
        data = exported(plant.line, plant.haneul, "yolo", **options)
        names = [name for name in zipfile.ZipFile(io.BytesIO(data)).namelist() if name.startswith("images/")]
        assert len(set(names)) == len(names) == wanted, options
    with pytest.raises(Refused, match="No picture fits"):
        transfers.ask_export(plant.line, code="yolo", options={"lot": "L9"}, by=plant.haneul)
    names = {transfers.download_name(row) for row in Transfer.objects.all()}
    assert len(names) == Transfer.objects.count() == 4


def test_a_snapshot_leaves_with_the_decisions_that_it_froze(plant: Plant) -> None:
    plant.lots(4)
    snapshot = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    taken_back = snapshot.items.filter(label=1).first().capture
    captures.retract(taken_back, reason="wrong", by=plant.haneul)
    row = ran(transfers.ask_export(plant.line, code="coco", options={}, snapshot=snapshot, by=plant.haneul))
    line, engineer = other_line()
    imported(line, engineer, blobs.read(row.digest))
    assert said(line)[taken_back.digest][:2] == ("NG", ["crack"])
    assert len(said(line)) == snapshot.items.count()


def test_a_picture_whose_bytes_are_gone_is_named_and_the_rest_leaves(plant: Plant) -> None:
    gone = plant.decided(1, file_name="gone.png")
    plant.decided(1, file_name="there.png")
    blobs.path(gone.digest).unlink()
    row = ran(transfers.ask_export(plant.line, code="coco", options={}, by=plant.haneul))
    assert row.state == Transfer.State.DONE
    assert [entry["name"] for entry in row.report["refused"]] == ["gone.png"]
    assert "images/there.png" in zipfile.ZipFile(blobs.path(row.digest)).namelist()


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


def yolo(labels: dict[str, str], pictures: dict[str, bytes], names: str = "[crack, burr, scratch]") -> bytes:
    files = {"data.yaml": f"names: {names}\n".encode()} | {f"images/{n}.png": data for n, data in pictures.items()}
    return zipped(files | {f"labels/{n}.txt": text.encode() for n, text in labels.items()})


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
    captures.claim(row, by=plant.seoyeon)
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


# ------------------------------------------------------------------------------------------------ life of a row


def test_a_viewer_neither_imports_nor_exports(plant: Plant) -> None:
    plant.decided(0)
    with pytest.raises(Refused, match="do not include"):
        received(plant.line, plant.viewer, zipped({"1.png": picture()}))
    with pytest.raises(Refused, match="do not include"):
        transfers.ask_export(plant.line, code="coco", options={}, by=plant.viewer)
    row = received(plant.line, plant.haneul, zipped({"1.png": picture()}))
    for act in (transfers.confirm, transfers.cancel):
        with pytest.raises(Refused, match="do not include"):
            act(row, by=plant.viewer)


def test_who_lost_the_role_meanwhile_imports_nothing(plant: Plant) -> None:
    row = received(plant.line, plant.haneul, zipped({"1.png": picture()}))
    transfers.confirm(row, by=plant.haneul)
    plant.haneul.memberships.all().delete()
    assert ran(row).state == Transfer.State.FAILED
    assert not Capture.objects.exists()


def test_an_unconfirmed_archive_is_never_run_and_ends_after_a_day(plant: Plant) -> None:
    row = received(plant.line, plant.haneul, zipped({"1.png": picture()}))
    assert ran(row).state == Transfer.State.QUEUED
    transfers.recover()
    row.refresh_from_db()
    assert row.state == Transfer.State.QUEUED
    Transfer.objects.filter(pk=row.pk).update(created_at=row.created_at - timedelta(days=2))
    transfers.recover()
    row.refresh_from_db()
    assert row.state == Transfer.State.CANCELLED


def test_a_cancelled_import_stops_at_the_next_batch_and_keeps_what_it_has(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.transfer_records.BATCH", 5)
    monkeypatch.setattr("training.transfer_runner.PULSE_S", 0.0)
    row = received(plant.line, plant.haneul, zipped({f"{n:02d}.png": picture() for n in range(20)}))
    transfers.confirm(row, by=plant.haneul)

    def cancel_in_the_middle() -> bool:
        if Capture.objects.count() == 10 and Transfer.objects.get(pk=row.pk).state == Transfer.State.RUNNING:
            transfers.cancel(row, by=plant.haneul)
        return False

    transfer_runner.run(row.pk, worker=WORKER, should_stop=cancel_in_the_middle)
    row.refresh_from_db()
    assert row.state == Transfer.State.CANCELLED
    assert Capture.objects.count() == row.report["created"] == 10


def test_a_worker_that_shuts_down_gives_it_back_and_the_next_goes_on(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.transfer_records.BATCH", 5)
    row = received(plant.line, plant.haneul, zipped({f"{n:02d}.png": picture() for n in range(20)}))
    transfers.confirm(row, by=plant.haneul)
    transfer_runner.run(row.pk, worker=WORKER, should_stop=lambda: Capture.objects.count() >= 10)
    row.refresh_from_db()
    assert (row.state, row.deaths, Capture.objects.count()) == (Transfer.State.QUEUED, 0, 10)
    assert ran(row).report["created"] == Capture.objects.count() == 20
    assert row.progress["done"] == row.progress["of"] == 20


def test_an_archive_that_ends_its_workers_is_not_looked_at_for_ever(plant: Plant) -> None:
    incoming = blobs.Incoming()
    incoming.write(zipped({"1.png": picture()}))
    row = transfers.receive(plant.line, incoming, file_name="heavy.zip", by=plant.haneul)
    Transfer.objects.filter(pk=row.pk).update(deaths=3)  # as three workers left it that were killed while they looked
    transfer_runner.look(row.pk)
    row.refresh_from_db()
    assert row.look["failure"]["text"].startswith("The worker vanished")
    transfers.look_as(row, code=transfers.PICTURES, by=plant.haneul)
    transfer_runner.look(row.pk)
    row.refresh_from_db()
    assert (row.look["taken"], row.deaths) == (1, 0)


def test_an_error_nobody_expected_is_raised_and_leaves_a_sentence(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = received(plant.line, plant.haneul, zipped({"1.png": picture()}))
    transfers.confirm(row, by=plant.haneul)

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("training.captures.import_one", broken)
    with pytest.raises(ZeroDivisionError):
        transfer_runner.run(row.pk, worker=WORKER)
    row.refresh_from_db()
    assert (row.state, row.failure["params"]) == (Transfer.State.FAILED, {"kind": "ZeroDivisionError"})


def test_a_stale_worker_writes_nothing(plant: Plant) -> None:
    row = received(plant.line, plant.haneul, zipped({"1.png": picture()}))
    transfers.confirm(row, by=plant.haneul)
    held = transfers.claim(row.pk, worker=WORKER)
    assert held is not None
    assert transfers.claim(row.pk, worker="another") is None
    Transfer.objects.filter(pk=row.pk).update(lease_until=None)
    transfers.recover()
    with pytest.raises(transfers.LeaseLost):
        transfers.write(held, progress={"done": 1})
    with pytest.raises(transfers.LeaseLost):
        transfers.finish(held)
    for _ in range(2):
        transfers.claim(row.pk, worker=WORKER)
        Transfer.objects.filter(pk=row.pk).update(lease_until=None)
        transfers.recover()
    row.refresh_from_db()
    assert (row.state, row.failure["params"]) == (Transfer.State.FAILED, {"deaths": 3})


def test_progress_is_told_at_most_twice_a_second(real_plant: Plant) -> None:
    row = received(real_plant.line, real_plant.haneul, zipped({f"{n:03d}.png": picture() for n in range(120)}))
    transfers.confirm(row, by=real_plant.haneul)
    topic = row.topics()[0]
    before = events.current(topic)[topic]
    row = ran(row)
    told, took = events.current(topic)[topic] - before, (row.ended_at - row.started_at).total_seconds()  # type: ignore[operator]
    assert 3 <= told <= 2 * took + 6


def test_a_worker_that_is_killed_in_the_middle_leaves_exact_counts(real_plant: Plant, real_database: str) -> None:
    count = 300
    labels = {f"{n:03d}": "0 0.5 0.5 0.5 0.5" if n % 2 else "" for n in range(count)}
    data = yolo(labels, {f"{n:03d}": picture() for n in range(count)}, names="[crack, burr]")
    row = received(real_plant.line, real_plant.haneul, data)
    transfers.confirm(row, by=real_plant.haneul)
    code = (
        "import django; django.setup()\n"
        "from django.conf import settings\n"
        f"settings.BLOB_ROOT = {str(settings.BLOB_ROOT)!r}; settings.JOBS_ROOT = {str(settings.JOBS_ROOT)!r}\n"
        "from training import transfer_records, transfer_runner\n"
        "transfer_records.BATCH = 10\n"
        f"transfer_runner.run({str(row.pk)!r}, worker='worker:killed')\n"
    )
    env = {**os.environ, "DATABASE_URL": real_database}
    with subprocess.Popen([sys.executable, "-c", code], cwd=settings.BASE_DIR, env=env) as process:
        wait_for(lambda: Capture.objects.count() >= 40, within_s=60, every_s=0.01)
        process.send_signal(signal.SIGKILL)
    part = Capture.objects.count()
    assert 40 <= part < count
    row.refresh_from_db()
    assert row.report["created"] == part
    Transfer.objects.filter(pk=row.pk).update(lease_until=None)
    transfers.recover()
    row = ran(row)
    assert (row.state, row.deaths) == (Transfer.State.DONE, 1)
    wanted = {"rows": count, "matched": count, "created": count, "known": 0, "decided": count, "undecided": 0}
    assert {key: row.report[key] for key in wanted} == wanted
    assert Capture.objects.count() == Decision.objects.count() == count
    assert counters.recount(real_plant.line) == {}
