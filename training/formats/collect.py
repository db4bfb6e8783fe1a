"""From what label files say to a package: pairs with pictures, checks sizes and bytes, keeps what fits.

One picture that cannot be taken does not stop the rest; labels that all miss their pictures do.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_noop

from edge.pictures import PictureInfo, PictureRefused
from registry.lifecycle import Refused
from training import pictures as checks
from training.formats import archive as archives
from training.formats.model import (
    BAD_NAME,
    NAME_TWICE,
    ClassEntry,
    Found,
    Known,
    Labelled,
    Package,
    Point,
    Shape,
    Verdict,
    check_picture,
    is_name,
)
from training.formats.names import NO_PICTURE, Pairing, Several, is_picture

if TYPE_CHECKING:
    from collections.abc import Iterable

    from training.formats.archive import Archive

Measure = Callable[[bytes], PictureInfo]

NOTHING_MATCHED = gettext_noop("None of the %(count)s labels belongs to a picture here, for example %(examples)s.")
NO_LABELS = gettext_noop("There are neither labels nor pictures.")
LABELLED_TWICE = gettext_noop("Its picture %(picture)s has labels already.")
OTHER_SIZE = gettext_noop(
    "The labels are for %(width)s × %(height)s pixels, the picture shows %(shown_width)s × %(shown_height)s."
)
OTHER_BYTES = gettext_noop("The file is not the one that was labelled: its bytes differ.")
CLASS_ID = gettext_noop("%(file)s: the class id “%(id)s” is not a whole number in range, or is there twice.")
PICTURE_BYTES = 512 << 20
SLACK_PX = 1.0  # other tools round; a shape this far outside is moved to the border


@dataclass
class Entry:
    """What one label file, or one place in it, says of one picture.

    `path`: of the picture, as the file names it; `by_stem`: but for its suffix. `name`: the one it had when Loopline
    wrote the package. `relative`: coordinates are shares of width and height. `refused`: why it cannot be taken.
    """

    label: str
    path: str
    name: str = ""
    width: int | None = None
    height: int | None = None
    digest: str = ""
    verdict: Verdict | None = None
    classes: tuple[int, ...] = ()
    shapes: list[Shape] = field(default_factory=list)
    relative: bool = False
    by_stem: bool = False
    refused: Refused | None = None


@dataclass
class Read:
    """What a format's reader found before any picture was looked at."""

    classes: tuple[ClassEntry, ...]
    entries: list[Entry]
    file_ids: dict[int, int] = field(default_factory=dict)


@dataclass
class Files:
    """What a format's writer makes: where each picture goes, and the label files."""

    pictures: dict[str, str]
    texts: Iterable[tuple[str, bytes]]


def stated_verdict(value: object) -> Verdict | None:
    if value == "OK":
        return "OK"
    return "NG" if value == "NG" else None


def table(
    found: Iterable[tuple[int, str, int | None, str | None]], *, file: str
) -> tuple[tuple[ClassEntry, ...], dict[int, int]]:
    """Classes, and the file's id -> number, from (id, label, stated number, stated name).

    Without stated numbers the file's ids are the numbers; all are raised by one where the file counts from 0, because
    0 is OK. They are never sorted anew. Classes that others added to a file of ours are numbered on the same way.
    """
    rows = list(found)
    ids = [row[0] for row in rows]
    distinct(ids, file=file, least=0)
    stated = {n: number for n, _, number, _ in rows if number is not None and number > 0}
    steps = {number - n for n, number in stated.items()}
    step = steps.pop() if len(steps) == 1 else 0
    if 0 in ids and step < 1:
        step = 1
    whole = len(set(stated.values())) == len(rows)
    numbers = stated if whole else {n: n + step for n in ids}
    distinct(list(numbers.values()), file=file)
    return tuple(ClassEntry(numbers[n], label, label if name is None else name) for n, label, _, name in rows), numbers


def by_label(labels: Iterable[str], stated: Mapping[str, tuple[int, str]], *, file: str) -> tuple[ClassEntry, ...]:
    """Classes of a file that knows labels only: with stated number and name, else numbered on in their order."""
    distinct([number for number, _ in stated.values()], file=file)
    last = max((number for number, _ in stated.values()), default=0)
    made: list[ClassEntry] = []
    for label in dict.fromkeys(labels):
        if label not in stated:
            last += 1
        number, name = stated.get(label, (last, label))
        made.append(ClassEntry(number, label, name))
    return tuple(made)


def distinct(numbers: list[int], *, file: str, least: int = 1) -> None:
    """Raises Refused for a class number, or a file's own id, that cannot be or is there twice."""
    for number, times in Counter(numbers).items():
        if number < least or times > 1:
            raise Refused(CLASS_ID, file=file, id=number)


def collect(archive: Archive, read: Read, *, known: Mapping[str, Known], measure: Measure | None) -> Found:
    """The package; labels go to pictures in the archive, else to `known` ones. Raises Refused when none fits."""
    return _Collector(archive, read, known, measure or checks.check_bytes).found()


def pair(archive: Archive, read: Read, *, known: Mapping[str, Known]) -> Found:
    """What `collect` would pair, without reading a picture: sizes and bytes are taken as the labels state them."""
    return _Pairer(archive, read, known, checks.check_bytes).found()


class _Finder:
    """Pairs by whole name or by stem, as the entry says; the other way where that finds nothing."""

    def __init__(self, pictures: Iterable[str]) -> None:
        pictures = list(pictures)
        self._whole, self._stems = Pairing(pictures), Pairing(pictures, by_stem=True)

    def _ways(self, entry: Entry) -> list[Pairing]:
        if entry.by_stem:
            return [self._stems, self._whole]
        return [self._whole] if is_picture(entry.path) else [self._whole, self._stems]

    def looseness(self, entry: Entry) -> tuple[int, ...]:
        return tuple(way.looseness(entry.path) for way in self._ways(entry))

    def find(self, entry: Entry, taken: set[str]) -> str:
        for way in self._ways(entry):
            try:
                return way.find(entry.path, taken)
            except Several:
                raise
            except Refused:
                continue
        raise Refused(NO_PICTURE)

    def find_name(self, name: str, taken: set[str]) -> str:
        return self._whole.find(name, taken)


class _Collector:
    def __init__(self, archive: Archive, read: Read, known: Mapping[str, Known], measure: Measure) -> None:
        self._archive, self._read, self._known, self._measure = archive, read, known, measure
        self._here = [name for name in archive.names() if is_picture(name)]
        self._find_here, self._find_known = _Finder(self._here), _Finder(known)
        self._digests = {picture.digest: name for name, picture in known.items() if picture.digest}
        self._taken: set[str] = set()  # pictures in the archive that a label means, taken or refused
        self._taken_known: set[str] = set()
        self._names: set[str] = set()
        self._pictures: list[Labelled] = []
        self._refused: list[dict[str, Any]] = []
        self._matched = 0

    def found(self) -> Found:
        entries = self._read.entries
        if not entries and not self._here:
            raise Refused(NO_LABELS)
        for entry in sorted(entries, key=self._find_here.looseness):
            self._guarded(entry.path or entry.label, lambda entry=entry: self._entry(entry))  # type: ignore[misc]
        if entries and not self._matched:
            examples = ", ".join(sorted(entry.path for entry in entries)[:5])
            raise Refused(NOTHING_MATCHED, count=len(entries), examples=examples)
        for name in self._here:
            if name not in self._taken:
                self._guarded(name, lambda name=name: self._add(self._shown(name, Entry(name, name)), name))  # type: ignore[misc]
        package = Package(self._read.classes, tuple(self._pictures))
        return Found(package, self._refused, self._matched, self._read.file_ids)

    def _guarded(self, name: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Several as several:
            self._taken |= set(several.pictures)
            self._refused.append({"name": name, **several.as_json()})
        except PictureRefused as refused:
            self._refused.append({"name": name, **checks.stored_sentence(refused)})
        except Refused as refused:
            self._refused.append({"name": name, **refused.as_json()})

    def _entry(self, entry: Entry) -> None:
        if not entry.path:
            raise entry.refused or Refused(NO_PICTURE)
        try:
            picture = self._find_here.find(entry, self._taken)
        except Several:
            raise
        except Refused:
            if not self._known:
                raise
            self._known_entry(entry)
            return
        if picture in self._taken:
            raise Refused(LABELLED_TWICE, picture=picture)
        self._taken.add(picture)
        self._matched += 1
        if entry.refused:
            raise entry.refused
        self._add(self._shown(picture, entry), entry.name or picture)

    def _known_entry(self, entry: Entry) -> None:
        name = self._known_name(entry)
        if name in self._taken_known:
            raise Refused(LABELLED_TWICE, picture=name)
        self._taken_known.add(name)
        self._matched += 1
        if entry.refused:
            raise entry.refused
        self._add(_labelled(name, self._known[name], entry), name)

    def _known_name(self, entry: Entry) -> str:
        """By its name where that is the same picture, else by its bytes, else by what the label file calls it."""
        same = self._known.get(entry.name)
        if same and (not entry.digest or entry.digest == same.digest):
            return entry.name
        if entry.digest in self._digests:
            return self._digests[entry.digest]
        if entry.name:
            return self._find_known.find_name(entry.name, self._taken_known)
        return self._find_known.find(entry, self._taken_known)

    def _shown(self, picture: str, entry: Entry) -> Labelled:
        data = archives.read(self._archive, picture, PICTURE_BYTES)
        info = self._measure(data)
        shown = Known(info.width, info.height, hashlib.sha256(data).hexdigest())
        return _labelled(entry.name or picture, shown, entry)

    def _add(self, picture: Labelled, name: str) -> None:
        if name in self._names or not is_name(name) or not is_picture(name):
            raise Refused(NAME_TWICE if name in self._names else BAD_NAME, name=name)
        self._names.add(name)
        self._pictures.append(picture)


class _Pairer(_Collector):
    def _shown(self, picture: str, entry: Entry) -> Labelled:
        width, height = entry.width or 1, entry.height or 1
        return Labelled(
            entry.name or picture, width, height, entry.digest, entry.verdict, entry.classes, tuple(entry.shapes)
        )


def _labelled(name: str, shown: Known, entry: Entry) -> Labelled:
    """Raises Refused where the labels are of another picture or say what cannot be."""
    if entry.digest and shown.digest and entry.digest != shown.digest:
        raise Refused(OTHER_BYTES)
    stated = (entry.width or shown.width, entry.height or shown.height)
    if stated != (shown.width, shown.height):
        raise Refused(
            OTHER_SIZE,
            width=stated[0],
            height=stated[1],
            shown_width=shown.width,
            shown_height=shown.height,
        )
    scale = (shown.width, shown.height) if entry.relative else (1, 1)
    shapes = tuple(
        Shape(shape.number, shape.kind, tuple(_inside((x * scale[0], y * scale[1]), shown) for x, y in shape.points))
        for shape in entry.shapes
    )
    picture = Labelled(
        name, shown.width, shown.height, shown.digest or entry.digest, entry.verdict, entry.classes, shapes
    )
    check_picture(picture)
    return picture


def _inside(point: Point, shown: Known) -> Point:
    return _near(point[0], shown.width), _near(point[1], shown.height)


def _near(value: float, end: int) -> float:
    if -SLACK_PX <= value < 0:
        return 0.0
    return float(end) if end < value <= end + SLACK_PX else value
