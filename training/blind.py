"""Pictures that people judge before they see what the machine said: audit samples, and decoys among the ordinary ones.

Which ones is settled when they arrive. A blind picture takes its place in the orders by doubt and by critical class
from another one, so that the place tells nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.crypto import salted_hmac

from training.models import IN_QUEUE, Capture, Opinion

if TYPE_CHECKING:
    from uuid import UUID

    from registry.models import Line
    from training.policies import Person

LOOKED_THROUGH = 20  # waiting pictures among which one lends its place


def draw(purpose: str, *parts: object) -> float:
    """Uniform in [0, 1): the same for the same parts, and not to be guessed without the site's secret key."""
    digest = salted_hmac(f"loopline.{purpose}", "\n".join(map(str, parts)), algorithm="sha256").digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2.0**53


def columns(line: Line, pk: UUID, reason: str) -> dict[str, Any]:
    """Columns of an arriving capture, when it is to be judged blind."""
    if reason != Capture.Reason.AUDIT and draw("blind", pk) >= line.blind_share:
        return {}
    newest = Capture.objects.filter(IN_QUEUE, line=line).order_by("-received_at", "-id")
    waiting = newest.values("blind", "doubt", "urgent")[:LOOKED_THROUGH]
    place = next((row for row in waiting if not row["blind"]), {"doubt": 1.0, "urgent": False})
    return {"blind": True, "doubt": place["doubt"], "urgent": place["urgent"]}


def hidden(capture: Capture, *, by: Person) -> bool:
    """Is the machine's answer kept from this person? Until they have said what they think."""
    if not capture.masked:
        return False
    return not (capture.opinions and Opinion.objects.filter(capture=capture, by=by).exists())
