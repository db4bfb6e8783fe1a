"""Names of pictures inside packages: how they are stored without clashes, and how labels find their picture again.

Two names that differ only by case, NFC/NFD, spaces or percent-encoding are two pictures; but where only one picture can
be meant, such a difference does not part it from its labels. Nothing is ever guessed between two.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from typing import TYPE_CHECKING
from urllib.parse import unquote

from django.utils.translation import gettext_noop

from registry.lifecycle import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".mpo")

NO_PICTURE = gettext_noop("There is no such picture.")
SEVERAL_PICTURES = gettext_noop("Several pictures could be meant: %(examples)s.")


def is_picture(name: str) -> bool:
    return name.lower().endswith(PICTURE_SUFFIXES)


def stem(name: str) -> str:
    """The path without the last suffix: `b/1.png` -> `b/1`, `b/.png` -> `b/.png`."""
    head, dot, tail = name.rpartition(".")
    return head if dot and head and not head.endswith("/") and "/" not in tail else name


def folded(name: str) -> str:
    """Two files whose folded names are equal overwrite each other on some system."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def stored(names: Iterable[str], *, folder: str, by_stem: bool = False) -> dict[str, str]:
    """name -> path inside the package, all different after folding; `by_stem`: also without their suffixes.

    A name that would clash gets `-2`, `-3`, ... before its suffix. The same names always give the same paths.
    """

    def key(name: str) -> str:
        return folded(stem(name) if by_stem else name)

    ordered = sorted(names)
    claimed = {key(name) for name in ordered}
    taken: set[str] = set()
    paths: dict[str, str] = {}
    for name in ordered:
        path, n = name, 1
        if key(name) in taken:
            base = stem(name)
            while key(path) in taken or key(path) in claimed:
                n += 1
                path = f"{base}-{n}{name[len(base) :]}"
        taken.add(key(path))
        paths[name] = f"{folder}/{path}"
    return paths


# From strict to loose. Spaces are what web tools turn into `_` or `+`.
_TIERS: tuple[Callable[[str], str], ...] = (
    lambda name: name,
    lambda name: unicodedata.normalize("NFC", name),
    lambda name: unicodedata.normalize("NFC", unquote(name)),
    lambda name: folded(unquote(name)),
    lambda name: folded(unquote(name)).replace(" ", "_").replace("+", "_"),
)


# Folders that only say what is in them; a label may name them and the archive not, or the reverse.
_CONTAINERS = {
    "", ".", "images", "labels", "annotations", "jpegimages", "obj_train_data", "obj_valid_data", "data", "train",
    "val", "valid", "test", "default",
}  # fmt: skip


class Several(Refused):
    """More than one picture could be meant: `pictures`."""

    def __init__(self, pictures: list[str]) -> None:
        super().__init__(SEVERAL_PICTURES, examples=", ".join(sorted(pictures)[:5]))
        self.pictures = pictures


class Pairing:
    """Finds the picture that a label means, by its path or by the end of its path.

    `by_stem`: labels are named like pictures but for the suffix (YOLO, VOC). A label path that starts with `/` comes
    from another machine: any folders at its head may be missing here.
    """

    def __init__(self, pictures: Iterable[str], *, by_stem: bool = False) -> None:
        self._by_stem = by_stem
        self._pictures = list(pictures)
        self._tiers: dict[int, dict[str, list[str]]] = {}

    def find(self, label: str, taken: set[str]) -> str:
        """The one picture. `taken`: pictures that have their labels already. Raises Refused for none, Several."""
        for number in range(len(_TIERS)):
            found = self._candidates(number, label)
            if len(found) == 1:
                return found[0]
            free = [name for name in found if name not in taken]
            if number and len(free) == 1:
                return free[0]  # the others found their own labels by a stricter rule
            if found:
                raise Several(found)
        raise Refused(NO_PICTURE)

    def looseness(self, label: str) -> int:
        """0 for a label that names a picture letter by letter; those choose first."""
        return next((number for number in range(len(_TIERS)) if self._candidates(number, label)), len(_TIERS))

    def _candidates(self, number: int, label: str) -> list[str]:
        """Pictures with this path; else those whose path ends in it; else the same for the path without its head."""
        if number not in self._tiers:
            self._tiers[number] = self._index(_TIERS[number])
        index = self._tiers[number]
        anywhere = label.startswith("/")
        parts = _TIERS[number](label.strip("/")).split("/")
        for start in range(len(parts)):
            if start and not anywhere and parts[start - 1].lower() not in _CONTAINERS:
                break
            found = index.get("/".join(parts[start:]))
            if found:
                return _nearest(found, len(parts) - start)
        return []

    def _index(self, fold: Callable[[str], str]) -> dict[str, list[str]]:
        """Every ending of every path -> the pictures that have it."""
        index: dict[str, list[str]] = defaultdict(list)
        for name in self._pictures:
            parts = fold(stem(name) if self._by_stem else name).split("/")
            for start in range(len(parts)):
                index["/".join(parts[start:])].append(name)
        return dict(index)


def _nearest(found: list[str], depth: int) -> list[str]:
    """A picture with exactly this path is meant rather than one deeper down; container folders count as nothing."""
    if len(found) == 1:
        return found
    above = {name: name.split("/")[:-depth] for name in found}
    for level in (
        [name for name, folders in above.items() if not folders],
        [name for name, folders in above.items() if all(folder.lower() in _CONTAINERS for folder in folders)],
    ):
        if level:
            return level
    return found
