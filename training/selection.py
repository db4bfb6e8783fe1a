"""Which captures somebody means, and in which order: what a grid shows, a queue gives, a view keeps, an export takes.

One form for all of them: the names and values of a query string. What cannot be read is not selected by.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qsl, urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db.models import F, Q
from django.utils import timezone

from training import policies, queue, similarity
from training.models import Capture, Verdict
from training.queue import Want

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.db.models import QuerySet

    from registry.models import Line
    from training.policies import Person

SHOW: dict[str, tuple[str, ...]] = {
    "open": Capture.OPEN,
    "decided": (Capture.State.DECIDED,),
    "all": tuple(Capture.State),
}
TEXTS = ("lot", "serial", "product", "shift", "station")
NUMBERS = ("said", "decided")  # class numbers: what the machine found, what a person decided
TIMES = ("from", "to")  # plant time, to the minute
FLAGS = ("look", "disagreed", "differs", "golden", "skipped", "mine", "late")
CLOCK = "%Y-%m-%dT%H:%M"


@dataclass(frozen=True)
class Selection:
    show: str = "open"
    order: str = queue.OLDEST
    like: UUID | None = None  # a picked picture: the most similar ones first, whatever the order says
    reason: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    texts: tuple[tuple[str, str], ...] = ()
    numbers: tuple[tuple[str, int], ...] = ()
    times: tuple[tuple[str, datetime], ...] = ()

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Self:
        """What cannot be read is not filtered by: an old address still opens."""
        show, order = query.get("show", "open"), query.get("order", queue.OLDEST)
        return cls(
            show=show if show in SHOW else "open",
            order=order if order in queue.ORDERS else queue.OLDEST,
            like=_key(query.get("like", "")),
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

    @property
    def asks_machine(self) -> bool:
        """Does it select by what the machine said, or why it was flagged?"""
        return bool(self.reason) or any(name == "said" for name, _number in self.numbers)

    def where(self, line: Line, by: Person) -> Q:
        """As a condition on the captures of this line. Hours are the plant's."""
        found = Q(**{("station__code" if name == "station" else name): value for name, value in self.texts})
        if self.reason:
            found &= Q(reason__in=self.reason)
        for name, number in self.numbers:
            found &= Q(**{"predicted_class" if name == "said" else "decided_class": number})
        zone = ZoneInfo(line.site.timezone)
        for name, at in self.times:
            found &= Q(**{"taken_at__gte" if name == "from" else "taken_at__lt": at.replace(tzinfo=zone)})
        if self.asks_machine and not policies.can_see_reasons(line, by=by):
            # What would come up under "audit sample" or "machine says OK" must not be told apart before it is judged.
            found &= Q(blind=False) | ~Q(state__in=Capture.OPEN)
        if "look" in self.flags:
            found &= Q(second_look=True)
        if "disagreed" in self.flags:
            found &= Q(disagreed=True)
        if "differs" in self.flags:
            found &= (
                ~Q(verdict__in=("", Verdict.REVIEW)) & Q(decision__isnull=False) & ~Q(decision__verdict=F("verdict"))
            )
        if "late" in self.flags:
            found &= Q(received_at__lt=timezone.now() - timedelta(seconds=line.review_due_s))
        if "mine" in self.flags:
            held = Q(claimed_by=by, claimed_until__gt=timezone.now())
            found &= held if self.show == "open" else Q(decision__by=by) | held
        return found

    def nearest(self, line: Line, by: Person) -> list[tuple[UUID, float]]:
        """What is meant, most similar to the picked picture first, with how similar; the nearest ones alone."""
        if self.like is None:
            return []
        return similarity.nearest(self.like, line, where=self._meant(line, by), waiting=self._waiting)

    def want(self, line: Line, by: Person) -> Want:
        """As a wish on the line's queue."""
        where = self.where(line, by)
        if self.like is not None:
            near = similarity.nearest(self.like, line, where=where, waiting=True)
            where &= Q(pk__in=[pk for pk, _share in near])
        # Among similar ones, or under a filter by what only a waiting picture has, a check would stand out.
        plain = self.like is None and not self.reason and not self.numbers and self.flags <= {"skipped"}
        return Want(where, skipped="skipped" in self.flags, mixes=plain, order=self.order, like=self.like)

    def pairs(self) -> list[tuple[str, str]]:
        """Names and values of the address, without what is left at its default."""
        pairs = [("show", self.show)] if self.show != "open" else []
        pairs += [("order", self.order)] if self.order != queue.OLDEST else []
        pairs += [("like", str(self.like))] if self.like else []
        pairs += [("why", ",".join(self.reason))] if self.reason else []
        pairs += [(name, "1") for name in FLAGS if name in self.flags]
        pairs += [(name, str(number)) for name, number in self.numbers]
        pairs += [(name, at.strftime(CLOCK)) for name, at in self.times]
        return [*pairs, *self.texts]

    def query(self) -> str:
        return urlencode(self.pairs())

    @classmethod
    def parse(cls, query: str) -> Self:
        """From a query string."""
        return cls.read(dict(parse_qsl(query)))

    def captures(self, line: Line, by: Person) -> QuerySet[Capture]:
        """All captures of the line that are meant. Those of golden sets stay out unless they are asked for."""
        rows = Capture.objects.filter(self._meant(line, by), line=line)
        return rows if self.like is None else rows.filter(pk__in=[pk for pk, _share in self.nearest(line, by)])

    @property
    def _waiting(self) -> bool:
        """Are all that are meant in the queue?"""
        return self.show == "open" and "golden" not in self.flags

    def _meant(self, line: Line, by: Person) -> Q:
        found = self.where(line, by) & Q(state__in=SHOW[self.show])
        if self.show != "all" or "golden" in self.flags:
            found &= Q(reserved="golden" in self.flags)
        return found


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 9


def _key(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def _moment(text: str) -> datetime | None:
    """A plant time without its zone, which depends on the line."""
    try:
        return datetime.strptime(text[:16], CLOCK) if text else None  # noqa: DTZ007  the line's zone is put on later
    except ValueError:
        return None
