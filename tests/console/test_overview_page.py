"""What needs a human now: true counts, the right list for each role, and nothing of other lines."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from django.urls import reverse
from django.utils import timezone

from console.models import User
from registry.models import Device
from tests.console.test_captures_pages import waiting
from training.models import Capture, Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World


def text(client: Client, **query: str) -> str:
    answer = client.get(reverse("overview"), query)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_an_empty_plant_has_nothing_for_anybody(world: World, signed_in: Callable[..., Client]) -> None:
    page = text(signed_in(world.viewer))
    assert "Nothing waits for a person" in page
    assert "nothing inspected yet" in page  # no rate is invented


def test_somebody_without_a_line_is_told_so(world: World, signed_in: Callable[..., Client]) -> None:
    nobody = User.objects.create_user("nobody", password=None)
    assert "No line is yours yet" in text(signed_in(nobody))


def test_waiting_pictures_are_the_engineers_turn_and_late_after_their_time(
    world: World, signed_in: Callable[..., Client]
) -> None:
    waiting(world, 3)
    page = text(signed_in(world.plant.engineer))
    assert f"Decide 3 flagged pictures, {world.line.name}" in page
    assert f'href="{reverse("capture-review")}?line={world.line.code}"' in page
    long_ago = timezone.now() - timedelta(seconds=world.line.review_due_s + 60)
    Capture.objects.update(received_at=long_ago)
    page = text(signed_in(world.plant.engineer))
    assert 'class="late"' in page
    assert "1 thing is late" in page


def test_what_is_past_its_deadline_goes_up_to_the_supervisor_with_the_name_of_whoever_holds_it(
    world: World, signed_in: Callable[..., Client]
) -> None:
    from console.models import Membership
    from training import queue

    late, also, fresh = waiting(world, 3)
    boss = User.objects.create_user("boss", password=None)
    Membership.objects.create(user=boss, line=world.line, role="supervisor")
    assert "past the deadline" not in text(signed_in(boss))
    long_ago = timezone.now() - timedelta(seconds=world.line.review_due_s + 60)
    Capture.objects.filter(pk__in=[late.pk, also.pk]).update(received_at=long_ago)
    page = text(signed_in(boss))
    assert f"2 pictures are past the deadline, {world.line.name}" in page
    assert "nobody has opened them" in page
    queue.claim_one(late, by=world.plant.engineer)
    assert f"held by {world.plant.engineer}" in text(signed_in(boss))
    grid = signed_in(boss).get(reverse("capture-list"), {"late": "1"}).content.decode()
    assert str(late.pk) in grid
    assert str(fresh.pk) not in grid


def test_others_see_whose_turn_it_is_but_no_button(world: World, signed_in: Callable[..., Client]) -> None:
    waiting(world, 2)
    page = text(signed_in(world.viewer))
    assert "Decide 2 flagged pictures" in page
    assert f'href="{reverse("capture-review")}' not in page
    assert "Nothing waits for a person" in text(signed_in(world.viewer), who="mine")


def test_a_promotion_is_the_approvers_turn_and_a_release_the_operators(
    world: World, signed_in: Callable[..., Client]
) -> None:
    promotion = world.promotion()
    page = text(signed_in(world.plant.approver), who="mine")
    assert f"Sign or reject {promotion}" in page
    assert "catches the new cracks" in page


def test_a_paused_rollout_and_a_failed_job_say_why(world: World, signed_in: Callable[..., Client]) -> None:
    from registry import rollouts

    rollout = world.rollout()
    rollouts.pause(rollout, by=world.plant.operator, reason="the night shift is short of hands")
    job = world.job()
    Job.objects.filter(pk=job.pk).update(
        state="FAILED",
        ended_at=timezone.now(),
        failure={"text": "The disk is full: %(path)s.", "params": {"path": "/jobs"}},
    )
    page = text(signed_in(world.plant.operator))
    assert f"Rollout {rollout} is paused" in page
    assert f"Job {job} failed" in page
    assert "The disk is full: /jobs." in page


def test_a_silent_device_is_named(world: World, signed_in: Callable[..., Client]) -> None:
    agent = world.plant.agent("el-1-07")
    Device.objects.filter(pk=agent.device.pk).update(state="ACTIVE", seen_at=timezone.now() - timedelta(hours=3))
    page = text(signed_in(world.plant.operator))
    assert "1 device is silent" in page
    assert "el-1-07" in page


def test_nothing_of_a_foreign_line_is_counted(world: World, signed_in: Callable[..., Client]) -> None:
    waiting(world, 2)
    page = text(signed_in(world.stranger))
    assert world.line.name not in page
    assert "Nothing waits for a person" in page


def test_parts_are_read_alone(world: World, signed_in: Callable[..., Client]) -> None:
    client = signed_in(world.plant.engineer)
    part = client.get(reverse("overview"), headers={"HX-Request": "true"}).content.decode()
    assert 'id="overview"' in part
    assert "<html" not in part
    stops = client.get(f"{reverse('overview-stops')}?at=job", headers={"HX-Request": "true"}).content.decode()
    assert 'id="stops"' in stops
    assert "<html" not in stops
    assert stops.count('aria-current="page"') == 1
