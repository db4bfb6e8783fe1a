"""The audit log: who may read it, and what its filters leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import reverse

from console.facts import audit as facts
from registry import audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World


def test_only_those_with_the_role_read_it(world: World, signed_in: Callable[..., Client]) -> None:
    assert signed_in(world.viewer).get(reverse("audit-list")).status_code == 403
    assert signed_in(world.plant.approver).get(reverse("audit-list")).status_code == 200


def test_events_of_other_lines_stay_unseen(world: World, signed_in: Callable[..., Client]) -> None:
    world.release()
    page = signed_in(world.stranger).get(reverse("audit-list")).content.decode()
    assert "better on poly" not in page
    assert "better on poly" in signed_in(world.plant.approver).get(reverse("audit-list")).content.decode()


def test_filters_narrow_by_person_noun_and_words(world: World, signed_in: Callable[..., Client]) -> None:
    world.release()
    lines = [world.line]
    assert {event.by_label for event in facts.events(lines, person="approver")} == {"approver"}
    assert {event.noun for event in facts.events(lines, noun="promotion")} == {"promotion"}
    found = facts.events(lines, words="poly better", noun="promotion")
    assert [event.action for event in found] == ["promotion.request"]
    client = signed_in(world.plant.approver)
    part = client.get(reverse("audit-list"), {"noun": "release", "words": ""}, headers={"HX-Request": "true"})
    assert "<html" not in part.content.decode()
    assert "published" in part.content.decode()
    nothing = client.get(reverse("audit-list"), {"words": "no such word"}).content.decode()
    assert 'class="empty"' in nothing
    assert client.get(reverse("audit-list"), {"noun": "nonsense"}).status_code == 200


def test_long_logs_are_paged_by_key(world: World) -> None:
    for n in range(120):
        audit.record("command:test", "line.touch", world.line, reason=f"n{n}")
    first = facts.events([world.line], words="n")
    second = facts.events([world.line], words="n", after=first.next)
    assert len(first) == len(second) == 50
    assert first.rows[-1].pk > second.rows[0].pk
    assert not {event.pk for event in first} & {event.pk for event in second}
