"""Label Studio JSON: `tasks.json`, the labelling config `config.xml`, and `images/`.

Boxes and polygons are in percent of the picture; verdict and whole-picture classes are Choices. A task without an
annotation was not looked at; an annotation without results says that there is no defect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree as Plain

from django.utils.translation import gettext_noop

from registry.lifecycle import Refused
from training.formats import names, parsing
from training.formats.collect import Entry, Files, Read, by_label, stated_verdict
from training.formats.cvat import turned
from training.formats.model import Shape
from training.formats.names import is_picture
from training.formats.paths import from_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training.formats.archive import Archive
    from training.formats.model import Labelled, Package, Point

FILE, CONFIG = "tasks.json", "config.xml"
BOX, POLYGON, VERDICT, CLASSES, IMAGE = "box", "polygon", "verdict", "classes", "image"
SERVED = "/data/local-files/?d="  # where Label Studio serves a folder that its administrator opened
_LABELS = ("rectanglelabels", "polygonlabels", "labels")

NO_TASKS = gettext_noop("There is no Label Studio file: JSON with a list of tasks that have “data”.")
NO_ADDRESS = gettext_noop("%(file)s: task %(task)s names no picture.")
OTHER_REGION = gettext_noop("%(file)s: “%(kind)s” is neither a rectangle nor a polygon with a label.")


def files(package: Package, *, prefix: str = SERVED) -> Files:
    """`prefix`: what stands before a picture's percent-encoded path in the task, so that Label Studio can show it."""
    stored = names.stored((picture.name for picture in package.pictures), folder="images")
    codes = {entry.number: entry.code for entry in package.classes}
    ordered = sorted(package.pictures, key=lambda picture: picture.name)
    tasks = [_task(place, picture, stored[picture.name], codes, prefix) for place, picture in enumerate(ordered, 1)]
    return Files(stored, [(FILE, parsing.dump_json(tasks)), (CONFIG, _config(package))])


def _config(package: Package) -> bytes:
    root = Plain.Element("View")
    Plain.SubElement(root, "Image", {"name": IMAGE, "value": f"${IMAGE}", "zoom": "true"})
    to = {"toName": IMAGE}
    for name, tag in ((BOX, "RectangleLabels"), (POLYGON, "PolygonLabels")):
        control = Plain.SubElement(root, tag, {"name": name, **to})
        for entry in package.classes:
            own = {"loopline_number": str(entry.number), "loopline_name": entry.name}
            Plain.SubElement(control, "Label", {"value": entry.code, **own})
    verdict = Plain.SubElement(root, "Choices", {"name": VERDICT, **to, "choice": "single"})
    for value in ("OK", "NG"):
        Plain.SubElement(verdict, "Choice", {"value": value})
    classes = Plain.SubElement(root, "Choices", {"name": CLASSES, **to, "choice": "multiple"})
    for entry in package.classes:
        Plain.SubElement(classes, "Choice", {"value": entry.code})
    return parsing.dump_xml(root, declared=False)  # Label Studio's own parser refuses the declaration


def _task(place: int, picture: Labelled, path: str, codes: dict[int, str], prefix: str) -> dict[str, Any]:
    own = {
        "name": picture.name,
        "path": path,
        "width": picture.width,
        "height": picture.height,
        "digest": picture.digest,
    }
    data = {IMAGE: prefix + (quote(path) if prefix else path), "loopline": own}
    if picture.verdict is None:
        return {"id": place, "data": data, "annotations": []}
    result = [_region(f"r{n}", shape, picture, codes) for n, shape in enumerate(picture.shapes, 1)]
    result.append(_choices(VERDICT, [picture.verdict]))
    if picture.classes:
        result.append(_choices(CLASSES, [codes[number] for number in picture.classes]))
    annotation = {"id": place, "result": result, "was_cancelled": False, "ground_truth": False}
    return {"id": place, "data": data, "annotations": [annotation]}


def _region(name: str, shape: Shape, picture: Labelled, codes: dict[int, str]) -> dict[str, Any]:
    percent = [(x / picture.width * 100, y / picture.height * 100) for x, y in shape.points]
    if shape.kind == "box":
        (left, top), (right, bottom) = percent
        kind, control = "rectanglelabels", BOX
        value: dict[str, Any] = {"x": left, "y": top, "width": right - left, "height": bottom - top, "rotation": 0}
    else:
        kind, control = "polygonlabels", POLYGON
        value = {"points": [list(point) for point in percent], "closed": True}
    return {
        "id": name,
        "type": kind,
        "from_name": control,
        "to_name": IMAGE,
        "original_width": picture.width,
        "original_height": picture.height,
        "image_rotation": 0,
        "value": {**value, kind: [codes[shape.number]]},
    }


def _choices(control: str, values: list[str]) -> dict[str, Any]:
    return {
        "id": control,
        "type": "choices",
        "from_name": control,
        "to_name": IMAGE,
        "value": {"choices": values},
    }


def is_tasks(content: object) -> bool:
    return isinstance(content, list) and all(isinstance(task, dict) and "data" in task for task in content)


def entries(archive: Archive) -> Read:
    contents = {name: parsing.load_json(archive, name) for name in archive.names() if name.endswith(".json")}
    tasks = [(file, task) for file, content in contents.items() if is_tasks(content) for task in content]
    if not tasks:
        raise Refused(NO_TASKS)
    listed, stated = _listed(archive)
    used = [label for _, task in tasks for result in _results(_annotation(task)) for label in _classes(result)]
    classes = by_label((*listed, *used), stated, file=CONFIG)
    numbers = {entry.code: entry.number for entry in classes}
    return Read(classes, [_entry(file, task, numbers) for file, task in tasks])


def _listed(archive: Archive) -> tuple[list[str], dict[str, tuple[int, str]]]:
    """Labels in the order of the labelling config, where there is one."""
    labels: list[str] = []
    stated: dict[str, tuple[int, str]] = {}
    for file in archive.names():
        if not file.lower().endswith(".xml"):
            continue
        root = parsing.load_xml(archive, file)
        if root.tag != "View":
            continue
        for label in root.iter("Label"):
            code = (label.get("alias") or label.get("value") or "").strip()
            labels.append(code)
            if label.get("loopline_number"):
                number = parsing.whole(label.get("loopline_number"), file=file, field="loopline_number")
                stated[code] = (number, label.get("loopline_name", code))
    return [label for label in labels if label], stated


def _annotation(task: dict[str, Any]) -> dict[str, Any] | None:
    """The one that counts: of those not skipped, the ground truth, else the one changed last."""
    found = parsing.items(task.get("annotations") or task.get("completions"))
    made = [item for item in found if isinstance(item, dict) and not item.get("was_cancelled")]
    return max(made, key=_weight, default=None)


def _weight(annotation: dict[str, Any]) -> tuple[bool, str]:
    return bool(annotation.get("ground_truth")), str(annotation.get("updated_at") or annotation.get("created_at") or "")


def _results(annotation: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    for result in parsing.items((annotation or {}).get("result")):
        if isinstance(result, dict) and isinstance(result.get("value"), dict):
            yield result


def _label(result: dict[str, Any]) -> str:
    for key in _LABELS:
        found = result["value"].get(key)
        if isinstance(found, list) and found:
            return str(found[0]).strip()
    return ""


def _choices_of(result: dict[str, Any]) -> list[str]:
    found = result["value"].get("choices")
    return [str(choice).strip() for choice in found] if isinstance(found, list) else []


def _is_verdict(result: dict[str, Any]) -> bool:
    """Our own control, or any other whose answers are OK and NG."""
    control = result.get("from_name")
    choices = _choices_of(result)
    own_classes = control == CLASSES
    return bool(choices) and (control == VERDICT or not own_classes) and {c.upper() for c in choices} <= {"OK", "NG"}


def _classes(result: dict[str, Any]) -> list[str]:
    """Labels and classes that this result names."""
    label = _label(result)
    return [label] if label else [] if _is_verdict(result) else _choices_of(result)


def _entry(file: str, task: dict[str, Any], numbers: dict[str, int]) -> Entry:
    data = parsing.mapping(task["data"])
    own = parsing.mapping(data.get("loopline"))
    address = data.get(IMAGE) or next((v for v in data.values() if isinstance(v, str) and is_picture(v)), "")
    entry = Entry(file, str(own.get("path") or from_url(str(address))), name=str(own.get("name") or ""))
    entry.digest = str(own.get("digest") or "")
    entry.relative = True
    annotation = _annotation(task)
    try:
        if not entry.path:
            raise Refused(NO_ADDRESS, file=file, task=str(task.get("id")))
        if own:
            entry.width = parsing.whole(own.get("width"), file=file, field="width")
            entry.height = parsing.whole(own.get("height"), file=file, field="height")
        if annotation is not None:
            _fill(entry, annotation, numbers)
    except Refused as refused:
        entry.refused = refused
    return entry


def _fill(entry: Entry, annotation: dict[str, Any], numbers: dict[str, int]) -> None:
    said: set[str] = set()
    classes: list[int] = []
    for result in _results(annotation):
        value = result["value"]
        if _is_verdict(result):
            said |= {choice.upper() for choice in _choices_of(result)}
        elif "choices" in value:
            classes += [numbers[choice] for choice in _choices_of(result)]
        elif _label(result):
            entry.shapes.append(_shape(entry, result, numbers))
        elif result.get("type") not in {"rectangle", "polygon", "textarea", "rating", "number", "relation"}:
            raise Refused(OTHER_REGION, file=entry.label, kind=str(result.get("type")))
    entry.classes = tuple(dict.fromkeys(classes))
    if "OK" in said:
        entry.verdict = "OK"  # with defects beside it that is a contradiction, which is refused
    else:
        entry.verdict = "NG" if said or entry.shapes or entry.classes else stated_verdict("OK")


def _shape(entry: Entry, result: dict[str, Any], numbers: dict[str, int]) -> Shape:
    """In shares of width and height."""
    value, file = result["value"], entry.label
    for side, key in (("width", "original_width"), ("height", "original_height")):
        if result.get(key):
            setattr(entry, side, parsing.whole(result[key], file=file, field=key))
    number = numbers[_label(result)]
    if isinstance(value.get("points"), list):
        corners = [_pair(point, file) for point in value["points"]]
        return Shape(number, "polygon", tuple((x / 100, y / 100) for x, y in corners))
    if not {"x", "y", "width", "height"} <= set(value):
        raise Refused(OTHER_REGION, file=file, kind=str(result.get("type")))
    left, top, width, height = (
        parsing.number(value[key], file=file, field=key) / 100 for key in ("x", "y", "width", "height")
    )
    degrees = parsing.number(value.get("rotation") or 0, file=file, field="rotation")
    if degrees % 360 == 0:
        return Shape(number, "box", ((left, top), (left + width, top + height)))
    return _turned_box(entry, number, (left, top, left + width, top + height), degrees)


def _turned_box(entry: Entry, number: int, sides: tuple[float, float, float, float], degrees: float) -> Shape:
    """Label Studio turns a rectangle about its left-top corner, in pixels; without the size that cannot be told."""
    if not entry.width or not entry.height:
        raise Refused(OTHER_REGION, file=entry.label, kind="rotation")
    w, h = entry.width, entry.height
    left, top, right, bottom = sides[0] * w, sides[1] * h, sides[2] * w, sides[3] * h
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    pixels = [turned(corner, (left, top), degrees) for corner in corners]
    return Shape(number, "polygon", tuple((x / w, y / h) for x, y in pixels))


def _pair(point: Any, file: str) -> Point:
    if not isinstance(point, list) or len(point) != 2:
        raise Refused(parsing.WRONG_VALUE, file=file, field="points", value=str(point)[:60])
    return parsing.number(point[0], file=file, field="points"), parsing.number(point[1], file=file, field="points")
