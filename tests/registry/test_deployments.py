"""Reports of devices: idempotent, in any order, only for their own deployment, and never a commit without the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from edge import protocol
from registry import deployments, devices, reports, rollouts
from registry.lifecycle import Refused
from registry.models import Deployment, DeploymentStep, Device
from tests.registry.plant import check_in_message, report_message

if TYPE_CHECKING:
    from tests.registry.plant import Plant


@pytest.fixture
def canary(plant: Plant) -> Device:
    """The device of the running first stage; EL-1-02 waits in the second."""
    device = plant.agent("EL-1-01").device
    plant.agent("EL-1-02")
    rollouts.start(plant.release(), by=plant.operator)
    return device


def row(device: Device) -> Deployment:
    return Deployment.objects.select_related("rollout__release").get(device=device)


def send(device: Device, sequence: int, state: str, **more: Any) -> dict[str, Any]:
    return deployments.report(device, report_message(str(row(device).pk), sequence, state, **more))


def digest(device: Device) -> str:
    return row(device).rollout.release.manifest_digest


def test_being_told_makes_it_offered_once(canary: Device) -> None:
    answer = devices.check_in(canary, check_in_message())
    assert answer["assignment"] == {
        "deployment": str(row(canary).pk),
        "release_number": 1,
        "manifest_digest": digest(canary),
        "manifest_bytes": row(canary).rollout.release.manifest_bytes,
        "sequence": 0,
    }
    assert answer["poll_s"] == devices.POLL_BUSY_S
    assert row(canary).state == "OFFERED"
    assert devices.check_in(canary, check_in_message())["assignment"] == answer["assignment"]
    assert DeploymentStep.objects.filter(state="OFFERED").count() == 1


def test_a_repeated_report_is_answered_and_changes_nothing(canary: Device) -> None:
    deployments.next_for(canary)
    for _ in range(3):
        assert send(canary, 1, "DOWNLOADING", delivered_bytes=10) == {"status": "ok", "wanted": True}
    assert row(canary).delivered_bytes == 10
    assert DeploymentStep.objects.filter(sequence=1).count() == 1


def test_a_lost_report_is_caught_up_with(canary: Device) -> None:
    deployments.next_for(canary)
    send(canary, 4, "PROBATION")
    assert row(canary).state == "PROBATION"
    send(canary, 5, "COMMITTED", loaded_digest=digest(canary))
    assert row(canary).state == "COMMITTED"


def test_a_late_report_never_leads_back(canary: Device) -> None:
    deployments.next_for(canary)
    send(canary, 3, "STAGED")
    send(canary, 2, "VERIFIED")
    assert (row(canary).state, row(canary).sequence) == ("STAGED", 3)
    send(canary, 4, "DOWNLOADING")
    assert (row(canary).state, row(canary).sequence) == ("STAGED", 4)


def test_a_commit_with_other_bytes_is_a_failure(canary: Device) -> None:
    deployments.next_for(canary)
    send(canary, 1, "PROBATION")
    for sequence, loaded in ((2, "0" * 64), (3, digest(canary))):
        send(canary, sequence, "COMMITTED", loaded_digest=loaded)
        assert row(canary).state == "FAILED"
    assert row(canary).code == "other_bytes"
    assert not Device.objects.get(pk=canary.pk).running_digest


def test_a_commit_without_a_digest_is_a_failure(canary: Device) -> None:
    deployments.next_for(canary)
    send(canary, 1, "COMMITTED")
    assert (row(canary).state, row(canary).code) == ("FAILED", "other_bytes")


@pytest.mark.parametrize("end", ["REFUSED", "FAILED", "FELL_BACK"])
def test_an_end_stays_an_end(canary: Device, end: str) -> None:
    deployments.next_for(canary)
    send(canary, 1, end, code="disk_full")
    for sequence, state in enumerate(protocol.DEPLOYMENT_STATES, start=2):
        answer = send(canary, sequence, state, loaded_digest=digest(canary))
        assert answer["wanted"] is False
        assert row(canary).state == end
    assert row(canary).code == "disk_full"


def test_a_committed_device_may_still_fall_back(canary: Device) -> None:
    deployments.next_for(canary)
    send(canary, 1, "COMMITTED", loaded_digest=digest(canary))
    send(canary, 2, "FAILED", code="child_died")
    assert row(canary).state == "COMMITTED"
    send(canary, 3, "FELL_BACK", code="child_died")
    assert (row(canary).state, row(canary).code) == ("FELL_BACK", "child_died")


def test_another_devices_deployment_is_not_found(plant: Plant, canary: Device) -> None:
    other = Device.objects.select_related("line").get(code="EL-1-02")
    for name in (str(row(canary).pk), "nobody", "", "00000000-0000-7000-8000-000000000000"):
        with pytest.raises(deployments.NotFound):
            deployments.report(other, report_message(name, 1, "FAILED"))
    assert row(canary).state == "PENDING"


@pytest.mark.parametrize(
    "bad",
    [
        {"state": "PENDING"},
        {"state": "SUPERSEDED"},
        {"sequence": 0},
        {"sequence": 2**63},
        {"code": "x" * 65},
        {"params": {"a": "x" * 600}},
        {"delivered_bytes": -1},
    ],
)
def test_a_report_outside_the_protocol_is_refused(canary: Device, bad: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        deployments.report(canary, report_message(str(row(canary).pk), 1, "DOWNLOADING") | bad)
    assert row(canary).state == "PENDING"


def test_a_device_fetches_only_what_it_was_offered(plant: Plant, canary: Device) -> None:
    assert deployments.allowed_digests(canary) == set()
    deployments.next_for(canary)
    release = row(canary).rollout.release
    files = {part["digest"] for part in release.version.manifest["parts"].values()}
    base = plant.base.bundle["files"]
    allowed = deployments.allowed_digests(canary)
    assert allowed == {
        release.manifest_digest,
        *files,
        plant.base.map_digest,
        base["graph"]["digest"],
        base["targets"]["digest"],
    }
    assert base["weights"]["digest"] not in allowed
    assert deployments.allowed_digests(Device.objects.get(code="EL-1-02")) == set()
    devices.quarantine(canary, by=plant.administrator, reason="odd")
    assert deployments.allowed_digests(canary) == set()
    assert deployments.next_for(canary) is None


def test_a_device_that_lost_its_disk_is_given_its_release_again(canary: Device) -> None:
    first = devices.check_in(canary, check_in_message())["assignment"]
    send(canary, 1, "COMMITTED", loaded_digest=digest(canary))
    ran = check_in_message(release_digest=digest(canary), release_number=1)
    assert devices.check_in(canary, ran)["assignment"] is None
    again = devices.check_in(canary, check_in_message())["assignment"]
    assert again == first | {"sequence": 1}
    assert digest(canary) in deployments.allowed_digests(canary)


def test_a_retired_device_ends_its_deployment(plant: Plant, canary: Device) -> None:
    devices.retire(canary, by=plant.administrator, reason="broken")
    assert (row(canary).state, row(canary).code) == ("SUPERSEDED", "device_retired")


def test_every_code_of_the_protocol_has_a_sentence() -> None:
    for code in protocol.REPORT_CODES:
        assert reports.sentence(code)["text"] == reports.SENTENCES[code]
    assert reports.sentence("") == {}
    odd = reports.sentence("martian")
    assert "martian" in odd["text"] % odd["params"]
