"""How reliably people judge on a line: agreement with others, answers to known pictures, and with themselves.

Only what is recent, at most so many rows per person: the figures are about how somebody judges now.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from training import agreement
from training.models import Capture, Check, Decision, Opinion, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from registry.models import Line
    from training.agreement import Kappa
    from training.policies import Person

SINCE = timedelta(days=90)
MOST = 2000  # rows looked at per person and figure

Pair = tuple[int, int]  # [n, of]


@dataclass
class Figures:
    """One person on one line. Each pair is [n, of]; `of` 0: nothing to count yet."""

    decided: int = 0
    capped: bool = False  # there was more than is looked at
    agreed: Pair = (0, 0)
    kappas: dict[int, Kappa | None] = field(default_factory=dict)  # class number -> kappa against all other answers
    escapes: Pair = (0, 0)  # known NG that was called OK
    overkills: Pair = (0, 0)  # known OK that was called NG
    classes: Pair = (0, 0)  # known NG, called NG, of another class
    repeats: Pair = (0, 0)  # own decisions asked again and answered alike


def of(person: Person, line: Line, *, now: datetime, classes: Iterable[int]) -> Figures:
    """What the last 90 days say. `classes`: the numbers of the defect book, each of which gets its kappa."""
    since = now - SINCE
    own = (Decision.Kind.DECIDED, Decision.Kind.OPINION)
    said = Decision.objects.filter(by=person, created_at__gt=since, kind__in=own).order_by("-created_at")
    judged = list(said.values_list("capture", flat=True)[:MOST])
    here = _on(line, judged)
    pairs = _pairs(person, line, since)
    known, repeats = _answers(person, line, since)
    ng = [(want, got) for want, got in known if want]
    ok = [(want, got) for want, got in known if not want]
    caught = [(want, got) for want, got in ng if got]
    return Figures(
        decided=sum(pk in here for pk in judged),
        capped=len(judged) >= MOST,
        agreed=(sum(a == b for a, b in pairs), len(pairs)),
        kappas={number: agreement.cohen(pairs, number) for number in (0, *classes)} if pairs else {},
        escapes=(sum(not got for _want, got in ng), len(ng)),
        overkills=(sum(got > 0 for _want, got in ok), len(ok)),
        classes=(sum(want != got for want, got in caught), len(caught)),
        repeats=(sum(want == got for want, got in repeats), len(repeats)),
    )


def _pairs(person: Person, line: Line, since: datetime) -> list[tuple[int, int]]:
    """(own, somebody else's) main class of the same picture, for every opinion beside this person's."""
    given = Opinion.objects.filter(by=person, created_at__gt=since).select_related("decision").order_by("-created_at")
    own = list(given[:MOST])
    here = _on(line, [one.capture_id for one in own])
    mine = {one.capture_id: _main(one.decision.verdict, one.decision.classes) for one in own if one.capture_id in here}
    others = defaultdict(list)
    for one in Opinion.objects.filter(capture__in=list(mine)).exclude(by=person).select_related("decision"):
        others[one.capture_id].append(_main(one.decision.verdict, one.decision.classes))
    return [(said, other) for pk, said in mine.items() for other in others[pk]]


def _on(line: Line, ids: list[Any]) -> set[Any]:
    """Which of these captures are the line's: looked up by key, because a join may walk all captures for each row."""
    return set(Capture.objects.filter(pk__in=ids, line=line).values_list("pk", flat=True))


def _answers(person: Person, line: Line, since: datetime) -> tuple[list[Pair], list[Pair]]:
    """(expected, answered) main classes: of known pictures and of repeats. A second look asked for is no answer."""
    answered = Check.objects.filter(line=line, by=person, answered_at__gt=since).exclude(answered_verdict="")
    found: dict[str, list[Pair]] = {Check.Kind.KNOWN: [], Check.Kind.REPEAT: []}
    for check in answered.order_by("-answered_at")[:MOST]:
        want, got = _main(check.verdict, check.classes), _main(check.answered_verdict, check.answered_classes)
        if want in check.answered_classes and check.kind == Check.Kind.KNOWN:
            got = want  # the known class was named, if not first
        found[check.kind].append((want, got))
    return found[Check.Kind.KNOWN], found[Check.Kind.REPEAT]


def _main(verdict: str, classes: list[Any]) -> int:
    return int(classes[0]) if verdict == Verdict.NG and classes else 0
