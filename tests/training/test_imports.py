"""Folders with a manifest: brought in once, with names and reasons for what was not."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

from console.models import Membership
from registry.lifecycle import Refused
from registry.models import DefectClass, Line
from tests.training.plant import picture
from training import imports
from training.models import Capture, Decision

if TYPE_CHECKING:
    from pathlib import Path

    from tests.training.plant import Plant


def write(folder: Path, rows: list[dict[str, str]], *, encoding: str = "utf-8") -> Path:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with (folder / "manifest.csv").open("w", newline="", encoding=encoding) as out:
        writer = csv.DictWriter(out, columns)
        writer.writeheader()
        writer.writerows(rows)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "pictures"
    (made / "images").mkdir(parents=True)
    for number in range(5):
        (made / "images" / f"{number}.png").write_bytes(picture(number))
    (made / "images" / "cut.png").write_bytes(picture(9)[:300])
    (tmp_path / "outside.png").write_bytes(picture(10))
    return write(
        made,
        [
            {"image": "images/0.png", "label": "OK", "era": "1", "lot": "A", "serial": "s-0",
             "captured_at": "2026-03-01T10:00:00"},
            {"image": "images/1.png", "label": "crack", "era": "1", "lot": "A"},
            {"image": "images/2.png", "label": "pit;crack", "era": "2", "lot": "B"},
            {"image": "images/3.png", "label": "unlabelled", "era": "2", "lot": "B"},
            {"image": "images/4.png", "label": "새 결함", "era": "2", "lot": "C"},
            {"image": "images/0.png", "label": "OK", "era": "1", "lot": "A"},
            {"image": "images/cut.png", "label": "OK"},
            {"image": "images/none.png", "label": "OK"},
            {"image": "../outside.png", "label": "OK"},
        ],
        encoding="utf-8-sig",
    )  # fmt: skip


def test_pictures_become_captures_and_labels_become_decisions(plant: Plant, folder: Path) -> None:
    report = imports.import_manifest(plant.line, folder, by=plant.haneul)
    assert (report.rows, report.created, report.known, report.decided, report.undecided) == (9, 5, 1, 4, 1)
    assert {row["image"]: row["text"] for row in report.refused} == {
        "images/cut.png": "The picture is damaged or was cut off on its way: it does not decode to the end.",
        "images/none.png": "There is no such file.",
        "../outside.png": "The path leads out of the folder.",
    }
    assert report.classes_added == ["pit", "새-결함"]
    book = dict(DefectClass.objects.filter(line=plant.line).values_list("code", "number"))
    both = Capture.objects.get(file_name="2.png")
    assert both.decision is not None
    assert (both.decision.classes, both.product, both.lot) == ([book["pit"], book["crack"]], "era-2", "B")
    first = Capture.objects.get(file_name="0.png")
    assert first.taken_at is not None
    assert (first.serial, first.taken_at.isoformat(), first.reason) == ("s-0", "2026-03-01T01:00:00+00:00", "import")
    assert Capture.objects.get(file_name="3.png").state == "NEW"


def test_importing_again_changes_nothing(plant: Plant, folder: Path) -> None:
    imports.import_manifest(plant.line, folder, by=plant.haneul)
    report = imports.import_manifest(plant.line, folder, by=plant.haneul)
    assert (report.created, report.known, report.decided, report.classes_added) == (0, 6, 0, [])
    assert (Capture.objects.count(), Decision.objects.count()) == (5, 4)


def test_undecided_pictures_wait_in_the_queue(plant: Plant, folder: Path) -> None:
    report = imports.import_manifest(plant.line, folder, by="machine", decided=False)
    assert (report.created, report.decided, report.undecided) == (5, 0, 5)


def test_labels_need_a_persons_name(plant: Plant, folder: Path) -> None:
    with pytest.raises(Refused, match="needs a person"):
        imports.import_manifest(plant.line, folder, by="machine")
    assert not Capture.objects.exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "no manifest.csv"),
        ("name,label\na.png,OK\n", "no column"),
        ("image,label\nother/1.png,OK\nother/2.png,OK\n", "None of the 2 rows"),
        ("image,label\n", "None of the 0 rows"),
        (b"image,label\n\xff\xfe.png,OK\n", "cannot be read"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(plant: Plant, tmp_path: Path, text: Any, sentence: str) -> None:
    if text is not None:
        (tmp_path / "manifest.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Refused, match=sentence):
        imports.import_manifest(plant.line, tmp_path, by=plant.haneul)


def test_the_command_makes_a_new_line_with_the_people_of_the_plant(plant: Plant, folder: Path, capsys: Any) -> None:
    call_command("import_captures", str(folder), "--line", "magnetic-tile")
    made = Line.objects.get(code="magnetic-tile")
    assert Membership.objects.filter(line=made).count() == Membership.objects.filter(line=plant.line).count()
    assert Capture.objects.filter(line=made, state="DECIDED").count() == 4
    said = capsys.readouterr().out
    assert "5 pictures new" in said
    assert "refused images/none.png: There is no such file." in said


def test_the_command_says_what_is_wrong(plant: Plant, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"has no manifest\.csv"):
        call_command("import_captures", str(tmp_path), "--line", "el-1")
    with pytest.raises(CommandError, match="no person"):
        call_command("import_captures", str(tmp_path), "--line", "el-1", "--by", "nobody")


@pytest.mark.slow
def test_a_real_set_of_six_classes_is_imported(plant: Plant, shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "magnetic-tile"
    with (source / "manifest.csv").open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    labels = list(dict.fromkeys(row["label"] for row in rows))
    chosen = [row for label in labels for row in [one for one in rows if one["label"] == label][:4]]
    report = imports.import_manifest(plant.line, write_copy(tmp_path, source, chosen), by=plant.haneul)
    assert (report.created, report.decided, report.refused) == (24, 24, [])
    assert len(labels) == 6
    assert set(DefectClass.objects.filter(line=plant.line).values_list("code", flat=True)) == set(labels) - {"OK"}


def write_copy(folder: Path, source: Path, rows: list[dict[str, str]]) -> Path:
    (folder / "images").mkdir()
    for row in rows:
        (folder / row["image"]).write_bytes((source / row["image"]).read_bytes())
    return write(folder, rows)
