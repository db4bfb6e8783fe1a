"""`loopline.json`: what YOLO and VOC have no place for, in one small file that other tools pass over.

It is believed only where it agrees with the label files beside it, which people may have changed since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training.formats import parsing
from training.formats.collect import Entry, distinct, stated_verdict
from training.formats.model import ClassEntry, Verdict

if TYPE_CHECKING:
    from training.formats.archive import Archive
    from training.formats.model import Labelled, Package

FILE = "loopline.json"


def content(package: Package, stored: dict[str, str]) -> bytes:
    return parsing.dump_json(
        {
            "loopline": 1,
            "classes": [{"number": c.number, "code": c.code, "name": c.name} for c in package.classes],
            "pictures": {stored[picture.name]: _said(picture) for picture in package.pictures},
        }
    )


def _said(picture: Labelled) -> dict[str, Any]:
    return {
        "name": picture.name,
        "width": picture.width,
        "height": picture.height,
        "digest": picture.digest,
        "verdict": picture.verdict,
        "classes": list(picture.classes),
        "kinds": [shape.kind for shape in picture.shapes],
    }


@dataclass(frozen=True)
class Said:
    """What the companion says of one picture."""

    folder: str  # of the companion, with a slash at its end, or ""
    stored: str  # path of the picture below it
    name: str
    width: int
    height: int
    digest: str
    verdict: Verdict | None
    classes: tuple[int, ...]
    kinds: tuple[str, ...]

    @property
    def path(self) -> str:
        return self.folder + self.stored

    def entry(self, label: str) -> Entry:
        """Without the label file's part: verdict None and no shapes."""
        return Entry(label, self.path, self.name, self.width, self.height, self.digest)


@dataclass(frozen=True)
class Companion:
    """`pictures`: by path in the archive."""

    classes: tuple[ClassEntry, ...]
    pictures: dict[str, Said]


def load(archive: Archive) -> Companion:
    """What the companion says; nothing where there is none. Raises Refused for one that cannot be read."""
    files = [name for name in archive.names() if name.split("/")[-1] == FILE]
    if not files:
        return Companion((), {})
    file = min(files, key=lambda name: (name.count("/"), name))
    folder = file[: -len(FILE)]
    root = parsing.mapping(parsing.load_json(archive, file))
    classes = tuple(
        ClassEntry(
            parsing.whole(row.get("number"), file=file, field="number"),
            parsing.text(row.get("code"), file=file, field="code"),
            parsing.text(row.get("name"), file=file, field="name"),
        )
        for row in parsing.dicts(root.get("classes"), file=file, field="classes")
    )
    distinct([entry.number for entry in classes], file=file)
    numbers = {entry.number for entry in classes}
    pictures: dict[str, Said] = {}
    for path, said in parsing.mapping(root.get("pictures")).items():
        row = parsing.mapping(said)
        pictures[folder + path] = Said(
            folder,
            path,
            parsing.text(row.get("name"), file=file, field="name"),
            parsing.whole(row.get("width"), file=file, field="width"),
            parsing.whole(row.get("height"), file=file, field="height"),
            parsing.text(row.get("digest", ""), file=file, field="digest"),
            stated_verdict(row.get("verdict")),
            parsing.numbers_of(row.get("classes"), numbers),
            tuple(str(kind) for kind in parsing.items(row.get("kinds"))),
        )
    return Companion(classes, pictures)


def settle(entry: Entry, said: Said | None, *, has_file: bool) -> Entry:
    """Sets the verdict: shapes are NG, an empty label file is OK, none at all is nobody's word.

    NG without a shape cannot be told by label files: the companion's word counts as long as nobody wrote one.
    """
    stays = said is not None and said.verdict == "NG"
    if entry.shapes or (stays and not has_file):
        entry.verdict = "NG"
    else:
        entry.verdict = "OK" if has_file else None
    if said is not None and entry.verdict == "NG":
        entry.classes = said.classes
    return entry
