"""Registered model versions: files as blobs, evidence frozen at registration, checks that validate or refuse them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import Max
from django.utils.translation import gettext_noop

from registry import bases, blobs, lifecycle, policies, wakeups
from registry.lifecycle import Refused
from registry.models import Line, Release, TrackingEntry, Version

if TYPE_CHECKING:
    import uuid
    from pathlib import Path

    from registry.audit import Actor
    from registry.models import BaseModel

Files = dict[str, dict[str, Any]]

MANIFEST, RESULT, DOSSIER = "manifest.json", "result.json", "dossier.json"
PARTS = {
    "adapter": "adapter_model.safetensors",
    "adapter_config": "adapter_config.json",
    "head": "head.safetensors",
    "golden": "golden.safetensors",
}
MODEL = "model.onnx"
NEEDED = (*PARTS.values(), MODEL, MANIFEST, RESULT)
MAY_RUN_CODE = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib", ".npy", ".py", ".so")

FILE_MISSING = gettext_noop("The training left no file %(file)s.")
FILE_FORBIDDEN = gettext_noop("%(file)s is of a kind that can run code when it is loaded. It was not stored.")
FILE_BROKEN = gettext_noop("%(file)s cannot be read: %(detail)s.")


def store_files(folder: Path) -> Files:
    """Put every output file of a job into the blob store: {"name": {"digest", "bytes"}}. Call it outside a transaction.

    Adds `dossier.json`, the picture-by-picture part of result.json. Raises Refused for a missing or a forbidden file.
    """
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    for path in paths:
        if path.suffix.lower() in MAY_RUN_CODE:
            raise Refused(FILE_FORBIDDEN, file=path.name)
    if missing := sorted(set(NEEDED) - {path.name for path in paths}):
        raise Refused(FILE_MISSING, file=missing[0])
    files: Files = {}
    for path in paths:
        digest = blobs.put_file(path)
        files[path.name] = {"digest": digest, "bytes": blobs.size(digest)}
    dossier = canonical(_json_of(files, RESULT).get("dossier", []))
    files[DOSSIER] = {"digest": blobs.put(dossier), "bytes": len(dossier)}
    return files


def register(
    *,
    line: Line,
    job_id: uuid.UUID,
    job_number: int,
    snapshot_id: uuid.UUID,
    snapshot_number: int,
    snapshot_digest: str,
    base: BaseModel,
    parent: Version | None,
    champion: Version | None,
    out_dir: Path,
    submitted_by: Any,
    worker: str,
    config: dict[str, Any],
    files: Files | None = None,
    verified: dict[str, Any] | None = None,
) -> Version:
    """The version that a job made, VALIDATED or REFUSED as its checks say; the standing one when the job has one.

    Runs inside the caller's transaction, which checks the job's fence: give `files` from `store_files(out_dir)`, called
    before. `verified` is what the reload on a clean base in a new process said ({"max_abs": x}); without it the version
    cannot be promoted. `worker` is the machine's label that stands in the audit log.
    """
    files = store_files(out_dir) if files is None else files
    manifest_bytes = blobs.read(files[MANIFEST]["digest"])
    manifest, result = _json_of(files, MANIFEST), _json_of(files, RESULT)
    with transaction.atomic():
        Line.objects.select_for_update(no_key=True).get(pk=line.pk)
        if known := Version.objects.filter(job_id=job_id).first():
            return known
        checks = _checks(line, job_id, base, files, manifest, manifest_bytes, verified)
        version = Version.objects.create(
            line=line,
            number=(Version.objects.filter(line=line).aggregate(last=Max("number"))["last"] or 0) + 1,
            base=base,
            parent=parent,
            job_id=job_id,
            snapshot_id=snapshot_id,
            trained_by=submitted_by,
            manifest_digest=hashlib.sha256(manifest_bytes).hexdigest(),
            manifest=manifest,
            files=files,
            evidence=_evidence(result)
            | {
                "job": {"id": str(job_id), "number": job_number},
                "snapshot": {"id": str(snapshot_id), "number": snapshot_number, "digest": snapshot_digest},
                "base": {"name": base.name, "digest": base.digest},
                "parent": parent.number if parent else None,
                "champion": champion.number if champion else None,
                "worker": worker,
                "config": config,
                "leading": _leading(config, result),
                "verified": verified,
                "full_bytes": files[MODEL]["bytes"],
                "delivered_bytes": len(manifest_bytes) + sum(files[name]["bytes"] for name in PARTS.values()),
                "checks": checks,
            },
            dossier_digest=files[DOSSIER]["digest"],
            champion_number=champion.number if champion else None,
        )
        good = all(check["passed"] for check in checks)
        lifecycle.move(version, Version.State.VALIDATED if good else Version.State.REFUSED, by=worker)
        if good:
            owe(version, TrackingEntry.Kind.LOG_VERSION)
    return version


def owe(version: Version, kind: str) -> None:
    """Put a write to MLflow into the outbox, in the transaction of the rows that it mirrors."""
    TrackingEntry.objects.create(kind=kind, version=version)
    wakeups.wake("registry.tasks.drain_tracking")


def champion(line: Line) -> Version | None:
    """The version of the line's published release."""
    release = Release.objects.filter(line=line, state=Release.State.PUBLISHED).select_related("version__base").first()
    return release.version if release else None


def unpack(version: Version, to: Path) -> None:
    """Write the version's files into the folder `to`, each checked on the way; raises blobs.Missing, blobs.Damaged."""
    to.mkdir(parents=True, exist_ok=True)
    for name, file in version.files.items():
        bases.copy_out(file["digest"], to / name)


def retire(version: Version, *, by: Actor, reason: str) -> None:
    """Take a version out of use for good; refused while it is released, asked for, or on a device."""
    policies.check_can_retire_version(version, by=by)
    policies.check_reason(reason)
    lifecycle.move(version, Version.State.RETIRED, by=by, reason=reason)


BYTES_MISSING = gettext_noop("%(file)s of version %(name)s is missing in the store.")
BYTES_CHANGED = gettext_noop("%(file)s of version %(name)s no longer has the bytes that were checked.")
MANIFEST_OTHER = gettext_noop("The manifest of version %(name)s does not name the files that were checked.")


def check_bytes(version: Version) -> None:
    """Read every byte that devices or MLflow will get, against manifest and row; raises Refused with what is wrong.

    Reads files: call it outside a transaction.
    """
    name = str(version)
    wanted = {file: entry["digest"] for file, entry in version.files.items()}
    if wanted[MANIFEST] != version.manifest_digest:
        raise Refused(MANIFEST_OTHER, name=name)
    for file, digest in wanted.items():
        _check_blob(digest, file, name)
    for digest in bases.digests(version.base):
        _check_blob(digest, version.base.name, name)
    manifest = json.loads(blobs.read(version.manifest_digest))
    if manifest != version.manifest or any(
        manifest["parts"][part]["digest"] != wanted[file] for part, file in PARTS.items()
    ):
        raise Refused(MANIFEST_OTHER, name=name)


def _check_blob(digest: str, file: str, name: str) -> None:
    try:
        blobs.read(digest)
    except blobs.Missing as error:
        raise Refused(BYTES_MISSING, file=file, name=name) from error
    except blobs.Damaged as error:
        raise Refused(BYTES_CHANGED, file=file, name=name) from error


# ------------------------------------------------------------------------------------------------ checks and evidence

CHECK_CANONICAL = gettext_noop("The manifest is written canonically.")
CHECK_NAMES = gettext_noop("The manifest names this line and this job.")
CHECK_BASE = gettext_noop("The manifest names the base model that was trained on.")
CHECK_PARTS = gettext_noop("The manifest names exactly the files that the training left.")
CHECK_CLASSES = gettext_noop("OK is the first class, and class numbers are not repeated.")
CHECK_CLEAN_BASE = gettext_noop("Reloaded on a clean base in a new process, it gave the same outputs.")


def _checks(
    line: Line,
    job_id: uuid.UUID,
    base: BaseModel,
    files: Files,
    manifest: dict[str, Any],
    manifest_bytes: bytes,
    verified: dict[str, Any] | None,
) -> list[dict[str, Any]]:
    """What must hold of the files themselves; quality is for the gates of a promotion."""
    parts, named, classes = manifest.get("parts", {}), manifest.get("base", {}), manifest.get("classes", [])
    numbers = [entry.get("number") for entry in classes]
    checks = [
        ("canonical", CHECK_CANONICAL, canonical(manifest) == manifest_bytes and manifest.get("format") == 1),
        ("names", CHECK_NAMES, manifest.get("line") == line.code and manifest.get("job") == str(job_id)),
        ("base", CHECK_BASE, named.get("digest") == base.digest and named.get("map_digest") == base.map_digest),
        ("parts", CHECK_PARTS, all(_same(parts.get(part), files[file]) for part, file in PARTS.items())),
        ("classes", CHECK_CLASSES, numbers[:1] == [0] and len(set(numbers)) == len(numbers) > 1),
    ]
    if verified is not None:
        tolerance = manifest.get("tolerance", {}).get("logits", 0.0)
        checks.append(("clean_base", CHECK_CLEAN_BASE, verified.get("max_abs", float("inf")) <= tolerance))
    return [{"code": code, "text": text, "params": {}, "passed": bool(passed)} for code, text, passed in checks]


def _same(part: dict[str, Any] | None, file: dict[str, Any]) -> bool:
    return part is not None and part.get("digest") == file["digest"] and part.get("bytes") == file["bytes"]


def _evidence(result: dict[str, Any]) -> dict[str, Any]:
    """result.json without its long list; the dossier has a blob of its own."""
    return {key: value for key, value in result.items() if key != "dossier"}


def _leading(config: dict[str, Any], result: dict[str, Any]) -> str:
    """The set that leads every comparison: as the job's config says, else the first golden set, else validation."""
    sets = result.get("sets", {})
    golden = [code for code in sets if code not in ("val", "test")]
    for code in (config.get("leading_set"), "golden", *golden):
        if code in sets:
            return str(code)
    return "val"


def canonical(value: Any) -> bytes:
    """The one JSON spelling whose SHA-256 counts: sorted keys, no spaces, UTF-8, no newline at the end."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _json_of(files: Files, name: str) -> dict[str, Any]:
    try:
        value = json.loads(blobs.read(files[name]["digest"]))
    except ValueError as error:
        raise Refused(FILE_BROKEN, file=name, detail=str(error)) from error
    if not isinstance(value, dict):
        raise Refused(FILE_BROKEN, file=name, detail="not an object")
    return value
