"""Pascal VOC XML: `Annotations/` and `JPEGImages/`, one file a picture.

Pixels count from 1 and both ends belong to the box, as in the original; exact coordinates stand in an extra element
and are believed as long as they round to the box beside them. `loopline.json` keeps classes and the rest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.etree import ElementTree as Plain

from django.utils.translation import gettext_noop

from registry.lifecycle import Refused
from training.formats import companion, names, parsing
from training.formats.collect import Entry, Files, Read, by_label
from training.formats.model import Kind, Shape, bounds
from training.formats.paths import local

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training.formats.archive import Archive
    from training.formats.model import Labelled, Package, Point

PICTURES, LABELS = "JPEGImages", "Annotations"

NO_VOC = gettext_noop("There is no Pascal VOC file: XML with “annotation” as its root.")
NO_BOX = gettext_noop("%(file)s: object %(place)s has no name or no box.")


def files(package: Package) -> Files:
    stored = names.stored((picture.name for picture in package.pictures), folder=PICTURES, by_stem=True)
    return Files(stored, _texts(package, stored))


def _texts(package: Package, stored: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    yield companion.FILE, companion.content(package, stored)
    codes = {entry.number: entry.code for entry in package.classes}
    for picture in package.pictures:
        if picture.shapes or picture.verdict == "OK":
            yield _label_file(stored[picture.name]), _file(picture, stored[picture.name], codes)


def _label_file(path: str) -> str:
    return f"{LABELS}/{names.stem(path).removeprefix(PICTURES + '/')}.xml"


def _file(picture: Labelled, path: str, codes: dict[int, str]) -> bytes:
    root = Plain.Element("annotation")
    _text(root, "folder", PICTURES)
    _text(root, "filename", path.removeprefix(PICTURES + "/"))
    _text(Plain.SubElement(root, "source"), "database", "Loopline")
    size = Plain.SubElement(root, "size")
    for side, pixels in (("width", picture.width), ("height", picture.height), ("depth", 3)):
        _text(size, side, str(pixels))
    _text(root, "segmented", "0")
    for shape in picture.shapes:
        element = Plain.SubElement(root, "object")
        _text(element, "name", codes[shape.number])
        for name, value in (("pose", "Unspecified"), ("truncated", "0"), ("difficult", "0")):
            _text(element, name, value)
        box = Plain.SubElement(element, "bndbox")
        for side, pixel in zip(("xmin", "ymin", "xmax", "ymax"), _counted(shape.points), strict=True):
            _text(box, side, str(pixel))
        if shape.kind == "polygon":
            polygon = Plain.SubElement(element, "polygon")
            for place, (x, y) in enumerate(shape.points, 1):
                _text(polygon, f"x{place}", str(round(x) + 1))
                _text(polygon, f"y{place}", str(round(y) + 1))
        exact = " ".join(f"{x!r},{y!r}" for x, y in shape.points)
        Plain.SubElement(element, "loopline", {"points": exact})
    return parsing.dump_xml(root)


def _counted(points: tuple[Point, ...]) -> tuple[int, int, int, int]:
    """xmin, ymin, xmax, ymax as VOC counts: the first and the last pixel that the shape touches, from 1."""
    left, top, right, bottom = bounds(points)
    return math.floor(left) + 1, math.floor(top) + 1, math.ceil(right), math.ceil(bottom)


def _text(parent: Plain.Element, name: str, value: str) -> None:
    Plain.SubElement(parent, name).text = value


def entries(archive: Archive) -> Read:
    """Classes of foreign files are numbered as they come, file by file in the order of their names."""
    said = companion.load(archive)
    stored = {row.folder + _label_file(row.stored): row for row in said.pictures.values()}
    roots: dict[str, Plain.Element] = {}
    for file in archive.names():
        if file.lower().endswith(".xml"):
            root = parsing.load_xml(archive, file)
            if root.tag == "annotation":
                roots[file] = root
    if not roots and not said.pictures:
        raise Refused(NO_VOC)
    labels = [name for root in roots.values() for element in root.iter("object") if (name := _found(element, "name"))]
    own = {entry.code: (entry.number, entry.name) for entry in said.classes}
    classes = by_label((*own, *labels), own, file=companion.FILE)
    numbers = {entry.code: entry.number for entry in classes}
    found: list[Entry] = []
    for file, root in roots.items():
        row = stored.pop(file, None)
        entry = row.entry(file) if row else _entry(file, root)
        try:
            entry.width, entry.height = _size(root, file, entry)
            entry.shapes = [_shape(element, file, n, numbers) for n, element in enumerate(root.findall("object"), 1)]
        except Refused as refused:
            entry.refused = refused
        found.append(companion.settle(entry, row, has_file=True))
    found += [companion.settle(row.entry(companion.FILE), row, has_file=False) for row in stored.values()]
    return Read(classes, found)


def _picture_stem(file: str) -> str:
    parts = names.stem(file).split("/")
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] == LABELS:
            parts[place] = PICTURES
            break
    return "/".join(parts)


def _entry(file: str, root: Plain.Element) -> Entry:
    """Label file and picture lie in like-named folders; the file says the picture's suffix."""
    filename = local(_found(root, "filename"))
    expected = _picture_stem(file)
    last = filename.split("/")[-1]
    if not filename:
        return Entry(file, expected, by_stem=True)
    if names.folded(names.stem(last)) == names.folded(expected.split("/")[-1]):
        return Entry(file, "/".join([*expected.split("/")[:-1], last]))
    return Entry(file, filename)


def _size(root: Plain.Element, file: str, entry: Entry) -> tuple[int | None, int | None]:
    """As the file says, which a person may have written anew; else as the package said."""
    if not _found(root, "size/width") or not _found(root, "size/height"):
        return entry.width, entry.height
    width = parsing.whole(_found(root, "size/width"), file=file, field="width")
    height = parsing.whole(_found(root, "size/height"), file=file, field="height")
    return (width, height) if width and height else (entry.width, entry.height)  # some tools write 0 for unknown


def _found(element: Plain.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _shape(element: Plain.Element, file: str, place: int, numbers: dict[str, int]) -> Shape:
    name = _found(element, "name")
    sides = [_found(element, f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
    if not name or not all(sides):
        raise Refused(NO_BOX, file=file, place=place)
    left, top, right, bottom = (parsing.number(side, file=file, field="bndbox") for side in sides)
    corners = element.find("polygon")
    kind: Kind = "box" if corners is None else "polygon"
    exact = _exact(element, file)
    if exact and _counted(exact) == (left, top, right, bottom):
        return Shape(numbers[name], kind, exact)
    if corners is None:
        return Shape(numbers[name], "box", ((left - 1, top - 1), (right, bottom)))
    values = [parsing.number(corner.text, file=file, field="polygon") - 1 for corner in corners]
    if len(values) % 2:
        raise Refused(parsing.WRONG_VALUE, file=file, field="polygon", value=corners[-1].tag)
    return Shape(numbers[name], "polygon", tuple(zip(values[::2], values[1::2], strict=True)))


def _exact(element: Plain.Element, file: str) -> tuple[Point, ...]:
    own = element.find("loopline")
    if own is None:
        return ()
    return points(own.get("points", ""), file, pair=" ", value=",")


def points(text: str, file: str, *, pair: str, value: str) -> tuple[Point, ...]:
    """`x,y x,y` and the like."""
    found: list[Point] = []
    for part in text.split(pair):
        x, _, y = part.partition(value)
        found.append((parsing.number(x, file=file, field="points"), parsing.number(y, file=file, field="points")))
    return tuple(found)
