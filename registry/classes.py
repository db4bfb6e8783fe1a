"""The entries of a defect book: their names, keys and weight, retiring and restoring, and what a number means now.

Number and code are fixed for ever. A class that was merged into another one means that other one from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connection, transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from registry import audit, events, policies
from registry.lifecycle import Refused
from registry.models import DefectClass, Line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from registry.audit import Actor

OWN_KEYS = frozenset("abceglnoprsvw")  # letters that the review's own acts have
LONGEST_NAME = 80

KEY_INVALID = gettext_noop("The key of a class is one digit from 1 to 9 or one Latin letter.")
KEY_OWN = gettext_noop("The review itself uses the key %(key)s. Choose another one.")
KEY_TAKEN = gettext_noop("Class %(name)s has the key %(key)s. Give it another key first, or choose another one here.")
NAME_MISSING = gettext_noop("A class needs a Korean and an English name.")
NAME_TOO_LONG = gettext_noop("A name has at most %(most)s characters.")
RETIRED = gettext_noop("Class %(name)s is retired already.")
NOT_RETIRED = gettext_noop("Class %(name)s is not retired.")
MERGED = gettext_noop("Class %(name)s was merged into %(into)s. Undo the merge to get it back.")

# A share lock on the key: many who decide hold it at once, and a merge waits for all of them.
HOLD = """
    SELECT number FROM registry_defectclass
    WHERE line_id = %s AND number = ANY(%s) AND retired_at IS NULL ORDER BY id FOR KEY SHARE
"""


# ------------------------------------------------------------------------------------------------ what numbers mean


def meanings(line: Line) -> dict[int, int]:
    """Every number that can still be chosen -> the number that it means: itself, or what it was merged into."""
    entries = {entry.pk: entry for entry in DefectClass.objects.filter(line=line)}
    found: dict[int, int] = {}
    for entry in entries.values():
        end = entry
        while end.merged_into_id is not None:
            end = entries[end.merged_into_id]
        if end.retired_at is None:
            found[entry.number] = end.number
    return found


def hold(line: Line, numbers: Iterable[int]) -> set[int]:
    """Keep these classes from being merged until the transaction ends; returns those that can still be chosen."""
    with connection.cursor() as cursor:
        cursor.execute(HOLD, [line.pk, list(numbers)])
        return {row[0] for row in cursor.fetchall()}


# ------------------------------------------------------------------------------------------------ changing entries


def checked_key(line: Line, key: str, *, but: DefectClass | None = None) -> str:
    """`key` in the one spelling of hotkeys. Refused when the review or another class has it; "" is no key."""
    wanted = key.strip().lower()
    if not wanted:
        return ""
    if len(wanted) != 1 or wanted not in "123456789abcdefghijklmnopqrstuvwxyz":
        raise Refused(KEY_INVALID)
    if wanted in OWN_KEYS:
        raise Refused(KEY_OWN, key=wanted.upper())
    others = DefectClass.objects.filter(line=line, hotkey=wanted, retired_at=None)
    if holder := (others.exclude(pk=but.pk) if but else others).first():
        raise Refused(KEY_TAKEN, name=holder.name, key=wanted.upper())
    return wanted


def change(entry: DefectClass, *, name_ko: str, name_en: str, hotkey: str, critical: bool, by: Actor) -> DefectClass:
    """Rename a class, give it another key, make it critical or not. What was frozen with its former name keeps that."""
    policies.check_can_edit_defect_book(entry.line, by=by)
    names = {"name_ko": name_ko.strip(), "name_en": name_en.strip()}
    if not all(names.values()):
        raise Refused(NAME_MISSING)
    if max(map(len, names.values())) > LONGEST_NAME:
        raise Refused(NAME_TOO_LONG, most=LONGEST_NAME)
    with transaction.atomic():
        row = _locked(entry)
        wanted: dict[str, Any] = {**names, "hotkey": checked_key(row.line, hotkey, but=row), "critical": critical}
        _write(row, "defectclass.change", by, **wanted)
    entry.refresh_from_db()
    return entry


def retire(entry: DefectClass, *, reason: str, by: Actor) -> None:
    """The class can no longer be chosen. What was decided with it stays, and can be found."""
    policies.check_can_edit_defect_book(entry.line, by=by)
    policies.check_reason(reason)
    with transaction.atomic():
        row = _locked(entry)
        if row.retired_at is not None:
            raise Refused(RETIRED, name=row.name)
        _write(row, "defectclass.retire", by, reason=reason, retired_at=timezone.now())
    entry.refresh_from_db()


def restore(entry: DefectClass, *, reason: str, by: Actor) -> None:
    """The class can be chosen again; its key only if no other class has taken it meanwhile."""
    policies.check_can_edit_defect_book(entry.line, by=by)
    policies.check_reason(reason)
    with transaction.atomic():
        row = _locked(entry)
        if row.merged_into is not None:
            raise Refused(MERGED, name=row.name, into=row.merged_into.name)
        if row.retired_at is None:
            raise Refused(NOT_RETIRED, name=row.name)
        _write(row, "defectclass.restore", by, reason=reason, retired_at=None, hotkey=_free_key(row))
    entry.refresh_from_db()


def merge_into(row: DefectClass, target: DefectClass, *, moved: int, reason: str, by: Actor) -> None:
    """Retire a locked class in favour of another one; `training.merges` moves the decisions in the same transaction."""
    policies.check_can_edit_defect_book(row.line, by=by)
    _write(
        row, "defectclass.merge", by, reason=reason, told={"moved": moved},
        retired_at=row.retired_at or timezone.now(), merged_into=target,
    )  # fmt: skip


def unmerge(row: DefectClass, *, restored: int, left: int, reason: str, by: Actor) -> None:
    """Give a locked class back its own meaning."""
    policies.check_can_edit_defect_book(row.line, by=by)
    _write(
        row, "defectclass.unmerge", by, reason=reason, told={"restored": restored, "left": left},
        retired_at=None, merged_into=None, hotkey=_free_key(row),
    )  # fmt: skip


def locked(line: Line, *entries: DefectClass) -> list[DefectClass]:
    """The rows as they are now, locked, once nobody is deciding with them and nobody else changes the book."""
    Line.objects.select_for_update(no_key=True).get(pk=line.pk)
    rows = DefectClass.objects.select_for_update(of=("self",)).select_related("line", "merged_into")
    found = {row.pk: row for row in rows.filter(line=line, pk__in=[entry.pk for entry in entries]).order_by("id")}
    return [found[entry.pk] for entry in entries]


def _locked(entry: DefectClass) -> DefectClass:
    Line.objects.select_for_update(no_key=True).get(pk=entry.line_id)
    rows = DefectClass.objects.select_for_update(of=("self",), no_key=True).select_related("line", "merged_into")
    return rows.get(pk=entry.pk)


def _free_key(row: DefectClass) -> str:
    try:
        return checked_key(row.line, row.hotkey, but=row)
    except Refused:
        return ""


def _write(
    row: DefectClass, action: str, by: Actor, *, reason: str = "", told: dict[str, Any] | None = None, **wanted: Any
) -> None:
    """Set what differs, and say in the audit log what it was before. Nothing differs: nothing happens."""
    old = {name: getattr(row, name) for name in wanted}
    changed = {name: value for name, value in wanted.items() if value != old[name]}
    if not changed:
        return
    DefectClass.objects.filter(pk=row.pk).update(**changed)
    before = _plain({name: old[name] for name in changed})
    audit.record(by, action, row, old=before, new=_plain(changed) | (told or {}), reason=reason.strip())
    events.announce(*row.line.topics())


def _plain(columns: dict[str, Any]) -> dict[str, Any]:
    """Columns as the audit log says them: the event has its own time, and a class is known by its code."""
    said = {name: value.code if isinstance(value, DefectClass) else value for name, value in columns.items()}
    if "retired_at" in said:
        said["retired"] = said.pop("retired_at") is not None
    return said
