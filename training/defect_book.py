"""A line's defect classes as somebody else's labels find them: by code, whatever its case; unknown ones are added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.text import slugify

from registry import lines
from registry.models import DefectClass

if TYPE_CHECKING:
    from registry.audit import Actor
    from registry.models import Line

LONGEST_CODE = 48
LONGEST_NAME = 80


def is_ok(label: str) -> bool:
    """Other tools have a class for parts without a defect; here that is a verdict."""
    return label.strip().upper() == "OK"


class Book:
    """The line's classes by code. `added`: codes that were new."""

    def __init__(self, line: Line, *, by: Actor) -> None:
        self._line, self._by = line, by
        rows = DefectClass.objects.filter(line=line).select_related("merged_into__merged_into")
        self._entries = {entry.code.lower(): entry for entry in rows}
        self.added: list[str] = []

    def find(self, label: str) -> DefectClass | None:
        """The class that `label` means now, also through a merge; one that is retired for good is found, too."""
        entry = self._entries.get(label.strip().lower()) or self._entries.get(_code(label))
        while entry is not None and entry.merged_into is not None:
            entry = entry.merged_into
        return entry

    def number(self, label: str, name: str = "") -> int:
        """The number of the class that `label` means, added to the book as `name` when nobody knew it."""
        entry = self.find(label)
        if entry is None:
            shown = (name or label)[:LONGEST_NAME]
            entry = lines.add_class(self._line, code=_code(label), name_ko=shown, name_en=shown, by=self._by)
            self._entries[entry.code.lower()] = entry
            self.added.append(entry.code)
        return int(entry.number)


def _code(label: str) -> str:
    """`label` in the spelling of codes; a label of signs alone gets one by its characters."""
    code = slugify(label, allow_unicode=True)[:LONGEST_CODE]
    return code or "class-" + "-".join(f"{ord(char):x}" for char in label.strip()[:6])
