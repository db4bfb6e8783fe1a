"""Folders of pictures with a `manifest.csv`: brought in as captures, decided where the manifest says what they show.

Columns: image (path inside the folder), label (`OK`, a class, several joined by `;`, or `unlabelled`), ok_ng, era, lot,
part, captured_at; also serial, station, shift and product where there are such.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_noop

from edge.pictures import PictureRefused
from registry.lifecycle import Refused
from training import captures, pictures, policies
from training.defect_book import Book
from training.models import Capture, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from registry.audit import Actor
    from registry.models import Line

MANIFEST = "manifest.csv"
NOTHING_SAID = {"", "unlabelled", "unlabeled", "unknown"}

NO_MANIFEST = gettext_noop("%(folder)s has no manifest.csv.")
NOT_A_MANIFEST = gettext_noop("manifest.csv cannot be read as UTF-8 CSV: %(detail)s.")
NO_IMAGE_COLUMN = gettext_noop("manifest.csv has no column “image”.")
NOTHING_MATCHED = gettext_noop(
    "None of the %(count)s rows of manifest.csv names a file in %(folder)s. The first is %(example)s."
)
OUTSIDE = gettext_noop("The path leads out of the folder.")
NOT_THERE = gettext_noop("There is no such file.")
NO_PERSON = gettext_noop("The manifest says what pictures show, and a decision needs a person's name. Say whose.")


@dataclass
class Report:
    """What became of the rows. `refused`: [{"image", "text", "params"}]; `classes_added`: new in the defect book."""

    rows: int = 0
    created: int = 0
    known: int = 0
    decided: int = 0
    undecided: int = 0
    classes_added: list[str] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)


def import_manifest(line: Line, folder: Path, *, by: Actor, decided: bool = True) -> Report:
    """Import all pictures of the manifest; a second import of the same folder changes nothing.

    `decided`: labels become decisions of `by`, who must then be a person. A refused picture does not stop the rest.
    Raises Refused when there is no usable manifest or when no row matches a file.
    """
    policies.check_can_import(line, by=by)
    rows = list(_rows(folder))
    if decided and isinstance(by, str) and any(labels_of(row) is not None for row in rows):
        raise Refused(NO_PERSON)
    if not any(_inside(folder, row["image"]) for row in rows):
        example = rows[0]["image"] if rows else ""
        raise Refused(NOTHING_MATCHED, count=len(rows), folder=str(folder), example=example)
    report = Report()
    book = Book(line, by=by)
    for row in rows:
        report.rows += 1
        try:
            _import_row(line, folder, row, book, by=by, decided=decided, report=report)
        except PictureRefused as refused:
            report.refused.append({"image": row["image"], **pictures.stored_sentence(refused)})
        except Refused as refused:
            report.refused.append({"image": row["image"], **refused.as_json()})
    report.classes_added = book.added
    return report


def _import_row(
    line: Line, folder: Path, row: dict[str, str], book: Book, *, by: Actor, decided: bool, report: Report
) -> None:
    path = _inside(folder, row["image"])
    if path is None:
        raise Refused(NOT_THERE if _is_relative(row["image"]) else OUTSIDE)
    capture, created = captures.import_one(line, path, meta_of(line, row, path.name), by=by)
    report.created += created
    report.known += not created
    labels = labels_of(row)
    if not decided or labels is None or capture.state not in Capture.OPEN or capture.reserved:
        report.undecided += created and capture.state in Capture.OPEN
        return
    classes = [book.number(label) for label in labels]
    captures.decide(capture, verdict=Verdict.NG if classes else Verdict.OK, classes=classes, by=by)
    report.decided += 1


def meta_of(line: Line, row: dict[str, str], file_name: str) -> dict[str, Any]:
    """What a row says of its picture, but for its label."""
    era = row.get("era", "")
    product = row.get("product") or (f"era-{era}" if era else line.product)
    return {
        "lot": row.get("lot"),
        "serial": row.get("serial"),
        "part": row.get("part"),
        "station": row.get("station"),
        "shift": row.get("shift"),
        "product": product,
        "taken_at": row.get("captured_at") or row.get("taken_at"),
        "file_name": file_name,
    }


def labels_of(row: dict[str, str]) -> list[str] | None:
    """Class names, [] for OK, None where the manifest does not say."""
    label = row.get("label", "").strip()
    if label.lower() in NOTHING_SAID:
        return [] if row.get("ok_ng", "").upper() == "OK" else None
    if label.upper() == "OK":
        return []
    return [part.strip() for part in label.split(";") if part.strip()]


def rows_of(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """The rows of a manifest, each by column. Raises Refused for what is none."""
    try:
        reader = csv.DictReader(lines)
        if "image" not in (reader.fieldnames or ()):
            raise Refused(NO_IMAGE_COLUMN)
        for row in reader:
            yield {
                key: (value or "").strip()
                for key, value in row.items()
                if isinstance(key, str) and not isinstance(value, list)
            }
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refused(NOT_A_MANIFEST, detail=str(error)) from error


def _rows(folder: Path) -> Iterator[dict[str, str]]:
    try:
        with (folder / MANIFEST).open(encoding="utf-8-sig", newline="") as handle:
            yield from rows_of(handle)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Refused(NO_MANIFEST, folder=str(folder)) from error


def _is_relative(name: str) -> bool:
    return bool(name) and not Path(name).is_absolute() and ".." not in Path(name).parts


def _inside(folder: Path, name: str) -> Path | None:
    """The file, if it is one and lies in the folder (also after following links)."""
    if not _is_relative(name):
        return None
    path = (folder / name).resolve()
    return path if path.is_relative_to(folder.resolve()) and path.is_file() else None
