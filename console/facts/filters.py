"""A selection of captures in words: the chips of the grid, its standing views, and where its next page goes on."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.db.models import Q
from django.utils.translation import gettext as _

from training.models import Capture
from training.selection import NUMBERS, TIMES, Selection

if TYPE_CHECKING:
    from collections.abc import Mapping


class Filters(Selection):
    """A selection as a page shows it."""

    def values(self) -> dict[str, str]:
        """What the fields of the form show."""
        return dict(self.pairs())

    def chips(self, class_names: Mapping[int, str], picked: object = None) -> list[tuple[str, str]]:
        """What is shown, in words, each with the address that is left without it. `picked`: what others are like."""
        pairs = self.pairs()
        return [
            (self._in_words(name, value, class_names, picked), urlencode([pair for pair in pairs if pair[0] != name]))
            for name, value in pairs
            if name != "show"
        ]

    def _in_words(self, name: str, value: str, class_names: Mapping[int, str], picked: object) -> str:
        if name == "like":
            return _("similar to %(name)s") % {"name": picked or _("a picked picture")}
        if name == "why":
            return ", ".join(str(Capture.Reason(part).label) for part in self.reason)
        flags = {
            "look": _("needs a second look"), "disagreed": _("opinions differ"),
            "differs": _("machine and person differ"), "golden": _("in a golden set"),
            "skipped": _("put aside by you"), "mine": _("mine"),
            "late": _("past the deadline"),
        }  # fmt: skip
        if name in flags:
            return flags[name]
        names = {
            "lot": _("lot"), "serial": _("serial"), "product": _("product"), "shift": _("shift"),
            "station": _("station"), "said": _("machine says"), "decided": _("decided"), "from": _("from"),
            "to": _("until"), "order": _("order"),
        }  # fmt: skip
        if name in NUMBERS:
            value = class_names.get(int(value), value)
        elif name == "order":
            value = orders()[value]
        return f"{names[name]} {value.replace('T', ' ') if name in TIMES else value}"

    def words(self, picked: object = None) -> list[str]:
        """The state shown and every chip, for the work bar of the single view."""
        state = {"open": _("undecided"), "decided": _("decided"), "all": _("all pictures")}[self.show]
        return [state, *(words for words, _rest in self.chips({}, picked))]


def reasons(*, supervising: bool, show: str) -> list[tuple[str, Any]]:
    """What the filter offers as reasons."""
    hidden = [] if supervising or show == "decided" else [Capture.Reason.AUDIT]
    return [(code, name) for code, name in Capture.Reason.choices if code not in hidden]


def orders() -> dict[str, str]:
    return {"age": _("oldest first"), "doubt": _("most uncertain first"), "critical": _("critical classes first")}


def presets(*, supervising: bool) -> list[tuple[str, str]]:
    """The views that everybody has: name and query string. Who judges pictures must not tell the audit sample apart."""
    audit = [(_("Audit sample"), "why=audit")] if supervising else []
    return [
        (_("Undecided"), ""),
        (_("Most uncertain first"), "order=doubt"),
        (_("Past the deadline"), "late=1"),
        *audit,
        (_("Asked by an operator"), "why=operator"),
        (_("Needs a second look"), "look=1"),
        (_("Opinions differ"), "disagreed=1"),
        (_("Machine and person differ"), "show=decided&differs=1"),
        (_("Decided"), "show=decided"),
        (_("In a golden set"), "show=all&golden=1"),
    ]


_READ: dict[str, Callable[[str], Any]] = {
    "received_at": datetime.fromisoformat, "doubt": float, "urgent": lambda text: text == "True",
}  # fmt: skip


def cursor(row: Capture, order: tuple[str, str]) -> str:
    """Where the next page goes on: the row's place in the order."""
    value = getattr(row, order[0].lstrip("-"))
    return f"{value.isoformat() if isinstance(value, datetime) else value}~{row.pk}"


def likeness(after: str) -> tuple[float, uuid.UUID] | None:
    """A place in the order by similarity: (-similarity, id); None for none or one that cannot be read."""
    written, _tilde, key = after.rpartition("~")
    try:
        return -float(written), uuid.UUID(key)
    except ValueError:
        return None


def behind(after: str, order: tuple[str, str]) -> Q | None:
    """The condition of what comes behind a cursor; None for none or one that cannot be read."""
    written, _tilde, key = after.rpartition("~")
    (name, falls), (_id, id_falls) = ((column.lstrip("-"), column[0] == "-") for column in order)
    try:
        at, pk = _READ[name](written), uuid.UUID(key)
    except ValueError:
        return None
    further, further_id = "lt" if falls else "gt", "lt" if id_falls else "gt"
    # The first term says nothing new, but an index can begin there; at a choice of two it cannot.
    return Q(**{f"{name}__{further}e": at}) & (Q(**{f"{name}__{further}": at}) | Q(**{f"id__{further_id}": pk}))
