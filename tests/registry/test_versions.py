"""Registration: files first, then checks; what is stored can be taken out again byte by byte."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from registry import audit, bases, blobs, lifecycle, versions
from registry.lifecycle import Refused
from registry.models import AuditEvent, TrackingEntry, Version
from tests.registry import out_files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.registry.plant import Plant


def registered(plant: Plant, out: Path, job: uuid.UUID, **more: Any) -> Version:
    given = {
        "line": plant.line,
        "job_id": job,
        "job_number": 1,
        "snapshot_id": uuid.uuid4(),
        "snapshot_number": 1,
        "snapshot_digest": "5" * 64,
        "base": plant.base,
        "parent": None,
        "champion": None,
        "out_dir": out,
        "submitted_by": plant.trainer,
        "worker": "worker:test",
        "config": {},
        "verified": {"max_abs": 0.0},
    } | more
    return versions.register(**given)


def test_a_good_result_becomes_a_validated_version_that_mlflow_is_owed(plant: Plant) -> None:
    version = plant.version()
    assert version.state == Version.State.VALIDATED
    assert version.manifest_digest == version.files["manifest.json"]["digest"]
    assert version.evidence["sets"]["val"]["candidate"]["escapes"] == [1, 20]
    assert json.loads(blobs.read(version.dossier_digest))[0]["id"] == "c1"
    assert version.tracking_entries.get().kind == TrackingEntry.Kind.LOG_VERSION
    assert AuditEvent.objects.filter(noun="version", action="version.validated", by_label="worker:test").exists()


def test_registering_a_job_again_gives_the_same_version(plant: Plant, tmp_path: Path) -> None:
    job = uuid.uuid4()
    out_files.write_out(tmp_path / "out", plant.base_folder, line="el-1", job=str(job))
    first = registered(plant, tmp_path / "out", job)
    assert registered(plant, tmp_path / "out", job).pk == first.pk
    assert Version.objects.count() == 1
    assert TrackingEntry.objects.count() == 1


def test_numbers_of_versions_rise_on_their_line(plant: Plant) -> None:
    assert [plant.version(seed).number for seed in (1, 2, 3)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"line": "other"}, "names"),
        ({"job": "other"}, "names"),
        ({"classes": [{"index": 0, "number": 3, "code": "x"}, {"index": 1, "number": 0, "code": "OK"}]}, "classes"),
        ({"base": {"digest": "0" * 64, "map_digest": "0" * 64}}, "base"),
        ({"parts": {}}, "parts"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused_by_its_check(
    plant: Plant, tmp_path: Path, change: dict[str, Any], check: str
) -> None:
    job = uuid.uuid4()
    manifest = out_files.write_out(tmp_path / "out", plant.base_folder, line="el-1", job=str(job))
    (tmp_path / "out" / "manifest.json").write_bytes(out_files.canonical(manifest | change))
    version = registered(plant, tmp_path / "out", job)
    assert version.state == Version.State.REFUSED
    assert [entry["code"] for entry in version.evidence["checks"] if not entry["passed"]] == [check]
    assert not version.tracking_entries.exists()


def test_a_manifest_that_is_not_canonical_is_refused(plant: Plant, tmp_path: Path) -> None:
    job = uuid.uuid4()
    manifest = out_files.write_out(tmp_path / "out", plant.base_folder, line="el-1", job=str(job))
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest, indent=1))
    assert registered(plant, tmp_path / "out", job).state == Version.State.REFUSED


def test_a_version_that_differs_on_a_clean_base_is_refused(plant: Plant) -> None:
    version = plant.version(verified=0.5)
    assert version.state == Version.State.REFUSED
    assert [entry["code"] for entry in version.evidence["checks"] if not entry["passed"]] == ["clean_base"]


@pytest.mark.parametrize("name", ["weights.pt", "model.PKL", "optimizer.bin"])
def test_files_that_can_run_code_are_not_stored(plant: Plant, tmp_path: Path, name: str) -> None:
    out_files.write_out(tmp_path / "out", plant.base_folder, line="el-1", job="j")
    (tmp_path / "out" / name).write_bytes(b"x")
    with pytest.raises(Refused, match="can run code"):
        versions.store_files(tmp_path / "out")


def test_a_missing_file_is_named(plant: Plant, tmp_path: Path) -> None:
    out_files.write_out(tmp_path / "out", plant.base_folder, line="el-1", job="j")
    (tmp_path / "out" / "head.safetensors").unlink()
    with pytest.raises(Refused, match=r"head\.safetensors"):
        versions.store_files(tmp_path / "out")


def test_what_was_stored_comes_out_byte_by_byte(plant: Plant, tmp_path: Path) -> None:
    version = plant.version()
    versions.unpack(version, tmp_path / "again")
    bases.unpack(plant.base, tmp_path / "base-again")
    source = next(tmp_path.glob("out-*"))
    for file in source.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
    for file in plant.base_folder.iterdir():
        assert (tmp_path / "base-again" / file.name).read_bytes() == file.read_bytes()


def test_importing_the_same_base_again_changes_nothing(plant: Plant) -> None:
    assert bases.import_bundle(plant.base_folder, by="command:test").pk == plant.base.pk


def test_a_base_bundle_with_another_file_is_refused(plant: Plant, tmp_path: Path) -> None:
    out_files.write_base(tmp_path / "other", seed=3)
    (tmp_path / "other" / "graph.onnx").write_bytes(b"something else")
    with pytest.raises(Refused, match=r"graph\.onnx"):
        bases.import_bundle(tmp_path / "other", by="command:test")


def test_only_an_ml_engineer_imports_a_base(plant: Plant, tmp_path: Path) -> None:
    with pytest.raises(Refused):
        bases.import_bundle(plant.base_folder, by=plant.operator)


def test_a_released_version_cannot_be_retired_and_another_can(plant: Plant) -> None:
    release = plant.release()
    assert "published release R-001" in lifecycle.why_not(
        versions.retire, release.version, by=plant.engineer, reason="old"
    )
    other = plant.version(2)
    versions.retire(other, by=plant.engineer, reason="worse")
    assert other.state == Version.State.RETIRED


def test_a_version_on_a_device_cannot_be_retired(plant: Plant) -> None:
    version = plant.release(1).version
    device = plant.agent("EL-1-01").device
    plant.release(2)
    device.running_digest = version.manifest_digest
    device.save()
    version.refresh_from_db()
    with pytest.raises(Refused, match="EL-1-01"):
        versions.retire(version, by=plant.engineer, reason="old")


def test_machines_are_written_by_their_label() -> None:
    assert audit.label("worker:train@host") == "worker:train@host"
