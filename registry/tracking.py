"""The one importer of MLflow: mirrors versions and the champion alias so that plain MLflow code finds and loads them.

Every write is found again before it is made (by the job's tag), so that a process killed at any point and tried again
leaves one run, one logged model and one registered version per job. Nothing here is read by a page.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection
from django.utils import timezone

from registry import bases, blobs, lifecycle, versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from registry.models import Version

# Before mlflow is imported: no telemetry, and no silent second POST after a lost answer (it would register twice);
# the outbox tries again and looks first.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "true"
os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

TAG = "loopline.job"
ALIAS = "champion"
FLAVOUR_FILE = "MLmodel"
EXTRA = (*versions.PARTS.values(), versions.MANIFEST, versions.RESULT)


class Failed(Exception):
    """MLflow did not take the write; it stays in the outbox."""


def model_name(version: Version) -> str:
    """The registered model of the version's line."""
    return f"line-{version.line.code}-{version.line.task}"


def log_version(version: Version) -> None:
    """Run, metrics, logged model and registered version of this version; its ids are kept in our row. Raises Failed.

    `mlflow.onnx.load_model("models:/<name>/<n>")` loads it then; adapter, manifest and result lie beside the model.
    """
    with _alone(version), _errors():
        client = _client()
        experiment = _experiment(client, f"line-{version.line.code}")
        run_id = _run(client, experiment, version)
        model_id = _logged_model(client, experiment, run_id, version)
        number = _registered(client, run_id, model_id, version)
        client.set_terminated(run_id, "FINISHED")
    lifecycle.touch(
        version, mlflow_run_id=run_id, mlflow_model_id=model_id, mlflow_version=number, mirrored_at=timezone.now()
    )


def set_champion(version: Version) -> None:
    """Let the alias point to the line's champion of now (a newer one may have overtaken this write). Raises Failed."""
    now = versions.champion(version.line)
    if now is None:
        return
    if now.mlflow_version is None:
        raise Failed(f"{now} is not in MLflow yet")
    with _alone(now), _errors():
        _client().set_registered_model_alias(model_name(now), ALIAS, str(now.mlflow_version))


def champion_number(version: Version) -> int | None:
    """MLflow's version number behind the champion alias of this version's model; None without one. Raises Failed."""
    with _errors():
        aliases = _client().get_registered_model(model_name(version)).aliases
    return int(aliases[ALIAS]) if ALIAS in aliases else None


# ------------------------------------------------------------------------------------------------ steps


def _experiment(client: Any, name: str) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(name)
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def _run(client: Any, experiment: str, version: Version) -> str:
    """The run of the version's job: what it was trained from, how it did. Logging the same again changes nothing."""
    from mlflow.entities import Metric, Param, RunTag

    found = client.search_runs(
        [experiment], f"tags.`{TAG}` = '{version.job_id}'", max_results=1, order_by=["start_time ASC"]
    )
    tags = _tags(version)
    if found:
        run_id = found[0].info.run_id
    else:
        run_id = client.create_run(experiment, tags=tags, run_name=f"{version.line.code} {version}").info.run_id
    at = int(version.created_at.timestamp() * 1000)
    client.log_batch(
        run_id,
        metrics=[Metric(name, value, at, 0) for name, value in _metrics(version).items()],
        params=[Param(name, value) for name, value in _params(version).items()],
        tags=[RunTag(name, value) for name, value in tags.items()],
    )
    return str(run_id)


def _logged_model(client: Any, experiment: str, run_id: str, version: Version) -> str:
    """The logged model with its files; an unfinished one is filled again."""
    found = client.search_logged_models(
        experiment_ids=[experiment], filter_string=f"tags.`{TAG}` = '{version.job_id}'", max_results=1
    )
    if found:
        model = found[0]
    else:
        model = client.create_logged_model(
            experiment_id=experiment,
            name=f"{version.line.code}-{version}",
            source_run_id=run_id,
            tags=_tags(version),
            params=_params(version),
            model_type="onnx",
        )
    if str(model.status) != "READY":
        with tempfile.TemporaryDirectory(prefix="loopline-mlflow-") as folder:
            _write_model(Path(folder), version, run_id, model.model_id)
            client.log_model_artifacts(model.model_id, folder)
        client.finalize_logged_model(model.model_id, "READY")
    return str(model.model_id)


def _write_model(folder: Path, version: Version, run_id: str, model_id: str) -> None:
    """An MLflow model of the onnx flavour, written without importing onnx (the host of this worker may lack it)."""
    import numpy as np
    from mlflow.models import Model, ModelSignature
    from mlflow.types import Schema, TensorSpec

    for name in (versions.MODEL, *EXTRA):
        bases.copy_out(version.files[name]["digest"], folder / name)
    height, width = version.manifest["preprocess"]["size"]
    classes = len(version.manifest["classes"])
    model = Model(
        run_id=run_id,
        model_id=model_id,
        signature=ModelSignature(
            inputs=Schema([TensorSpec(np.dtype("float32"), (-1, 3, height, width), "pixels")]),
            outputs=Schema([TensorSpec(np.dtype("float32"), (-1, classes), "logits")]),
        ),
    )
    model.add_flavor(
        "onnx",
        onnx_version="1",
        data=versions.MODEL,
        providers=["CPUExecutionProvider"],
        onnx_session_options=None,
        code=None,
    )
    model.save(str(folder / FLAVOUR_FILE))


def _registered(client: Any, run_id: str, model_id: str, version: Version) -> int:
    """The registered version of the job: found, else created. Should two exist, the first stays."""
    from mlflow.exceptions import MlflowException

    name = model_name(version)
    try:
        client.create_registered_model(name, tags={"loopline.line": version.line.code})
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    if not (numbers := _numbers(client, name, version)):
        client.create_model_version(
            name, source=f"models:/{model_id}", run_id=run_id, tags=_tags(version), model_id=model_id
        )
        numbers = _numbers(client, name, version)
    for extra in numbers[1:]:
        client.delete_model_version(name, str(extra))
    return numbers[0]


def _numbers(client: Any, name: str, version: Version) -> list[int]:
    wanted = f"name = '{name}' AND tags.`{TAG}` = '{version.job_id}'"
    return sorted(int(found.version) for found in client.search_model_versions(wanted, max_results=10))


# ------------------------------------------------------------------------------------------------ contents


def _tags(version: Version) -> dict[str, str]:
    """Short keys to find things by; the records themselves are in our database."""
    return {
        TAG: str(version.job_id),
        "loopline.line": version.line.code,
        "loopline.version": str(version.number),
        "loopline.manifest": version.manifest_digest,
        "loopline.snapshot": version.evidence["snapshot"]["digest"],
        "loopline.base": version.base.digest,
    }


def _params(version: Version) -> dict[str, str]:
    config = version.evidence.get("config") or {}
    flat = {"base": version.base.name, "snapshot": str(version.evidence["snapshot"]["number"])}
    for group in (config, config.get("lora") or {}, config.get("train") or {}):
        flat |= {name: str(value)[:500] for name, value in group.items() if isinstance(value, str | int | float | bool)}
    return flat


def _metrics(version: Version) -> dict[str, float]:
    evidence = version.evidence
    figures: dict[str, float] = {
        name: evidence[name] for name in ("trainable_share", "pictures_per_s", "peak_memory_mb") if name in evidence
    }
    for code, entry in (evidence.get("sets") or {}).items():
        candidate = entry.get("candidate") or {}
        for rate in ("escapes", "overkills"):
            n, of = candidate.get(rate, (0, 0))
            if of:
                figures |= {f"{code}.{rate}": n, f"{code}.{rate}_of": of, f"{code}.{rate}_rate": n / of}
        if candidate.get("auroc") is not None:
            figures[f"{code}.auroc"] = candidate["auroc"]
    figures |= {f"threshold.{name}": value for name, value in version.manifest["thresholds"].items()}
    return {name: float(value) for name, value in figures.items()}


# ------------------------------------------------------------------------------------------------ connection


def _client() -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=settings.MLFLOW_TRACKING_URI, registry_uri=settings.MLFLOW_TRACKING_URI)


@contextmanager
def _errors() -> Iterator[None]:
    """MLflow's, the network's and the store's failures as Failed; a fault of ours keeps its own name."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError, shutil.Error, json.JSONDecodeError, blobs.Missing, blobs.Damaged) as error:
        raise Failed(f"{type(error).__name__}: {error}") from error


@contextmanager
def _alone(version: Version) -> Iterator[None]:
    """One writer per version: a lock of the database session, which dies with its process."""
    key = int.from_bytes(hashlib.sha256(f"tracking {version.pk}".encode()).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
        if not cursor.fetchone()[0]:
            raise Failed("another worker is writing this version")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [key])
