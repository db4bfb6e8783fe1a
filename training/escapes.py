"""How many defects slip through unseen: an estimate from the audit sample, per line and ISO week in plant time.

A device sends a random share of what it judged OK; each such picture stands for `sampling_weight` parts (Horvitz and
Thompson). Rates are weighted shares of the decided ones; the interval is Wilson's for as many equal pictures as the
weighted ones are worth (Kish), which is Wilson's on the plain count as long as all weights are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django.db.models import Count, F, Q, Sum
from django.db.models.functions import TruncWeek

from registry.intervals import wilson
from training.models import Capture, Verdict

if TYPE_CHECKING:
    from registry.models import Line

FEW = 100  # decided pictures; below that an interval is too wide to compare weeks by
DECIDED = Q(state=Capture.State.DECIDED)
DEFECT = DECIDED & Q(decided_class__gt=0)


@dataclass(frozen=True)
class Week:
    """One week of one line. `parts`: OK-judged parts that the sample stands for. Shares are None without decisions."""

    monday: date
    running: bool  # not over, or not long enough for what devices still hold
    sampled: int
    decided: int
    escaped: int  # defects among the decided audit pictures
    confirmed: int  # defects that people confirmed among what the machine doubted or called NG
    parts: float
    weighed: float  # weight of the decided pictures
    weighed_escaped: float
    worth: float  # decided pictures of equal weight that would say as much

    @property
    def name(self) -> str:
        year, week, _day = self.monday.isocalendar()
        return f"{year}-W{week:02d}"

    @property
    def waiting(self) -> int:
        return self.sampled - self.decided

    @property
    def few(self) -> bool:
        return self.decided < FEW

    @property
    def share(self) -> float | None:
        """Escapes per OK-judged part."""
        return self.weighed_escaped / self.weighed if self.weighed else None

    @property
    def share_interval(self) -> tuple[float, float] | None:
        return None if self.share is None else wilson(self.share * self.worth, self.worth)

    @property
    def escapes(self) -> float | None:
        return None if self.share is None else self.share * self.parts

    @property
    def escapes_interval(self) -> tuple[float, float] | None:
        found = self.share_interval
        return None if found is None else (found[0] * self.parts, found[1] * self.parts)

    @property
    def rate(self) -> float | None:
        """Escapes of all NG parts that are known of."""
        return self._of_defects(self.escapes)

    @property
    def rate_interval(self) -> tuple[float, float] | None:
        found = self.escapes_interval
        low, high = (self._of_defects(end) for end in found) if found else (None, None)
        return None if low is None or high is None else (low, high)

    @property
    def known_ng(self) -> float:
        return (self.escapes or 0.0) + self.confirmed

    def _of_defects(self, escapes: float | None) -> float | None:
        """None where nobody confirmed a defect: every NG part known of would be an escape, whatever the rate is."""
        return None if escapes is None or not self.confirmed else escapes / (escapes + self.confirmed)


def weeks(line: Line, *, now: datetime, count: int = 12) -> list[Week]:
    """The last weeks that have an audit picture, newest first."""
    zone = ZoneInfo(line.site.timezone)
    today = now.astimezone(zone).date()
    monday = today - timedelta(days=today.weekday())
    since = datetime.combine(monday - timedelta(weeks=count - 1), datetime.min.time(), zone)
    rows = Capture.objects.filter(line=line, taken_at__gte=since).annotate(week=TruncWeek("taken_at", tzinfo=zone))
    sums: dict[str, Any] = {
        "sampled": Count("pk"), "decided": Count("pk", filter=DECIDED), "escaped": Count("pk", filter=DEFECT),
        "parts": Sum("sampling_weight"), "weighed": Sum("sampling_weight", filter=DECIDED),
        "weighed_escaped": Sum("sampling_weight", filter=DEFECT),
        "squares": Sum(F("sampling_weight") * F("sampling_weight"), filter=DECIDED),
    }  # fmt: skip
    sample = rows.filter(reason=Capture.Reason.AUDIT).values("week").annotate(**sums).order_by("-week")
    seen = rows.filter(DEFECT, verdict__in=(Verdict.REVIEW, Verdict.NG)).exclude(reason=Capture.Reason.AUDIT)
    confirmed = dict(seen.values("week").annotate(n=Count("pk")).values_list("week", "n"))
    return [_week({**row}, confirmed.get(row["week"], 0), monday) for row in sample]


def _week(row: dict[str, Any], confirmed: int, this_monday: date) -> Week:
    weighed, squares = row["weighed"] or 0.0, row["squares"] or 0.0
    return Week(
        monday=row["week"].date(), running=row["week"].date() >= this_monday, sampled=row["sampled"],
        decided=row["decided"], escaped=row["escaped"], confirmed=confirmed, parts=row["parts"], weighed=weighed,
        weighed_escaped=row["weighed_escaped"] or 0.0, worth=weighed**2 / squares if squares else 0.0,
    )  # fmt: skip
