"""Snapshots: the builder counts what freezing would give, refuses with a sentence, and freezes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from registry.models import DefectClass
from training.models import Capture, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World

HTMX = {"HX-Request": "true"}
NEW = {"val_share": 30, "test_share": 0, "seed": 0}


def test_the_builder_counts_without_writing(world: World, signed_in: Callable[..., Client]) -> None:
    world.pictures(4)
    client = signed_in(world.plant.engineer)
    page = client.get(reverse("snapshot-new")).content.decode()
    assert 'class="v">12<' in page
    part = client.get(reverse("snapshot-new"), NEW, headers=HTMX).content.decode()
    assert 'id="counts"' in part
    assert "<html" not in part
    assert not Snapshot.objects.exists()


def test_the_builder_says_what_a_leak_costs(world: World, signed_in: Callable[..., Client]) -> None:
    client = signed_in(world.plant.engineer)
    for language in ("en", "ko"):
        page = client.get(reverse("snapshot-new"), headers={"Accept-Language": language}).content.decode()
        assert "97.1 %" in page
        assert "64.8 % (142 / 219)" in page


def test_freezing_makes_the_snapshot_that_was_shown(world: World, signed_in: Callable[..., Client]) -> None:
    world.pictures(4)
    answer = signed_in(world.plant.engineer).post(reverse("snapshot-new"), NEW)
    snapshot = Snapshot.objects.get()
    assert answer["Location"] == reverse("snapshot-detail", args=[snapshot.pk])
    assert snapshot.rule["val_share"] == 0.3
    page = signed_in(world.viewer).get(answer["Location"]).content.decode()
    assert snapshot.digest in page


def test_what_speaks_against_freezing_keeps_the_button_off(world: World, signed_in: Callable[..., Client]) -> None:
    world.decided(1, 0, lot="L1")
    client = signed_in(world.plant.engineer)
    page = client.get(reverse("snapshot-new"), NEW).content.decode()
    assert "There is no NG part in training." in page
    assert 'aria-disabled="true" aria-describedby="freeze-why"' in page
    answer = client.post(reverse("snapshot-new"), NEW)
    assert answer.status_code == 409
    assert not Snapshot.objects.exists()


def test_a_critical_class_that_is_missing_is_named(world: World, signed_in: Callable[..., Client]) -> None:
    world.pictures(4)
    DefectClass.objects.create(line=world.line, number=7, code="break", name_en="break", name_ko="깨짐", critical=True)
    page = signed_in(world.plant.engineer).get(reverse("snapshot-new"), NEW).content.decode()
    assert "The critical class break is missing from training." in page


@pytest.mark.parametrize("side", ["val", "train", "test"])
def test_a_lot_put_on_a_side_by_hand_goes_there(side: str, world: World, signed_in: Callable[..., Client]) -> None:
    lot = world.pictures(5)[0].lot
    signed_in(world.plant.engineer).post(reverse("snapshot-new"), {**NEW, f"lot:{lot}": side})
    items = Snapshot.objects.get().items.filter(capture__lot=lot)
    assert list(items.values_list("split", flat=True)) == [side] * 3


def test_figures_that_make_no_sense_are_marked(world: World, signed_in: Callable[..., Client]) -> None:
    world.pictures(2)
    client = signed_in(world.plant.engineer)
    for wrong in ({"val_share": "x"}, {"val_share": 90}, {"seed": -1}):
        answer = client.get(reverse("snapshot-new"), NEW | wrong)
        assert answer.status_code == 200
        assert 'class="err"' in answer.content.decode()
        assert client.post(reverse("snapshot-new"), NEW | wrong).status_code == 422
    assert not Snapshot.objects.exists()


def test_only_those_who_may_freeze_see_the_builder(world: World, signed_in: Callable[..., Client]) -> None:
    for person in (world.viewer, world.plant.operator):
        assert signed_in(person).get(reverse("snapshot-new")).status_code == 403
        assert signed_in(person).post(reverse("snapshot-new"), NEW).status_code == 403


def test_a_line_of_others_cannot_be_frozen(world: World, signed_in: Callable[..., Client]) -> None:
    world.pictures(4)
    client = signed_in(world.stranger)
    assert client.post(reverse("snapshot-new"), NEW | {"in": world.line.code}).status_code == 404
    assert client.post(reverse("snapshot-new"), NEW).status_code == 409  # their own line holds no decided picture
    assert not Snapshot.objects.exists()


def test_a_refused_leak_names_the_lots_and_shows_their_pictures(world: World, signed_in: Callable[..., Client]) -> None:
    snapshot = world.snapshot()
    capture = snapshot.items.filter(split="train").order_by("pk")[0].capture
    client = signed_in(world.plant.engineer)
    asked = NEW | {f"lot:{capture.lot}": "test"}
    page = client.get(reverse("snapshot-new"), asked, headers=HTMX).content.decode()
    assert f"Lot {capture.lot} was trained on before" in page
    assert reverse("capture-picture", args=[capture.pk]) in page
    answer = client.post(reverse("snapshot-new"), asked)
    assert answer.status_code == 409
    assert Snapshot.objects.count() == 1


def test_products_are_counted_per_side(world: World, signed_in: Callable[..., Client]) -> None:
    rows = world.pictures(6)
    client = signed_in(world.plant.engineer)
    assert '<th scope="row">mono<' not in client.get(reverse("snapshot-new"), NEW).content.decode()
    Capture.objects.filter(lot__in={row.lot for row in rows[9:]}).update(product="poly")
    page = client.get(reverse("snapshot-new"), NEW).content.decode()
    assert page.count('<th scope="row">poly</th>') == 1
    client.post(reverse("snapshot-new"), NEW)
    page = client.get(reverse("snapshot-detail", args=[Snapshot.objects.get().pk])).content.decode()
    assert '<td class="num"><b>9</b></td>' in page.split('<th scope="row">poly</th>')[1]


def test_a_very_large_line_is_counted_by_one_query_and_dealt_when_asked(
    world: World, signed_in: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.outline.LIVE_MOST", 10)
    monkeypatch.setattr("training.outline.FRESH_S", 1000)
    monkeypatch.setattr("training.outline._kept", {})
    world.pictures(4)
    client = signed_in(world.plant.engineer)
    page = client.get(reverse("snapshot-new"), NEW).content.decode()
    assert "More than 10 decided pictures" in page
    assert '<th scope="row">crack</th><td class="num">4</td>' in page
    assert "Lots across the split" not in page
    world.pictures(1)
    assert '<td class="num">4</td>' in client.get(reverse("snapshot-new"), NEW, headers=HTMX).content.decode()
    dealt = client.get(reverse("snapshot-new"), NEW | {"exact": "1"}, headers=HTMX).content.decode()
    assert "Lots across the split" in dealt
    assert 'class="v">15<' in dealt
    assert "소요" in client.get(reverse("snapshot-new"), NEW, headers={"Accept-Language": "ko"}).content.decode()
    client.post(reverse("snapshot-new"), NEW)
    assert Snapshot.objects.get().items.count() == 15
