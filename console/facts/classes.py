"""What pages say about the classes of a defect book: keys, names then and now, usage, examples, merges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import CharField, Q
from django.db.models.functions import Cast
from django.http import Http404
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from console.facts import audit
from registry import policies
from registry.lifecycle import why_not
from registry.models import DefectClass
from training import examples, merges, usage
from training import policies as may
from training.models import ClassMerge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from console.models import User
    from registry.models import Line

DIGITS = "123456789"
MERGES_SHOWN = 5
SHEET_EXAMPLES = 3


def book(line: Line) -> list[DefectClass]:
    """All entries, retired ones too, each with the class that it was merged into."""
    return list(DefectClass.objects.filter(line=line).select_related("merged_into").order_by("number"))


def keys(entries: Iterable[DefectClass]) -> dict[int, str]:
    """Class number -> its key in the review: its own, else the next digit that no other class has."""
    standing = [entry for entry in entries if entry.retired_at is None]
    taken = {entry.hotkey for entry in standing}
    free = iter([digit for digit in DIGITS if digit not in taken])
    return {entry.number: entry.hotkey or next(free, "") for entry in standing}


def shown(entry: DefectClass) -> str:
    """Its name where retired classes stand among the others: marked as what it is."""
    if entry.merged_into is not None:
        return _("%(name)s, merged into %(into)s") % {"name": entry.name, "into": entry.merged_into.name}
    return _("%(name)s, retired") % {"name": entry.name} if entry.retired_at else entry.name


@dataclass(frozen=True)
class ClassButton:
    """One entry of the defect book as a button: its key cap, and the model's probability where it knows the class."""

    number: int
    name: str
    critical: bool
    key: str
    share: float | None = None
    on: bool = False


def buttons(line: Line) -> list[ClassButton]:
    """The line's classes as buttons for pictures that are decided together."""
    entries = book(line)
    caps = keys(entries)
    return [
        ClassButton(entry.number, entry.name, entry.critical, caps[entry.number])
        for entry in entries
        if not entry.retired_at
    ]


# ------------------------------------------------------------------------------------------------ names then and now


def name_then(entry: Mapping[str, Any]) -> str:
    """The name in a frozen class table, in the reader's language; OK stays Latin in both."""
    if entry["number"] == 0:
        return "OK"
    return str(entry["name_ko"] if (get_language() or "").startswith("ko") else entry["name_en"]) or str(entry["code"])


def then_and_now(line: Line, table: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The classes of a frozen table: `name` as frozen, `now` only where the book says something else today."""
    standing = {entry.number: shown(entry) for entry in book(line)}
    rows = []
    for entry in table:
        name = name_then(entry)
        now = standing.get(entry["number"], name)
        rows.append({**entry, "name": name, "now": now if now != name else ""})
    return rows


# ------------------------------------------------------------------------------------------------ the book of a line


def of_line(line: Line, *, counted: bool) -> list[dict[str, Any]]:
    """A row per class. `counted`: with usage, which takes a walk over an index of the line's decisions."""
    entries = book(line)
    given, pictures = keys(entries), examples_by_class(line)
    decided, drafted = (usage.decided(line), usage.drafted(line)) if counted else ({}, {})
    rows = [
        {
            "entry": entry, "key": given.get(entry.number, ""), "examples": pictures.get(entry.number, []),
            "decided": decided.get(entry.number, 0), "drafts": drafted.get(entry.number, 0),
        }
        for entry in entries
    ]  # fmt: skip
    return sorted(rows, key=lambda row: bool(row["entry"].retired_at))


def examples_by_class(line: Line) -> dict[int, list[Any]]:
    """Class number -> example captures."""
    found: dict[int, list[Any]] = {}
    for row in examples.of_line(line):
        found.setdefault(row.entry.number, []).append(row.capture)
    return found


def sheet(line: Line) -> list[dict[str, Any]]:
    """The classes that can be chosen, with key and pictures, for the sheet beside the review."""
    entries = book(line)
    given, pictures = keys(entries), examples_by_class(line)
    return [
        {"entry": entry, "key": given[entry.number], "examples": pictures.get(entry.number, [])[:SHEET_EXAMPLES]}
        for entry in entries
        if entry.number in given
    ]


# ------------------------------------------------------------------------------------------------ one class


def detail(entry: DefectClass, *, by: User) -> dict[str, Any]:
    """Everything that the page of one class says, but for its usage."""
    entries = book(entry.line)
    past = ClassMerge.objects.filter(Q(source=entry) | Q(target=entry)).annotate(key=Cast("pk", CharField()))
    return {
        "key": keys(entries).get(entry.number, ""),
        "examples": [row.capture for row in examples.of_line(entry.line).filter(entry=entry)],
        "most_examples": examples.MOST,
        "others": [other for other in entries if other.retired_at is None and other.pk != entry.pk],
        "merges": list(past.select_related("source", "target", "by", "undone_by")[:MERGES_SHOWN]),
        "events": audit.of_row(entry),
        "why_edit": why_not(policies.check_can_edit_defect_book, entry.line, by=by),
        "why_merge": why_not(may.check_can_merge, entry.line, by=by),
    }


def used(entry: DefectClass) -> dict[str, int]:
    """How often this class is used now."""
    number = entry.number
    return {
        "decided": usage.decided(entry.line).get(number, 0),
        "golden": usage.golden(entry.line).get(number, 0),
        "drafts": usage.drafted(entry.line).get(number, 0),
    }


def target(entry: DefectClass, number: str) -> DefectClass:
    """The class of the same book that this one shall be merged into; 404 for none."""
    found = DefectClass.objects.filter(line=entry.line, number=number).first() if number.isdecimal() else None
    if found is None:
        raise Http404(f"no class {number} on line {entry.line.code}")
    return found


def merging(entry: DefectClass, into: DefectClass) -> dict[str, Any]:
    """What a merge would change and what it would leave."""
    return {"entry": entry, "into": into, "preview": merges.preview(entry, into)}
