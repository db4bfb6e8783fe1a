"""Against the real MLflow server of this run: what we register loads with plain MLflow, exactly once per job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from django.db import connection
from django.utils import timezone

from registry import outbox, tracking, versions
from registry.models import TrackingEntry, Version
from tests.registry.out_files import SIDE, figures

if TYPE_CHECKING:
    from tests.registry.plant import Plant

CHECKOUT = Path(__file__).resolve().parents[2]
LOG = "import django; django.setup(); from registry import tracking; from registry.models import Version; import sys;"
LOG += "print('go', flush=True); tracking.log_version(Version.objects.get(pk=sys.argv[1]))"


@pytest.fixture
def client(mlflow_url: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=mlflow_url, registry_uri=mlflow_url)


@pytest.fixture
def line_code(plant: Plant) -> str:
    """A line of this test's own: the MLflow server is shared by the whole run."""
    plant.line.code = f"t{time.time_ns()}"[-16:]
    plant.line.save()
    return plant.line.code


def registered(client: Any, version: Version) -> list[Any]:
    name = tracking.model_name(version)
    return list(client.search_model_versions(f"name = '{name}' AND tags.`loopline.job` = '{version.job_id}'"))


def loaded(client: Any, url: str, uri: str) -> Any:
    import mlflow

    mlflow.set_tracking_uri(url)
    mlflow.set_registry_uri(url)
    return mlflow.onnx.load_model(uri)


def test_what_was_registered_loads_with_plain_mlflow_and_runs(
    plant: Plant, line_code: str, client: Any, mlflow_url: str
) -> None:
    import onnxruntime

    sets = {"golden": {"champion": None, "candidate": figures(3, 24, 5, 50)}}
    version = plant.version(sets=sets)
    tracking.log_version(version)
    assert version.mlflow_version == 1
    assert version.mirrored_at is not None

    model = loaded(client, mlflow_url, f"models:/line-{line_code}-class/1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"pixels": np.zeros((2, 3, SIDE, SIDE), np.float32)})
    assert logits.shape == (2, 2)

    run = client.get_run(version.mlflow_run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["golden.escapes_rate"] == pytest.approx(3 / 24)
    assert run.data.params["rank"] == "4"
    assert run.data.tags["loopline.manifest"] == version.manifest_digest
    logged = client.get_logged_model(version.mlflow_model_id)
    assert str(logged.status) == "READY"
    assert logged.source_run_id == version.mlflow_run_id
    files = {file.path for file in client.list_logged_model_artifacts(version.mlflow_model_id)}
    assert {"MLmodel", "model.onnx", "adapter_model.safetensors", "adapter_config.json", "manifest.json"} <= files


def test_logging_again_makes_nothing_new(plant: Plant, line_code: str, client: Any) -> None:
    version = plant.version()
    for _ in range(3):
        tracking.log_version(version)
    assert len(registered(client, version)) == 1
    experiment = client.get_experiment_by_name(f"line-{line_code}").experiment_id
    assert len(client.search_runs([experiment])) == 1
    assert len(client.search_logged_models(experiment_ids=[experiment])) == 1


def test_a_second_copy_is_taken_away_and_the_first_stays(plant: Plant, line_code: str, client: Any) -> None:
    version = plant.version()
    tracking.log_version(version)
    client.create_model_version(
        tracking.model_name(version),
        source=f"models:/{version.mlflow_model_id}",
        tags={"loopline.job": str(version.job_id)},
        model_id=version.mlflow_model_id,
    )
    assert len(registered(client, version)) == 2
    tracking.log_version(version)
    assert [int(found.version) for found in registered(client, version)] == [1] == [version.mlflow_version]


def test_the_alias_follows_the_champion(plant: Plant, line_code: str, client: Any, mlflow_url: str) -> None:
    first = plant.release(1).version
    outbox.drain(timezone.now() + timedelta(minutes=1))
    assert client.get_registered_model(tracking.model_name(first)).aliases == {"champion": "1"}
    second = plant.release(2).version
    outbox.drain(timezone.now() + timedelta(minutes=1))
    assert client.get_registered_model(tracking.model_name(first)).aliases == {"champion": "2"}
    assert tracking.champion_number(second) == 2
    # An old write that is tried again moves nothing back.
    tracking.set_champion(first)
    assert tracking.champion_number(second) == 2
    assert not TrackingEntry.objects.filter(done_at=None).exists()
    loaded(client, mlflow_url, f"models:/line-{line_code}-class@champion")


def test_an_alias_waits_until_its_version_is_there(plant: Plant, line_code: str, mlflow_url: str) -> None:
    version = plant.release().version
    with pytest.raises(tracking.Failed, match="not in MLflow yet"):
        tracking.set_champion(version)


def test_a_write_that_fails_stays_in_the_outbox_and_waits_longer(plant: Plant, settings: Any) -> None:
    settings.MLFLOW_TRACKING_URI = "http://127.0.0.1:9"
    plant.version()
    assert outbox.drain(timezone.now()) == 0
    entry = TrackingEntry.objects.get()
    assert (entry.tries, entry.done_at) == (1, None)
    assert entry.error
    assert timezone.now() < entry.next_try_at < timezone.now() + timedelta(seconds=30)
    assert outbox.drain(timezone.now()) == 0
    assert outbox.drain(timezone.now() + timedelta(seconds=30)) == 0
    entry.refresh_from_db()
    assert entry.tries == 2
    assert entry.next_try_at > timezone.now() + timedelta(seconds=6)


def test_changed_bytes_are_not_mirrored(plant: Plant, line_code: str, client: Any) -> None:
    version = plant.version()
    file = versions.blobs.path(version.files["model.onnx"]["digest"])
    file.chmod(0o644)
    file.write_bytes(b"other")
    with pytest.raises(tracking.Failed, match="Damaged"):
        tracking.log_version(version)
    assert registered(client, version) == []


@pytest.mark.chaos
@pytest.mark.slow
def test_a_worker_killed_at_any_point_leaves_exactly_one_of_each(
    committed_plant: Plant, client: Any, mlflow_url: str, settings: Any
) -> None:
    plant = committed_plant
    plant.line.code = f"k{time.time_ns()}"[-16:]
    plant.line.save()
    version = plant.version()
    url = settings.DATABASES["default"] | {"NAME": connection.settings_dict["NAME"]}
    env = os.environ | {
        "DATABASE_URL": f"postgresql://{url['USER']}@/{url['NAME']}?host={url['HOST']}",
        "LOOPLINE_BLOBS": str(settings.BLOB_ROOT),
        "MLFLOW_TRACKING_URI": mlflow_url,
        "PYTHONPATH": str(CHECKOUT),
    }

    def worker() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", LOG, str(version.pk)]
        return subprocess.Popen(command, env=env, cwd=CHECKOUT, stdout=subprocess.PIPE)

    for delay_s in (0.6, 1.2, 1.8, 2.4, 3.0, 4.0):
        process = worker()
        assert process.stdout is not None
        assert process.stdout.readline() == b"go\n"
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    deadline = time.monotonic() + 60
    while True:
        try:
            tracking.log_version(version)
            break
        except tracking.Failed:  # the killed one's database session may take a moment to end
            assert time.monotonic() < deadline
            time.sleep(0.5)
    assert len(registered(client, version)) == 1
    experiment = client.get_experiment_by_name(f"line-{plant.line.code}").experiment_id
    assert len(client.search_runs([experiment])) == 1
    assert len(client.search_logged_models(experiment_ids=[experiment])) == 1


def test_two_workers_drain_the_outbox_without_doing_anything_twice(
    committed_plant: Plant, client: Any, mlflow_url: str
) -> None:
    plant = committed_plant
    plant.line.code = f"w{time.time_ns()}"[-16:]
    plant.line.save()
    version = plant.version()
    now = timezone.now()
    done: list[int] = []

    def drain() -> None:
        try:
            done.append(outbox.drain(now))
        finally:
            connection.close()

    threads = [threading.Thread(target=drain) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sum(done) == 1
    assert len(registered(client, version)) == 1
