"""The whole loop on a small slice: real services, real workers, real agents, real pictures; judged by its effects."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from console import children

CHECKOUT = Path(__file__).resolve().parent.parent
STEPS = (
    "import base model",
    "import earlier production",
    "enrol devices",
    "freeze mono",
    "train champion",
    "promote champion",
    "roll out champion",
    "poly cells arrive",
    "decide what was flagged",
    "freeze mono and poly",
    "train candidate",
    "promote candidate",
    "roll out candidate",
)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_step_of_the_loop_happens_and_devices_run_what_was_approved(tmp_path: Path, base_bundle: Path) -> None:
    report = tmp_path / "report.json"
    env = {key: value for key, value in os.environ.items() if not key.startswith(("DATABASE_", "REDIS_", "MLFLOW_"))}
    done = subprocess.run(
        children.python("manage.py", "loop", "--small", "--base", str(base_bundle), "--report", str(report)),
        cwd=CHECKOUT,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    last = done.stdout.strip().splitlines()[-1]
    line = json.loads(last)
    assert line == json.loads(report.read_text())
    assert line["ok"] is True
    assert [step for step in STEPS if not line["seconds"].get(step)] == []
    assert line["flagged"] > 0
    assert line["decided"] > 0
    for name in ("golden", "era1", "era2"):
        for who in ("champion", "candidate"):
            for noun in ("escapes", "overkills"):
                n, of = line[name][who][noun]
                assert 0 <= n <= of
                assert of > 0
    assert len(line["devices"]) == 3
    for device in line["devices"]:
        assert device["state"] == "COMMITTED"
        assert device["digest"] == line["release_digest"]
    assert 0 < line["delivered_bytes"] < line["full_bytes"] / 20
    assert 0 < line["trainable_share"] < 0.05
