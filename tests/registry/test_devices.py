"""Enrolment by a one-time token, signed requests that cannot be replayed, and what a check-in keeps and answers."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.utils import timezone

from registry import devices, lines
from registry.lifecycle import Refused
from registry.models import AuditEvent, Device
from tests.registry.plant import SET_UP, check_in_message

if TYPE_CHECKING:
    from tests.registry.plant import Plant


def public_key() -> str:
    return base64.b64encode(Ed25519PrivateKey.generate().public_key().public_bytes_raw()).decode()


def created(plant: Plant, code: str = "EL-1-01") -> tuple[Device, str]:
    station = lines.add_station(plant.line, code="s1", name="Station 1", by=SET_UP)
    return devices.create(plant.line, station, code=code, by=plant.administrator)


def enrol(token: str, key: str, *, after: timedelta = timedelta()) -> tuple[Device, str]:
    return devices.enrol(token=token, public_key=key, hardware={}, agent_version="0.1.0", now=timezone.now() + after)


def test_a_token_makes_an_active_device_once(plant: Plant) -> None:
    device, token = created(plant)
    assert token not in str(Device.objects.values().get(pk=device.pk))
    key = public_key()
    enrolled, nonce = enrol(token, key)
    assert (enrolled.pk, enrolled.state, bool(nonce)) == (device.pk, Device.State.ACTIVE, True)
    with pytest.raises(devices.NotKnown):
        enrol(token, public_key())
    assert Device.objects.get(pk=device.pk).public_key == key


def test_the_same_key_may_ask_again_because_its_answer_may_be_lost(plant: Plant) -> None:
    device, token = created(plant)
    key = public_key()
    assert enrol(token, key)[0].pk == enrol(token, key)[0].pk == device.pk
    assert AuditEvent.objects.filter(noun="device", action="device.active").count() == 1


def test_an_expired_or_unknown_token_is_worth_nothing(plant: Plant) -> None:
    _, token = created(plant)
    with pytest.raises(devices.NotKnown):
        enrol(token, public_key(), after=devices.TOKEN_LIFETIME)
    with pytest.raises(devices.NotKnown):
        enrol("made-up", public_key())
    with pytest.raises(devices.NotKnown):
        enrol("", public_key())


def test_a_new_token_ends_the_old_one_and_replaces_the_key_when_it_is_spent(plant: Plant) -> None:
    agent = plant.agent("EL-1-01")
    token = devices.new_token(agent.device, by=plant.administrator)
    assert devices.authenticate(str(agent.device.pk), **agent.signed()).pk == agent.device.pk
    enrol(token, public_key())
    with pytest.raises(devices.NotKnown):
        devices.authenticate(str(agent.device.pk), **agent.signed())


def test_a_copied_key_is_refused_with_the_way_out(plant: Plant) -> None:
    _, first = created(plant, "EL-1-01")
    _, second = created(plant, "EL-1-02")
    key = public_key()
    enrol(first, key)
    with pytest.raises(Refused, match=r"key\.pem"):
        enrol(second, key)


@pytest.mark.parametrize("key", ["", "AAAA", "no base64!", "A" * 4000])
def test_what_is_no_key_is_refused(plant: Plant, key: str) -> None:
    _, token = created(plant)
    with pytest.raises(Refused):
        enrol(token, key)


def test_codes_are_not_given_twice_and_need_the_administrators_role(plant: Plant) -> None:
    created(plant)
    with pytest.raises(Refused, match="exists already"):
        created(plant)
    station = lines.add_station(plant.line, code="s1", name="Station 1", by=SET_UP)
    with pytest.raises(Refused, match="roles"):
        devices.create(plant.line, station, code="EL-1-09", by=plant.engineer)


def test_a_signed_request_is_taken_once(plant: Plant) -> None:
    agent = plant.agent("EL-1-01")
    request = agent.signed()
    assert devices.authenticate(str(agent.device.pk), **request).pk == agent.device.pk
    with pytest.raises(devices.BadNonce):
        devices.authenticate(str(agent.device.pk), **request)


def test_an_older_counter_is_refused_and_a_new_nonce_goes_on_from_one(plant: Plant) -> None:
    agent = plant.agent("EL-1-01")
    early, late = agent.signed(), agent.signed()
    devices.authenticate(str(agent.device.pk), **late)
    with pytest.raises(devices.BadNonce) as bad:
        devices.authenticate(str(agent.device.pk), **early)
    agent.nonce, agent.counter = bad.value.nonce, 0
    devices.authenticate(str(agent.device.pk), **agent.signed())
    with pytest.raises(devices.BadNonce):
        devices.authenticate(str(agent.device.pk), **late)


@pytest.mark.parametrize(
    "forged",
    [
        {"path": "/api/device/v1/reports"},
        {"method": "PUT"},
        {"digest": "0" * 64},
        {"counter": 99},
        {"nonce": "other"},
        {"signature": "AAAA"},
        {"signature": "no base64!"},
    ],
)
def test_every_signed_field_counts(plant: Plant, forged: dict[str, Any]) -> None:
    agent = plant.agent("EL-1-01")
    with pytest.raises(devices.NotKnown):
        devices.authenticate(str(agent.device.pk), **agent.signed(**forged))
    devices.authenticate(str(agent.device.pk), **agent.signed())


def test_another_devices_signature_and_an_unknown_device_are_the_same_answer(plant: Plant) -> None:
    first, second = plant.agent("EL-1-01"), plant.agent("EL-1-02")
    with pytest.raises(devices.NotKnown):
        devices.authenticate(str(first.device.pk), **second.signed())
    for name in ("", "nobody", "00000000-0000-7000-8000-000000000000"):
        with pytest.raises(devices.NotKnown):
            devices.authenticate(name, **first.signed())
        with pytest.raises(devices.NotKnown):
            devices.new_nonce(name)


def test_a_retired_device_is_unknown_and_a_quarantined_one_is_heard(plant: Plant) -> None:
    agent = plant.agent("EL-1-01")
    devices.quarantine(agent.device, by=plant.administrator, reason="odd")
    heard = devices.authenticate(str(agent.device.pk), **agent.signed())
    assert devices.check_in(heard, check_in_message())["assignment"] is None
    devices.activate(heard, by=plant.administrator, reason="checked")
    devices.retire(heard, by=plant.administrator, reason="broken")
    with pytest.raises(devices.NotKnown):
        devices.authenticate(str(agent.device.pk), **agent.signed())
    with pytest.raises(Refused):
        devices.new_token(heard, by=plant.administrator)


def test_a_check_in_keeps_what_the_device_says(plant: Plant) -> None:
    device = plant.agent("EL-1-01").device
    answer = devices.check_in(
        device,
        check_in_message(release_digest="d" * 64, release_number=3)
        | {"taken_at": (timezone.now() + timedelta(seconds=100)).isoformat()},
    )
    row = Device.objects.get(pk=device.pk)
    assert (row.running_digest, row.running_number, row.counts["inspected"]) == ("d" * 64, 3, 10)
    assert 99 < row.clock_offset_s < 101
    assert answer["assignment"] is None
    assert answer["policy"] == {"audit_rate": plant.line.audit_rate, "flag_next": 0}
    assert answer["poll_s"] == devices.POLL_S


def test_pictures_that_a_person_asks_for_are_told_once(plant: Plant) -> None:
    device = plant.agent("EL-1-01").device
    devices.ask_for_pictures(device, count=5, by=plant.operator)
    assert devices.check_in(device, check_in_message())["policy"]["flag_next"] == 5
    device = Device.objects.select_related("line").get(pk=device.pk)
    assert devices.check_in(device, check_in_message())["policy"]["flag_next"] == 0
    for count in (0, -1, 10**6):
        with pytest.raises(Refused):
            devices.ask_for_pictures(device, count=count, by=plant.operator)
    with pytest.raises(Refused):
        devices.ask_for_pictures(device, count=5, by=plant.approver)


def test_a_device_is_silent_when_it_was_not_heard_for_a_while(plant: Plant) -> None:
    device, _ = created(plant)
    now = timezone.now()
    assert not devices.is_silent(device, now)
    device.seen_at = now
    assert not devices.is_silent(device, now + devices.SILENT_AFTER)
    assert devices.is_silent(device, now + devices.SILENT_AFTER + timedelta(seconds=1))


def test_a_large_fleet_is_told_to_come_less_often(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_fleet_size", lambda: 10_000)
    assert devices.poll_s(busy=True) > 30


def test_a_token_can_be_typed_after_an_option_on_any_command_line(plant: Plant) -> None:
    device = plant.agent("typed-01").device
    for _ in range(200):
        assert devices.new_token(device, by=plant.administrator).isalnum()
