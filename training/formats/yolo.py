"""YOLO detection and segmentation: `data.yaml`, `images/`, `labels/`; read also with classes.txt or obj.names.

No label file: nobody looked; an empty one: looked at, no defect. Index = class number - 1, gaps filled with
`unused_N`, so an index never means another class after one was added. `loopline.json` keeps the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from django.utils.translation import gettext_noop

from registry.lifecycle import Refused
from training.formats import companion, names, parsing
from training.formats.collect import Entry, Files, Read, table
from training.formats.model import ClassEntry, Kind, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training.formats.archive import Archive
    from training.formats.companion import Companion, Said
    from training.formats.model import Labelled, Package, Point

TABLE = "data.yaml"
LAST_NUMBER = 10_000
_TABLES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
_LISTS = ("classes.txt", "obj.names", "_darknet.labels", "classes.names")
_NO_LABELS = re.compile(r"^(train|val|valid|validation|test|classes|readme.*|notes|license)\.txt$", re.IGNORECASE)
_SCALARS = (str, int, float)
_INDEX = re.compile(r"^[0-9]{1,9}$")

NO_TABLE = gettext_noop("There is no data.yaml, classes.txt or obj.names, so nobody can tell what the classes are.")
BAD_TABLE = gettext_noop("%(file)s: “names” must list the classes, or give each of them its index.")
BAD_INDEX = gettext_noop("%(file)s, line %(line)s: class index %(index)s is not a whole number from 0 to %(last)s.")
BAD_LINE = gettext_noop(
    "%(file)s, line %(line)s: after the class index come 4 numbers for a box or at least 3 pairs for a polygon."
)
TOO_HIGH = gettext_noop("YOLO counts classes without gaps. Class %(number)s is beyond %(limit)s.")


def is_table(file_name: str) -> bool:
    return file_name in (*_TABLES, *_LISTS)


def files(package: Package) -> Files:
    stored = names.stored((picture.name for picture in package.pictures), folder="images", by_stem=True)
    return Files(stored, _texts(package, stored))


def _texts(package: Package, stored: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    yield TABLE, _table(package)
    yield companion.FILE, companion.content(package, stored)
    # Trainers take a file with one polygon for a file of polygons only: then boxes are written as their four corners.
    corners = any(shape.kind == "polygon" for picture in package.pictures for shape in picture.shapes)
    for picture in package.pictures:
        if picture.shapes or picture.verdict == "OK":
            lines = "".join(_line(shape, picture, corners) for shape in picture.shapes)
            yield _label_file(stored[picture.name]), lines.encode()


def _label_file(path: str) -> str:
    return f"labels/{names.stem(path).removeprefix('images/')}.txt"


def _table(package: Package) -> bytes:
    last = max((entry.number for entry in package.classes), default=0)
    if last > LAST_NUMBER:
        raise Refused(TOO_HIGH, number=last, limit=LAST_NUMBER)
    codes = {entry.number - 1: entry.code for entry in package.classes}
    listed = {index: codes.get(index, _unused(index)) for index in range(last)}
    content = {"path": ".", "train": "images", "val": "images", "nc": last, "names": listed}
    return str(yaml.safe_dump(content, allow_unicode=True, sort_keys=False)).encode()


def _unused(index: int) -> str:
    return f"unused_{index + 1}"


def _line(shape: Shape, picture: Labelled, corners: bool) -> str:
    points = shape.points
    if shape.kind == "box":
        (left, top), (right, bottom) = points
        if not corners:
            middle = ((left + right) / 2, (top + bottom) / 2)
            points = (middle, (right - left, bottom - top))
        else:
            points = ((left, top), (right, top), (right, bottom), (left, bottom))
    values = " ".join(f"{x / picture.width!r} {y / picture.height!r}" for x, y in points)
    return f"{shape.number - 1} {values}\n"


def entries(archive: Archive) -> Read:
    """Raises Refused for an index that no class has: then the table is not the one the labels were made with."""
    said = companion.load(archive)
    classes, numbers = _classes(archive, said)
    labels = [name for name in archive.names() if name.endswith(".txt") and not _NO_LABELS.match(name.split("/")[-1])]
    stored = {row.folder + _label_file(row.stored): row for row in said.pictures.values()}
    found: list[Entry] = []
    for file in labels:
        row = stored.pop(file, None)
        entry = row.entry(file) if row else Entry(file, _picture_stem(file), by_stem=True)
        entry.relative = True
        try:
            entry.shapes = _shapes(archive, file, numbers, row)
        except _BrokenLine as broken:
            entry.refused = broken
        found.append(companion.settle(entry, row, has_file=True))
    found += [companion.settle(row.entry(companion.FILE), row, has_file=False) for row in stored.values()]
    return Read(classes, found, {number: index for index, number in numbers.items()})


class _BrokenLine(Refused):
    """A line that tells nothing; the file's picture is left out, the others are not."""


def _picture_stem(file: str) -> str:
    """Where the picture of this label file lies, but for its suffix."""
    parts = names.stem(file).split("/")
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] == "labels":
            parts[place] = "images"
            break
    return "/".join(parts)


def _classes(archive: Archive, said: Companion) -> tuple[tuple[ClassEntry, ...], dict[int, int]]:
    """Classes, and index -> number: the companion's, as long as it agrees with the table that other tools see."""
    file, listed = _listed(archive)
    own = {entry.number - 1: entry for entry in said.classes if listed.get(entry.number - 1) == entry.code}
    if own or said.pictures:
        listed = {index: name for index, name in listed.items() if index in own or name != _unused(index)}
        rows = [(index, name, index + 1, own[index].name if index in own else name) for index, name in listed.items()]
        return table(rows, file=file)
    return table(((index, name, None, None) for index, name in listed.items()), file=file)


def _listed(archive: Archive) -> tuple[str, dict[int, str]]:
    """The file with the class names, and index -> name."""
    by_depth = sorted(archive.names(), key=lambda name: (name.count("/"), name))
    for file in by_depth:
        if file.split("/")[-1].lower() in _TABLES:
            return file, _names(parsing.load_yaml(archive, file), file)
    for file in by_depth:
        if file.split("/")[-1].lower() in _LISTS:
            lines = [line.strip() for line in parsing.load_lines(archive, file)]
            while lines and not lines[-1]:
                lines.pop()
            return file, dict(enumerate(lines))
    raise Refused(NO_TABLE)


def _names(content: Any, file: str) -> dict[int, str]:
    listed = parsing.mapping(content).get("names")
    if isinstance(listed, list):
        listed = dict(enumerate(listed))
    if not isinstance(listed, dict):
        raise Refused(BAD_TABLE, file=file)
    for index, name in listed.items():  # in YAML, names within names can unfold to gigabytes
        if not isinstance(index, int | str) or not _INDEX.match(str(index)) or not isinstance(name, _SCALARS):
            raise Refused(BAD_TABLE, file=file)
    return {int(index): str(name) for index, name in listed.items()}


def _shapes(archive: Archive, file: str, numbers: dict[int, int], row: Said | None) -> list[Shape]:
    shapes: list[Shape] = []
    broken: _BrokenLine | None = None
    for line, text in enumerate(parsing.load_lines(archive, file), 1):
        if not text.strip():
            continue  # an empty line at the end is how most editors end a file
        index, *values = text.split()
        if not _INDEX.match(index) or int(index) not in numbers:
            raise Refused(BAD_INDEX, file=file, line=line, index=index, last=max(numbers, default=0))
        try:
            shapes.append(_shape(numbers[int(index)], [parsing.number(v, file=file, field="YOLO") for v in values]))
        except Refused:
            broken = broken or _BrokenLine(BAD_LINE, file=file, line=line)
    if broken:
        raise broken
    if row and len(row.kinds) == len(shapes):
        return [_squared(shape) if kind == "box" else shape for shape, kind in zip(shapes, row.kinds, strict=True)]
    return shapes


def _shape(number: int, values: list[float]) -> Shape:
    if len(values) == 4:
        x, y, width, height = values
        return Shape(number, "box", ((x - width / 2, y - height / 2), (x + width / 2, y + height / 2)))
    if len(values) < 6 or len(values) % 2:
        raise Refused(BAD_LINE, file="", line=0)
    return Shape(number, "polygon", tuple(zip(values[::2], values[1::2], strict=True)))


def _squared(shape: Shape) -> Shape:
    """The box that was written as four corners, if they still are those of one."""
    points: tuple[Point, ...] = shape.points
    kind: Kind = shape.kind
    if len(points) == 4:
        (left, top), _, (right, bottom), _ = points
        if points == ((left, top), (right, top), (right, bottom), (left, bottom)):
            kind, points = "box", ((left, top), (right, bottom))
    return Shape(shape.number, kind, points)
