"""Versions and promotions: what the figures say, asking, answering, and who may not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from console.facts import versions as facts
from registry import blobs
from registry.models import Promotion, Release
from tests.registry.out_files import figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World

HTMX = {"HX-Request": "true"}


def test_the_page_leads_with_escapes_and_compares_with_the_champion(
    world: World, signed_in: Callable[..., Client]
) -> None:
    version = world.version()
    page = signed_in(world.viewer).get(reverse("version-detail", args=[version.pk])).content.decode()
    assert '<p class="huge">0</p>' in page
    assert "<b>3</b> / 3" in page
    assert "Escapes on master sample" in page


def test_what_changes_is_counted_and_shown_picture_by_picture(world: World, signed_in: Callable[..., Client]) -> None:
    world.release()
    version = world.version()
    changes = facts.changes(version)
    assert (len(changes.caught), len(changes.escaped), len(changes.overkilled)) == (3, 0, 3)
    assert all(item.capture is not None for item in changes.caught)
    page = signed_in(world.viewer).get(reverse("version-detail", args=[version.pk])).content.decode()
    for item in changes.caught:
        assert reverse("capture-picture", args=[item.capture.pk]) in page


def test_pictures_of_another_line_never_show_in_a_dossier(world: World) -> None:
    world.release()
    version = world.version()
    items = json.loads(blobs.read(version.dossier_digest))
    assert items
    type(version).objects.filter(pk=version.pk).update(line=world.other_line)
    version.refresh_from_db()
    assert all(item.capture is None for item in facts.changes(version, "golden").caught)


def test_a_set_that_holds_no_ng_picture_is_no_zero(world: World, signed_in: Callable[..., Client]) -> None:
    version = world.version(sets={"val": {"champion": None, "candidate": figures(0, 0, 2, 40)}})
    page = signed_in(world.viewer).get(reverse("version-detail", args=[version.pk])).content.decode()
    assert "This set holds no NG picture." in page


def test_asking_needs_a_reason_and_opens_a_promotion(world: World, signed_in: Callable[..., Client]) -> None:
    version = world.version()
    client = signed_in(world.plant.engineer)
    url = reverse("version-promote", args=[version.pk])
    assert client.post(url, {"reason": " "}).status_code == 409
    answer = client.post(url, {"reason": "catches new cracks"})
    promotion = Promotion.objects.get()
    assert answer["Location"] == reverse("promotion-detail", args=[promotion.pk])
    assert (promotion.requested_by, promotion.reason) == (world.plant.engineer, "catches new cracks")
    second = client.post(url, {"reason": "again"})
    assert second.status_code == 409
    assert f"Promotion {promotion} of this line is still open" in second.content.decode()


def test_others_may_not_ask(world: World, signed_in: Callable[..., Client]) -> None:
    version = world.version()
    url = reverse("version-promote", args=[version.pk])
    assert signed_in(world.viewer).post(url, {"reason": "x"}).status_code == 403
    assert signed_in(world.stranger).post(url, {"reason": "x"}).status_code == 404
    page = signed_in(world.viewer).get(reverse("version-detail", args=[version.pk])).content.decode()
    assert 'aria-describedby="promote-why"' in page


def answer(promotion: Promotion, meaning: str = "APPROVE", **change: str) -> dict[str, str]:
    return {"meaning": meaning, "reason": "evidence read", "seen_digest": promotion.manifest_digest} | change


def test_a_second_person_approves_and_the_release_exists(world: World, signed_in: Callable[..., Client]) -> None:
    promotion = world.promotion()
    client = signed_in(world.plant.approver)
    page = client.get(reverse("promotion-detail", args=[promotion.pk])).content.decode()
    assert promotion.manifest_digest in page
    said = client.post(reverse("promotion-answer", args=[promotion.pk]), answer(promotion))
    assert said["Location"] == reverse("promotion-detail", args=[promotion.pk])
    release = Release.objects.get()
    assert (release.state, release.version) == ("PUBLISHED", promotion.version)
    page = client.get(said["Location"]).content.decode()
    assert "evidence read" in page
    assert "Sign this answer" not in page


def test_rejecting_keeps_what_stands_and_htmx_gets_the_part(world: World, signed_in: Callable[..., Client]) -> None:
    promotion = world.promotion()
    said = signed_in(world.plant.approver).post(
        reverse("promotion-answer", args=[promotion.pk]), answer(promotion, "REJECT"), headers=HTMX
    )
    assert "<html" not in said.content.decode()
    promotion.refresh_from_db()
    assert promotion.state == "REJECTED"
    assert not Release.objects.exists()


@pytest.mark.parametrize("name", ["trainer", "approver"])
def test_whoever_asked_or_trained_cannot_answer(name: str, world: World, signed_in: Callable[..., Client]) -> None:
    promotion = world.promotion()
    person = getattr(world.plant, name)
    if name == "approver":
        Promotion.objects.filter(pk=promotion.pk).update(requested_by=person)
    client = signed_in(person)
    page = client.get(reverse("promotion-detail", args=[promotion.pk])).content.decode()
    assert "Somebody else must answer" in page
    assert 'aria-describedby="answer-why"' in page
    said = client.post(reverse("promotion-answer", args=[promotion.pk]), answer(promotion))
    assert said.status_code == 409
    assert not Release.objects.exists()


def test_what_was_not_seen_is_not_signed(world: World, signed_in: Callable[..., Client]) -> None:
    promotion = world.promotion()
    client = signed_in(world.plant.approver)
    url = reverse("promotion-answer", args=[promotion.pk])
    assert client.post(url, answer(promotion, seen_digest="0" * 64)).status_code == 409
    assert client.post(url, answer(promotion, meaning="PERHAPS")).status_code == 422
    assert client.post(url, answer(promotion, reason="")).status_code == 422
    assert not Release.objects.exists()


def test_others_may_not_answer(world: World, signed_in: Callable[..., Client]) -> None:
    promotion = world.promotion()
    url = reverse("promotion-answer", args=[promotion.pk])
    assert signed_in(world.viewer).post(url, answer(promotion)).status_code == 403
    assert signed_in(world.stranger).post(url, answer(promotion)).status_code == 404
    assert signed_in(world.plant.approver).get(url).status_code == 405


def test_only_the_requester_withdraws_and_only_once(world: World, signed_in: Callable[..., Client]) -> None:
    promotion = world.promotion()
    url = reverse("promotion-withdraw", args=[promotion.pk])
    assert signed_in(world.plant.approver).post(url).status_code == 409
    assert signed_in(world.plant.engineer).post(url).status_code == 302
    promotion.refresh_from_db()
    assert promotion.state == "WITHDRAWN"
    assert signed_in(world.plant.engineer).post(url).status_code == 409
    said = signed_in(world.plant.approver).post(reverse("promotion-answer", args=[promotion.pk]), answer(promotion))
    assert said.status_code == 409
