"""Two snapshots side by side: reached from the list and from the newer one, each kind of change with its pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from registry.models import DefectClass
from training import captures, snapshots

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World
    from training.models import Capture, Snapshot

NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def two(world: World) -> tuple[Snapshot, Snapshot, dict[str, Capture]]:
    """Between them: three pictures added, one removed, one labelled otherwise, and a class renamed."""
    old = world.snapshot()
    gone, other = (item.capture for item in old.items.filter(label=0, split="train").order_by("pk")[:2])
    for row in (gone, other):
        captures.retract(row, reason="looked again", by=world.plant.engineer)
    captures.decide(other, verdict="NG", classes=[1], by=world.plant.engineer)
    added = world.pictures(1)[0]
    DefectClass.objects.filter(line=world.line).update(name_en="fissure", name_ko="금")
    new = snapshots.freeze(world.line, old.rule | {"assign": None}, by=world.plant.engineer)
    return old, new, {"removed": gone, "relabelled": other, "added": added}


def test_each_kind_of_change_shows_its_pictures(
    world: World, two: tuple[Snapshot, Snapshot, dict[str, Capture]], signed_in: Callable[..., Client]
) -> None:
    old, new, rows = two
    client, url = signed_in(world.viewer), reverse("snapshot-diff", args=[old.pk, new.pk])
    counted = {"added": 3, "removed": 1, "moved": 0, "relabelled": 1}
    for kind, n in counted.items():
        page = client.get(url, {"kind": kind}).content.decode()
        assert page.count('class="tile"') == n, kind
        if kind in rows:
            assert reverse("capture-detail", args=[rows[kind].pk]) in page
    assert "OK → fissure" in client.get(url, {"kind": "relabelled"}).content.decode()
    assert "No picture of this kind." in client.get(url, {"kind": "moved"}).content.decode()
    assert client.get(url, {"kind": "nonsense", "after": "x"}).status_code == 200


def test_names_of_classes_are_those_of_each_snapshot(
    world: World, two: tuple[Snapshot, Snapshot, dict[str, Capture]], signed_in: Callable[..., Client]
) -> None:
    old, new, _ = two
    client, url = signed_in(world.viewer), reverse("snapshot-diff", args=[old.pk, new.pk])
    page = client.get(url).content.decode()
    assert '<tr class="warn"><th scope="row">crack' in page
    assert "<td>fissure" in page
    korean = client.get(url, headers={"Accept-Language": "ko"}).content.decode()
    assert "균열" in korean
    assert "<td>금" in korean
    assert "코드표 비교" in korean


def test_pictures_are_paged(
    world: World,
    two: tuple[Snapshot, Snapshot, dict[str, Capture]],
    signed_in: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("console.facts.differences.SIZE", 2)
    old, new, _ = two
    client, url = signed_in(world.viewer), reverse("snapshot-diff", args=[old.pk, new.pk])
    first = client.get(url, {"kind": "added"})
    assert first.content.decode().count('class="tile"') == 2
    after = sorted(new.items.exclude(capture__in=old.items.values("capture")).values_list("capture", flat=True))[1]
    assert f"after={after}" in first.content.decode()
    assert client.get(url, {"kind": "added", "after": str(after)}).content.decode().count('class="tile"') == 1


def test_two_that_are_ticked_in_the_list_are_compared_older_first(
    world: World, two: tuple[Snapshot, Snapshot, dict[str, Capture]], signed_in: Callable[..., Client]
) -> None:
    old, new, _ = two
    client, url = signed_in(world.viewer), reverse("snapshot-compare")
    to = reverse("snapshot-diff", args=[old.pk, new.pk])
    assert "Compare the two ticked" in client.get(reverse("snapshot-list")).content.decode()
    assert client.get(url, {"snapshot": [str(new.pk), str(old.pk)]})["Location"] == to
    for wrong in ([], [str(old.pk)], [str(old.pk)] * 2):
        answer = client.get(url, {"snapshot": wrong})
        assert answer.status_code == 409
        assert "Choose two snapshots to compare." in answer.content.decode()
    assert client.get(url, {"snapshot": [str(old.pk), NOBODY]}).status_code == 404
    assert client.get(url, {"snapshot": [str(old.pk), "x"]}).status_code == 404
    detail = client.get(reverse("snapshot-detail", args=[new.pk])).content.decode()
    assert f'href="{to}"' in detail
    assert "Compare with" not in client.get(reverse("snapshot-detail", args=[old.pk])).content.decode()


def test_a_snapshot_of_another_line_is_not_there_to_compare(
    world: World, two: tuple[Snapshot, Snapshot, dict[str, Capture]], signed_in: Callable[..., Client]
) -> None:
    old, new, _ = two
    stranger = signed_in(world.stranger)
    assert stranger.get(reverse("snapshot-diff", args=[old.pk, new.pk])).status_code == 404
    assert stranger.get(reverse("snapshot-compare"), {"snapshot": [str(old.pk), str(new.pk)]}).status_code == 404
    viewer = signed_in(world.viewer)
    assert viewer.get(reverse("snapshot-diff", args=[old.pk, NOBODY])).status_code == 404
    assert viewer.post(reverse("snapshot-diff", args=[old.pk, new.pk])).status_code == 405
