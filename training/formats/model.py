"""What all annotation formats are turned into and made from: classes, pictures, shapes in pixels as people see them.

`check` says which packages can be written at all; its rules are what every format can hold.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal

from django.utils.translation import gettext_noop

from registry.lifecycle import Refused
from training.formats.names import is_picture

Point = tuple[float, float]
Kind = Literal["box", "polygon"]
Verdict = Literal["OK", "NG"]

NO_PICTURES = gettext_noop("There is no picture to write.")
BAD_NAME = gettext_noop(
    "“%(name)s” cannot be written: a name is a relative path that ends like a picture's, without “..” and back-slashes."
)
NAME_TWICE = gettext_noop("“%(name)s” is in the package twice.")
BAD_CLASS = gettext_noop(
    "Class %(number)s “%(code)s” cannot be written: numbers start at 1, codes are not empty, and each is there once."
)
UNKNOWN_CLASS = gettext_noop("“%(name)s” names class %(number)s, which is not in the class table.")
BAD_SIZE = gettext_noop("“%(name)s” has no size in pixels.")
BAD_SHAPE = gettext_noop("A shape of “%(name)s” has no area, too few points, or lies outside the picture.")
CONTRADICTION = gettext_noop("“%(name)s” has defects drawn or named, but its verdict is not NG.")


@dataclass(frozen=True)
class ClassEntry:
    """A class of the defect book. `number` > 0 and stable; `code` is what other tools show as the label."""

    number: int
    code: str
    name: str


@dataclass(frozen=True)
class Shape:
    """Absolute pixels of the picture as people see it, after EXIF orientation. A box: left-top and right-bottom."""

    number: int
    kind: Kind
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Labelled:
    """A picture and what is said of it. `name`: relative POSIX path; `width`, `height` after EXIF orientation.

    `digest`: SHA-256 of the file's bytes in hex, or "". `verdict`: None = nobody looked; OK without shapes = looked at,
    no defect. `classes`: of the whole picture, with no shape.
    """

    name: str
    width: int
    height: int
    digest: str = ""
    verdict: Verdict | None = None
    classes: tuple[int, ...] = ()
    shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class Package:
    classes: tuple[ClassEntry, ...]
    pictures: tuple[Labelled, ...]


@dataclass(frozen=True)
class Known:
    """A picture that is already here: size after EXIF orientation, SHA-256 of its bytes or ""."""

    width: int
    height: int
    digest: str = ""


@dataclass(frozen=True)
class Found:
    """What was read. `refused`: [{"name", "text", "params"}]. `matched`: how many labels found their picture.

    `file_ids`: class number -> the file's own id; they differ where a file counts from 0.
    """

    package: Package
    refused: list[dict[str, Any]] = field(default_factory=list)
    matched: int = 0
    file_ids: dict[int, int] = field(default_factory=dict)


def check(package: Package) -> None:
    """Raises Refused when no format could give back what the package says."""
    if not package.pictures:
        raise Refused(NO_PICTURES)
    numbers, codes = set[int](), set[str]()
    for entry in package.classes:
        fit = entry.number > 0 and entry.code and entry.code == entry.code.strip()
        if not fit or not _printable(entry.code + entry.name) or entry.number in numbers or entry.code in codes:
            raise Refused(BAD_CLASS, number=entry.number, code=entry.code)
        numbers.add(entry.number)
        codes.add(entry.code)
    names = set[str]()
    for picture in package.pictures:
        if not is_name(picture.name) or not is_picture(picture.name):
            raise Refused(BAD_NAME, name=picture.name)
        if picture.name in names:
            raise Refused(NAME_TWICE, name=picture.name)
        names.add(picture.name)
        for number in (*picture.classes, *(shape.number for shape in picture.shapes)):
            if number not in numbers:
                raise Refused(UNKNOWN_CLASS, name=picture.name, number=number)
        check_picture(picture)


def check_picture(picture: Labelled) -> None:
    """Raises Refused where size, shapes and verdict do not fit each other."""
    if picture.width < 1 or picture.height < 1:
        raise Refused(BAD_SIZE, name=picture.name)
    if not all(has_area(shape, picture.width, picture.height) for shape in picture.shapes):
        raise Refused(BAD_SHAPE, name=picture.name)
    if picture.verdict != "NG" and (picture.shapes or picture.classes):
        raise Refused(CONTRADICTION, name=picture.name)


def has_area(shape: Shape, width: int, height: int) -> bool:
    """Finite, inside the picture, and more than a line."""
    xs, ys = zip(*shape.points, strict=True) if shape.points else ((), ())
    if not all(math.isfinite(value) for value in (*xs, *ys)):
        return False
    inside = all(0 <= x <= width for x in xs) and all(0 <= y <= height for y in ys)
    if shape.kind == "box":
        return inside and len(shape.points) == 2 and xs[0] < xs[1] and ys[0] < ys[1]
    return inside and len(set(shape.points)) >= 3 and min(xs) < max(xs) and min(ys) < max(ys)


def bounds(points: tuple[Point, ...]) -> tuple[float, float, float, float]:
    """left, top, right, bottom"""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return min(xs), min(ys), max(xs), max(ys)


def is_name(name: str) -> bool:
    """A relative POSIX path that stays inside its folder on every system, and that XML can hold."""
    if not name or "\\" in name or name.startswith("/") or not _printable(name):
        return False
    parts = name.split("/")
    drive = len(parts[0]) == 2 and parts[0][1] == ":"
    return not drive and all(part not in {"", ".", ".."} for part in parts) and str(PurePosixPath(name)) == name


def _printable(text: str) -> bool:
    """No control characters, lone surrogates or non-characters: XML and YAML cannot hold them."""
    return not any(unicodedata.category(char) in {"Cc", "Cs"} or ord(char) & 0xFFFE == 0xFFFE for char in text)
