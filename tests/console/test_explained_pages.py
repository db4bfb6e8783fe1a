"""Asking the champion about a picture from its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import reverse
from django.utils import timezone

from tests.console.test_captures_pages import waiting
from training.models import Capture, Explanation

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World

MAP = {"w": 2, "h": 2, "values": [0, 255, 0, 0]}


def test_a_picture_is_asked_about_and_the_page_shows_the_answer_with_its_map(
    world: World, signed_in: Callable[..., Client]
) -> None:
    capture, client = waiting(world, 1)[0], signed_in(world.plant.engineer)
    page, ask = reverse("capture-detail", args=[capture.pk]), reverse("capture-ask", args=[capture.pk])
    refused = client.post(ask)
    assert refused.status_code == 409
    assert "no champion yet" in refused.content.decode()
    world.plant.release(1)
    assert "Ask the champion" in client.get(page).content.decode()
    assert client.post(ask).headers["Location"] == page
    row = Explanation.objects.get(capture=capture)
    assert "A worker computes it" in client.get(page).content.decode()
    assert "HX-Refresh" not in client.get(page, {"asked": "1"}).headers
    answer = {"probabilities": [0.1, 0.9], "score": 0.9, "map": MAP}
    Explanation.objects.filter(pk=row.pk).update(done_at=timezone.now(), answer=answer)
    assert client.get(page, {"asked": "1"}).headers["HX-Refresh"] == "true"
    shown = client.get(page).content.decode()
    assert "crack 0.90" in shown
    assert 'data-values="0,255,0,0"' in shown
    review = client.get(reverse("capture-review"), {"line": world.line.code, "at": str(capture.pk)}).content.decode()
    assert "data-values" not in review  # whoever decides judges by what the device said


def test_viewers_and_strangers_ask_nothing_and_a_blind_picture_tells_nothing(
    world: World, signed_in: Callable[..., Client]
) -> None:
    world.plant.release(1)
    capture = waiting(world, 1)[0]
    ask = reverse("capture-ask", args=[capture.pk])
    assert signed_in(world.viewer).post(ask).status_code == 403
    assert signed_in(world.stranger).post(ask).status_code == 404
    Capture.objects.filter(pk=capture.pk).update(blind=True)
    client = signed_in(world.plant.engineer)
    assert client.post(ask).status_code == 409
    assert "The champion says" not in client.get(reverse("capture-detail", args=[capture.pk])).content.decode()
    assert not Explanation.objects.exists()
