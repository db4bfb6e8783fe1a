"""Rollouts and devices: starting, watching, pausing, stopping; enrolling, keeping away, asking for pictures."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse
from django.utils import timezone

from console.facts import rollouts as facts
from registry import deployments, devices, rollouts
from registry.models import Device, Rollout
from tests.console.world import commit
from tests.registry.plant import report_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World

HTMX = {"HX-Request": "true"}
WHY = {"reason": "camera moved"}


def test_a_rollout_starts_with_the_canaries_that_were_asked_for(world: World, signed_in: Callable[..., Client]) -> None:
    release = world.release()
    for n in range(3):
        world.plant.agent(f"el-1-{n}")
    client = signed_in(world.plant.operator)
    page = client.get(reverse("rollout-new"), {"release": release.pk}).content.decode()
    assert all(f"el-1-{n}" in page for n in range(3))
    answer = client.post(reverse("rollout-new"), {"release": release.pk, "canary": 2})
    rollout = Rollout.objects.get()
    assert answer["Location"] == reverse("rollout-detail", args=[rollout.pk])
    assert [stage.deployments.count() for stage in rollout.stages.all()] == [2, 1]
    again = client.post(reverse("rollout-new"), {"release": release.pk, "canary": 1})
    assert again.status_code == 409
    assert "has not ended" in again.content.decode()


def test_more_canaries_than_devices_are_refused_at_the_field(world: World, signed_in: Callable[..., Client]) -> None:
    release = world.release()
    world.plant.agent("el-1-1")
    client = signed_in(world.plant.operator)
    for canary in (0, 2, "x"):
        assert client.post(reverse("rollout-new"), {"release": release.pk, "canary": canary}).status_code == 422
    assert not Rollout.objects.exists()


def test_without_devices_the_button_says_why(world: World, signed_in: Callable[..., Client]) -> None:
    world.release()
    page = signed_in(world.plant.operator).get(reverse("rollout-new")).content.decode()
    assert "has no active device" in page
    assert 'aria-disabled="true"' in page


def test_others_may_not_start_one(world: World, signed_in: Callable[..., Client]) -> None:
    release = world.release()
    for person, status in ((world.viewer, 403), (world.plant.engineer, 403), (world.stranger, 404)):
        asked = {"release": release.pk, "canary": 1}
        assert signed_in(person).post(reverse("rollout-new"), asked).status_code == status


def test_each_device_shows_where_it_is_and_what_it_loaded(world: World, signed_in: Callable[..., Client]) -> None:
    rollout = world.rollout()
    canary = rollout.stages.get(index=0).deployments.get().device
    commit(rollout, canary)
    cells = facts.cells(rollout, timezone.now())
    assert {cell.deployment.device.code: cell.letter for cell in cells} == {
        device.code: "C" if device == canary else "·" for device in Device.objects.all()
    }
    page = signed_in(world.viewer).get(reverse("rollout-detail", args=[rollout.pk])).content.decode()
    assert rollout.release.manifest_digest[:12] in page
    assert "812 kB" in page


def test_a_refusal_is_shown_with_its_sentence_and_pauses(world: World, signed_in: Callable[..., Client]) -> None:
    rollout = world.rollout()
    canary = rollout.stages.get(index=0).deployments.get().device
    assignment = deployments.next_for(canary)
    assert assignment is not None
    deployments.report(canary, report_message(assignment["deployment"], 1, "REFUSED", code="golden_mismatch"))
    rollout = rollouts.advance(rollout, timezone.now())
    assert rollout.state == Rollout.State.PAUSED
    page = signed_in(world.viewer).get(reverse("rollout-detail", args=[rollout.pk])).content.decode()
    assert "On the golden pictures the outputs differ from the expected ones by too much." in page
    assert re.search(r'class="ng" title="[^"]+ refused"', page)


def test_a_device_that_went_silent_on_its_way_is_marked(world: World) -> None:
    rollout = world.rollout()
    canary = rollout.stages.get(index=0).deployments.get().device
    Device.objects.filter(pk=canary.pk).update(seen_at=timezone.now() - 2 * devices.SILENT_AFTER)
    cells = {cell.deployment.device.code: cell for cell in facts.cells(rollout, timezone.now())}
    assert cells[canary.code].letter == "X"
    bars = facts.stage_bars(rollout, list(cells.values()))
    assert (bars[0].silent, bars[0].total, bars[1].silent) == (1, 1, 0)


def test_pausing_going_on_and_stopping_ask_for_a_reason(world: World, signed_in: Callable[..., Client]) -> None:
    rollout = world.rollout()
    client = signed_in(world.plant.operator)
    there = reverse("rollout-detail", args=[rollout.pk])
    for verb, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("stop", "STOPPED")):
        url = reverse(f"rollout-{verb}", args=[rollout.pk])
        assert client.post(url, {"reason": ""}).status_code == 409
        assert client.post(url, WHY)["Location"] == there
        rollout.refresh_from_db()
        assert rollout.state == state
        assert client.post(url, WHY).status_code == 409  # it is there already
    assert "camera moved" in client.get(there).content.decode()


def test_htmx_gets_the_changed_part(world: World, signed_in: Callable[..., Client]) -> None:
    rollout = world.rollout()
    answer = signed_in(world.plant.operator).post(reverse("rollout-pause", args=[rollout.pk]), WHY, headers=HTMX)
    part = answer.content.decode()
    assert answer.status_code == 200
    assert "<html" not in part
    assert "camera moved" in part


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
def test_others_may_not_steer_it(verb: str, world: World, signed_in: Callable[..., Client]) -> None:
    rollout = world.rollout()
    url = reverse(f"rollout-{verb}", args=[rollout.pk])
    assert signed_in(world.viewer).post(url, WHY).status_code == 403
    assert signed_in(world.stranger).post(url, WHY).status_code == 404
    assert signed_in(world.plant.operator).get(url).status_code == 405
    rollout.refresh_from_db()
    assert rollout.state == Rollout.State.RUNNING


# ------------------------------------------------------------------------------------------------ devices


def test_a_new_device_shows_its_token_once_and_the_token_works(world: World, signed_in: Callable[..., Client]) -> None:
    world.plant.agent("el-1-1")
    station = Device.objects.get().station
    client = signed_in(world.plant.administrator)
    answer = client.post(reverse("device-new"), {"code": "EL-1-07", "station": station.pk})
    page = answer.content.decode()
    token = re.search(r"--token (\S+)</pre>", page)
    assert token is not None
    assert "python -m edge enrol" in page
    device = Device.objects.get(code="EL-1-07")
    assert token.group(1) not in client.get(reverse("device-detail", args=[device.pk])).content.decode()
    enrolled, _ = devices.enrol(
        token=token.group(1), public_key="A" * 43 + "=", hardware={}, agent_version="0", now=timezone.now()
    )
    assert (enrolled.pk, enrolled.state) == (device.pk, "ACTIVE")
    assert client.post(reverse("device-new"), {"code": "EL-1-07", "station": station.pk}).status_code == 409
    assert client.post(reverse("device-new"), {"code": "no spaces", "station": station.pk}).status_code == 422


def test_a_station_of_another_line_is_no_choice(world: World, signed_in: Callable[..., Client]) -> None:
    world.plant.agent("el-1-1")
    station = Device.objects.get().station
    answer = signed_in(world.stranger).post(reverse("device-new"), {"code": "EL-1-07", "station": station.pk})
    assert answer.status_code == 422
    assert Device.objects.count() == 1


def test_quarantine_and_back_and_retiring(world: World, signed_in: Callable[..., Client]) -> None:
    device = world.plant.agent("el-1-1").device
    client = signed_in(world.plant.administrator)
    for verb, state in (("quarantine", "QUARANTINED"), ("activate", "ACTIVE"), ("retire", "RETIRED")):
        url = reverse(f"device-{verb}", args=[device.pk])
        assert client.post(url, {"reason": ""}).status_code == 409
        assert client.post(url, WHY)["Location"] == reverse("device-detail", args=[device.pk])
        device.refresh_from_db()
        assert device.state == state
        assert client.post(url, WHY).status_code == 409
    assert client.post(reverse("device-token", args=[device.pk])).status_code == 409


@pytest.mark.parametrize("verb", ["quarantine", "activate", "retire", "token"])
def test_only_administrators_touch_a_device(verb: str, world: World, signed_in: Callable[..., Client]) -> None:
    device = world.plant.agent("el-1-1").device
    url = reverse(f"device-{verb}", args=[device.pk])
    assert signed_in(world.plant.operator).post(url, WHY).status_code == 403
    assert signed_in(world.stranger).post(url, WHY).status_code == 404
    page = signed_in(world.plant.operator).get(reverse("device-detail", args=[device.pk])).content.decode()
    assert 'aria-describedby="quarantine-why"' in page


def test_an_operator_asks_for_the_next_pictures(world: World, signed_in: Callable[..., Client]) -> None:
    device = world.plant.agent("el-1-1").device
    url = reverse("device-flag", args=[device.pk])
    client = signed_in(world.plant.operator)
    assert client.post(url, {"count": 25}).status_code == 302
    device.refresh_from_db()
    assert device.flag_next == 25
    assert "25 are asked for" in client.get(reverse("device-detail", args=[device.pk])).content.decode()
    for wrong in (0, 1001, "x", ""):
        assert client.post(url, {"count": wrong}).status_code == 422
    assert signed_in(world.viewer).post(url, {"count": 1}).status_code == 403
    assert signed_in(world.stranger).post(url, {"count": 1}).status_code == 404


def test_the_list_says_who_is_silent_and_who_is_behind(world: World, signed_in: Callable[..., Client]) -> None:
    rollout = world.rollout(2)
    device = Device.objects.order_by("code").first()
    assert device is not None
    Device.objects.filter(pk=device.pk).update(seen_at=timezone.now() - 2 * devices.SILENT_AFTER)
    page = signed_in(world.viewer).get(reverse("device-list")).content.decode()
    assert page.count("</svg>silent") == 1
    assert page.count(f"<b>R-{rollout.release.number:03d}</b>") == 2
