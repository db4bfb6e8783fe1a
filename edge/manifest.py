"""Reading a release manifest and a base map: every field that the agent relies on is checked before it is used.

Both arrive under a digest that the server gave, but a digest says only that the bytes are the meant ones, not that they
make sense for this agent.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

FORMAT = 1
PARTS = ("adapter", "adapter_config", "head", "golden")
MAX_MANIFEST_BYTES = 1_000_000
MAX_PART_BYTES = 500_000_000
MAX_BASE_BYTES = 2_000_000_000
MAX_SIDE = 4096

_DIGEST = re.compile(r"[0-9a-f]{64}")
_LAYOUTS = ("conv1x1", "linear", "linear_t")


class ReleaseRefused(Exception):
    """This release must not run here. `code` is one of `edge.protocol.REPORT_CODES`."""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(f"{code} {params}" if params else code)
        self.code = code
        self.params = params


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def parse_manifest(data: bytes) -> dict[str, Any]:
    """Raises ReleaseRefused("manifest_invalid") with the field that is wrong."""
    manifest = _object(data)
    _need(manifest.get("format") == FORMAT, "format")
    base = _part(manifest, "base", dict)
    _need(is_digest(base.get("digest")), "base.digest")
    _need(is_digest(base.get("map_digest")), "base.map_digest")
    _need(_is_size(base.get("map_bytes"), MAX_MANIFEST_BYTES), "base.map_bytes")
    for name in ("graph", "targets"):
        _check_file(_part(base, "files", dict).get(name), MAX_BASE_BYTES, f"base.files.{name}")
    parts = _part(manifest, "parts", dict)
    _need(sorted(parts) == sorted(PARTS), "parts")
    for name, part in parts.items():
        _check_file(part, MAX_PART_BYTES, f"parts.{name}")
    adapter = _part(manifest, "adapter", dict)
    _need(_is_number(adapter.get("scaling")), "adapter.scaling")
    modules = _part(adapter, "modules", list)
    _need(all(isinstance(m, str) for m in modules) and len(set(modules)) == len(modules), "adapter.modules")
    _check_preprocess(_part(manifest, "preprocess", dict))
    _check_classes(_part(manifest, "classes", list))
    thresholds = _part(manifest, "thresholds", dict)
    for name in ("operating", "ok_below", "ng_from"):
        _need(_is_number(thresholds.get(name)), f"thresholds.{name}")
    _need(thresholds["ok_below"] <= thresholds["ng_from"], "thresholds")
    tolerance = _part(manifest, "tolerance", dict).get("logits")
    _need(_is_number(tolerance) and 0 < tolerance < 1, "tolerance.logits")
    return manifest


def parse_base(data: bytes, manifest: dict[str, Any]) -> dict[str, Any]:
    """The base map (`base.json`), checked against the manifest that names it. Raises ReleaseRefused."""
    base = _object(data)
    _need(base.get("format") == FORMAT, "base.json format")
    if base.get("digest") != manifest["base"]["digest"]:
        raise ReleaseRefused("base_mismatch", detail="base.json is of another base")
    for name in ("graph", "targets"):
        stated = _part(base, "files", dict).get(name)
        if not isinstance(stated, dict) or stated.get("digest") != manifest["base"]["files"][name]["digest"]:
            raise ReleaseRefused("base_mismatch", detail=f"base.json has another {name}")
    _need(_is_size(base.get("features"), 1_000_000), "base.json features")
    for target in _part(base, "targets", list):
        _need(isinstance(target, dict), "base.json targets")
        _need(all(isinstance(target.get(k), str) for k in ("module", "initializer")), "base.json targets")
        _need(target.get("layout") in _LAYOUTS, "base.json targets")
    return base


def files_of(manifest: dict[str, Any]) -> tuple[dict[str, tuple[str, int]], dict[str, tuple[str, int]]]:
    """File name to (digest, bytes): those of the release beside its manifest, and those of its base."""
    parts = {part_file(name): (part["digest"], part["bytes"]) for name, part in manifest["parts"].items()}
    base = manifest["base"]
    files = base["files"]
    return parts, {
        "base.json": (base["map_digest"], base["map_bytes"]),
        "graph.onnx": (files["graph"]["digest"], files["graph"]["bytes"]),
        "targets.safetensors": (files["targets"]["digest"], files["targets"]["bytes"]),
    }


def part_file(part: str) -> str:
    """The file name of a manifest's part inside the release folder."""
    return f"{part}.json" if part == "adapter_config" else f"{part}.safetensors"


def _check_preprocess(preprocess: dict[str, Any]) -> None:
    size = _part(preprocess, "size", list)
    _need(len(size) == 2 and all(_is_size(n, MAX_SIDE) for n in size), "preprocess.size")
    for name in ("mean", "std"):
        values = _part(preprocess, name, list)
        _need(len(values) == 3 and all(_is_number(v) for v in values), f"preprocess.{name}")
    _need(all(v > 0 for v in preprocess["std"]), "preprocess.std")
    _need(preprocess.get("resize") in ("squash", "fit"), "preprocess.resize")
    window = preprocess.get("window")
    _need(
        window is None
        or (isinstance(window, list) and len(window) == 2 and all(map(_is_number, window)) and window[0] < window[1]),
        "preprocess.window",
    )


def _check_classes(classes: list[Any]) -> None:
    _need(len(classes) >= 2, "classes")
    for index, item in enumerate(classes):
        _need(isinstance(item, dict) and item.get("index") == index and isinstance(item.get("code"), str), "classes")
    _need(classes[0].get("code") == "OK", "classes")


def _check_file(part: Any, limit: int, field: str) -> None:
    _need(isinstance(part, dict) and is_digest(part.get("digest")) and _is_size(part.get("bytes"), limit), field)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ReleaseRefused("manifest_invalid", detail="not JSON") from error
    _need(isinstance(value, dict), "not an object")
    return dict(value)


def _part(value: dict[str, Any], name: str, kind: type) -> Any:
    part = value.get(name)
    _need(isinstance(part, kind), name)
    return part


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_size(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= limit


def _need(met: bool, field: str) -> None:
    if not met:
        raise ReleaseRefused("manifest_invalid", field=field)
