"""Similar pictures in the grid, and deciding all that are like one: exactly what was ticked, by the right people."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse
from django.utils import timezone

from tests.console.test_captures_pages import JSON, waiting
from tests.training.vectors import place
from training import captures
from training.models import Capture, Decision, NearDuplicate, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World


@pytest.fixture
def rows(world: World) -> list[Capture]:
    """Ten open pictures three degrees apart: from the first, the fourth is 0.988 alike, the sixth 0.966."""
    made = waiting(world, 10)
    place({row: 3.0 * n for n, row in enumerate(made)})
    return made


def grid(client: Client, **query: object) -> str:
    answer = client.get(reverse("capture-list"), query)
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def tiles(page: str) -> list[str]:
    return re.findall(r'name="id" value="([0-9a-f-]+)"', page)


def alike(capture: Capture) -> str:
    return reverse("capture-alike", args=[capture.pk])


# ------------------------------------------------------------------------------------------------ the grid


def test_the_grid_shows_the_most_similar_first_and_says_to_what(
    world: World, rows: list[Capture], signed_in: Callable[..., Client]
) -> None:
    client = signed_in(world.plant.engineer)
    page = grid(client, like=rows[0].pk)
    assert tiles(page) == [str(row.pk) for row in rows]
    assert "similar to S0" in page
    assert f'<input type="hidden" name="like" value="{rows[0].pk}">' in page
    assert "at most 600" in page
    assert tiles(grid(client, like=rows[9].pk, serial="S3")) == [str(rows[3].pk)]
    ko = client.get(reverse("capture-list"), {"like": rows[0].pk}, headers={"Accept-Language": "ko"}).content.decode()
    assert "S0" in ko
    assert "similar to" not in re.sub(r"<[^>]+>", "", ko)


def test_pages_of_the_nearest_go_on_where_the_last_one_ended_while_people_decide(
    world: World, rows: list[Capture], signed_in: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    from console.facts import captures as facts

    monkeypatch.setattr(facts, "GRID_SIZE", 4)
    client = signed_in(world.plant.engineer)
    first = grid(client, like=rows[0].pk)
    assert tiles(first) == [str(row.pk) for row in rows[:4]]
    after = re.search(r"after=([^\"&]+)\"", first)
    assert after is not None
    captures.decide(rows[1], verdict="OK", by=world.plant.engineer)
    second = grid(client, like=rows[0].pk, after=after[1].replace("%7E", "~"))
    assert tiles(second) == [str(row.pk) for row in rows[4:8]]


def test_a_picture_that_is_not_compared_yet_says_so_and_how_many_wait(
    world: World, rows: list[Capture], signed_in: Callable[..., Client]
) -> None:
    fresh, _ = captures.import_one(world.line, _other(), {"serial": "FRESH"}, by=world.plant.engineer)
    client = signed_in(world.plant.engineer)
    page = grid(client, like=fresh.pk)
    assert "FRESH is not compared yet" in page
    assert "Pictures that wait: 1." in page
    assert "FRESH is not compared yet" in html.unescape(client.get(alike(fresh)).content.decode())
    review = client.get(reverse("capture-review"), {"like": fresh.pk})
    assert "FRESH is not compared yet" in html.unescape(review.content.decode())


def test_a_picked_picture_of_a_foreign_line_is_not_named(
    world: World, rows: list[Capture], signed_in: Callable[..., Client]
) -> None:
    page = grid(signed_in(world.stranger), like=rows[3].pk)
    assert "S3" not in page
    assert "not on the lines shown" in page


def test_the_single_view_and_the_detail_page_lead_to_similar_pictures(
    world: World, rows: list[Capture], signed_in: Callable[..., Client]
) -> None:
    client = signed_in(world.plant.engineer)
    wanted = f"show=all&like={rows[0].pk}"
    for url in (reverse("capture-review"), reverse("capture-detail", args=[rows[0].pk])):
        page = html.unescape(client.get(url).content.decode())
        assert re.search(rf'id="similar" href="[^"]*{re.escape(wanted)}" data-key="s"', page), url
        assert alike(rows[0]) in page
    looked_at = signed_in(world.viewer).get(reverse("capture-detail", args=[rows[0].pk])).content.decode()
    assert alike(rows[0]) not in looked_at
    queue = client.get(reverse("capture-review"), {"like": rows[4].pk}).content.decode()
    assert re.findall(r'data-id="([0-9a-f-]+)"', queue)[0] == str(rows[4].pk)


# ------------------------------------------------------------------------------------------------ deciding


def test_only_what_was_ticked_is_decided_as_the_picked_one_is_and_taken_back_together(
    world: World, rows: list[Capture], signed_in: Callable[..., Client]
) -> None:
    captures.decide(rows[0], verdict="NG", classes=[1], by=world.plant.engineer)
    client = signed_in(world.plant.engineer)
    page = html.unescape(client.get(alike(rows[0])).content.decode())
    listed = [row.pk for row in rows[1:]]
    assert sorted(tiles(page)) == sorted(str(pk) for pk in listed)  # five above 0.97, and six at most below
    ticked = re.findall(r'value="([0-9a-f-]+)" checked', page)
    assert ticked == [str(row.pk) for row in rows[1:4]]  # at least 0.98: the border cases are not ticked
    assert "Decide these as" in page
    answer = client.post(alike(rows[0]), {"choice": "NG:1", "id": ticked, "least": "0.97"}, follow=True)
    assert "3 pictures decided" in answer.content.decode()
    decided = set(Capture.objects.filter(state="DECIDED").values_list("pk", flat=True))
    assert decided == {rows[0].pk, *(row.pk for row in rows[1:4])}
    assert {decision.verdict for decision in Decision.objects.exclude(batch=None)} == {"NG"}
    undo = {"line": world.line.code, "next": f"{alike(rows[0])}?least=0.97"}
    answer = client.post(reverse("capture-undo-together"), undo)
    assert answer["Location"] == undo["next"]
    assert set(Capture.objects.filter(state="DECIDED").values_list("pk", flat=True)) == {rows[0].pk}


def test_an_open_picture_is_decided_along_with_those_like_it(
    world: World, rows: list[Capture], signed_in: Callable[..., Client]
) -> None:
    client = signed_in(world.plant.engineer)
    assert 'value="OK" data-key="o"' in client.get(alike(rows[0])).content.decode()
    client.post(alike(rows[0]), {"choice": "OK", "id": [str(rows[1].pk)], "least": "0.97"})
    assert set(Capture.objects.filter(state="DECIDED")) == {rows[0], rows[1]}
    assert len(set(Decision.objects.values_list("batch", flat=True))) == 1


def test_a_decision_that_changed_meanwhile_decides_nothing(
    world: World, rows: list[Capture], signed_in: Callable[..., Client]
) -> None:
    captures.decide(rows[0], verdict="OK", by=world.plant.engineer)
    client = signed_in(world.plant.engineer)
    sent = {"choice": "NG:1", "id": [str(rows[1].pk)]}
    answer = client.post(alike(rows[0]), sent, headers=JSON)
    assert answer.status_code == 409
    assert "changed" in answer.json()["sentence"]
    assert client.post(alike(rows[0]), {"choice": "", "id": []}, headers=JSON).status_code == 409
    assert client.post(alike(rows[0]), {"choice": "OK"}, headers=JSON).status_code == 409  # nothing is ticked
    assert Capture.objects.filter(state="DECIDED").count() == 1


def test_what_somebody_else_holds_is_left_alone_and_named(
    world: World, rows: list[Capture], signed_in: Callable[..., Client]
) -> None:
    captures.decide(rows[0], verdict="OK", by=world.plant.engineer)
    other = world.plant.approver
    Capture.objects.filter(pk=rows[1].pk).update(claimed_by=other, claimed_until=timezone.now() + timedelta(minutes=5))
    client = signed_in(world.plant.engineer)
    page = client.get(alike(rows[0])).content.decode()
    assert f'value="{rows[1].pk}" checked' not in page
    sent = {"choice": "OK", "id": [str(rows[1].pk), str(rows[2].pk)]}
    answer = client.post(alike(rows[0]), sent, follow=True)
    assert str(other) in answer.content.decode()
    assert set(Capture.objects.filter(state="DECIDED")) == {rows[0], rows[2]}


def test_an_open_picture_that_somebody_else_holds_decides_no_others(
    world: World, rows: list[Capture], signed_in: Callable[..., Client]
) -> None:
    until = timezone.now() + timedelta(minutes=5)
    Capture.objects.filter(pk=rows[0].pk).update(claimed_by=world.plant.approver, claimed_until=until)
    sent = {"choice": "OK", "id": [str(rows[1].pk)]}
    answer = signed_in(world.plant.engineer).post(alike(rows[0]), sent, headers=JSON)
    assert answer.status_code == 409
    assert str(world.plant.approver) in answer.json()["sentence"]
    assert not Decision.objects.exists()


def test_deciding_alike_needs_the_role_and_the_line(
    world: World, rows: list[Capture], signed_in: Callable[..., Client]
) -> None:
    sent = {"choice": "OK", "id": [str(rows[1].pk)]}
    for person, status in ((world.viewer, 403), (world.stranger, 404)):
        client = signed_in(person)
        assert client.get(alike(rows[0])).status_code == status
        assert client.post(alike(rows[0]), sent).status_code == status
    assert not Decision.objects.exists()


def test_another_border_lists_other_pictures(
    world: World, rows: list[Capture], signed_in: Callable[..., Client]
) -> None:
    client = signed_in(world.plant.engineer)
    strict = client.get(alike(rows[0]), {"least": "0.99"}).content.decode()
    wide = client.get(alike(rows[0]), {"least": "0.9"}).content.decode()
    assert strict.count(" checked") == 0
    assert wide.count(" checked") > strict.count(" checked")
    assert client.get(alike(rows[0]), {"least": "nonsense"}).status_code == 200


# ------------------------------------------------------------------------------------------------ near duplicates


def test_a_picture_names_those_that_show_nearly_the_same(
    world: World, rows: list[Capture], signed_in: Callable[..., Client]
) -> None:
    NearDuplicate.objects.create(line=world.line, a=rows[0], b=rows[1], similarity=0.998)
    page = signed_in(world.viewer).get(reverse("capture-detail", args=[rows[1].pk])).content.decode()
    assert "Shows nearly the same as" in page
    assert reverse("capture-picture", args=[rows[0].pk]) in page
    other = signed_in(world.viewer).get(reverse("capture-detail", args=[rows[2].pk])).content.decode()
    assert "Shows nearly the same as" not in other


def test_the_snapshot_page_counts_near_duplicates_and_shows_the_two_that_would_be_parted(
    world: World, signed_in: Callable[..., Client]
) -> None:
    made = world.pictures(4)
    NearDuplicate.objects.create(line=world.line, a=made[0], b=made[3], similarity=0.998)
    client = signed_in(world.plant.engineer)
    page = html.unescape(client.get(reverse("snapshot-new")).content.decode())
    assert "2 pictures show nearly the same as another one" in page
    assert "12 pictures are not compared with the others yet" in page
    asked = {f"lot:{made[0].lot}": "train", f"lot:{made[3].lot}": "val"}
    page = html.unescape(client.get(reverse("snapshot-new"), asked).content.decode())
    assert f"Pictures {made[0].serial} and {made[3].serial} show nearly the same" in page
    for row in (made[0], made[3]):
        assert f"{reverse('capture-picture', args=[row.pk])}?size=thumb" in page
    answer = client.post(reverse("snapshot-new"), asked)
    assert answer.status_code == 409
    assert not Snapshot.objects.exists()


def _other() -> bytes:
    from tests.console.world import cell

    return cell(777, cracked=True)
