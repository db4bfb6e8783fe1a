"""A selection of captures in words: the chips of the grid, its standing views, and where its next page goes on."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.db.models import Q
from django.utils.translation import gettext as _

from training import queue
from training.models import Capture
from training.selection import NUMBERS, TIMES, Selection

if TYPE_CHECKING:
    from collections.abc import Mapping


class Filters(Selection):
    """A selection as a page shows it."""

    def values(self) -> dict[str, str]:
        """What the fields of the form show."""
        return dict(self.pairs())

    def chips(self, class_names: Mapping[int, str]) -> list[tuple[str, str]]:
        """What is shown, in words, each with the address that is left without it."""
        said = {
            "look": _("needs a second look"), "differs": _("machine and person differ"), "golden": _("in a golden set"),
            "skipped": _("put aside by you"), "mine": _("mine"),
        }  # fmt: skip
        names = {
            "lot": _("lot"), "serial": _("serial"), "product": _("product"), "shift": _("shift"),
            "station": _("station"), "said": _("machine says"), "decided": _("decided"), "from": _("from"),
            "to": _("until"), "order": _("order"),
        }  # fmt: skip
        found = []
        for name, value in self.pairs():
            words = said.get(name) or f"{names.get(name, name)} {self._value(name, value, class_names)}"
            if name == "why":
                words = ", ".join(str(Capture.Reason(part).label) for part in self.reason)
            if name == "show":
                continue
            found.append((words, urlencode([pair for pair in self.pairs() if pair[0] != name])))
        return found

    def _value(self, name: str, value: str, class_names: Mapping[int, str]) -> str:
        if name in NUMBERS:
            return class_names.get(int(value), value)
        if name in TIMES:
            return value.replace("T", " ")
        return orders()[value] if name == "order" else value

    def words(self) -> list[str]:
        """The state shown and every chip, for the work bar of the single view."""
        state = {"open": _("undecided"), "decided": _("decided"), "all": _("all pictures")}[self.show]
        return [state, *(words for words, _rest in self.chips({}))]


def orders() -> dict[str, str]:
    return {"age": _("oldest first"), "doubt": _("most uncertain first"), "critical": _("critical classes first")}


def presets() -> list[tuple[str, str]]:
    """The views that everybody has: name and query string."""
    return [
        (_("Undecided"), ""),
        (_("Most uncertain first"), "order=doubt"),
        (_("Audit sample"), "why=audit"),
        (_("Asked by an operator"), "why=operator"),
        (_("Needs a second look"), "look=1"),
        (_("Machine and person differ"), "show=decided&differs=1"),
        (_("Decided"), "show=decided"),
        (_("In a golden set"), "show=all&golden=1"),
    ]


def cursor(row: Capture, order: str) -> str:
    """Where the next page goes on: the row's place in the order."""
    first = queue.ORDERS[order][0].lstrip("-")
    return f"{row.pk}" if first == "id" else f"{float(getattr(row, first))!r}~{row.pk}"


def behind(after: str, order: str, *, rising: bool) -> Q | None:
    """The condition of what comes behind a cursor; None for none or one that cannot be read."""
    value, _tilde, key = after.rpartition("~")
    try:
        pk: Any = uuid.UUID(key)
        if order == queue.OLDEST or not rising:
            return Q(id__gt=pk) if rising else Q(id__lt=pk)
        name = queue.ORDERS[order][0].lstrip("-")
        at: Any = bool(float(value)) if name == "urgent" else float(value)
    except ValueError:
        return None
    return Q(**{f"{name}__lt": at}) | Q(**{name: at, "id__gt": pk})
