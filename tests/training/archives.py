"""Archives for the tests of imports and exports: made, sent, imported, and what a line knows afterwards."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from registry import blobs, lines
from registry.models import DefectClass, Line
from tests.registry.plant import person
from tests.training.plant import SET_UP
from training import captures, transfer_runner, transfers
from training.models import Capture, Transfer

if TYPE_CHECKING:
    from console.models import User
    from tests.training.plant import Plant

BOX = {"number": 1, "kind": "box", "points": [[2.0, 3.0], [10.5, 12.25]]}
POLYGON = {"number": 2, "kind": "polygon", "points": [[1.0, 1.0], [20.0, 2.5], [12.0, 14.0]]}
WORKER = "worker:test"


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        for name, data in files.items():
            target.writestr(name, data)
    return out.getvalue()


def received(line: Line, by: User, data: bytes, name: str = "archive.zip") -> Transfer:
    incoming = blobs.Incoming()
    try:
        incoming.write(data)
        row = transfers.receive(line, incoming, file_name=name, by=by)
    finally:
        incoming.discard()
    transfer_runner.look(row.pk)
    row.refresh_from_db()
    return row


def imported(line: Line, by: User, data: bytes, *, code: str = "") -> Transfer:
    row = received(line, by, data)
    if code:
        transfers.look_as(row, code=code, by=by)
        transfer_runner.look(row.pk)
    transfers.confirm(row, by=by)
    return ran(row)


def exported(line: Line, by: User, code: str, **options: Any) -> bytes:
    selection = {name: options.pop(name) for name in ("show", "lot", "product") if name in options}
    asked = {"selection": urlencode({"show": "decided"} | selection), **options}
    row = ran(transfers.ask_export(line, code=code, options=asked, by=by))
    assert row.state == Transfer.State.DONE, row.failure
    return blobs.read(row.digest)


def ran(row: Transfer) -> Transfer:
    transfer_runner.run(row.pk, worker=WORKER)
    row.refresh_from_db()
    return row


def other_line(code: str = "el-9") -> tuple[Line, User]:
    line = lines.create_line(Line.objects.first().site, code=code, name=code.upper(), by=SET_UP)  # type: ignore[union-attr]
    return line, person(f"engineer-{code}", line, "engineer")


def said(line: Line) -> dict[str, Any]:
    """digest -> verdict, class codes with the main one first, regions with codes: what a line knows."""
    codes = dict(DefectClass.objects.filter(line=line).values_list("number", "code"))
    found = {}
    for row in Capture.objects.filter(line=line).select_related("decision"):
        decision = row.decision
        found[row.digest] = decision and (
            decision.verdict,
            [codes[number] for number in decision.classes],
            [(codes[r["number"]], r["kind"], r["points"]) for r in decision.regions],
        )
    return found


def annotated(plant: Plant) -> None:
    """Boxes, polygons, classes without a shape, OK, and one that nobody decided; names that differ by little."""
    lines.add_class(plant.line, code="스크래치", name_ko="스크래치", name_en="scratch", by=SET_UP)
    by = plant.haneul
    for name, verdict, classes, regions in (
        ("불량_스크래치_001.png", "NG", [], [BOX, POLYGON]),
        ("a/1.png", "NG", [2, 1], [BOX]),  # main class has no shape
        ("b/1.png", "OK", [], []),
        ("b/1.PNG", "NG", [1, 2], [BOX]),  # main class is drawn, the other is not
        ("x %20 y.png", "NG", [1], []),
        ("", "OK", [], []),
    ):
        row = plant.capture(file_name=name)
        captures.decide(row, verdict=verdict, classes=classes, regions=regions, by=by)
    plant.capture(file_name="open.png")


def yolo(labels: dict[str, str], pictures: dict[str, bytes], names: str = "[crack, burr, scratch]") -> bytes:
    files = {"data.yaml": f"names: {names}\n".encode()} | {f"images/{n}.png": data for n, data in pictures.items()}
    return zipped(files | {f"labels/{n}.txt": text.encode() for n, text in labels.items()})
