"""One's own keys: what each page and script gets, what collides, and what a workstation adds."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse

from console import keys
from registry import classes, lines
from registry.models import DefectClass
from tests.console.world import cell
from tests.registry import plant as records
from training import captures

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World

ADDRESS = "/preferences/keys"


def told(page: str) -> dict[str, Any]:
    """What the scripts of a page are told."""
    found = re.search(r'<meta name="keys" content="([^"]*)">', page)
    assert found
    return dict(json.loads(html.unescape(found[1])))


def waiting(world: World) -> None:
    captures.import_one(world.line, cell(901, cracked=True), {}, by=world.plant.engineer)


def test_the_defect_book_may_have_every_letter_that_the_review_has_not() -> None:
    assert {act.key for act in keys.ACTS.values() if act.key.isalpha() and len(act.key) == 1} == classes.OWN_KEYS
    assert len({act.key for act in keys.ACTS.values()}) == len(keys.ACTS)
    assert keys.problems(keys.of(None), {}) == {}


def test_nobody_has_keys_without_signing_in(client: Client) -> None:
    assert client.get(ADDRESS)["Location"].startswith(reverse("session-sign-in"))
    assert client.post(ADDRESS, {"ok": "k"}).status_code == 302


def test_own_keys_are_kept_and_stand_on_buttons_sheet_and_in_the_scripts(
    world: World, signed_in: Callable[..., Client]
) -> None:
    waiting(world)
    client, person = signed_in(world.plant.engineer), world.plant.engineer
    assert client.post(ADDRESS, {"ok": "k", "ng": "O", "skip": "F2"})["Location"] == ADDRESS
    person.refresh_from_db()
    assert person.keys == {"ok": "k", "ng": "o", "skip": "F2"}
    review = client.get(reverse("capture-review")).content.decode()
    assert 'name="choice" value="OK" data-key="k"' in review
    assert 'data-key="o"' in review
    assert 'data-key="n"' not in review
    assert review.count('<kbd class="key">K</kbd>') == 2  # button and sheet
    assert '<kbd class="key">F2</kbd>' in review
    assert told(review)["keys"] == keys.of(person)
    assert told(review)["fkeys"] is False
    grid = client.get(reverse("capture-list"), {"line": world.line.code}).content.decode()
    assert 'value="OK" data-key="k"' in grid
    other = signed_in(world.plant.trainer).get(reverse("capture-list"), {"line": world.line.code}).content.decode()
    assert 'value="OK" data-key="o"' in other


def test_two_acts_may_swap_their_keys_and_defaults_come_back(world: World, signed_in: Callable[..., Client]) -> None:
    client, person = signed_in(world.plant.engineer), world.plant.engineer
    client.post(ADDRESS, {"ok": "n", "ng": "o"})
    person.refresh_from_db()
    assert (keys.of(person)["ok"], keys.of(person)["ng"]) == ("n", "o")
    client.post(ADDRESS, {"ok": "n", "ng": "o", "defaults": "1"})
    person.refresh_from_db()
    assert person.keys == {}


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"ok": "n"}, "N is also: OK"),
        ({"box": "Enter"}, "Enter is also: accept what the machine finds most probable"),
        ({"window": "t"}, "T is the key of class stain (EL 1)."),
        ({"ok": "1"}, "cannot be used here"),
        ({"ok": "?"}, "cannot be used here"),
        ({"ok": "Escape"}, "cannot be used here"),
        ({"ok": "ㅏ"}, "cannot be used here"),
        ({"ok": "<script>"}, "cannot be used here"),
    ],
)
def test_what_collides_is_said_by_name_and_nothing_is_kept(
    sent: dict[str, str], words: str, world: World, signed_in: Callable[..., Client]
) -> None:
    lines.add_class(world.line, code="stain", name_ko="얼룩", name_en="stain", hotkey="t", by=records.SET_UP)
    answer = signed_in(world.plant.engineer).post(ADDRESS, sent)
    assert (answer.status_code, words in html.unescape(answer.content.decode())) == (422, True)
    world.plant.engineer.refresh_from_db()
    assert world.plant.engineer.keys == {}


def test_a_class_that_took_ones_key_later_is_said_on_the_page(world: World, signed_in: Callable[..., Client]) -> None:
    client = signed_in(world.plant.engineer)
    client.post(ADDRESS, {"ok": "k"})
    lines.add_class(world.line, code="stain", name_ko="얼룩", name_en="stain", hotkey="k", by=records.SET_UP)
    assert "K is the key of class stain (EL 1)." in client.get(ADDRESS).content.decode()
    DefectClass.objects.filter(code="stain").update(hotkey="j")
    assert "is the key of class" not in client.get(ADDRESS).content.decode().replace("{key} is the key of class", "")


def test_f5_and_f8_belong_to_the_workstation(world: World, signed_in: Callable[..., Client]) -> None:
    waiting(world)
    client = signed_in(world.plant.engineer)
    client.post(ADDRESS, {"fkeys": "1"})
    review = client.get(reverse("capture-review")).content.decode()
    assert told(review)["fkeys"] is True
    assert review.count('<kbd class="key">F5</kbd>') == 2
    world.plant.engineer.refresh_from_db()
    assert world.plant.engineer.keys == {}
    elsewhere = signed_in(world.plant.engineer).get(reverse("capture-review")).content.decode()
    assert told(elsewhere)["fkeys"] is False
    client.post(ADDRESS, {})
    assert told(client.get(reverse("capture-review")).content.decode())["fkeys"] is False
