"""What is written when a person acts on a picture: rows that are only added, and the state and counts that follow.

Everything here takes a capture that is locked already; `captures` and `opinions` decide what shall happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from registry import counters, lifecycle
from training import counts, lineage
from training.models import Capture, Decision, Opinion

if TYPE_CHECKING:
    from training.policies import Person


def record(row: Capture, kind: str, by: Person, **fields: Any) -> Decision:
    """Add an act to the picture's history, with what its reviewer was shown of the prediction."""
    shown = {"verdict": row.verdict, "score": row.score, "release_number": row.release_number}
    if not row.verdict or row.masked:
        shown = {"blind": True} if row.masked else {}
    return Decision.objects.create(capture=row, kind=kind, by=by, predicted=shown, **fields)


def stand(row: Capture, decision: Decision, **fields: Any) -> None:
    """Close the picture with this decision."""
    if row.state == Capture.State.RETRACTED:
        lineage.announce(row.line)
    lifecycle.move(
        row, Capture.State.DECIDED, by=decision.by, audited=False, decision=decision, claimed_by=None,
        claimed_until=None, second_look=False, disagreed=False,
        decided_class=decision.classes[0] if decision.classes else 0, **fields,
    )  # fmt: skip
    counters.add(row.line, counts.NEW, -1)
    counters.add(row.line, counts.DECIDED)


def take_back(row: Capture, by: Person, *, comment: str = "", anew: bool = True, **fields: Any) -> Decision:
    """Open the picture again. `anew`: opinions that led to the decision do not count any more."""
    frozen_before = not counts.decided_since_snapshot(row.line).filter(pk=row.pk).exists()
    decision = record(row, Decision.Kind.RETRACTED, by, comment=comment)
    if anew:
        Opinion.objects.filter(capture=row).delete()
        fields |= {"opinions": 0, "disagreed": False}
    lifecycle.move(row, Capture.State.RETRACTED, by=by, audited=False, decision=None, decided_class=None, **fields)
    counters.add(row.line, counts.NEW)
    counters.add(row.line, counts.DECIDED, 0 if frozen_before else -1)
    if frozen_before:
        lineage.announce(row.line)
    return decision
