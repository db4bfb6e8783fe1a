"""The door of drafts and of drawn decisions: for the right people only, and never somebody else's drawing."""

from __future__ import annotations

import html
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from django.urls import reverse
from PIL import Image

from tests.console.world import cell
from training import captures, drafts
from training.models import Capture, Decision, Draft

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World

JSON = {"Accept": "application/json"}
BOX = {"number": 1, "kind": "box", "points": [[2.0, 3.0], [10.0, 12.0]]}


def waiting(world: World, data: bytes | None = None) -> Capture:
    return captures.import_one(world.line, data or cell(950, cracked=True), {}, by=world.plant.engineer)[0]


def url(verb: str, capture: Capture) -> str:
    return reverse(f"capture-{verb}", args=[capture.pk])


def sent(*regions: Any, version: int = 0, tab: str = "a", comment: str = "") -> dict[str, Any]:
    return {"regions": json.dumps(regions), "version": version, "tab": tab, "comment": comment}


def begun(client: Client, capture: Capture) -> dict[str, Any]:
    """The draft that the page of this person begins with."""
    page = client.get(url("work", capture)).content.decode()
    return dict(json.loads(html.unescape(page.split('data-draft="')[1].split('"')[0])))


def test_a_draft_is_kept_and_the_page_begins_with_it(world: World, signed_in: Callable[..., Client]) -> None:
    capture, client = waiting(world), signed_in(world.plant.engineer)
    told = json.loads(client.post(url("draft", capture), sent(BOX, comment="edge"), headers=JSON).content)
    assert (told["version"], told["regions"]) == (1, [BOX])
    assert len(told["saved"]) == len("03:12:41")
    assert begun(client, capture) == told
    assert 'value="edge"' in client.get(url("work", capture)).content.decode()


def test_a_foreign_line_does_not_exist_and_a_viewer_keeps_nothing(
    world: World, signed_in: Callable[..., Client]
) -> None:
    capture = waiting(world)
    assert signed_in(world.stranger).post(url("draft", capture), sent(BOX)).status_code == 404
    assert signed_in(world.viewer).post(url("draft", capture), sent(BOX)).status_code == 403
    assert signed_in(world.stranger).get(url("levels", capture)).status_code == 404
    assert signed_in(world.plant.engineer).get(url("draft", capture)).status_code == 405
    assert not Draft.objects.exists()


def test_nobody_is_given_the_draft_of_somebody_else(world: World, signed_in: Callable[..., Client]) -> None:
    capture = waiting(world)
    drafts.save(capture, drawn=[BOX], comment="only mine", by=world.plant.engineer)
    other = type(world.viewer).objects.create_user("other", password=None)
    world.viewer.memberships.model.objects.create(user=other, line=world.line, role="engineer")
    client = signed_in(other)
    assert begun(client, capture) == {"regions": [], "comment": "", "version": 0, "saved": ""}
    for address in (url("work", capture), url("detail", capture), f"{reverse('capture-review')}?at={capture.pk}"):
        assert "only mine" not in client.get(address).content.decode()
    answer = client.post(url("draft", capture), sent(version=5), headers=JSON)
    assert "only mine" not in answer.content.decode()
    assert Draft.objects.get(by=world.plant.engineer).data["comment"] == "only mine"


def test_two_pages_get_both_versions(world: World, signed_in: Callable[..., Client]) -> None:
    capture, client = waiting(world), signed_in(world.plant.engineer)
    client.post(url("draft", capture), sent(BOX, tab="a"), headers=JSON)
    answer = client.post(url("draft", capture), sent(tab="b"), headers=JSON)
    told = json.loads(answer.content)
    assert (answer.status_code, told["error"], told["standing"]["regions"]) == (409, "changed", [BOX])
    assert "Choose which one" in told["sentence"]


@pytest.mark.parametrize("wrong", ["{", "7", "[1]", '{"number": 1}'])
@pytest.mark.parametrize("verb", ["draft", "decide"])
def test_shapes_that_cannot_be_read_change_nothing(
    wrong: str, verb: str, world: World, signed_in: Callable[..., Client]
) -> None:
    capture = waiting(world)
    body = {"choice": "NG:1", "version": 0, "regions": wrong}
    answer = signed_in(world.plant.engineer).post(url(verb, capture), body, headers=JSON)
    assert answer.status_code == 409
    assert json.loads(answer.content)["sentence"]
    assert not Draft.objects.exists()
    assert not Decision.objects.exists()


def test_a_drawn_decision_needs_no_class_key_and_stands_on_its_page(
    world: World, signed_in: Callable[..., Client]
) -> None:
    capture, client = waiting(world), signed_in(world.plant.engineer)
    drafts.save(capture, drawn=[BOX], by=world.plant.engineer)
    refused = client.post(url("decide", capture), {"choice": "OK", "regions": json.dumps([BOX])}, headers=JSON)
    assert "remove them to say OK" in json.loads(refused.content)["sentence"]
    client.post(url("decide", capture), {"choice": "NG", "regions": json.dumps([BOX])}, headers=JSON)
    decision = Decision.objects.get()
    assert (decision.classes, decision.regions) == ([1], [BOX])
    assert not Draft.objects.exists()
    page = html.unescape(signed_in(world.viewer).get(url("detail", capture)).content.decode())
    assert json.loads(page.split('data-decided="')[1].split('" data-names')[0]) == [BOX]
    assert '<polygon points="2,3 10,3 10,12 2,12"/>' in page


def test_a_readers_own_window_changes_only_the_view(
    world: World, signed_in: Callable[..., Client], settings: Any, tmp_path: Any
) -> None:
    settings.CACHE_ROOT = tmp_path / "cache"
    deep = np.full((40, 40), 1000, np.uint16)
    deep[10:30, 10:30], deep[:4, :4] = 1030, 30000
    out = io.BytesIO()
    Image.fromarray(deep).save(out, "TIFF")
    capture, client = waiting(world, out.getvalue()), signed_in(world.viewer)
    levels = json.loads(client.get(url("levels", capture)).content)
    assert (levels["least"], levels["most"], levels["line"]) == (1000, 30000, False)

    def seen(**window: Any) -> int:
        answer = client.get(url("picture", capture), {"size": "stage", **window})
        shown = Image.open(io.BytesIO(answer.content)).convert("L")
        return int(shown.getpixel((20, 20))) - int(shown.getpixel((35, 35)))  # type: ignore[arg-type]

    assert seen() < 5
    assert seen(low=1000, high=1030) > 240
    assert seen(low="x", high=3) < 5  # nonsense: the line's own
    kept = list((tmp_path / "cache").rglob("*.jpg"))
    assert len(kept) == 1  # sliders fill no disk
    eight = waiting(world)
    assert client.get(url("levels", eight)).status_code == 404
