"""Two different people, one set of bytes: who may answer, what an approval binds, and that one answer wins."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.utils import timezone

from registry import blobs, lifecycle, policies, promotions, releases, versions
from registry.lifecycle import Refused
from registry.models import Approval, AuditEvent, Promotion, Release, TrackingEntry, Version
from tests.registry.out_files import CLASSES, figures

if TYPE_CHECKING:
    from tests.registry.plant import Plant


def asked(plant: Plant, seed: int = 1, **more: Any) -> Promotion:
    return promotions.request(plant.version(seed, **more), reason="better on poly", by=plant.engineer)


def approve(promotion: Promotion, by: Any, **more: Any) -> Release:
    given = {"reason": "dossier read", "seen_digest": promotion.manifest_digest} | more
    return promotions.approve(promotion, by=by, **given)


def test_an_approved_version_is_the_published_release_and_the_champion(plant: Plant) -> None:
    promotion = asked(plant)
    release = approve(promotion, plant.approver)
    assert (release.number, release.state, release.manifest_digest) == (1, "PUBLISHED", promotion.manifest_digest)
    assert release.manifest_bytes == blobs.size(release.manifest_digest)
    assert versions.champion(plant.line) == release.version == promotion.version
    promotion.refresh_from_db()
    assert promotion.state == Promotion.State.APPROVED
    assert promotion.version.state == Version.State.RELEASED
    answer = Approval.objects.get()
    assert (answer.by, answer.meaning, answer.manifest_digest) == (plant.approver, "APPROVE", release.manifest_digest)
    assert TrackingEntry.objects.filter(kind="SET_CHAMPION", version=release.version).exists()
    actions = set(AuditEvent.objects.values_list("action", flat=True))
    assert {"promotion.request", "promotion.approved", "release.publish", "version.released"} <= actions


def test_release_numbers_rise_and_the_former_is_superseded(plant: Plant) -> None:
    first, second = plant.release(1), plant.release(2)
    third = plant.release(3)
    assert [first.number, second.number, third.number] == [1, 2, 3]
    assert [row.state for row in Release.objects.order_by("number")] == ["SUPERSEDED", "SUPERSEDED", "PUBLISHED"]
    assert releases.published(plant.line) == third


def test_going_back_is_a_higher_number_with_the_older_bytes(plant: Plant) -> None:
    first = plant.release(1)
    plant.release(2)
    first.version.refresh_from_db()
    again = approve(promotions.request(first.version, reason="v2 overkills", by=plant.engineer), plant.approver)
    assert (again.number, again.manifest_digest) == (3, first.manifest_digest)
    assert versions.champion(plant.line) == first.version


def test_whoever_asked_cannot_answer(plant: Plant) -> None:
    promotion = promotions.request(plant.version(), reason="better", by=plant.engineer)
    plant.engineer.memberships.create(line=plant.line, role="approver")
    for answer in (lambda: approve(promotion, plant.engineer), lambda: reject(promotion, plant.engineer)):
        with pytest.raises(Refused, match="You requested"):
            answer()
    assert not Approval.objects.exists()


def test_whoever_submitted_the_training_cannot_answer(plant: Plant) -> None:
    promotion = asked(plant)
    with pytest.raises(Refused, match="You submitted the training"):
        approve(promotion, plant.trainer)
    assert not policies.can_answer_promotion(promotion, by=plant.trainer)
    assert policies.can_answer_promotion(promotion, by=plant.approver)


def test_without_the_role_and_without_a_name_nobody_answers(plant: Plant) -> None:
    promotion = asked(plant)
    with pytest.raises(Refused, match="roles"):
        approve(promotion, plant.operator)
    with pytest.raises(Refused, match="signed-in person"):
        approve(promotion, "system")
    plant.approver.is_active = False
    with pytest.raises(Refused, match="roles"):
        approve(promotion, plant.approver)


def reject(promotion: Promotion, by: Any) -> None:
    promotions.reject(promotion, reason="overkills rise", by=by)


def test_an_answer_needs_a_reason(plant: Plant) -> None:
    promotion = asked(plant)
    with pytest.raises(Refused, match="reason"):
        approve(promotion, plant.approver, reason="  ")
    with pytest.raises(Refused, match="reason"):
        promotions.reject(promotion, reason="", by=plant.approver)
    with pytest.raises(Refused, match="longer"):
        approve(promotion, plant.approver, reason="x" * 3000)


def test_an_approval_binds_the_digest_that_was_seen(plant: Plant) -> None:
    promotion = asked(plant)
    with pytest.raises(Refused, match="Reload"):
        approve(promotion, plant.approver, seen_digest="0" * 64)
    assert not Release.objects.exists()


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "head.safetensors", "model.onnx", "manifest.json"])
def test_bytes_that_changed_since_void_the_promotion(plant: Plant, name: str) -> None:
    promotion = asked(plant)
    file = blobs.path(promotion.version.files[name]["digest"])
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(Refused, match="no longer has the bytes"):
        approve(promotion, plant.approver)
    promotion.refresh_from_db()
    assert promotion.state == Promotion.State.VOIDED
    assert not Release.objects.exists()
    assert name in AuditEvent.objects.get(action="promotion.voided").reason


def test_bytes_that_are_gone_void_the_promotion(plant: Plant) -> None:
    promotion = asked(plant)
    blobs.path(plant.base.bundle["files"]["graph"]["digest"]).unlink()
    with pytest.raises(Refused, match="missing"):
        approve(promotion, plant.approver)
    promotion.refresh_from_db()
    assert promotion.state == Promotion.State.VOIDED


def test_a_row_that_was_changed_behind_the_files_is_noticed(plant: Plant) -> None:
    promotion = asked(plant)
    Version.objects.update(manifest={**promotion.version.manifest, "thresholds": {"operating": 0.99}})
    promotion.version.refresh_from_db()
    with pytest.raises(Refused, match="does not name the files"):
        approve(promotion, plant.approver)


def test_one_promotion_of_a_line_is_open_at_a_time(plant: Plant) -> None:
    first = asked(plant)
    other = plant.version(2)
    with pytest.raises(Refused, match=str(first)):
        promotions.request(other, reason="also good", by=plant.engineer)
    promotions.withdraw(first, by=plant.engineer)
    promotions.request(other, reason="also good", by=plant.engineer)


def test_only_the_requester_withdraws_and_only_while_it_is_open(plant: Plant) -> None:
    promotion = asked(plant)
    with pytest.raises(Refused):
        promotions.withdraw(promotion, by=plant.approver)
    promotions.withdraw(promotion, by=plant.engineer)
    with pytest.raises(Refused):
        promotions.withdraw(promotion, by=plant.engineer)
    with pytest.raises(Refused):
        approve(promotion, plant.approver)


def test_a_rejected_version_may_be_asked_for_again(plant: Plant) -> None:
    promotion = asked(plant)
    promotions.reject(promotion, reason="overkills rise", by=plant.approver)
    assert Approval.objects.get().meaning == Approval.Meaning.REJECT
    promotions.request(promotion.version, reason="now with test data", by=plant.engineer)


def test_an_answer_that_comes_too_late_is_refused_and_the_request_expires(plant: Plant) -> None:
    promotion = asked(plant)
    later = promotion.expires_at + timedelta(seconds=1)
    assert promotions.expire(timezone.now()) == 0
    Promotion.objects.update(expires_at=timezone.now())
    promotion.refresh_from_db()
    with pytest.raises(Refused, match="expired"):
        approve(promotion, plant.approver)
    assert promotions.expire(later) == 1
    promotion.refresh_from_db()
    assert promotion.state == Promotion.State.EXPIRED


def test_versions_that_are_not_ready_cannot_be_asked_for(plant: Plant) -> None:
    refused = plant.version(verified=1.0)
    with pytest.raises(Refused, match="refused"):
        promotions.request(refused, reason="try", by=plant.engineer)
    release = plant.release(2)
    release.version.refresh_from_db()
    with pytest.raises(Refused, match="champion already"):
        promotions.request(release.version, reason="again", by=plant.engineer)
    with pytest.raises(Refused, match="roles"):
        promotions.request(plant.version(3), reason="try", by=plant.approver)


# ------------------------------------------------------------------------------------------------ gates


def closed(version: Version) -> list[str]:
    return [gate["code"] for gate in promotions.gates(version) if not gate["passed"]]


def test_without_a_reload_on_a_clean_base_nothing_is_promoted(plant: Plant) -> None:
    version = plant.version(verified=None)
    assert closed(version) == ["clean_base"]
    with pytest.raises(Refused, match="clean base"):
        promotions.request(version, reason="try", by=plant.engineer)


def test_a_flipped_label_in_the_exported_model_blocks(plant: Plant) -> None:
    version = plant.version(flips=1)
    assert closed(version) == ["onnx"]
    assert "1 of 200" in lifecycle.why_not(promotions.request, version, reason="try", by=plant.engineer)


def test_an_escape_of_a_critical_class_blocks_and_an_unseen_one_too(plant: Plant) -> None:
    critical = [CLASSES[0], {**CLASSES[1], "critical": True}]
    escaped = {"golden": {"champion": None, "candidate": figures(1, 20, 0, 20, crack=[1, 20])}}
    clean = {"golden": {"champion": None, "candidate": figures(0, 20, 0, 20, crack=[0, 20])}}
    unseen = {"golden": {"champion": None, "candidate": figures(0, 0, 0, 20, crack=[0, 0])}}
    assert closed(plant.version(1, classes=critical, sets=escaped)) == ["critical"]
    assert closed(plant.version(2, classes=critical, sets=clean)) == []
    assert closed(plant.version(3, classes=critical, sets=unseen)) == ["critical"]


def test_more_escapes_than_the_champion_are_shown_and_do_not_block(plant: Plant) -> None:
    worse = {
        "golden": {"champion": figures(2, 50, 9, 50), "candidate": figures(3, 50, 1, 50)},
        "era1": {"champion": figures(5, 100, 9, 100), "candidate": figures(6, 100, 9, 100)},
    }
    version = plant.version(sets=worse)
    assert closed(version) == ["escapes"]
    assert promotions.request(version, reason="fewer overkills", by=plant.engineer).state == "REQUESTED"


def test_old_knowledge_is_lost_beyond_the_champions_interval(plant: Plant) -> None:
    golden = {"champion": figures(2, 50, 9, 50), "candidate": figures(1, 50, 1, 50)}
    lost = {"golden": golden, "era1": {"champion": figures(5, 100, 9, 100), "candidate": figures(20, 100, 9, 100)}}
    assert closed(plant.version(sets=lost)) == ["kept"]


# ------------------------------------------------------------------------------------------------ races


def test_of_two_approvers_at_the_same_moment_one_publishes(committed_plant: Plant) -> None:
    plant = committed_plant
    promotion = asked(plant)
    together = threading.Barrier(2)
    outcomes: list[object] = []

    def answer(by: Any) -> None:
        mine = Promotion.objects.select_related("version__base", "version__line", "line").get(pk=promotion.pk)
        together.wait(20)
        try:
            outcomes.append(approve(mine, by))
        except Refused as refused:
            outcomes.append(refused)
        finally:
            connection.close()

    threads = [threading.Thread(target=answer, args=(by,)) for by in (plant.approver, plant.second_approver)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Refused", "Release"]
    assert Release.objects.count() == Approval.objects.count() == 1
    assert Release.objects.get().number == 1


def test_of_two_requests_at_the_same_moment_one_is_opened(committed_plant: Plant) -> None:
    plant = committed_plant
    candidates = [plant.version(1), plant.version(2)]
    together = threading.Barrier(2)
    outcomes: list[object] = []

    def ask(version: Version) -> None:
        together.wait(20)
        try:
            outcomes.append(promotions.request(version, reason="better", by=plant.engineer))
        except Refused as refused:
            outcomes.append(refused)
        finally:
            connection.close()

    threads = [threading.Thread(target=ask, args=(version,)) for version in candidates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Promotion", "Refused"]
    assert Promotion.objects.count() == 1
