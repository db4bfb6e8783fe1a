"""What a grid or a queue is narrowed to and ordered by, as it stands in the address.

The same filters hold in grid and single view, on the way back, and in a saved view: the address is their one form.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext as _

from training import queue
from training.models import Capture, Verdict
from training.queue import Want

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.models import User
    from registry.models import Line

SHOW: dict[str, tuple[str, ...]] = {
    "open": Capture.OPEN,
    "decided": (Capture.State.DECIDED,),
    "all": tuple(Capture.State),
}
TEXTS = ("lot", "serial", "product", "shift", "station")
NUMBERS = ("said", "decided")  # class numbers: what the machine found, what a person decided
TIMES = ("from", "to")  # plant time, to the minute
FLAGS = ("look", "differs", "golden", "skipped", "mine")
CLOCK = "%Y-%m-%dT%H:%M"


@dataclass(frozen=True)
class Filters:
    show: str = "open"
    order: str = queue.OLDEST
    reason: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    texts: tuple[tuple[str, str], ...] = ()
    numbers: tuple[tuple[str, int], ...] = ()
    times: tuple[tuple[str, datetime], ...] = ()

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Filters:
        """What cannot be read is not filtered by: an old address still opens."""
        show, order = query.get("show", "open"), query.get("order", queue.OLDEST)
        return cls(
            show=show if show in SHOW else "open",
            order=order if order in queue.ORDERS else queue.OLDEST,
            reason=tuple(part for part in query.get("why", "").split(",") if part in Capture.Reason.values),
            flags=frozenset(name for name in FLAGS if query.get(name) == "1"),
            texts=tuple((name, query[name].strip()[:80]) for name in TEXTS if query.get(name, "").strip()),
            numbers=tuple((name, int(query[name])) for name in NUMBERS if _is_number(query.get(name, ""))),
            times=tuple((name, at) for name in TIMES if (at := _moment(query.get(name, "")))),
        )

    @property
    def rising(self) -> bool:
        """Is the first page what waits longest? Elsewhere the newest picture comes first."""
        return self.show == "open"

    def where(self, line: Line, by: User) -> Q:
        """As a condition on the captures of this line. Hours are the plant's."""
        found = Q(**{("station__code" if name == "station" else name): value for name, value in self.texts})
        if self.reason:
            found &= Q(reason__in=self.reason)
        for name, number in self.numbers:
            found &= Q(**{"predicted_class" if name == "said" else "decided_class": number})
        zone = ZoneInfo(line.site.timezone)
        for name, at in self.times:
            found &= Q(**{"taken_at__gte" if name == "from" else "taken_at__lt": at.replace(tzinfo=zone)})
        if "look" in self.flags:
            found &= Q(second_look=True)
        if "differs" in self.flags:
            found &= (
                ~Q(verdict__in=("", Verdict.REVIEW)) & Q(decision__isnull=False) & ~Q(decision__verdict=F("verdict"))
            )
        if "mine" in self.flags:
            held = Q(claimed_by=by, claimed_until__gt=timezone.now())
            found &= held if self.show == "open" else Q(decision__by=by) | held
        return found

    def want(self, line: Line, by: User) -> Want:
        """As a wish on the line's queue."""
        return Want(where=self.where(line, by), skipped="skipped" in self.flags, order=self.order)

    def pairs(self) -> list[tuple[str, str]]:
        """Names and values of the address, without what is left at its default."""
        pairs = [("show", self.show)] if self.show != "open" else []
        pairs += [("order", self.order)] if self.order != queue.OLDEST else []
        pairs += [("why", ",".join(self.reason))] if self.reason else []
        pairs += [(name, "1") for name in FLAGS if name in self.flags]
        pairs += [(name, str(number)) for name, number in self.numbers]
        pairs += [(name, at.strftime(CLOCK)) for name, at in self.times]
        return [*pairs, *self.texts]

    def query(self) -> str:
        return urlencode(self.pairs())

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


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 9


def _moment(text: str) -> datetime | None:
    """A plant time without its zone, which depends on the line."""
    try:
        return datetime.strptime(text[:16], CLOCK) if text else None  # noqa: DTZ007  the line's zone is put on later
    except ValueError:
        return None


def cursor(row: Capture, order: str) -> str:
    """Where the next page goes on: the row's place in the order."""
    first = queue.ORDERS[order][0].lstrip("-")
    return f"{row.pk}" if first == "id" else f"{float(getattr(row, first))!r}~{row.pk}"


def behind(after: str, order: str, *, rising: bool) -> Q | None:
    """The condition of what comes behind a cursor; None for none or one that cannot be read."""
    import uuid

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
