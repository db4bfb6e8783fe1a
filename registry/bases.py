"""Base models: bundles of files that are stored once and known by the digest of the weights."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.utils.translation import gettext_noop

from registry import audit, blobs, policies
from registry.lifecycle import Refused
from registry.models import BaseModel

if TYPE_CHECKING:
    from registry.audit import Actor

log = logging.getLogger(__name__)

MAP = "base.json"
FILES = {"graph": "graph.onnx", "targets": "targets.safetensors", "weights": "base.safetensors"}

NOT_A_BUNDLE = gettext_noop("%(folder)s holds no base bundle: %(detail)s.")
FILE_DIFFERS = gettext_noop("%(file)s of the base bundle is not the file that base.json describes.")


def import_bundle(folder: Path, *, by: Actor) -> BaseModel:
    """Store a bundle made by `python -m training.recipe import-base`. Importing the same weights again is a no-op."""
    policies.check_can_import_base(by=by)
    raw, bundle = _read_map(folder)
    if known := BaseModel.objects.filter(digest=bundle["digest"]).first():
        if known.map_digest != hashlib.sha256(raw).hexdigest():
            log.warning("base %s is known with other exported files; the known ones are kept", known.digest[:12])
        return known
    for key, name in FILES.items():
        if blobs.put_file(folder / name) != bundle["files"][key]["digest"]:
            raise Refused(FILE_DIFFERS, file=name)
    map_digest = blobs.put(raw)
    with transaction.atomic():
        base, created = BaseModel.objects.get_or_create(
            digest=bundle["digest"],
            defaults={
                "name": bundle["name"],
                "licence": bundle["licence"],
                "parameters": bundle["parameters"],
                "bundle": bundle,
                "map_digest": map_digest,
            },
        )
        if created:
            audit.record(
                by, "base.import", base, new={"digest": base.digest, "map": map_digest, "licence": base.licence}
            )
    return base


def unpack(base: BaseModel, to: Path) -> None:
    """Write the bundle's files into the folder `to`, each checked on the way; raises blobs.Missing or blobs.Damaged."""
    to.mkdir(parents=True, exist_ok=True)
    copy_out(base.map_digest, to / MAP)
    for key, name in FILES.items():
        copy_out(base.bundle["files"][key]["digest"], to / name)


def copy_out(digest: str, target: Path) -> None:
    """Copy a blob to a file and check its bytes while copying; raises blobs.Missing or blobs.Damaged."""
    found = hashlib.sha256()
    with blobs.open_read(digest) as source, target.open("wb") as out:
        while chunk := source.read(blobs.CHUNK):
            found.update(chunk)
            out.write(chunk)
    if found.hexdigest() != digest:
        target.unlink()
        raise blobs.Damaged(digest)


def digests(base: BaseModel) -> dict[str, int]:
    """Digest -> bytes of what a device fetches of a base: map, graph and targets; the weights stay on the server."""
    files = base.bundle["files"]
    return {base.map_digest: blobs.size(base.map_digest)} | {
        files[key]["digest"]: files[key]["bytes"] for key in ("graph", "targets")
    }


def _read_map(folder: Path) -> tuple[bytes, dict[str, Any]]:
    try:
        raw = (folder / MAP).read_bytes()
        bundle = json.loads(raw)
        wanted = {key: bundle["files"][key]["digest"] for key in FILES}
        fields = [bundle[key] for key in ("name", "digest", "licence", "parameters")]
    except OSError as error:
        raise Refused(NOT_A_BUNDLE, folder=str(folder), detail=error.strerror or "unreadable") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(NOT_A_BUNDLE, folder=str(folder), detail=f"base.json lacks {error}") from error
    if bundle["format"] != 1 or wanted["weights"] != bundle["digest"] or not all(fields):
        raise Refused(NOT_A_BUNDLE, folder=str(folder), detail="base.json contradicts itself")
    for name in FILES.values():
        if not (folder / name).is_file():
            raise Refused(NOT_A_BUNDLE, folder=str(folder), detail=f"{name} is missing")
    return raw, bundle
