"""A decision that does not stand any more is seen wherever something learned it, and named before it is taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from registry.models import Device, Version
from training import captures

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World
    from training.models import Capture, Snapshot

MARKED = "1 picture changed since"


@pytest.fixture
def learned(world: World) -> tuple[Capture, Snapshot, Version, Device]:
    """A frozen NG picture, the version that learned it, and a device that runs that."""
    release = world.release()
    snapshot = world.snapshot()
    Version.objects.filter(pk=release.version_id).update(snapshot_id=snapshot.pk)
    device = world.plant.agent("el-1-01").device
    Device.objects.filter(pk=device.pk).update(running_digest=release.manifest_digest, running_number=release.number)
    capture = snapshot.items.filter(label=1).order_by("pk")[0].capture
    return capture, snapshot, release.version, device


def pages(learned: tuple[Capture, Snapshot, Version, Device]) -> dict[str, str]:
    _, snapshot, version, device = learned
    return {
        reverse("snapshot-list"): reverse("snapshot-changed", args=[snapshot.pk]),
        reverse("snapshot-detail", args=[snapshot.pk]): reverse("snapshot-changed", args=[snapshot.pk]),
        reverse("version-list"): reverse("version-changed", args=[version.pk]),
        reverse("version-detail", args=[version.pk]): reverse("version-changed", args=[version.pk]),
        reverse("device-list"): reverse("version-changed", args=[version.pk]),
        reverse("device-detail", args=[device.pk]): reverse("version-changed", args=[version.pk]),
    }


def test_marks_come_and_go_with_the_decision(
    world: World, learned: tuple[Capture, Snapshot, Version, Device], signed_in: Callable[..., Client]
) -> None:
    capture, client = learned[0], signed_in(world.viewer)

    def marked() -> list[bool]:
        shown = ((client.get(url).content.decode(), to) for url, to in pages(learned).items())
        return [MARKED in text and f'href="{to}"' in text for text, to in shown]

    assert not any(marked())
    captures.retract(capture, reason="looked again", by=world.plant.engineer)
    assert all(marked())
    captures.decide(capture, verdict="NG", classes=[1], by=world.plant.engineer)
    assert not any(marked())


def test_the_list_behind_a_mark_says_what_was_frozen_and_what_stands(
    world: World, learned: tuple[Capture, Snapshot, Version, Device], signed_in: Callable[..., Client]
) -> None:
    capture, snapshot, version, _ = learned
    client = signed_in(world.viewer)
    urls = [reverse("snapshot-changed", args=[snapshot.pk]), reverse("version-changed", args=[version.pk])]
    for url in urls:
        assert "Every frozen decision stands" in client.get(url).content.decode()
    captures.retract(capture, reason="looked again", by=world.plant.engineer)
    for url in urls:
        page = client.get(url).content.decode()
        assert reverse("capture-detail", args=[capture.pk]) in page
        assert "crack" in page
        assert "taken back, not decided" in page
    captures.decide(capture, verdict="OK", by=world.plant.engineer)
    for url in urls:
        assert "taken back, not decided" not in client.get(url).content.decode()
        korean = client.get(url, headers={"Accept-Language": "ko"}).content.decode()
        assert "지금은 다르게 판정됨" in korean
        assert "균열" in korean


def test_the_list_is_paged_by_picture(
    world: World, signed_in: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.facts.changes.SIZE", 2)
    snapshot = world.snapshot()
    rows = [item.capture for item in snapshot.items.filter(label=0).order_by("capture_id")[:3]]
    for row in rows:
        captures.retract(row, reason="looked again", by=world.plant.engineer)
    client, url = signed_in(world.viewer), reverse("snapshot-changed", args=[snapshot.pk])
    first = client.get(url).content.decode()
    assert [str(row.pk) in first for row in rows] == [False, True, True]
    second = client.get(url, {"after": str(rows[1].pk)}).content.decode()
    assert [f"/captures/{row.pk}/" in second for row in rows] == [True, False, False]
    assert client.get(url, {"after": "nonsense"}).status_code == 200


def test_taking_back_names_its_reach_first_and_the_picture_says_it_afterwards(
    world: World, learned: tuple[Capture, Snapshot, Version, Device], signed_in: Callable[..., Client]
) -> None:
    capture, snapshot, version, device = learned
    client, url = signed_in(world.plant.engineer), reverse("capture-detail", args=[learned[0].pk])
    page = client.get(url).content.decode()
    assert "It reached 1 snapshot, 1 version, 1 device." in page
    assert "no longer what was frozen" not in page
    for row in (snapshot, version):
        assert reverse(f"{row._meta.model_name}-detail", args=[row.pk]) in page
    assert device.code in page
    client.post(reverse("capture-retract", args=[capture.pk]), {"reason": "looked again"})
    page = client.get(url).content.decode()
    assert "The decision is no longer what was frozen." in page
    assert "What does not stand any more reached 1 snapshot, 1 version, 1 device." in page
    korean = client.get(url, headers={"Accept-Language": "ko"}).content.decode()
    assert "스냅샷 1개, 버전 1개, 장치 1대" in korean


def test_a_picture_in_no_snapshot_reached_nothing(world: World, signed_in: Callable[..., Client]) -> None:
    capture = world.decided(1, 0, lot="L1")
    page = signed_in(world.plant.engineer).get(reverse("capture-detail", args=[capture.pk])).content.decode()
    assert "In no snapshot yet: nothing has learned from it." in page
    assert "It reached" not in page


def test_training_on_a_marked_snapshot_warns(
    world: World, learned: tuple[Capture, Snapshot, Version, Device], signed_in: Callable[..., Client]
) -> None:
    capture, snapshot, _, _ = learned
    client, url = signed_in(world.plant.engineer), reverse("job-new") + f"?snapshot={snapshot.pk}"
    assert "decided otherwise now" not in client.get(url).content.decode()
    captures.retract(capture, reason="looked again", by=world.plant.engineer)
    assert "1 picture of this snapshot is decided otherwise now" in client.get(url).content.decode()


def test_changes_of_another_line_do_not_exist(
    world: World, learned: tuple[Capture, Snapshot, Version, Device], signed_in: Callable[..., Client]
) -> None:
    _, snapshot, version, _ = learned
    nobody = "00000000-0000-7000-8000-000000000000"
    for name, row in (("snapshot-changed", snapshot), ("version-changed", version)):
        assert signed_in(world.stranger).get(reverse(name, args=[row.pk])).status_code == 404
        assert signed_in(world.viewer).get(reverse(name, args=[nobody])).status_code == 404
        assert signed_in(world.viewer).post(reverse(name, args=[row.pk])).status_code == 405
