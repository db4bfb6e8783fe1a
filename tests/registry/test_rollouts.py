"""A release goes out in stages: the canary first, the rest only when the canary's own reports say committed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from registry import deployments, devices, lifecycle, rollouts
from registry.lifecycle import Refused
from registry.models import Deployment, Device, Rollout, Stage
from registry.rollouts import Plan
from registry.stages import Part, Wave, decide
from tests.registry.plant import report_message

if TYPE_CHECKING:
    from registry.models import Release
    from tests.registry.plant import Plant


def fleet(plant: Plant, count: int = 3) -> list[Device]:
    return [plant.agent(f"EL-1-{number:02d}").device for number in range(1, count + 1)]


def run(device: Device, release: Release, *states: str, **more: Any) -> dict[str, Any]:
    """The device asks, and reports these states in order; answers the last response."""
    assignment = deployments.next_for(device)
    assert assignment is not None
    answer = {}
    for number, state in enumerate(states, start=assignment["sequence"] + 1):
        loaded = release.manifest_digest if state == "COMMITTED" else None
        message = report_message(assignment["deployment"], number, state, loaded_digest=loaded) | more
        answer = deployments.report(device, message)
    return answer


def states(rollout: Rollout) -> dict[str, str]:
    return dict(rollout.deployments.order_by("device__code").values_list("device__code", "state"))


def stage_states(rollout: Rollout) -> list[str]:
    return [stage.state for stage in rollout.stages.order_by("index")]


def soaked(rollout: Rollout) -> Rollout:
    """Advance until after every soak time."""
    rollouts.advance(rollout, timezone.now())
    return rollouts.advance(rollout, timezone.now() + timedelta(minutes=5))


def test_the_canary_goes_first_and_the_rest_when_it_committed(plant: Plant) -> None:
    canary, *rest = fleet(plant)
    release = plant.release()
    rollout = rollouts.start(release, by=plant.operator)
    assert [(stage.name, stage.state) for stage in rollout.stages.all()] == [("canary", "RUNNING"), ("rest", "WAITING")]
    assert all(deployments.next_for(device) is None for device in rest)

    run(canary, release, "DOWNLOADING", "VERIFIED", "STAGED", "PROBATION", "COMMITTED")
    assert rollouts.advance(rollout, timezone.now()).state == "RUNNING"
    assert stage_states(rollout) == ["SOAKING", "WAITING"]
    assert all(deployments.next_for(device) is None for device in rest)
    soaked(rollout)
    assert stage_states(rollout) == ["PASSED", "RUNNING"]

    for device in rest:
        run(device, release, "DOWNLOADING", "COMMITTED")
    assert soaked(rollout).state == Rollout.State.COMPLETED
    assert set(states(rollout).values()) == {"COMMITTED"}
    assert Device.objects.get(pk=canary.pk).running_number == 1


@pytest.mark.parametrize("end", ["REFUSED", "FAILED", "FELL_BACK"])
def test_a_canary_that_fails_pauses_the_rollout_with_a_sentence(plant: Plant, end: str) -> None:
    canary, *rest = fleet(plant)
    release = plant.release()
    rollout = rollouts.start(release, by=plant.operator)
    run(canary, release, "DOWNLOADING", end, code="golden_mismatch", params={"max_abs": 1.0})
    rollout = rollouts.advance(rollout, timezone.now())
    assert rollout.state == Rollout.State.PAUSED
    assert stage_states(rollout) == ["FAILED", "WAITING"]
    sentence = rollout.pause_sentence["text"] % rollout.pause_sentence["params"]
    assert sentence.startswith("Stage “canary”: 1 of 1 devices that tried did not take the release (EL-1-01).")
    assert all(deployments.next_for(device) is None for device in rest)
    row = Deployment.objects.get(device=canary)
    assert (row.state, row.code, row.params) == (end, "golden_mismatch", {"max_abs": 1.0})


def test_an_empty_target_set_is_refused(plant: Plant) -> None:
    release = plant.release()
    with pytest.raises(Refused, match="no active device"):
        rollouts.start(release, by=plant.operator)
    device = fleet(plant, 1)[0]
    devices.quarantine(device, by=plant.administrator, reason="odd")
    with pytest.raises(Refused, match="no active device"):
        rollouts.start(release, by=plant.operator)
    assert not Rollout.objects.exists()


def test_a_stage_without_devices_and_devices_without_a_stage_are_refused(plant: Plant) -> None:
    fleet(plant, 2)
    release = plant.release()
    with pytest.raises(Refused, match="would have no device"):
        rollouts.start(release, by=plant.operator, stages=[Plan("all"), Plan("more")])
    with pytest.raises(Refused, match="in no stage"):
        rollouts.start(release, by=plant.operator, stages=[Plan("canary", devices=1)])
    with pytest.raises(Refused, match="Shares"):
        rollouts.start(release, by=plant.operator, stages=[Plan("all", error_share=2.0)])


def test_the_target_set_is_frozen_at_the_start(plant: Plant) -> None:
    fleet(plant, 2)
    release = plant.release()
    rollout = rollouts.start(release, by=plant.operator)
    late = plant.agent("EL-1-99").device
    assert deployments.next_for(late) is None
    assert "EL-1-99" not in states(rollout)


def test_a_small_line_has_one_stage(plant: Plant) -> None:
    fleet(plant, 1)
    assert [stage.name for stage in rollouts.start(plant.release(), by=plant.operator).stages.all()] == ["all"]


def test_only_the_published_release_goes_out_and_only_by_an_operator(plant: Plant) -> None:
    fleet(plant)
    old, new = plant.release(1), plant.release(2)
    old.refresh_from_db()
    with pytest.raises(Refused, match="superseded"):
        rollouts.start(old, by=plant.operator)
    with pytest.raises(Refused, match="roles"):
        rollouts.start(new, by=plant.engineer)
    with pytest.raises(Refused, match="signed-in person"):
        rollouts.start(new, by="system")
    rollouts.start(new, by=plant.operator)
    with pytest.raises(Refused, match="has not ended"):
        rollouts.start(new, by=plant.operator)


def test_a_newer_rollout_takes_over_what_is_under_way(plant: Plant) -> None:
    first, *_ = fleet(plant)
    old = plant.release(1)
    before = rollouts.start(old, by=plant.operator)
    run(first, old, "DOWNLOADING")
    new = plant.release(2)
    assert {str(row.device) for row in rollouts.conflicts(new)} == {"EL-1-01", "EL-1-02", "EL-1-03"}
    rollouts.start(new, by=plant.operator)
    before.refresh_from_db()
    assert before.state == Rollout.State.STOPPED
    assert set(states(before).values()) == {"SUPERSEDED"}
    assignment = deployments.next_for(first)
    assert assignment is not None
    assert assignment["release_number"] == 2


def test_a_pause_reaches_a_device_in_the_middle_of_its_installation(plant: Plant) -> None:
    canary, *_ = fleet(plant)
    release = plant.release()
    rollout = rollouts.start(release, by=plant.operator)
    assert run(canary, release, "DOWNLOADING")["wanted"] is True
    rollouts.pause(rollout, by=plant.operator, reason="shift change")
    assert rollout.pause_sentence["params"] == {"name": "operator", "reason": "shift change"}
    row = Deployment.objects.get(device=canary)
    assert deployments.report(canary, report_message(str(row.pk), 2, "VERIFIED"))["wanted"] is False
    assert deployments.next_for(canary) is None
    rollouts.resume(rollout, by=plant.operator, reason="shift began")
    assert run(canary, release, "STAGED")["wanted"] is True


def test_a_rollout_that_failed_goes_on_only_when_a_person_says_so(plant: Plant) -> None:
    canary, *rest = fleet(plant)
    release = plant.release()
    rollout = rollouts.start(release, by=plant.operator)
    run(canary, release, "FAILED", code="disk_full")
    rollout = rollouts.advance(rollout, timezone.now())
    with pytest.raises(Refused, match="reason"):
        rollouts.resume(rollout, by=plant.operator, reason="")
    rollouts.resume(rollout, by=plant.operator, reason="only the disk of EL-1-01")
    assert stage_states(rollout) == ["FAILED", "RUNNING"]
    for device in rest:
        run(device, release, "COMMITTED")
    assert soaked(rollout).state == Rollout.State.COMPLETED_WITH_EXCEPTIONS


def test_a_superseded_release_cannot_be_resumed(plant: Plant) -> None:
    fleet(plant)
    rollout = rollouts.start(plant.release(1), by=plant.operator)
    rollouts.pause(rollout, by=plant.operator, reason="wait")
    plant.release(2)
    rollout.refresh_from_db()
    assert "superseded" in lifecycle.why_not(rollouts.resume, rollout, by=plant.operator, reason="go")


def test_stopping_ends_everything_but_what_committed(plant: Plant) -> None:
    canary, *rest = fleet(plant)
    release = plant.release()
    rollout = rollouts.start(release, by=plant.operator)
    run(canary, release, "COMMITTED")
    soaked(rollout)
    rollouts.stop(Rollout.objects.get(pk=rollout.pk), by=plant.operator, reason="wrong lot")
    rollout.refresh_from_db()
    assert rollout.state == Rollout.State.STOPPED
    assert states(rollout) == {"EL-1-01": "COMMITTED", "EL-1-02": "SUPERSEDED", "EL-1-03": "SUPERSEDED"}
    assert all(deployments.next_for(device) is None for device in rest)


def test_devices_that_stay_offline_expire_and_do_not_count_as_success(plant: Plant) -> None:
    canary, *rest = fleet(plant)
    release = plant.release()
    rollout = rollouts.start(release, by=plant.operator)
    run(canary, release, "COMMITTED")
    soaked(rollout)
    run(rest[0], release, "COMMITTED")
    rollout = rollouts.advance(rollout, timezone.now() + timedelta(hours=25))
    rollout = rollouts.advance(rollout, timezone.now() + timedelta(hours=26))
    assert states(rollout)["EL-1-03"] == "EXPIRED"
    assert rollout.state == Rollout.State.COMPLETED_WITH_EXCEPTIONS


def test_a_canary_that_nobody_installed_does_not_open_the_rest(plant: Plant) -> None:
    fleet(plant)
    rollout = rollouts.start(plant.release(), by=plant.operator)
    rollout = rollouts.advance(rollout, timezone.now() + timedelta(hours=25))
    assert rollout.state == Rollout.State.PAUSED
    assert stage_states(rollout) == ["FAILED", "WAITING"]
    assert "no device had installed" in rollout.pause_sentence["text"]


def test_advancing_again_changes_nothing(plant: Plant) -> None:
    fleet(plant)
    rollout = rollouts.start(plant.release(), by=plant.operator)
    before = rollouts.advance(rollout, timezone.now()).row_version
    assert rollouts.advance(rollout, timezone.now()).row_version == before


# ------------------------------------------------------------------------------------------------ the pure decision

NOW = datetime.fromisoformat("2026-03-01T08:00:00+00:00")


def wave(state: str, *parts: str, heard_s: float = 0, **more: Any) -> Wave:
    given: dict[str, Any] = {
        "id": uuid4(), "name": "canary", "state": state, "success_share": 1.0, "error_share": 0.0, "soak_s": 60,
        "deadline_s": 3600, "started_at": NOW, "soaking_at": NOW if state == "SOAKING" else None,
    } | more  # fmt: skip
    heard = NOW - timedelta(seconds=heard_s)
    rows = [Part(uuid4(), f"d{number}", part, heard) for number, part in enumerate(parts)]
    return Wave(**given, parts=rows)


def does(*waves: Wave, after_s: float = 0) -> list[str]:
    return [step.do for step in decide(waves, NOW + timedelta(seconds=after_s))]


def test_a_group_that_ended_is_not_a_group_that_passed() -> None:
    half = wave("RUNNING", *["COMMITTED"] * 5, *["FAILED"] * 5, success_share=1.0, error_share=0.5)
    assert does(half) == ["fail"]


def test_one_failure_of_two_is_more_than_none() -> None:
    assert does(wave("RUNNING", "FAILED", "PENDING")) == ["fail"]
    assert does(wave("RUNNING", "FAILED", "COMMITTED", error_share=0.5, success_share=0.5)) == ["soak"]


def test_the_error_share_is_of_those_that_tried_not_of_the_group() -> None:
    assert does(wave("RUNNING", "FAILED", *["PENDING"] * 99, error_share=0.1)) == ["fail"]


def test_a_device_that_took_it_and_fell_silent_counts_as_failed() -> None:
    assert does(wave("RUNNING", "PROBATION", heard_s=60)) == []
    assert does(wave("RUNNING", "PROBATION", heard_s=3000)) == ["fail"]
    assert does(wave("RUNNING", "PENDING", heard_s=3000)) == []


def test_a_device_that_falls_back_while_the_stage_soaks_fails_it() -> None:
    assert does(wave("SOAKING", "COMMITTED")) == []
    assert does(wave("SOAKING", "COMMITTED"), after_s=61) == ["pass"]
    assert does(wave("SOAKING", "COMMITTED", "FELL_BACK"), after_s=61) == ["fail"]


def test_the_next_stage_starts_after_the_one_before_and_the_end_comes_after_the_last() -> None:
    assert does(wave("PASSED", "COMMITTED"), wave("WAITING", "PENDING")) == ["start"]
    assert does(wave("SOAKING", "COMMITTED"), wave("WAITING", "PENDING")) == []
    assert does(wave("PASSED", "COMMITTED"), wave("PASSED", "COMMITTED")) == ["complete"]
    assert does(wave("FAILED", "STAGED"), wave("PASSED", "COMMITTED")) == []


STATES = st.sampled_from([*Deployment.State.values])


@given(
    canary=st.lists(STATES, min_size=1, max_size=6),
    state=st.sampled_from(["RUNNING", "SOAKING"]),
    after_s=st.integers(0, 7200),
)
def test_the_rest_never_starts_unless_somebody_committed_and_nobody_failed(
    canary: list[str], state: str, after_s: int
) -> None:
    steps = does(wave(state, *canary), wave("WAITING", "PENDING"), after_s=after_s)
    assert "start" not in steps
    if {"pass", "soak"} & set(steps) and state == "RUNNING":
        assert "COMMITTED" in canary
    if {"pass", "soak"} & set(steps):
        assert not {"REFUSED", "FAILED", "FELL_BACK"} & set(canary)


def test_every_stage_state_is_known_to_the_decision() -> None:
    for state in Stage.State.values:
        decide([wave(state, "COMMITTED")], NOW)
