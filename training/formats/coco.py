"""COCO detection JSON: `annotations/instances.json` and `images/`.

Category id = class number - 1 + `first_id`, so ids stay when classes are added. Numbers, verdicts and whole-picture
classes stand in extra `loopline` keys. A listed picture without annotations was not looked at, unless that key says so.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_noop

from registry.lifecycle import Refused
from training.formats import names, parsing
from training.formats.collect import Entry, Files, Read, stated_verdict, table
from training.formats.model import Shape, bounds
from training.formats.paths import local

if TYPE_CHECKING:
    from training.formats.archive import Archive
    from training.formats.model import Labelled, Package, Point

FILE = "annotations/instances.json"
FIRST_IDS = (0, 1)

NO_COCO = gettext_noop("There is no COCO file: JSON with “images”, “annotations” and “categories”.")
OTHER_TABLE = gettext_noop("%(file)s has another table of categories than %(first)s.")
UNKNOWN_CATEGORY = gettext_noop("%(file)s, annotation %(id)s: category %(index)s is not one of %(allowed)s.")
UNKNOWN_IMAGE = gettext_noop("%(file)s, annotation %(id)s: there is no image %(image)s.")
IMAGE_TWICE = gettext_noop("%(file)s has two images with the id %(id)s.")
IS_A_MASK = gettext_noop("%(file)s, annotation %(id)s is a mask (RLE). Export polygons or boxes.")


def files(package: Package, *, first_id: int = 1) -> Files:
    """`first_id`: what the first category counts as, 0 or 1."""
    if first_id not in FIRST_IDS:
        raise ValueError(f"first_id is 0 or 1, not {first_id!r}")
    stored = names.stored((picture.name for picture in package.pictures), folder="images")
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for image_id, picture in enumerate(sorted(package.pictures, key=lambda p: p.name), 1):
        images.append(_image(image_id, picture, stored[picture.name]))
        for shape in picture.shapes:
            annotations.append(_annotation(len(annotations) + 1, image_id, shape, shape.number - 1 + first_id))
    content = {
        "info": {"description": "Loopline", "version": "1", "loopline": {"first_id": first_id}},
        "licenses": [],
        "images": images,
        "annotations": annotations,
        "categories": [
            {
                "id": entry.number - 1 + first_id,
                "name": entry.code,
                "supercategory": "",
                "loopline": {"number": entry.number, "name": entry.name},
            }
            for entry in package.classes
        ],
    }
    return Files(stored, [(FILE, parsing.dump_json(content))])


def _image(image_id: int, picture: Labelled, path: str) -> dict[str, Any]:
    return {
        "id": image_id,
        "file_name": path.removeprefix("images/"),
        "width": picture.width,
        "height": picture.height,
        "loopline": {
            "name": picture.name,
            "digest": picture.digest,
            "verdict": picture.verdict,
            "classes": list(picture.classes),
        },
    }


def _annotation(number: int, image_id: int, shape: Shape, category_id: int) -> dict[str, Any]:
    left, top, right, bottom = bounds(shape.points)
    polygon = shape.kind == "polygon"
    return {
        "id": number,
        "image_id": image_id,
        "category_id": category_id,
        "bbox": [left, top, right - left, bottom - top],
        "area": _area(shape.points) if polygon else (right - left) * (bottom - top),
        "segmentation": [[value for point in shape.points for value in point]] if polygon else [],
        "iscrowd": 0,
    }


def _area(points: tuple[Point, ...]) -> float:
    following = points[1:] + points[:1]
    return abs(sum(x * v - u * y for (x, y), (u, v) in zip(points, following, strict=True))) / 2


def is_coco(content: object) -> bool:
    return isinstance(content, dict) and {"images", "categories"} <= set(content)


def entries(archive: Archive) -> Read:
    """All COCO files of the archive (one a split, as some tools write); their tables of categories must agree."""
    contents = {name: parsing.load_json(archive, name) for name in archive.names() if name.endswith(".json")}
    contents = {name: content for name, content in contents.items() if is_coco(content)}
    if not contents:
        raise Refused(NO_COCO)
    found: list[Entry] = []
    first, tables = "", None
    for file, content in contents.items():
        rows = [_category(row, file) for row in parsing.dicts(content["categories"], file=file, field="categories")]
        if tables is not None and sorted(rows, key=str) != sorted(tables, key=str):
            raise Refused(OTHER_TABLE, file=file, first=first)
        if tables is None:
            first, tables = file, rows
        found += _entries(content, file, table(rows, file=file)[1])
    classes, numbers = table(tables or [], file=first)
    return Read(classes, found, {number: file_id for file_id, number in numbers.items()})


def _category(row: dict[str, Any], file: str) -> tuple[int, str, int | None, str | None]:
    own = parsing.mapping(row.get("loopline"))
    number = own.get("number")
    return (
        parsing.whole(row.get("id"), file=file, field="categories.id"),
        parsing.text(row.get("name"), file=file, field="categories.name"),
        number if isinstance(number, int) else None,
        own["name"] if isinstance(own.get("name"), str) else None,
    )


def _entries(content: dict[str, Any], file: str, numbers: dict[int, int]) -> list[Entry]:
    found: dict[int, Entry] = {}
    for row in parsing.dicts(content["images"], file=file, field="images"):
        image_id = parsing.whole(row.get("id"), file=file, field="images.id")
        if image_id in found:
            raise Refused(IMAGE_TWICE, file=file, id=image_id)
        found[image_id] = _entry(row, file, set(numbers.values()))
    shapes: dict[int, list[Shape]] = defaultdict(list)
    for row in parsing.dicts(content.get("annotations"), file=file, field="annotations"):
        image_id = parsing.whole(row.get("image_id"), file=file, field="annotations.image_id")
        if image_id not in found:
            raise Refused(UNKNOWN_IMAGE, file=file, id=str(row.get("id")), image=image_id)
        category = row.get("category_id")
        if not isinstance(category, int) or category not in numbers:
            allowed = ", ".join(str(number) for number in sorted(numbers))
            raise Refused(UNKNOWN_CATEGORY, file=file, id=str(row.get("id")), index=str(category), allowed=allowed)
        try:
            shapes[image_id] += _shapes(row, numbers[category], file)
        except Refused as refused:
            found[image_id].refused = refused
    for image_id, entry in found.items():
        entry.shapes = shapes[image_id]
        if entry.shapes or entry.classes:
            entry.verdict = "NG"
    return list(found.values())


def _entry(row: dict[str, Any], file: str, numbers: set[int]) -> Entry:
    own = parsing.mapping(row.get("loopline"))
    verdict = stated_verdict(own.get("verdict"))
    return Entry(
        file,
        local(parsing.text(row.get("file_name"), file=file, field="images.file_name")),
        name=str(own.get("name") or ""),
        width=parsing.whole(row["width"], file=file, field="images.width") if row.get("width") else None,
        height=parsing.whole(row["height"], file=file, field="images.height") if row.get("height") else None,
        digest=str(own.get("digest") or ""),
        verdict=verdict,
        classes=parsing.numbers_of(own.get("classes"), numbers) if verdict == "NG" else (),
    )


def _shapes(row: dict[str, Any], number: int, file: str) -> list[Shape]:
    """A polygon for each ring of the segmentation, else the box."""
    rings = row.get("segmentation")
    if isinstance(rings, dict) or row.get("iscrowd"):
        raise Refused(IS_A_MASK, file=file, id=str(row.get("id")))
    if rings:
        return [Shape(number, "polygon", _ring(ring, file)) for ring in parsing.items(rings)]
    left, top, width, height = _numbers(row.get("bbox"), 4, file, "bbox")
    return [Shape(number, "box", ((left, top), (left + width, top + height)))]


def _ring(ring: Any, file: str) -> tuple[Point, ...]:
    values = _numbers(ring, None, file, "segmentation")
    return tuple(zip(values[::2], values[1::2], strict=True))


def _numbers(value: Any, count: int | None, file: str, field: str) -> list[float]:
    if not isinstance(value, list) or len(value) % 2 or (count is not None and len(value) != count):
        raise Refused(parsing.WRONG_VALUE, file=file, field=field, value=str(value)[:60])
    return [parsing.number(item, file=file, field=field) for item in value]
