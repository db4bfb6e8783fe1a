"""Golden sets as objects that people keep: made from a selection, renewed with a look first, extended, retired."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from django.urls import reverse
from django.utils import timezone

from registry.models import AuditEvent, Version
from training.models import Capture, GoldenSet, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World

HTMX = {"HX-Request": "true"}
NOBODY = "00000000-0000-7000-8000-000000000000"


def filled(world: World, **more: Any) -> dict[str, Any]:
    """The form of a new set."""
    day = (timezone.localtime() + timedelta(days=90)).strftime("%Y-%m-%d")
    names = {"code": "master", "name_ko": "기준", "name_en": "Master", "owner": str(world.plant.engineer.pk)}
    return names | {"in": world.line.code, "expires_on": day, "leads": "on", "do": "make"} | more


def ids(rows: list[Capture]) -> list[str]:
    return [str(row.pk) for row in rows]


def standing(world: World) -> GoldenSet:
    world.golden_set()
    return GoldenSet.objects.get()


def renewal(world: World, golden_set: GoldenSet, **more: Any) -> dict[str, Any]:
    """The form of the next edition with the pictures that are in the set."""
    kept = [str(pk) for pk in golden_set.items.values_list("capture", flat=True)]
    return (
        {key: value for key, value in filled(world).items() if key in ("owner", "expires_on", "leads", "do")}
        | {"id": kept}
        | more
    )


def test_a_set_is_made_of_what_the_grid_shows(world: World, signed_in: Callable[..., Client]) -> None:
    rows = world.pictures(3)
    client, url = signed_in(world.plant.engineer), reverse("golden-new") + f"?show=decided&lot={rows[0].lot}"
    grid = client.get(reverse("capture-list"), {"show": "decided", "lot": rows[0].lot, "line": world.line.code})
    assert reverse("golden-new") in grid.content.decode()
    page = client.get(url).content.decode()
    assert page.count('class="pick"') == 3
    assert not GoldenSet.objects.exists()
    answer = client.post(url, filled(world, id=ids(rows[:3])))
    made = GoldenSet.objects.get()
    assert answer["Location"] == reverse("golden-detail", args=[made.pk])
    assert (made.code, made.number, made.leads, made.owner) == ("master", 1, True, world.plant.engineer)
    assert dict(made.items.values_list("capture", "label")) == {row.pk: n // 2 for n, row in enumerate(rows[:3])}
    assert set(Capture.objects.filter(reserved=True)) == set(rows[:3])
    assert made.expires_at.astimezone(ZoneInfo(world.line.site.timezone)).strftime("%H:%M") == "23:59"
    assert AuditEvent.objects.filter(action="goldenset.create", object_id=str(made.pk)).exists()
    page = client.get(answer["Location"]).content.decode()
    assert made.digest in page
    assert page.count('class="tile"') == 3


def test_counting_what_is_ticked_writes_nothing(world: World, signed_in: Callable[..., Client]) -> None:
    rows = world.pictures(2)
    url = reverse("golden-new") + "?show=decided"
    answer = signed_in(world.plant.engineer).post(url, filled(world, id=ids(rows[:2]), do="look"))
    page = answer.content.decode()
    assert answer.status_code == 200
    assert "<dt>Pictures</dt><dd><b>2</b></dd><dt>OK</dt><dd>2</dd>" in page
    assert page.count("checked") == 3  # two pictures, and "leads"
    assert not GoldenSet.objects.exists()


def test_what_was_trained_on_cannot_be_chosen_and_is_named_when_sent_anyway(
    world: World, signed_in: Callable[..., Client]
) -> None:
    snapshot = world.snapshot()
    trained = [item.capture for item in snapshot.items.select_related("capture")]
    fresh = world.decided(990, 0, lot="new")
    client, url = signed_in(world.plant.engineer), reverse("golden-new") + "?show=decided"
    page = client.get(url).content.decode()
    assert page.count('class="pick"') == 1
    assert f"{len(trained)} of these pictures were trained on before" in page
    answer = client.post(url, filled(world, id=ids([*trained, fresh])))
    assert answer.status_code == 409
    assert all(str(row) in answer.content.decode() for row in trained)
    assert str(fresh) not in answer.content.decode()
    assert not GoldenSet.objects.exists()


def test_the_form_says_what_is_missing(world: World, signed_in: Callable[..., Client]) -> None:
    rows, client = world.pictures(1), signed_in(world.plant.engineer)
    for wrong in ({"code": ""}, {"expires_on": "soon"}, {"owner": str(world.stranger.pk)}):
        answer = client.post(reverse("golden-new"), filled(world, id=ids(rows)) | wrong)
        assert answer.status_code == 422, wrong
        assert 'class="err"' in answer.content.decode()
    past = filled(world, id=ids(rows), expires_on="2020-01-01")
    assert "must expire in the future" in client.post(reverse("golden-new"), past).content.decode()
    assert "needs pictures" in client.post(reverse("golden-new"), filled(world)).content.decode()
    assert client.post(reverse("golden-new"), filled(world, id=[NOBODY])).status_code == 404
    assert client.post(reverse("golden-new"), filled(world, id=["x"])).status_code == 404
    assert not GoldenSet.objects.exists()


def test_a_code_is_taken_once(world: World, signed_in: Callable[..., Client]) -> None:
    standing(world)
    answer = signed_in(world.plant.engineer).post(
        reverse("golden-new"), filled(world, code="golden", id=ids(world.pictures(1)))
    )
    assert answer.status_code == 409
    assert "has a golden set golden already" in answer.content.decode()
    assert GoldenSet.objects.count() == 1


def test_the_next_edition_shows_its_difference_before_it_is_made(
    world: World, signed_in: Callable[..., Client]
) -> None:
    golden_set, more = standing(world), world.pictures(1)
    client = signed_in(world.plant.engineer)
    url = reverse("golden-edition", args=[golden_set.pk]) + f"?show=decided&lot={more[0].lot}"
    assert client.get(url).content.decode().count('class="pick"') == 12
    kept = renewal(world, golden_set)["id"][1:]
    gone = Capture.objects.get(pk=renewal(world, golden_set)["id"][0])
    page = client.post(url, renewal(world, golden_set, id=[*kept, *ids(more)], do="look")).content.decode()
    assert "<dt>Kept</dt><dd>8</dd><dt>Added</dt><dd>3</dd>" in page
    assert str(gone) in page
    assert GoldenSet.objects.count() == 1
    client.post(url, renewal(world, golden_set, id=[*kept, *ids(more)]))
    second = GoldenSet.objects.get(retired_at=None)
    assert (second.code, second.number, second.items.count()) == ("golden", 2, 11)
    gone.refresh_from_db()
    assert gone.reserved  # a version may have been compared on it
    assert client.post(url, renewal(world, golden_set)).status_code == 409  # an edition is made once


def test_owner_expiry_and_retirement_are_kept_and_audited(world: World, signed_in: Callable[..., Client]) -> None:
    golden_set = standing(world)
    client = signed_in(world.plant.engineer)

    def post(verb: str, **data: str) -> Any:
        answer = client.post(reverse(f"golden-{verb}", args=[golden_set.pk]), data)
        golden_set.refresh_from_db()
        return answer

    assert post("owner", owner=str(world.viewer.pk)).status_code == 302
    assert golden_set.owner == world.viewer
    assert post("owner", owner=str(world.stranger.pk)).status_code == 409
    day = (timezone.localtime() + timedelta(days=200)).strftime("%Y-%m-%d")
    assert post("extend", expires_on=day, reason="").status_code == 409
    assert post("extend", expires_on="2020-01-01", reason="x").status_code == 409
    assert post("extend", expires_on=day, reason="no new parts until spring").status_code == 302
    assert timezone.localtime(golden_set.expires_at).strftime("%Y-%m-%d") == day
    assert post("extend", expires_on=day, reason="again").status_code == 409
    assert post("retire", reason=" ").status_code == 409
    assert golden_set.retired_at is None
    assert post("retire", reason="the product has ended").status_code == 302
    assert golden_set.retired_at is not None
    for verb, data in (("owner", {"owner": str(world.viewer.pk)}), ("extend", {"expires_on": day, "reason": "x"})):
        assert "is retired" in post(verb, **data).content.decode()
    told = list(AuditEvent.objects.filter(noun="goldenset").order_by("id").values_list("action", "reason"))
    assert told[1:] == [
        ("goldenset.hand_over", ""), ("goldenset.extend", "no new parts until spring"),
        ("goldenset.retire", "the product has ended"),
    ]  # fmt: skip
    page = client.get(reverse("golden-detail", args=[golden_set.pk])).content.decode()
    assert "the product has ended" in page
    assert Capture.objects.filter(reserved=True).count() == 9


@pytest.mark.parametrize(("days", "words"), [(5, "expires soon"), (-1, "expired")])
def test_an_expiry_is_warned_of_where_people_look(
    days: int, words: str, world: World, signed_in: Callable[..., Client]
) -> None:
    golden_set = standing(world)
    client = signed_in(world.plant.engineer)
    assert "master sample, " not in client.get(reverse("overview")).content.decode()
    GoldenSet.objects.update(expires_at=timezone.now() + timedelta(days=days))
    page = client.get(reverse("overview")).content.decode()
    assert "Golden set master sample, EL 1" in page
    assert ("expired on" if days < 0 else "expires on") in page
    assert words in client.get(reverse("golden-detail", args=[golden_set.pk])).content.decode()
    assert ('class="bad"' if days < 0 else 'class="warn"') in client.get(reverse("golden-list")).content.decode()


def test_an_edition_names_the_versions_that_were_compared_on_it(world: World, signed_in: Callable[..., Client]) -> None:
    version = world.version()
    first = GoldenSet.objects.get()
    client = signed_in(world.plant.engineer)
    client.post(reverse("golden-edition", args=[first.pk]), renewal(world, first))
    link = reverse("version-detail", args=[version.pk])
    page = client.get(reverse("golden-detail", args=[first.pk])).content.decode()
    assert page.count(link) == 1
    assert "no version" in page  # of the second edition
    Version.objects.update(created_at=timezone.now() + timedelta(seconds=5))
    rows = client.get(reverse("golden-detail", args=[first.pk])).content.decode().split("compared on it")[1]
    assert rows.index(link) < rows.index("no version")


def test_the_list_puts_the_leading_set_first_and_the_retired_last(
    world: World, signed_in: Callable[..., Client]
) -> None:
    client = signed_in(world.plant.engineer)
    client.post(reverse("golden-new"), filled(world, code="aaa", id=ids(world.pictures(1)), leads=""))
    standing_set = standing_of(world, client, "zzz")
    client.post(reverse("golden-new"), filled(world, code="old", id=ids(world.pictures(1)), leads=""))
    client.post(reverse("golden-retire", args=[GoldenSet.objects.get(code="old").pk]), {"reason": "x"})
    for language, words in (("en", "retired"), ("ko", "폐기")):
        page = client.get(reverse("golden-list"), headers={"Accept-Language": language}).content.decode()
        places = [page.index(f'<span class="id ink3">{code}<') for code in ("zzz", "aaa", "old")]
        assert places == sorted(places)
        assert words in page
    part = client.get(reverse("golden-list"), headers=HTMX).content.decode()
    assert "<html" not in part
    assert standing_set.leads


def standing_of(world: World, client: Client, code: str) -> GoldenSet:
    client.post(reverse("golden-new"), filled(world, code=code, id=ids(world.pictures(1))))
    return GoldenSet.objects.get(code=code)


def test_golden_pictures_are_in_no_snapshot_that_is_frozen_afterwards(
    world: World, signed_in: Callable[..., Client]
) -> None:
    golden_set = standing(world)
    world.pictures(4)
    client = signed_in(world.plant.engineer)
    client.post(reverse("golden-retire", args=[golden_set.pk]), {"reason": "x"})
    client.post(reverse("snapshot-new"), {"val_share": 30, "test_share": 0, "seed": 0})
    frozen = set(Snapshot.objects.get().items.values_list("capture", flat=True))
    assert len(frozen) == 12
    assert frozen.isdisjoint(golden_set.items.values_list("capture", flat=True))


def test_only_those_who_keep_golden_sets_change_them(world: World, signed_in: Callable[..., Client]) -> None:
    golden_set = standing(world)
    posts: dict[str, dict[str, Any]] = {
        "edition": renewal(world, golden_set), "owner": {"owner": str(world.viewer.pk)},
        "extend": {"expires_on": "2099-01-01", "reason": "x"}, "retire": {"reason": "x"},
    }  # fmt: skip
    for person, status in ((world.viewer, 403), (world.plant.approver, 403), (world.stranger, 404)):
        client = signed_in(person)
        for verb, data in posts.items():
            assert client.post(reverse(f"golden-{verb}", args=[golden_set.pk]), data).status_code == status, verb
        assert client.get(reverse("golden-edition", args=[golden_set.pk])).status_code == status
        shown = client.get(reverse("golden-detail", args=[golden_set.pk]))
        assert shown.status_code == (404 if status == 404 else 200)
    assert signed_in(world.viewer).post(reverse("golden-new"), filled(world)).status_code == 403
    assert signed_in(world.stranger).post(reverse("golden-new"), filled(world)).status_code == 404
    golden_set.refresh_from_db()
    assert (GoldenSet.objects.count(), golden_set.retired_at, golden_set.owner) == (1, None, world.plant.engineer)
    for verb in ("detail", "edition"):
        assert signed_in(world.plant.engineer).get(reverse(f"golden-{verb}", args=[NOBODY])).status_code == 404


def test_pictures_of_a_line_that_is_not_ones_own_do_not_exist(world: World, signed_in: Callable[..., Client]) -> None:
    foreign = ids(world.pictures(1))
    data = filled(world, id=foreign, owner=str(world.stranger.pk)) | {"in": world.other_line.code}
    assert signed_in(world.stranger).post(reverse("golden-new"), data).status_code == 404
    assert not GoldenSet.objects.exists()


def test_golden_pages_open_in_korean_without_english_sentences(world: World, signed_in: Callable[..., Client]) -> None:
    golden_set = standing(world)
    client = signed_in(world.plant.engineer)
    for url in (
        reverse("golden-list"), reverse("golden-new") + "?show=decided", reverse("golden-detail", args=[golden_set.pk]),
        reverse("golden-edition", args=[golden_set.pk]),
    ):  # fmt: skip
        page = client.get(url, headers={"Accept-Language": "ko"}).content.decode()
        assert "마스터 샘플" in page
        for words in ("Owner", "edition", "pictures", "Golden"):
            assert f">{words}" not in page, (url, words)
