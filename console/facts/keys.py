"""What the page of one's keys says: each act with its key, and what speaks against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console import keys
from console.facts import classes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from registry.models import Line


def class_keys(lines: Iterable[Line]) -> dict[str, str]:
    """Key -> the class that has it in the review, with its line; letters of the defect books of these lines."""
    found: dict[str, str] = {}
    for line in lines:
        entries = classes.book(line)
        given = classes.keys(entries)
        for entry in entries:
            if key := given.get(entry.number, ""):
                found.setdefault(key, f"{entry.name} ({line.name})")
    return found


def page(wanted: Mapping[str, str], taken: Mapping[str, str]) -> dict[str, Any]:
    """The acts by scope, and whether something speaks against what is wanted."""
    against = keys.problems(wanted, taken)
    rows: dict[str, list[dict[str, Any]]] = {scope: [] for scope in keys.SCOPES}
    for act in keys.ACTS.values():
        key = wanted[act.code]
        rows[act.scope].append({"act": act, "key": key, "cap": keys.cap(key), "problem": against.get(act.code, "")})
    scopes = [(words, rows[scope]) for scope, words in keys.SCOPES.items()]
    return {"scopes": scopes, "against": bool(against), "taken": taken, "caps": keys.NAMED}
