"""A camera made of a manifest: replays real pictures into the camera folder at a set rate, and remembers where it was.

The label never goes along: the agent knows what a camera and a line know, not the truth.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from edge.config import Home, write_json

_TEXTS = ("lot", "serial", "part", "station", "shift", "product")


class Camera:
    """Puts the pictures of `manifest` (CSV with `image`, paths relative to it) into the home's inbox."""

    def __init__(self, home: Home, manifest: Path, *, loop: bool = False, inbox_limit: int = 100) -> None:
        self._home = home
        self._manifest = manifest
        self._loop = loop
        self._inbox_limit = inbox_limit
        self._position_file = home.root / "simulate.json"
        with open(manifest, newline="", encoding="utf-8-sig") as handle:
            self._rows = list(csv.DictReader(handle))
        if not self._rows or "image" not in self._rows[0]:
            raise ValueError(f"{manifest} has no rows or no column `image`")
        self._position = self._read_position()

    def run(self, rate: float, stop: threading.Event) -> int:
        """Until the end of the manifest or `stop`; pictures put. A full inbox (agent away) makes the camera wait."""
        self._home.make()
        put = 0
        next_at = time.monotonic()
        while self._loop or self._position < len(self._rows):
            if stop.wait(max(0.0, next_at - time.monotonic())):
                break
            next_at = max(next_at + 1.0 / rate, time.monotonic() - 1.0)
            if sum(1 for _ in self._home.inbox.iterdir()) > 2 * self._inbox_limit:
                continue
            self._put()
            put += 1
        return put

    def _put(self) -> None:
        turn, index = divmod(self._position, len(self._rows))
        row = self._rows[index]
        source = self._manifest.parent / row["image"]
        name = f"{self._position:06d}-{source.name}"
        target = self._home.inbox / name
        # Sidecar first, picture by rename: the agent takes a picture as soon as it sees both.
        sidecar = target.with_name(f"{name}.json")
        sidecar.write_text(json.dumps(_facts(row, first_turn=turn == 0), ensure_ascii=False), encoding="utf-8")
        temp = target.with_name(f".{name}.tmp")
        shutil.copyfile(source, temp)
        os.replace(temp, target)
        self._position += 1
        write_json(self._position_file, {**self._positions(), str(self._manifest.resolve()): self._position})

    def _read_position(self) -> int:
        return int(self._positions().get(str(self._manifest.resolve()), 0))

    def _positions(self) -> dict[str, Any]:
        try:
            positions: dict[str, Any] = json.loads(self._position_file.read_bytes())
        except FileNotFoundError:
            return {}
        return positions


def _facts(row: dict[str, str], *, first_turn: bool) -> dict[str, str]:
    """Sidecar fields of a row. A picture shown again in a later turn was taken now."""
    facts = {name: row.get(name) or "" for name in _TEXTS}
    stated = row.get("taken_at") or row.get("captured_at") or ""
    facts["taken_at"] = stated if stated and first_turn else datetime.now().astimezone().isoformat()
    return facts
