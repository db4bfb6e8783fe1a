"""Annotation formats in and out: COCO, YOLO, Pascal VOC, Label Studio, CVAT. No database here.

`read` gives back exactly what `write` was given; files of other tools are read as they are, with their own ids;
callers map their classes to the defect book.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_noop

from registry.lifecycle import Refused
from training.formats import archive as archives
from training.formats import coco, collect, cvat, label_studio, model, parsing, voc, yolo
from training.formats.archive import Archive, Limits, opened
from training.formats.collect import Files, Measure, Read
from training.formats.companion import FILE as COMPANION
from training.formats.model import ClassEntry, Found, Known, Labelled, Package, Shape

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "FORMATS",
    "Archive",
    "ClassEntry",
    "Format",
    "Found",
    "Known",
    "Labelled",
    "Limits",
    "Package",
    "Shape",
    "detect",
    "opened",
    "read",
    "write",
]

UNKNOWN_FORMAT = gettext_noop("There is no annotation format “%(code)s”.")
OTHER_PICTURE = gettext_noop("The bytes of “%(name)s” are not those that were labelled.")
_ROOT = re.compile(rb"<(annotations?)[\s>/]")


@dataclass(frozen=True)
class Format:
    """`files(package, **options)` and `entries(archive)`: what `write` and `read` do for every format alike is here."""

    code: str
    name: str
    files: Callable[..., Files]
    entries: Callable[[Archive], Read]


FORMATS = {
    made.code: made
    for made in (
        Format("coco", "COCO JSON", coco.files, coco.entries),
        Format("yolo", "YOLO", yolo.files, yolo.entries),
        Format("voc", "Pascal VOC XML", voc.files, voc.entries),
        Format("label_studio", "Label Studio JSON", label_studio.files, label_studio.entries),
        Format("cvat", "CVAT for images 1.1", cvat.files, cvat.entries),
    )
}


def detect(archive: Archive) -> str | None:
    """The code of the format; None where there is none, or more than one: then somebody must say."""
    found: set[str] = set()
    tables = 0
    for name in archive.names():
        last = name.split("/")[-1].lower()
        if last.endswith(".xml"):
            root = _ROOT.search(archives.head(archive, name, 8192))
            found |= {{b"annotations": "cvat", b"annotation": "voc"}[root.group(1)]} if root else set()
        elif last.endswith(".json") and last != COMPANION:
            content = parsing.load_json(archive, name)
            found |= {"coco"} if coco.is_coco(content) else set()
            found |= {"label_studio"} if content and label_studio.is_tasks(content) else set()
        elif yolo.is_table(last):
            tables += 1
    if tables and not found:
        return "yolo"
    if COMPANION in {name.split("/")[-1] for name in archive.names()} and not found:
        return "voc"  # of pictures nobody looked at
    return found.pop() if len(found) == 1 else None


def read(
    archive: Archive, code: str, *, known: Mapping[str, Known] | None = None, measure: Measure | None = None
) -> Found:
    """The package in `archive`. Labels belong to pictures in it, else to `known` ones (by name or digest).

    Single pictures that cannot be taken are in `Found.refused`. Raises Refused when nothing matched or when the
    table of classes does not fit. `measure`: decodes a picture's bytes; by default in a bounded child process.
    """
    if code not in FORMATS:
        raise Refused(UNKNOWN_FORMAT, code=code)
    return collect.collect(archive, FORMATS[code].entries(archive), known=known or {}, measure=measure)


def write(
    package: Package, code: str, *, pictures: Callable[[str], bytes | Path] | None, out: Path, **options: Any
) -> None:
    """Writes a zip file at `out`. `pictures`: name -> bytes or file, asked for one after another; None: labels only.

    `options`: `first_id` (COCO), `prefix` (Label Studio). Raises Refused; `out` is then untouched.
    """
    if code not in FORMATS:
        raise Refused(UNKNOWN_FORMAT, code=code)
    model.check(package)
    files = FORMATS[code].files(package, **options)
    with archives.ZipWriter(out) as target:
        for name, data in files.texts:
            target.add(name, data, compress=True)
        for picture in package.pictures if pictures else ():
            assert pictures is not None
            digest = target.add(files.pictures[picture.name], pictures(picture.name))
            if picture.digest and picture.digest != digest:
                raise Refused(OTHER_PICTURE, name=picture.name)
