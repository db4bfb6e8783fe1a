"""Second opinions: several people judge a picture without seeing each other's answer, as many as the line asks for.

The last one settles it. All alike: theirs becomes the decision. Otherwise the picture is disputed, and an adjudicator,
who gave none of the opinions, decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import F, Q
from django.utils.translation import gettext_noop

from registry import audit, lifecycle
from registry.classes import meanings
from registry.lifecycle import Refused
from registry.models import Line
from training import decisions, policies, queue
from training import regions as drawings
from training.models import IN_QUEUE, Capture, Decision, Opinion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from training.policies import Person

MOST = 5
MOST_RATE = 0.2  # of known answers or of repeats: people are there for the pictures that wait
SETTLED_AT_ONCE = 500

MOST_OPINIONS = gettext_noop("A picture needs 1 to %(most)s opinions.")
RATE_INVALID = gettext_noop("A rate of known answers or repeats is 0 to 20 per cent of the pictures.")
SHARE_INVALID = gettext_noop("The share of blind pictures is 0 to 100 per cent.")


def alike(a: Decision, b: Decision) -> bool:
    """The same verdict and the same main class."""
    return (a.verdict, a.classes[:1]) == (b.verdict, b.classes[:1])


def given(capture: Capture) -> list[Opinion]:
    """The opinions that stand, oldest first."""
    return list(capture.opinion_rows.select_related("decision", "by"))


# ------------------------------------------------------------------------------------------------ giving


def take(row: Capture, said: dict[str, Any], *, by: Person) -> Decision:
    """Record on a locked, open picture what this person says of it: one opinion of several, or the decision."""
    others = given(row)
    if row.disagreed or (row.line.opinions <= 1 and not others):
        decision = decisions.record(row, Decision.Kind.DECIDED, by, **said)
        decisions.stand(row, decision)
        return decision
    last = len(others) + 1 >= row.line.opinions
    agreed = last and _agree([Decision(**said), *(one.decision for one in others)], meanings(row.line))
    decision = decisions.record(row, Decision.Kind.DECIDED if agreed else Decision.Kind.OPINION, by, **said)
    Opinion.objects.create(capture=row, by=by, decision=decision)
    if agreed:
        decisions.stand(row, decision, opinions=len(others) + 1)
    elif last:
        _dispute(row, by, opinions=len(others) + 1)
    else:
        lifecycle.touch(row, opinions=len(others) + 1, claimed_by=None, claimed_until=None)
    return decision


def _agree(said: Iterable[Decision], meant: Mapping[int, int]) -> bool:
    """Do all say the same, a class that was merged since meaning the other one?"""
    return len({(one.verdict, *(meant.get(number, number) for number in one.classes[:1])) for one in said}) == 1


def _dispute(row: Capture, by: Person, **fields: Any) -> None:
    fields |= {"disagreed": True, "claimed_by": None, "claimed_until": None}
    if row.state == Capture.State.DISPUTED:
        lifecycle.touch(row, **fields)
    else:
        lifecycle.move(row, Capture.State.DISPUTED, by=by, audited=False, **fields)


# ------------------------------------------------------------------------------------------------ taking back


def take_back(row: Capture, act: Decision, *, by: Person, **claim: Any) -> bool:
    """Take this opinion back while the picture is open; False when it is none that counts. A dispute ends with it."""
    if row.state not in Capture.OPEN or not Opinion.objects.filter(capture=row, decision=act).delete()[0]:
        return False
    decisions.record(row, Decision.Kind.OPINION_BACK, by)
    fields = {"opinions": row.opinions - 1, "disagreed": False, **claim}
    if row.state == Capture.State.DISPUTED and not row.second_look:
        lifecycle.move(row, Capture.State.NEW, by=by, audited=False, **fields)
    else:
        lifecycle.touch(row, **fields)
    return True


# ------------------------------------------------------------------------------------------------ the line's policy


def set_policy(
    line: Line, *, opinions: int, known_rate: float, repeat_rate: float, blind_share: float, by: Person
) -> int:
    """Set how the line's pictures are reviewed; returns how many waiting pictures that settled.

    A picture that has enough opinions by the new rule is settled by those that are there: nobody is asked again.
    """
    policies.check_can_set_review_policy(line, by=by)
    if not 1 <= opinions <= MOST:
        raise Refused(MOST_OPINIONS, most=MOST)
    if not all(0 <= rate <= MOST_RATE for rate in (known_rate, repeat_rate)):
        raise Refused(RATE_INVALID)
    if not 0 <= blind_share <= 1:
        raise Refused(SHARE_INVALID)
    new = {"opinions": opinions, "known_rate": known_rate, "repeat_rate": repeat_rate, "blind_share": blind_share}
    with transaction.atomic():
        row = Line.objects.select_for_update(no_key=True).get(pk=line.pk)
        old = {name: getattr(row, name) for name in new}
        if old != new:
            lifecycle.touch(row, **new)
            audit.record(by, "line.review_policy", row, old=old, new=new)
    line.refresh_from_db()
    return settle(Q(line=line))


def settle(where: Q | None = None) -> int:
    """Settle open pictures that have as many opinions as their line asks for; what is left waits for the next call."""
    ready = Capture.objects.filter(IN_QUEUE, where or Q(), opinions__gt=0, disagreed=False)
    found = list(ready.filter(opinions__gte=F("line__opinions")).order_by("id")[:SETTLED_AT_ONCE])
    return sum(_settle(capture) for capture in found)


def _settle(capture: Capture) -> bool:
    with transaction.atomic():
        row = queue.locked(capture)
        said = given(row)
        if row.state not in Capture.OPEN or row.reserved or row.disagreed or not said or len(said) < row.line.opinions:
            return False
        last = said[-1].decision
        meant = meanings(row.line)
        if _agree((one.decision for one in said), meant):
            same = {
                "verdict": last.verdict,
                "classes": list(dict.fromkeys(meant.get(number, number) for number in last.classes)),
                "regions": drawings.renumbered(last.regions, meant),
                "comment": last.comment,
            }
            decisions.stand(row, decisions.record(row, Decision.Kind.SETTLED, last.by, **same))
        else:
            _dispute(row, last.by)
    return True
