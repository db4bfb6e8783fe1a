"""Small pictures, packages of them, and the one way in which these tests write and read back."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from edge.pictures import inspect
from training import formats
from training.formats import ClassEntry, Found, Labelled, Package, Shape

CLASSES = (ClassEntry(1, "crack", "균열"), ClassEntry(2, "burr", "버"), ClassEntry(4, "0", "zero"))


def png(width: int, height: int, colour: int = 0) -> bytes:
    out = io.BytesIO()
    Image.new("L", (width, height), colour).save(out, "PNG")
    return out.getvalue()


def labelled(name: str, size: tuple[int, int] = (40, 20), **said: Any) -> tuple[Labelled, bytes]:
    """A picture whose bytes are its own, and those bytes."""
    data = png(*size) + name.encode()  # decoders stop at the end of the picture
    return Labelled(name, *size, hashlib.sha256(data).hexdigest(), **said), data


def box(number: int, *sides: float) -> Shape:
    left, top, right, bottom = sides
    return Shape(number, "box", ((left, top), (right, bottom)))


def canonical(package: Package) -> tuple[Any, ...]:
    return (
        sorted(package.classes, key=lambda entry: entry.number),
        sorted(package.pictures, key=lambda picture: picture.name),
    )


def same(found: Package, wanted: Package) -> None:
    """Equal; coordinates to a millionth of a pixel."""
    classes, pictures = canonical(found)
    wanted_classes, wanted_pictures = canonical(wanted)
    assert classes == wanted_classes
    assert [picture.name for picture in pictures] == [picture.name for picture in wanted_pictures]
    for one, other in zip(pictures, wanted_pictures, strict=True):
        assert (one.width, one.height, one.digest) == (other.width, other.height, other.digest)
        assert (one.name, one.verdict, one.classes) == (other.name, other.verdict, other.classes)
        assert [(s.number, s.kind) for s in one.shapes] == [(s.number, s.kind) for s in other.shapes], one.name
        for shape, wanted_shape in zip(one.shapes, other.shapes, strict=True):
            for point, wanted_point in zip(shape.points, wanted_shape.points, strict=True):
                assert point == pytest.approx(wanted_point, abs=1e-6)


def read(path: Path, code: str, **how: Any) -> Found:
    with formats.opened(path) as archive:
        assert formats.detect(archive) == code
        return formats.read(archive, code, measure=inspect, **how)


def written(out: Path, code: str, pictures: list[tuple[Labelled, bytes]], **options: Any) -> Package:
    package = Package(options.pop("classes", CLASSES), tuple(picture for picture, _ in pictures))
    data = {picture.name: content for picture, content in pictures}
    formats.write(package, code, pictures=data.__getitem__, out=out, **options)
    return package


@pytest.fixture
def foreign(tmp_path: Path) -> Callable[[dict[str, bytes | str]], Path]:
    """A folder with these files, as another tool may have left it."""

    def make(files: dict[str, bytes | str]) -> Path:
        root = tmp_path / "foreign"
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return root

    return make


def unpacked(archive: Path, into: Path) -> Path:
    with zipfile.ZipFile(archive) as source:
        source.extractall(into)
    return into
