"""CVAT for images 1.1: `annotations.xml` and `images/`; boxes, polygons, tags.

Whole-picture classes are tags, and so are the verdicts OK and NG, because CVAT keeps tags when people work on; what it
has no place for stands in attributes and elements of our own. Nothing at all on a picture: nobody looked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.etree import ElementTree as Plain

from django.utils.translation import gettext_noop

from registry.lifecycle import Refused
from training.formats import names, parsing
from training.formats.collect import Entry, Files, Read, by_label, stated_verdict
from training.formats.model import Shape, Verdict
from training.formats.paths import local
from training.formats.voc import points

if TYPE_CHECKING:
    from training.formats.archive import Archive
    from training.formats.model import Labelled, Package, Point

FILE = "annotations.xml"

NO_CVAT = gettext_noop("There is no CVAT file: XML with “annotations” as its root.")
OTHER_KIND = gettext_noop("%(file)s: “%(kind)s” is neither a box nor a polygon nor a tag.")


def files(package: Package) -> Files:
    stored = names.stored((picture.name for picture in package.pictures), folder="images")
    codes = {entry.number: entry.code for entry in package.classes}
    tags = _verdict_tags(set(codes.values()))
    root = Plain.Element("annotations")
    Plain.SubElement(root, "version").text = "1.1"
    task = Plain.SubElement(Plain.SubElement(root, "meta"), "task")
    for name, value in (("name", "Loopline"), ("size", str(len(package.pictures))), ("mode", "annotation")):
        Plain.SubElement(task, name).text = value
    labels = Plain.SubElement(task, "labels")
    for entry in package.classes:
        label = _label(labels, entry.code)
        Plain.SubElement(label, "loopline", {"number": str(entry.number), "name": entry.name})
    for verdict, tag in tags.items():
        Plain.SubElement(_label(labels, tag), "loopline", {"verdict": verdict})
    for place, picture in enumerate(sorted(package.pictures, key=lambda p: p.name)):
        _image(root, place, picture, stored[picture.name], codes, tags)
    return Files(stored, [(FILE, parsing.dump_xml(root))])


def _label(labels: Plain.Element, code: str) -> Plain.Element:
    label = Plain.SubElement(labels, "label")
    Plain.SubElement(label, "name").text = code
    Plain.SubElement(label, "type").text = "any"
    Plain.SubElement(label, "attributes")
    return label


def _verdict_tags(codes: set[str]) -> dict[Verdict, str]:
    """The tags that say OK and NG: those words, unless the defect book has a class of that code."""
    taken = {code.casefold() for code in codes}
    tags: dict[Verdict, str] = {}
    for verdict in ("OK", "NG"):
        tag: str = verdict
        while tag.casefold() in taken:
            tag = f"verdict-{tag}"
        tags[stated_verdict(verdict) or "NG"] = tag
    return tags


def _image(
    root: Plain.Element, place: int, picture: Labelled, path: str, codes: dict[int, str], tags: dict[Verdict, str]
) -> None:
    image = Plain.SubElement(
        root,
        "image",
        {
            "id": str(place),
            "name": path.removeprefix("images/"),
            "width": str(picture.width),
            "height": str(picture.height),
            "loopline_name": picture.name,
            "loopline_digest": picture.digest,
        },
    )
    for shape in picture.shapes:
        common = {"label": codes[shape.number], "source": "manual", "occluded": "0", "z_order": "0"}
        if shape.kind == "box":
            (left, top), (right, bottom) = shape.points
            sides = {"xtl": repr(left), "ytl": repr(top), "xbr": repr(right), "ybr": repr(bottom)}
            Plain.SubElement(image, "box", common | sides)
        else:
            corners = ";".join(f"{x!r},{y!r}" for x, y in shape.points)
            Plain.SubElement(image, "polygon", common | {"points": corners})
    for number in picture.classes:
        Plain.SubElement(image, "tag", {"label": codes[number], "source": "manual"})
    if picture.verdict and not picture.shapes and not picture.classes:
        Plain.SubElement(image, "tag", {"label": tags[picture.verdict], "source": "manual"})


def entries(archive: Archive) -> Read:
    found: list[tuple[str, Plain.Element]] = []
    for file in archive.names():
        if file.lower().endswith(".xml"):
            root = parsing.load_xml(archive, file)
            if root.tag == "annotations":
                found.append((file, root))
    if not found:
        raise Refused(NO_CVAT)
    labels, stated, verdicts = _labels(found)
    classes = by_label(labels, stated, file=found[0][0])
    numbers = {entry.code: entry.number for entry in classes}
    read = [_entry(file, image, numbers, verdicts) for file, root in found for image in root.iter("image")]
    return Read(classes, read)


def _labels(found: list[tuple[str, Plain.Element]]) -> tuple[list[str], dict[str, tuple[int, str]], dict[str, Verdict]]:
    """Labels in the order of the file's table, then of use; number and name where stated; tags that are verdicts."""
    labels: list[str] = []
    stated: dict[str, tuple[int, str]] = {}
    verdicts: dict[str, Verdict] = {}
    used: list[str] = []
    for file, root in found:
        for label in root.iterfind("meta//labels/label"):
            code = (label.findtext("name") or "").strip()
            labels.append(code)
            own = label.find("loopline")
            if own is not None and (verdict := stated_verdict(own.get("verdict"))):
                verdicts[code] = verdict
            elif own is not None:
                stated[code] = (parsing.whole(own.get("number"), file=file, field="number"), own.get("name", code))
        for image in root.iter("image"):
            used += [shape.get("label", "").strip() for shape in image if shape.get("label")]
    if not verdicts:  # CVAT drops our elements and keeps the tags
        drawn = {
            shape.get("label", "").strip()
            for _, root in found
            for image in root.iter("image")
            for shape in image
            if shape.tag != "tag"
        }
        for code in (*labels, *used):
            word = code.casefold().removeprefix("verdict-").upper()
            if code not in drawn and (verdict := stated_verdict(word)):
                verdicts[code] = verdict
    return [code for code in (*labels, *used) if code and code not in verdicts], stated, verdicts


def _entry(file: str, image: Plain.Element, numbers: dict[str, int], verdicts: dict[str, Verdict]) -> Entry:
    entry = Entry(file, local(image.get("name", "")), name=image.get("loopline_name", ""))
    entry.digest = image.get("loopline_digest", "")
    try:
        entry.width = parsing.whole(image.get("width"), file=file, field="width")
        entry.height = parsing.whole(image.get("height"), file=file, field="height")
        tags = [tag.get("label", "").strip() for tag in image.iterfind("tag")]
        entry.classes = tuple(dict.fromkeys(numbers[tag] for tag in tags if tag in numbers))
        entry.shapes = [_shape(shape, file, numbers) for shape in image if shape.tag not in {"tag", "loopline"}]
        said = {verdicts[tag] for tag in tags if tag in verdicts}
        if "OK" in said:
            entry.verdict = "OK"  # with defects beside it that is a contradiction, which is refused
        elif said or entry.shapes or entry.classes:
            entry.verdict = "NG"
    except Refused as refused:
        entry.refused = refused
    return entry


def _shape(shape: Plain.Element, file: str, numbers: dict[str, int]) -> Shape:
    number = numbers.get(shape.get("label", "").strip())
    if number is None or shape.tag not in {"box", "polygon"}:
        raise Refused(OTHER_KIND, file=file, kind=shape.tag)
    if shape.tag == "polygon":
        return Shape(number, "polygon", points(shape.get("points", ""), file, pair=";", value=","))
    left, top, right, bottom = (
        parsing.number(shape.get(side), file=file, field=side) for side in ("xtl", "ytl", "xbr", "ybr")
    )
    degrees = parsing.number(shape.get("rotation", "0"), file=file, field="rotation")
    if degrees % 360 == 0:
        return Shape(number, "box", ((left, top), (right, bottom)))
    middle = ((left + right) / 2, (top + bottom) / 2)
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    return Shape(number, "polygon", tuple(turned(corner, middle, degrees) for corner in corners))


def turned(point: Point, about: Point, degrees: float) -> Point:
    """Clockwise on the screen, where y points down."""
    angle = math.radians(degrees)
    x, y = point[0] - about[0], point[1] - about[1]
    return (
        about[0] + x * math.cos(angle) - y * math.sin(angle),
        about[1] + x * math.sin(angle) + y * math.cos(angle),
    )
