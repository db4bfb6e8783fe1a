"""What an uploaded archive says: its format, its labels paired with pictures, its classes against the defect book.

Pictures in the archive are taken from it. An archive of labels alone is for captures that are here already, found by
their bytes where it names those, else by file name.
"""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from django.utils.translation import gettext_noop

from registry.lifecycle import Refused
from training import exports, formats, imports
from training.defect_book import Book, is_ok
from training.formats import archive as archives
from training.formats import collect, paths
from training.formats.collect import Entry, Read
from training.formats.model import ClassEntry, Found, Known, Labelled
from training.formats.names import folded, is_picture, stem
from training.models import Capture
from training.transfers import MANIFEST, PICTURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from registry.models import Line
    from training.formats import Archive
    from training.formats.collect import Measure

NAMES_SHOWN = 12
REFUSED_SHOWN = 50
LABEL_FILES = (".json", ".xml", ".csv", ".yaml", ".yml", ".txt", ".names")

WHICH_FORMAT = gettext_noop("The files do not say which format this is. Choose it.")


@dataclass(frozen=True)
class Content:
    """What was read. `metas`: lot, serial and so on by picture name, where a manifest says them."""

    found: Found
    metas: Mapping[str, Mapping[str, Any]]
    labels: int
    pictures: int

    def used(self) -> dict[ClassEntry, int]:
        """The classes that pictures have, with how many."""
        counted = Counter(number for picture in self.found.package.pictures for number in set(numbers_of(picture)))
        return {entry: counted[entry.number] for entry in self.found.package.classes if counted[entry.number]}


def numbers_of(picture: Labelled) -> list[int]:
    """The classes said of a picture, main one first."""
    return list(dict.fromkeys([*picture.classes, *(shape.number for shape in picture.shapes)]))


def detect(archive: Archive) -> str:
    """The code of the format, "" where the files do not say."""
    names = archive.names()
    if any(name.split("/")[-1].lower() == imports.MANIFEST for name in names):
        return MANIFEST
    if code := formats.detect(archive):
        return code
    labels = any(name.lower().endswith(LABEL_FILES) and "readme" not in name.lower() for name in names)
    return "" if labels or not any(is_picture(name) for name in names) else PICTURES


def read(archive: Archive, code: str, line: Line, *, measure: Measure | None = None) -> Content:
    """The archive's content; without `measure`, no picture is opened. Raises Refused when nothing can be made of it."""
    if not code:
        raise Refused(WHICH_FORMAT)
    said, metas = _entries(archive, code, line)
    here = sum(is_picture(name) for name in archive.names())
    known = {} if here else _known(line, said.entries)
    found = (
        collect.collect(archive, said, known=known, measure=measure)
        if measure
        else collect.pair(archive, said, known=known)
    )
    if code == MANIFEST:  # pictures that it does not list are none of its business
        listed = tuple(picture for picture in found.package.pictures if picture.name in metas or picture.name in known)
        found = Found(formats.Package(found.package.classes, listed), found.refused, found.matched)
    return Content(found, metas, len(said.entries), here)


def _entries(archive: Archive, code: str, line: Line) -> tuple[Read, dict[str, dict[str, Any]]]:
    if code == PICTURES:
        return Read((), []), {}
    if code == MANIFEST:
        return _manifest(archive, line)
    if code not in formats.FORMATS:
        raise Refused(formats.UNKNOWN_FORMAT, code=code)
    return formats.FORMATS[code].entries(archive), {}


def _manifest(archive: Archive, line: Line) -> tuple[Read, dict[str, dict[str, Any]]]:
    named = [name for name in archive.names() if name.split("/")[-1].lower() == imports.MANIFEST]
    if not named:
        raise Refused(imports.NO_MANIFEST, folder="zip")
    file = min(named, key=lambda name: (name.count("/"), name))
    folder = file[: -len(imports.MANIFEST)]
    rows = list(imports.rows_of(io.StringIO(_text(archives.read(archive, file)), newline="")))
    said = [imports.labels_of(row) for row in rows]
    classes = collect.by_label([label for labels in said for label in labels or ()], {}, file=file)
    numbers = {entry.code: entry.number for entry in classes}
    entries: list[Entry] = []
    metas: dict[str, dict[str, Any]] = {}
    for row, labels in zip(rows, said, strict=True):
        name = paths.local(row["image"]).lstrip("/")
        entry = Entry(file, folder + name if name else "", name)
        if labels is not None:
            entry.verdict = "NG" if labels else "OK"
            entry.classes = tuple(numbers[label] for label in labels)
        entries.append(entry)
        metas[name] = imports.meta_of(line, row, name)
    return Read(classes, entries), metas


def _text(data: bytes) -> str:
    """UTF-8, or CP949 as Excel writes CSV on Korean Windows."""
    for encoding in ("utf-8-sig", "cp949"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise Refused(imports.NOT_A_MANIFEST, detail="UTF-8, CP949")


# ------------------------------------------------------------------------------------------------ captures here


def _known(line: Line, entries: Iterable[Entry]) -> dict[str, Known]:
    """The line's captures that these labels could mean, as "id/file name"."""
    digests = {entry.digest for entry in entries if entry.digest}
    wanted = {key for entry in entries for path in (entry.path, entry.name) if path for key in _keys(path)}
    found: dict[str, Known] = {}
    rows = Capture.objects.filter(line=line).order_by("pk").only("file_name", "serial", "digest", "width", "height")
    for capture in rows.iterator(chunk_size=5000):
        name = _wanted_name(capture, wanted)
        if name or capture.digest in digests:
            key = f"{capture.pk}/{name or exports.name_of(capture)}"
            found[key] = Known(capture.width, capture.height, capture.digest)
    return found


def _wanted_name(capture: Capture, wanted: set[str]) -> str:
    """The name under which labels ask for this capture: its own, or the one that an export gave it."""
    given = capture.file_name or capture.serial
    if any(_keys(name) & wanted for name in (given, capture.digest[:16]) if name):
        return exports.name_of(capture)
    marked = f"{stem(given)}{exports.mark_of(capture.digest)}"
    if _keys(marked) & wanted:
        own = exports.name_of(capture)
        return f"{stem(own)}{exports.mark_of(capture.digest)}{own[len(stem(own)) :]}"
    return ""


def _keys(path: str) -> set[str]:
    """How a file's name compares, with and without its suffix: case, NFC/NFD, %20, spaces and folders do not count."""
    name = path.replace("\\", "/").split("/")[-1]
    return {folded(unquote(each)).replace(" ", "_").replace("+", "_") for each in (name, stem(name))}


def capture_id(name: str) -> str:
    """The capture that a name of `_known` stands for."""
    return name.split("/", 1)[0]


# ------------------------------------------------------------------------------------------------ the look before


def look(archive: Archive, code: str, line: Line) -> dict[str, Any]:
    """What importing would do, as figures and names; {"failure": sentence} where it could not be done."""
    names = archive.names()
    pictures = sorted(name for name in names if is_picture(name))
    shown: dict[str, Any] = {"files": len(names), "pictures": len(pictures), "names": pictures[:NAMES_SHOWN]}
    try:
        content = read(archive, code, line)
    except Refused as refused:
        return shown | {"failure": refused.as_json()}
    package = content.found.package
    verdicts = Counter(picture.verdict or "none" for picture in package.pictures)
    if not pictures:
        shown["names"] = sorted(picture.name.split("/", 1)[1] for picture in package.pictures)[:NAMES_SHOWN]
    return shown | {
        "labels": content.labels,
        "matched": content.found.matched,
        "taken": len(package.pictures),
        "verdicts": {name: verdicts[name] for name in ("OK", "NG", "none")},
        "regions": sum(len(picture.shapes) for picture in package.pictures),
        "classes": _classes(content, Book(line, by="look")),
        "refused": content.found.refused[:REFUSED_SHOWN],
        "refused_count": len(content.found.refused),
    }


def _classes(content: Content, book: Book) -> list[dict[str, Any]]:
    """Each class that is used: where it goes. `how`: ok, retired, book or new."""
    rows = []
    for entry, pictures in content.used().items():
        mapped = book.find(entry.code)
        how = "ok" if is_ok(entry.code) else "new" if mapped is None else "retired" if mapped.retired_at else "book"
        row = {"code": entry.code, "name": entry.name, "how": how, "pictures": pictures}
        rows.append(row | ({"number": mapped.number, "to": mapped.code} if mapped else {}))
    return rows
