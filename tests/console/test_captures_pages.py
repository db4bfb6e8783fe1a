"""Review: the grid, the single view, what its buttons do, and the pictures themselves; for the right people only."""

from __future__ import annotations

import html
import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client
from django.urls import reverse
from PIL import Image

from registry import counters
from tests.console.world import cell
from training import captures, counts, queue
from training.models import Capture, Decision

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.console.world import World

SignIn = "Callable[..., Client]"
JSON = {"Accept": "application/json"}
ACTS = ("decide", "skip", "second-look")


def waiting(world: World, count: int = 3, **meta: Any) -> list[Capture]:
    made = []
    for n in range(count):
        given = {"lot": "L900", "serial": f"S{n}", "file_name": f"셀 {n}.png"} | meta
        made.append(captures.import_one(world.line, cell(900 + n, cracked=False), given, by=world.plant.engineer)[0])
    return made


def url(verb: str, capture: Capture) -> str:
    return reverse(f"capture-{verb}", args=[capture.pk])


# ------------------------------------------------------------------------------------------------ who may


def test_nobody_sees_anything_without_signing_in(world: World) -> None:
    capture = waiting(world, 1)[0]
    for address in (
        reverse("capture-list"),
        reverse("capture-review"),
        url("detail", capture),
        url("picture", capture),
    ):
        answer = Client().get(address)
        assert answer.status_code == 302
        assert answer["Location"].startswith(reverse("session-sign-in"))
    assert Client().post(url("decide", capture), {"choice": "OK"}, headers=JSON).status_code == 401
    assert not Decision.objects.exists()


def test_a_picture_of_a_foreign_line_does_not_exist(world: World, signed_in: Callable[..., Client]) -> None:
    capture, client = waiting(world, 1)[0], signed_in(world.stranger)
    for verb in ("detail", "work", "picture", "original"):
        assert client.get(url(verb, capture)).status_code == 404, verb
    for verb in (*ACTS, "retract"):
        assert client.post(url(verb, capture), {"choice": "OK"}).status_code == 404, verb
    assert client.get(reverse("capture-list"), {"line": world.line.code}).status_code == 404
    assert Capture.objects.get().state == Capture.State.NEW


def test_a_viewer_looks_and_decides_nothing(world: World, signed_in: Callable[..., Client]) -> None:
    capture, client = waiting(world, 1)[0], signed_in(world.viewer)
    assert client.get(reverse("capture-list")).status_code == 200
    assert client.get(url("detail", capture)).status_code == 200
    assert client.get(reverse("capture-review")).status_code == 403
    for verb in ACTS:
        answer = client.post(url(verb, capture), {"choice": "OK"})
        assert answer.status_code == 403
        assert "administrator" in answer.content.decode()
    assert not Decision.objects.exists()


def test_forms_without_their_token_do_nothing(world: World) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(world.plant.engineer)
    answer = client.post(url("decide", waiting(world, 1)[0]), {"choice": "OK"})
    assert answer.status_code == 403
    assert "too old" in answer.content.decode()
    assert not Decision.objects.exists()


# ------------------------------------------------------------------------------------------------ deciding


def test_a_plain_form_decides_and_leads_to_the_next_picture(world: World, signed_in: Callable[..., Client]) -> None:
    first, second, _third = waiting(world)
    client = signed_in(world.plant.engineer)
    assert first.digest[:12] or client.get(reverse("capture-review")).status_code == 200
    answer = client.post(url("decide", first), {"choice": "NG:1", "comment": "at the edge"}, follow=True)
    decision = Decision.objects.get()
    assert (decision.verdict, decision.classes, decision.comment) == ("NG", [1], "at the edge")
    assert f'data-id="{second.pk}"' in answer.content.decode()
    assert counters.value(world.line, counts.NEW) == 2


def test_the_script_gets_the_queue_as_it_is_after_each_act(world: World, signed_in: Callable[..., Client]) -> None:
    first, second, third = waiting(world)
    client = signed_in(world.plant.engineer)
    told = json.loads(client.post(url("decide", first), {"choice": "OK"}, headers=JSON).content)
    assert told["left"] == 2
    assert [row["id"] for row in told["rail"]] == [str(second.pk), str(third.pk)]
    told = json.loads(client.post(url("skip", second), {}, headers=JSON).content)
    assert [row["id"] for row in told["rail"]] == [str(third.pk)]
    undo = reverse("capture-undo")
    told = json.loads(client.post(undo, {"line": world.line.code}, headers=JSON).content)
    assert told["at"] == str(second.pk)
    told = json.loads(client.post(undo, {"line": world.line.code}, headers=JSON).content)
    assert told["at"] == str(first.pk)
    assert told["left"] == 3
    refused = client.post(undo, {"line": world.line.code}, headers=JSON)
    assert refused.status_code == 409
    assert world.line.name in json.loads(refused.content)["sentence"]


def test_a_second_look_leaves_ones_own_queue_and_keeps_the_comment(
    world: World, signed_in: Callable[..., Client]
) -> None:
    first, second = waiting(world, 2)
    client = signed_in(world.plant.engineer)
    client.post(url("second-look", first), {"comment": "scratch or crack?"})
    first.refresh_from_db()
    assert (first.state, first.second_look) == (Capture.State.DISPUTED, True)
    assert f'data-id="{second.pk}"' in client.get(reverse("capture-review")).content.decode()
    assert "scratch or crack?" in client.get(url("detail", first)).content.decode()


def test_what_is_decided_already_is_refused_with_its_sentence_in_every_form(
    world: World, signed_in: Callable[..., Client]
) -> None:
    capture, client = waiting(world, 1)[0], signed_in(world.plant.engineer)
    client.post(url("decide", capture), {"choice": "OK"})
    page = client.post(url("decide", capture), {"choice": "NG:1"})
    part = client.post(url("decide", capture), {"choice": "NG:1"}, headers={"HX-Request": "true"})
    script = client.post(url("decide", capture), {"choice": "NG:1"}, headers=JSON)
    assert [answer.status_code for answer in (page, part, script)] == [409, 409, 409]
    assert "<html" in page.content.decode()
    assert "<html" not in part.content.decode()
    assert part["HX-Retarget"] == "#notices"
    for answer in (page, part, script):
        assert "decided already" in answer.content.decode()
    assert Decision.objects.count() == 1


@pytest.mark.parametrize("choice", ["", "MAYBE", "NG:", "NG:99", "NG:x", "OK:1"])
def test_a_choice_that_makes_no_sense_changes_nothing(
    choice: str, world: World, signed_in: Callable[..., Client]
) -> None:
    capture = waiting(world, 1)[0]
    answer = signed_in(world.plant.engineer).post(url("decide", capture), {"choice": choice}, headers=JSON)
    assert answer.status_code == 409
    assert json.loads(answer.content)["sentence"]
    assert not Decision.objects.exists()


def test_a_picture_that_somebody_else_holds_is_shown_with_who_and_until_when(
    world: World, signed_in: Callable[..., Client]
) -> None:
    capture = waiting(world, 1)[0]
    queue.claim_one(capture, by=world.plant.engineer)
    other = world.plant.engineer.__class__.objects.create_user("other", password=None)
    world.viewer.memberships.model.objects.create(user=other, line=world.line, role="engineer")
    page = signed_in(other).get(url("work", capture)).content.decode()
    assert "has this picture until" in page
    assert 'data-open=""' in page
    assert signed_in(other).post(url("decide", capture), {"choice": "OK"}, headers=JSON).status_code == 409


def test_taking_back_needs_a_reason_and_returns_the_picture(world: World, signed_in: Callable[..., Client]) -> None:
    capture, client = waiting(world, 1)[0], signed_in(world.plant.engineer)
    client.post(url("decide", capture), {"choice": "OK"})
    assert client.post(url("retract", capture), {"reason": " "}).status_code == 409
    answer = client.post(url("retract", capture), {"reason": "wrong lot"})
    assert answer["Location"] == url("detail", capture)
    capture.refresh_from_db()
    assert capture.state == Capture.State.RETRACTED
    assert "wrong lot" in client.get(url("detail", capture)).content.decode()


# ------------------------------------------------------------------------------------------------ the grid


def test_the_grid_pages_by_key_and_keeps_its_filters(
    world: World, signed_in: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    from console.facts import captures as facts

    monkeypatch.setattr(facts, "GRID_SIZE", 2)
    made = waiting(world, 5)
    client, seen, address = signed_in(world.viewer), [], f"{reverse('capture-list')}?lot=L900"
    while address:
        page = client.get(address).content.decode()
        seen += [row for row in made if url("detail", row) in page]
        links = re.findall(r'class="btn small r" href="([^"]*)"', page)
        address = reverse("capture-list") + html.unescape(links[0]) if links else ""
        assert not address or "lot=L900" in address
    assert seen == made
    assert "No picture fits" in client.get(reverse("capture-list"), {"lot": "none"}).content.decode()


def test_filters_travel_from_the_grid_into_the_review(world: World, signed_in: Callable[..., Client]) -> None:
    waiting(world, 1)
    wanted = captures.import_one(world.line, cell(77, cracked=True), {"lot": "L901"}, by=world.plant.engineer)[0]
    page = signed_in(world.plant.engineer).get(reverse("capture-review"), {"lot": "L901"}).content.decode()
    assert f'data-id="{wanted.pk}"' in page
    assert page.count('class="th"') == 1
    assert f"{url('decide', wanted)}?lot=L901" in page


@pytest.mark.parametrize("query", ["after=nonsense", "show=everything", "why=nothing", "line=", "line=*"])
def test_an_address_typed_wrong_still_shows_the_grid(
    query: str, world: World, signed_in: Callable[..., Client]
) -> None:
    assert signed_in(world.viewer).get(f"{reverse('capture-list')}?{query}").status_code == 200


# ------------------------------------------------------------------------------------------------ pictures


def test_previews_are_small_private_and_not_sent_twice(
    world: World, signed_in: Callable[..., Client], settings: Any, tmp_path: Any
) -> None:
    settings.CACHE_ROOT = tmp_path / "cache"
    capture, client = waiting(world, 1)[0], signed_in(world.viewer)
    for _time in range(2):  # made, then read back
        answer = client.get(url("picture", capture), {"size": "thumb"})
        assert Image.open(io.BytesIO(answer.content)).size == (96, 96)
        assert answer["Cache-Control"].startswith("private")
    again = client.get(url("picture", capture), {"size": "thumb"}, headers={"If-None-Match": answer["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(url("picture", capture), {"size": "../../etc"}).status_code == 404


def test_sixteen_bit_greys_are_visible_through_the_lines_window(
    world: World, signed_in: Callable[..., Client], settings: Any, tmp_path: Any
) -> None:
    settings.CACHE_ROOT = tmp_path / "cache"
    dark = Image.new("I;16", (40, 40), 1000)
    dark.paste(1400, (10, 10, 30, 30))
    out = io.BytesIO()
    dark.save(out, "TIFF")
    capture, _ = captures.import_one(world.line, out.getvalue(), {}, by=world.plant.engineer)
    type(world.line).objects.filter(pk=world.line.pk).update(window_low=1000, window_high=1400)
    shown = Image.open(io.BytesIO(signed_in(world.viewer).get(url("picture", capture)).content)).convert("L")
    assert shown.getpixel((2, 2)) < 20
    assert shown.getpixel((20, 20)) > 235


def long_picture(world: World, grey: int = 90) -> Capture:
    image = Image.new("L", (4000, 700), grey)
    image.putpixel((3900, 650), 255)
    out = io.BytesIO()
    image.save(out, "PNG")
    return captures.import_one(world.line, out.getvalue(), {"serial": "SN-LONG"}, by=world.plant.engineer)[0]


def test_a_picture_larger_than_the_stage_has_tiles_and_the_stage_says_so(
    world: World, signed_in: Callable[..., Client], settings: Any, tmp_path: Any
) -> None:
    settings.CACHE_ROOT = tmp_path / "cache"
    capture, small, client = long_picture(world), waiting(world, 1)[0], signed_in(world.viewer)
    stage = Image.open(io.BytesIO(client.get(url("picture", capture)).content))
    assert stage.size == (1600, 280)
    tile = client.get(reverse("capture-tile", args=[capture.pk, 0, 7, 1]))
    assert Image.open(io.BytesIO(tile.content)).convert("L").getpixel((3900 - 7 * 512, 650 - 512)) > 200
    assert tile["Cache-Control"].startswith("private")
    again = client.get(reverse("capture-tile", args=[capture.pk, 0, 7, 1]), headers={"If-None-Match": tile["ETag"]})
    assert again.status_code == 304
    page = client.get(url("detail", capture)).content.decode()
    assert f'data-tiles="/captures/{capture.pk}/tile/0/0/0" data-levels="2"' in page
    assert "data-tiles" not in client.get(url("detail", small)).content.decode()
    for nowhere in ([capture.pk, 0, 8, 0], [capture.pk, 2, 0, 0], [small.pk, 0, 0, 0]):
        assert client.get(reverse("capture-tile", args=nowhere)).status_code == 404
    stranger = signed_in(world.stranger)
    assert stranger.get(reverse("capture-tile", args=[capture.pk, 0, 0, 0])).status_code == 404


def test_levels_stay_under_their_limit_and_what_was_looked_at_longest_ago_goes_first(
    world: World, signed_in: Callable[..., Client], settings: Any, tmp_path: Any
) -> None:
    settings.CACHE_ROOT, settings.LEVELS_MAX_BYTES = tmp_path / "cache", 8_000_000  # two of them fit
    client, made = signed_in(world.viewer), [long_picture(world, grey) for grey in (60, 90, 120)]
    for capture in (made[0], made[1], made[0], made[2]):
        assert client.get(reverse("capture-tile", args=[capture.pk, 0, 0, 0])).status_code == 200
    kept = {folder.name[:64] for folder in (tmp_path / "cache" / "levels").glob("*/*")}
    assert kept == {made[0].digest, made[2].digest}


def test_other_pictures_of_the_same_part_stand_beside_it(world: World, signed_in: Callable[..., Client]) -> None:
    first, second, third = waiting(world, 3)
    Capture.objects.filter(pk__in=[first.pk, second.pk]).update(serial="SN-7")
    page = signed_in(world.viewer).get(url("detail", first)).content.decode()
    assert f'src="{url("picture", second)}?size=thumb"' in page
    assert str(third.pk) not in page


def test_the_original_is_given_bit_by_bit_as_a_file(world: World, signed_in: Callable[..., Client]) -> None:
    capture = waiting(world, 1)[0]
    answer = signed_in(world.viewer).get(url("original", capture))
    assert answer.content == cell(900, cracked=False)
    assert answer["Content-Disposition"].startswith("attachment")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Type"] == "application/octet-stream"


def test_damaged_bytes_are_told_and_nothing_else_breaks(
    world: World, signed_in: Callable[..., Client], settings: Any, tmp_path: Any
) -> None:
    from registry import blobs

    settings.CACHE_ROOT = tmp_path / "cache"
    first, second = waiting(world, 2)
    stored = blobs.path(first.digest)
    stored.chmod(0o644)
    stored.write_bytes(b"rot")
    client = signed_in(world.plant.engineer)
    answer = client.get(url("picture", first))
    assert answer.status_code == 410
    assert "damaged" in answer.content.decode()
    assert client.get(url("picture", second)).status_code == 200
    assert client.get(reverse("capture-list")).status_code == 200


# ------------------------------------------------------------------------------------------------ filters and views


def test_an_address_is_read_and_written_back_the_same() -> None:
    from urllib.parse import parse_qsl

    from console.facts.filters import Filters

    address = (
        "show=decided&order=doubt&why=band%2Caudit&differs=1&mine=1&said=0&decided=2&from=2026-11-01T06%3A00"
        "&to=2026-11-02T06%3A00&lot=L1&serial=%EA%B0%80&shift=B&station=S2"
    )
    filters = Filters.read(dict(parse_qsl(address)))
    assert filters.query() == address
    odd = {"show": "x", "order": "id; drop", "why": "nothing", "said": "-1", "from": "yesterday", "lot": "  "}
    assert Filters.read(odd) == Filters()


def test_hours_are_those_of_the_plant(world: World) -> None:
    from console.facts.filters import Filters

    made = waiting(world, 2)
    for capture, hour in zip(made, (20, 22), strict=True):  # UTC: 05:00 and 07:00 in Seoul
        Capture.objects.filter(pk=capture.pk).update(taken_at=f"2026-11-01T{hour}:00:00Z")
    assert world.line.site.timezone == "Asia/Seoul"
    where = Filters.read({"from": "2026-11-02T06:00"}).where(world.line, world.viewer)
    assert list(Capture.objects.filter(where)) == [made[1]]


@pytest.mark.parametrize("order", ["age", "doubt", "critical"])
def test_every_order_pages_without_a_gap_or_a_repeat(
    world: World, signed_in: Callable[..., Client], monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    from console.facts import captures as facts

    monkeypatch.setattr(facts, "GRID_SIZE", 3)
    made = waiting(world, 10)
    for n, capture in enumerate(made):
        Capture.objects.filter(pk=capture.pk).update(doubt=(n % 4) / 7, urgent=n % 3 == 0)
    client, seen, address = signed_in(world.viewer), [], f"{reverse('capture-list')}?order={order}&lot=L900"
    while address:
        page = client.get(address).content.decode()
        seen += re.findall(r"/captures/([0-9a-f-]{36})/\"", page)
        onwards = re.search(r'href="(\?[^"]*after=[^"]*)"[^>]*>Next page', page)
        address = reverse("capture-list") + html.unescape(onwards.group(1)) if onwards else ""
    assert sorted(seen) == sorted(str(capture.pk) for capture in made)
    by = {"doubt": lambda one: (-one.doubt, one.pk), "critical": lambda one: (not one.urgent, one.pk)}
    if order in by:
        assert seen == [str(one.pk) for one in sorted(Capture.objects.filter(lot="L900"), key=by[order])]


def test_a_view_is_kept_for_its_person_and_forgotten(world: World, signed_in: Callable[..., Client]) -> None:
    client, address = signed_in(world.viewer), reverse("capture-views")
    client.post(address, {"name": "밤 근무", "query": "shift=C&order=doubt&junk=1"})
    assert list(world.viewer.saved_views.values_list("name", "query")) == [("밤 근무", "order=doubt&shift=C")]
    assert "밤 근무" in client.get(reverse("capture-list")).content.decode()
    assert "밤 근무" not in signed_in(world.plant.engineer).get(reverse("capture-list")).content.decode()
    assert client.post(address, {"name": " "}).status_code == 409
    client.post(address, {"name": "밤 근무", "query": "", "forget": "1"})
    assert not world.viewer.saved_views.exists()


def test_viewers_and_strangers_decide_nothing_together(world: World, signed_in: Callable[..., Client]) -> None:
    capture = waiting(world, 1)[0]
    form = {"line": world.line.code, "id": str(capture.pk), "choice": "OK"}
    assert signed_in(world.viewer).post(reverse("capture-decide-together"), form).status_code == 403
    assert signed_in(world.stranger).post(reverse("capture-decide-together"), form).status_code in (403, 404)
    assert not Decision.objects.filter(capture=capture).exists()
    assert signed_in(world.plant.engineer).post(url("free", capture)).status_code == 403
