"""Imports and exports of annotated pictures: what goes out comes in again, and no worker's death counts twice."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.utils import timezone

from registry import blobs, counters, events, lines
from registry.lifecycle import Refused
from tests.running import wait_for
from tests.training.archives import (
    BOX,
    WORKER,
    annotated,
    exported,
    imported,
    other_line,
    ran,
    received,
    said,
    yolo,
    zipped,
)
from tests.training.plant import RULE, SET_UP, picture
from training import captures, formats, policies, snapshots, transfer_runner, transfers
from training.models import Capture, Decision, Transfer

if TYPE_CHECKING:
    from tests.training.plant import Plant

# ------------------------------------------------------------------------------------------------ round trips


@pytest.mark.parametrize("code", formats.FORMATS)
def test_what_goes_out_comes_into_another_line_as_it_was(code: str, plant: Plant) -> None:
    annotated(plant)
    data = exported(plant.line, plant.haneul, code, show="all")
    line, engineer = other_line()
    lines.add_class(line, code="OTHER", name_en="other", by=SET_UP)  # numbers differ there
    row = imported(line, engineer, data)
    assert row.state == Transfer.State.DONE, row.failure
    assert row.format == code
    assert said(line) == said(plant.line)
    assert row.report["refused"] == []
    assert {key: row.report[key] for key in ("rows", "created", "known", "decided", "undecided")} == {
        "rows": 7, "created": 7, "known": 0, "decided": 6, "undecided": 1,
    }  # fmt: skip
    assert row.report["classes_added"] == ["crack", "스크래치"]
    assert {decision.by for decision in Decision.objects.filter(capture__line=line)} == {engineer}


@pytest.mark.parametrize("code", formats.FORMATS)
def test_labels_alone_find_the_pictures_that_are_here(code: str, plant: Plant) -> None:
    annotated(plant)
    data = exported(plant.line, plant.haneul, code, show="all", with_pictures=False)
    line, engineer = other_line()
    for digest in said(plant.line):
        captures.import_one(line, blobs.read(digest), {"file_name": "renamed.png"}, by=engineer)
    row = imported(line, engineer, data)
    assert row.state == Transfer.State.DONE, row.failure
    assert said(line) == said(plant.line)
    assert (row.report["created"], row.report["known"], row.report["decided"]) == (0, 7, 6)


@pytest.mark.parametrize("first_id", [0, 1])
def test_coco_ids_stay_when_a_class_is_added(first_id: int, plant: Plant) -> None:
    for code in ("burr", "0", "A"):
        lines.add_class(plant.line, code=code, name_en=code, by=SET_UP)
    captures.decide(plant.capture(file_name="1.png"), verdict="NG", regions=[BOX], by=plant.haneul)

    def ids() -> dict[str, int]:
        with zipfile.ZipFile(io.BytesIO(exported(plant.line, plant.haneul, "coco", first_id=first_id))) as archive:
            content = json.loads(archive.read("annotations/instances.json"))
        return {entry["name"]: entry["id"] for entry in content["categories"]}

    before = ids()
    lines.add_class(plant.line, code="aaa", name_en="aaa", by=SET_UP)
    after = ids()
    assert before == {"crack": first_id, "burr": first_id + 1, "0": first_id + 2, "A": first_id + 3}
    assert after == before | {"aaa": first_id + 4}


def test_an_export_takes_what_its_filters_choose(plant: Plant) -> None:
    plant.decided(0, lot="L1", file_name="1.png", product="mono")
    plant.decided(1, lot="L2", file_name="1.png", product="mono")
    plant.decided(1, lot="L2", file_name="1.png", product="poly")
    plant.capture(lot="L2", file_name="1.png", product="mono")
    for options, wanted in (({}, 3), ({"lot": "L2"}, 2), ({"lot": "L2", "product": "mono"}, 1), ({"show": "all"}, 4)):
        data = exported(plant.line, plant.haneul, "yolo", **options)
        names = [name for name in zipfile.ZipFile(io.BytesIO(data)).namelist() if name.startswith("images/")]
        assert len(set(names)) == len(names) == wanted, options
    with pytest.raises(Refused, match="No picture fits"):
        transfers.ask_export(plant.line, code="yolo", options={"selection": "show=decided&lot=L9"}, by=plant.haneul)
    names = {transfers.download_name(row) for row in Transfer.objects.all()}
    assert len(names) == Transfer.objects.count() == 4


def test_a_snapshot_leaves_with_the_decisions_that_it_froze(plant: Plant) -> None:
    plant.lots(4)
    snapshot = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    taken_back = snapshot.items.filter(label=1).first().capture
    captures.retract(taken_back, reason="wrong", by=plant.haneul)
    row = ran(transfers.ask_export(plant.line, code="coco", options={}, snapshot=snapshot, by=plant.haneul))
    line, engineer = other_line()
    imported(line, engineer, blobs.read(row.digest))
    assert said(line)[taken_back.digest][:2] == ("NG", ["crack"])
    assert len(said(line)) == snapshot.items.count()


def test_a_picture_whose_bytes_are_gone_is_named_and_the_rest_leaves(plant: Plant) -> None:
    gone = plant.decided(1, file_name="gone.png")
    plant.decided(1, file_name="there.png")
    blobs.path(gone.digest).unlink()
    row = ran(transfers.ask_export(plant.line, code="coco", options={}, by=plant.haneul))
    assert row.state == Transfer.State.DONE
    assert [entry["name"] for entry in row.report["refused"]] == ["gone.png"]
    assert "images/there.png" in zipfile.ZipFile(blobs.path(row.digest)).namelist()


def test_archives_are_cleared_after_their_days_and_the_pictures_stay(plant: Plant) -> None:
    plant.decided(1, file_name="1.png")
    old = ran(transfers.ask_export(plant.line, code="coco", options={}, by=plant.haneul))
    young = ran(transfers.ask_export(plant.line, code="yolo", options={}, by=plant.haneul))
    now = timezone.now()
    assert transfers.clear_archives(now) == 0
    Transfer.objects.filter(pk=old.pk).update(ended_at=now - timedelta(days=15))
    assert transfers.clear_archives(now) == 1
    assert not blobs.exists(old.digest)
    assert blobs.exists(young.digest)
    with pytest.raises(Refused, match="Export again"):
        policies.check_can_download(old, by=plant.haneul)
    policies.check_can_download(young, by=plant.haneul)
    assert all(blobs.exists(capture.digest) for capture in plant.line.captures.all())
    Transfer.objects.filter(pk=young.pk).update(digest=old.digest)  # somebody else still needs these bytes
    blobs.path(old.digest).parent.mkdir(exist_ok=True)
    blobs.path(old.digest).write_bytes(b"again")
    assert transfers.clear_archives(now) == 0


# ------------------------------------------------------------------------------------------------ life of a row


def test_a_viewer_neither_imports_nor_exports(plant: Plant) -> None:
    plant.decided(0)
    with pytest.raises(Refused, match="do not include"):
        received(plant.line, plant.viewer, zipped({"1.png": picture()}))
    with pytest.raises(Refused, match="do not include"):
        transfers.ask_export(plant.line, code="coco", options={}, by=plant.viewer)
    row = received(plant.line, plant.haneul, zipped({"1.png": picture()}))
    for act in (transfers.confirm, transfers.cancel):
        with pytest.raises(Refused, match="do not include"):
            act(row, by=plant.viewer)


def test_who_lost_the_role_meanwhile_imports_nothing(plant: Plant) -> None:
    row = received(plant.line, plant.haneul, zipped({"1.png": picture()}))
    transfers.confirm(row, by=plant.haneul)
    plant.haneul.memberships.all().delete()
    assert ran(row).state == Transfer.State.FAILED
    assert not Capture.objects.exists()


def test_an_unconfirmed_archive_is_never_run_and_ends_after_a_day(plant: Plant) -> None:
    row = received(plant.line, plant.haneul, zipped({"1.png": picture()}))
    assert ran(row).state == Transfer.State.QUEUED
    transfers.recover()
    row.refresh_from_db()
    assert row.state == Transfer.State.QUEUED
    Transfer.objects.filter(pk=row.pk).update(created_at=row.created_at - timedelta(days=2))
    transfers.recover()
    row.refresh_from_db()
    assert row.state == Transfer.State.CANCELLED


def test_a_cancelled_import_stops_at_the_next_batch_and_keeps_what_it_has(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.transfer_records.BATCH", 5)
    monkeypatch.setattr("training.transfer_runner.PULSE_S", 0.0)
    row = received(plant.line, plant.haneul, zipped({f"{n:02d}.png": picture() for n in range(20)}))
    transfers.confirm(row, by=plant.haneul)

    def cancel_in_the_middle() -> bool:
        if Capture.objects.count() == 10 and Transfer.objects.get(pk=row.pk).state == Transfer.State.RUNNING:
            transfers.cancel(row, by=plant.haneul)
        return False

    transfer_runner.run(row.pk, worker=WORKER, should_stop=cancel_in_the_middle)
    row.refresh_from_db()
    assert row.state == Transfer.State.CANCELLED
    assert Capture.objects.count() == row.report["created"] == 10


def test_a_worker_that_shuts_down_gives_it_back_and_the_next_goes_on(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.transfer_records.BATCH", 5)
    row = received(plant.line, plant.haneul, zipped({f"{n:02d}.png": picture() for n in range(20)}))
    transfers.confirm(row, by=plant.haneul)
    transfer_runner.run(row.pk, worker=WORKER, should_stop=lambda: Capture.objects.count() >= 10)
    row.refresh_from_db()
    assert (row.state, row.deaths, Capture.objects.count()) == (Transfer.State.QUEUED, 0, 10)
    assert ran(row).report["created"] == Capture.objects.count() == 20
    assert row.progress["done"] == row.progress["of"] == 20


def test_an_archive_that_ends_its_workers_is_not_looked_at_for_ever(plant: Plant) -> None:
    incoming = blobs.Incoming()
    incoming.write(zipped({"1.png": picture()}))
    row = transfers.receive(plant.line, incoming, file_name="heavy.zip", by=plant.haneul)
    Transfer.objects.filter(pk=row.pk).update(deaths=3)  # as three workers left it that were killed while they looked
    transfer_runner.look(row.pk)
    row.refresh_from_db()
    assert row.look["failure"]["text"].startswith("The worker vanished")
    transfers.look_as(row, code=transfers.PICTURES, by=plant.haneul)
    transfer_runner.look(row.pk)
    row.refresh_from_db()
    assert (row.look["taken"], row.deaths) == (1, 0)


def test_an_error_nobody_expected_is_raised_and_leaves_a_sentence(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = received(plant.line, plant.haneul, zipped({"1.png": picture()}))
    transfers.confirm(row, by=plant.haneul)

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("training.captures.import_one", broken)
    with pytest.raises(ZeroDivisionError):
        transfer_runner.run(row.pk, worker=WORKER)
    row.refresh_from_db()
    assert (row.state, row.failure["params"]) == (Transfer.State.FAILED, {"kind": "ZeroDivisionError"})


def test_a_stale_worker_writes_nothing(plant: Plant) -> None:
    row = received(plant.line, plant.haneul, zipped({"1.png": picture()}))
    transfers.confirm(row, by=plant.haneul)
    held = transfers.claim(row.pk, worker=WORKER)
    assert held is not None
    assert transfers.claim(row.pk, worker="another") is None
    Transfer.objects.filter(pk=row.pk).update(lease_until=None)
    transfers.recover()
    with pytest.raises(transfers.LeaseLost):
        transfers.write(held, progress={"done": 1})
    with pytest.raises(transfers.LeaseLost):
        transfers.finish(held)
    for _ in range(2):
        transfers.claim(row.pk, worker=WORKER)
        Transfer.objects.filter(pk=row.pk).update(lease_until=None)
        transfers.recover()
    row.refresh_from_db()
    assert (row.state, row.failure["params"]) == (Transfer.State.FAILED, {"deaths": 3})


def test_progress_is_told_at_most_twice_a_second(real_plant: Plant) -> None:
    row = received(real_plant.line, real_plant.haneul, zipped({f"{n:03d}.png": picture() for n in range(120)}))
    transfers.confirm(row, by=real_plant.haneul)
    topic = row.topics()[0]
    before = events.current(topic)[topic]
    row = ran(row)
    told, took = events.current(topic)[topic] - before, (row.ended_at - row.started_at).total_seconds()  # type: ignore[operator]
    assert 3 <= told <= 2 * took + 6


def test_a_worker_that_is_killed_in_the_middle_leaves_exact_counts(real_plant: Plant, real_database: str) -> None:
    count = 300
    labels = {f"{n:03d}": "0 0.5 0.5 0.5 0.5" if n % 2 else "" for n in range(count)}
    data = yolo(labels, {f"{n:03d}": picture() for n in range(count)}, names="[crack, burr]")
    row = received(real_plant.line, real_plant.haneul, data)
    transfers.confirm(row, by=real_plant.haneul)
    code = (
        "import django; django.setup()\n"
        "from django.conf import settings\n"
        f"settings.BLOB_ROOT = {str(settings.BLOB_ROOT)!r}; settings.JOBS_ROOT = {str(settings.JOBS_ROOT)!r}\n"
        "from training import transfer_records, transfer_runner\n"
        "transfer_records.BATCH = 10\n"
        f"transfer_runner.run({str(row.pk)!r}, worker='worker:killed')\n"
    )
    env = {**os.environ, "DATABASE_URL": real_database}
    with subprocess.Popen([sys.executable, "-c", code], cwd=settings.BASE_DIR, env=env) as process:
        wait_for(lambda: Capture.objects.count() >= 40, within_s=60, every_s=0.01)
        process.send_signal(signal.SIGKILL)
    part = Capture.objects.count()
    assert 40 <= part < count
    row.refresh_from_db()
    assert row.report["created"] == part
    Transfer.objects.filter(pk=row.pk).update(lease_until=None)
    transfers.recover()
    row = ran(row)
    assert (row.state, row.deaths) == (Transfer.State.DONE, 1)
    wanted = {"rows": count, "matched": count, "created": count, "known": 0, "decided": count, "undecided": 0}
    assert {key: row.report[key] for key in wanted} == wanted
    assert Capture.objects.count() == Decision.objects.count() == count
    assert counters.recount(real_plant.line) == {}
