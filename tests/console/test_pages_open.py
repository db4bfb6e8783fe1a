"""Every page of the steering nouns opens for those who may see it: empty and full, in both languages, in parts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse

from registry.models import Device

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World

LISTS = ("snapshot", "job", "version", "promotion", "rollout", "device")
STYLED = re.compile(r"\sstyle=|<style|\son[a-z]+=|hx-on|<script(?![^>]*\ssrc=)")


def rows_of(world: World) -> dict[str, Any]:
    """A row of each noun."""
    rollout = world.rollout()
    return {
        "snapshot": world.snapshot(),
        "job": world.running(),
        "version": rollout.release.version,
        "promotion": rollout.release.promotion,
        "rollout": rollout,
        "device": Device.objects.get(code="el-1-01"),
    }


@pytest.mark.parametrize("noun", LISTS)
def test_an_empty_list_says_where_to_go_next(noun: str, world: World, signed_in: Callable[..., Client]) -> None:
    answer = signed_in(world.viewer).get(reverse(f"{noun}-list"))
    assert answer.status_code == 200
    assert 'class="empty"' in answer.content.decode()


def test_full_pages_open_in_both_languages_without_inline_code(world: World, signed_in: Callable[..., Client]) -> None:
    rows = rows_of(world)
    for person in (
        world.viewer,
        world.plant.engineer,
        world.plant.approver,
        world.plant.operator,
        world.plant.administrator,
    ):
        client = signed_in(person)
        for language in ("en", "ko"):
            for noun, row in rows.items():
                for url in (reverse(f"{noun}-list"), reverse(f"{noun}-detail", args=[row.pk])):
                    answer = client.get(url, headers={"Accept-Language": language})
                    assert answer.status_code == 200, url
                    assert not STYLED.search(answer.content.decode()), (url, STYLED.search(answer.content.decode()))


def test_every_live_part_of_a_page_can_be_read_alone(world: World, signed_in: Callable[..., Client]) -> None:
    client = signed_in(world.plant.engineer)
    for noun, row in rows_of(world).items():
        for url in (reverse(f"{noun}-list"), reverse(f"{noun}-detail", args=[row.pk])):
            page = client.get(url).content.decode()
            parts = re.findall(r'id="(\w+)" data-topic="[^"]+" hx-get="([^"]+)"', page)
            assert parts or noun == "snapshot", url
            for name, address in parts:
                if name == "stops":
                    continue
                answer = client.get(address.replace("&amp;", "&"), headers={"HX-Request": "true"})
                assert answer.status_code == 200, address
                assert f'id="{name}"' in answer.content.decode()[:200], address
                assert "<html" not in answer.content.decode()


@pytest.mark.parametrize("noun", LISTS)
def test_a_page_of_another_line_does_not_exist(noun: str, world: World, signed_in: Callable[..., Client]) -> None:
    row = rows_of(world)[noun]
    client = signed_in(world.stranger)
    assert client.get(reverse(f"{noun}-detail", args=[row.pk])).status_code == 404
    assert str(row.pk) not in client.get(reverse(f"{noun}-list")).content.decode()


@pytest.mark.parametrize("noun", LISTS)
def test_a_page_of_nothing_is_not_found(noun: str, world: World, signed_in: Callable[..., Client]) -> None:
    url = reverse(f"{noun}-detail", args=["00000000-0000-7000-8000-000000000000"])
    assert signed_in(world.viewer).get(url).status_code == 404


def test_nobody_sees_a_page_without_signing_in(world: World, client: Client) -> None:
    for noun in (*LISTS, "audit"):
        answer = client.get(reverse(f"{noun}-list"))
        assert answer.status_code == 302
        assert reverse("session-sign-in") in answer["Location"]
