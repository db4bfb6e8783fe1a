"""Every MOVES table over all pairs: a move happens exactly where the table says so, and nothing changes where not."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.utils import timezone

from registry import lifecycle
from registry.lifecycle import Refused
from registry.models import AuditEvent, Deployment, Device, Promotion, Release, Rollout, Stage, Topic, Version
from training.models import Capture, Job, Snapshot, Transfer

if TYPE_CHECKING:
    from django.db.models import Model

    from tests.registry.plant import Plant


def device(plant: Plant) -> Device:
    return plant.agent("EL-1-01").device


def version(plant: Plant) -> Version:
    return plant.version()


def promotion(plant: Plant) -> Promotion:
    from registry import promotions

    return promotions.request(plant.version(), reason="better", by=plant.engineer)


def release(plant: Plant) -> Release:
    return plant.release()


def rollout(plant: Plant) -> Rollout:
    from registry import rollouts

    plant.agent("EL-1-01")
    return rollouts.start(plant.release(), by=plant.operator)


def stage(plant: Plant) -> Stage:
    return rollout(plant).stages.get()


def deployment(plant: Plant) -> Deployment:
    return rollout(plant).deployments.get()


def capture(plant: Plant) -> Capture:
    return Capture.objects.create(
        line=plant.line, digest="a" * 64, size_bytes=1, width=1, height=1, mode="L", reason=Capture.Reason.IMPORT
    )


def job(plant: Plant) -> Job:
    snapshot = Snapshot.objects.create(
        line=plant.line, number=1, digest="a" * 64, rule={}, classes=[], counts={}, frozen_by=plant.engineer
    )
    return Job.objects.create(line=plant.line, number=1, snapshot=snapshot, config={}, submitted_by=plant.engineer)


def transfer(plant: Plant) -> Transfer:
    return Transfer.objects.create(line=plant.line, number=1, kind="export", asked_by=plant.engineer)


MAKERS: dict[type[Model], Callable[[Plant], Any]] = {
    Device: device,
    Version: version,
    Promotion: promotion,
    Release: release,
    Rollout: rollout,
    Stage: stage,
    Deployment: deployment,
    Capture: capture,
    Job: job,
    Transfer: transfer,
}


def test_every_model_with_a_moves_table_is_tried_here() -> None:
    assert {model for model in apps.get_models() if hasattr(model, "MOVES")} == set(MAKERS)


@pytest.mark.parametrize("model", MAKERS, ids=lambda model: model.__name__)
def test_the_table_names_exactly_the_states_of_the_model(model: Any) -> None:
    assert set(model.MOVES) == set(model.State.values)
    assert {target for targets in model.MOVES.values() for target in targets} <= set(model.State.values)


@pytest.mark.parametrize("model", MAKERS, ids=lambda model: model.__name__)
def test_a_move_happens_exactly_where_the_table_says_so(model: Any, plant: Plant) -> None:
    obj = MAKERS[model](plant)
    rows = model._default_manager.filter(pk=obj.pk)
    for source in model.State.values:
        for target in model.State.values:
            rows.update(state=source)
            obj.refresh_from_db()
            before, events = obj.row_version, AuditEvent.objects.count()
            if target in model.MOVES[source]:
                lifecycle.move(obj, target, by="system", reason="because")
                assert obj.state == rows.get().state == target
                assert rows.get().row_version == before + 1
                assert AuditEvent.objects.count() == events + 1
            else:
                with pytest.raises(Refused):
                    lifecycle.move(obj, target, by="system")
                assert (rows.get().state, rows.get().row_version) == (source, before)
                assert AuditEvent.objects.count() == events


def test_of_two_movers_with_the_same_row_in_hand_one_is_refused(plant: Plant) -> None:
    first = device(plant)
    second = Device.objects.get(pk=first.pk)
    lifecycle.move(first, "RETIRED", by="system")
    with pytest.raises(Refused) as refused:
        lifecycle.move(second, "QUARANTINED", by="system")
    assert "EL-1-01" in str(refused.value)
    assert second.state == "RETIRED"


def test_a_move_with_a_stale_fence_changes_nothing(plant: Plant) -> None:
    obj = job(plant)
    lifecycle.move(obj, "RUNNING", by="worker:a", fence=1, lease_until=timezone.now())
    Job.objects.filter(pk=obj.pk).update(fence=2)
    with pytest.raises(Refused):
        lifecycle.move(obj, "SUCCEEDED", by="worker:a", where={"fence": 1})
    assert Job.objects.get(pk=obj.pk).state == "RUNNING"


def test_topics_rise_when_the_move_is_committed_and_not_before(
    plant: Plant, django_capture_on_commit_callbacks: Any
) -> None:
    obj = device(plant)
    topic = f"el-1.device.{obj.pk}"
    with django_capture_on_commit_callbacks(execute=True):
        lifecycle.move(obj, "QUARANTINED", by="system")
        before = Topic.objects.filter(name=topic).values_list("version", flat=True).first() or 0
    assert Topic.objects.get(name=topic).version == before + 1


def test_a_refusal_is_kept_as_a_code_and_read_as_a_sentence() -> None:
    refused = Refused("Stage %(name)s is closed.", name="canary")
    assert str(refused) == "Stage canary is closed."
    assert refused.as_json() == {"text": "Stage %(name)s is closed.", "params": {"name": "canary"}}


def test_why_not_gives_the_sentence_or_nothing() -> None:
    def check(fine: bool) -> None:
        if not fine:
            raise Refused("No.")

    assert lifecycle.why_not(check, True) == ""
    assert lifecycle.why_not(check, False) == "No."


def test_the_page_of_states_is_current() -> None:
    call_command("states", "--check")


def test_a_page_of_states_that_is_old_is_noticed(settings: Any, tmp_path: Any) -> None:
    settings.BASE_DIR = tmp_path
    (tmp_path / "docs").mkdir()
    with pytest.raises(CommandError, match=r"docs/states\.md"):
        call_command("states", "--check")
    call_command("states", stdout=io.StringIO())
    call_command("states", "--check")


def test_ids_sort_by_the_time_of_their_making() -> None:
    from registry.ids import new_id

    made = [new_id() for _ in range(100)]
    assert made == sorted(made)
    assert all(isinstance(key, uuid.UUID) and key.version == 7 for key in made)
