"""The command line as its supervisor sees it: events alone on stdout, death with the supervisor, and stopping on request."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.recipe.conftest import Row, start_recipe
from training.recipe.events import Failed, failure_of

MakeJob = Callable[..., Path]


def test_train_and_verify_run_from_the_command_line_with_events_alone_on_stdout(
    make_job: MakeJob, small_items: list[Row]
) -> None:
    job_dir = make_job("job", small_items, train={"epochs": 6, "batch": 16, "lr": 0.01})
    said: dict[str, list[str]] = {}
    for command in ("train", "verify"):
        process = start_recipe(command, str(job_dir))
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
        assert process.wait(60) == 0, process.stderr.read() if process.stderr else ""
        said[command] = [json.loads(line)["event"] for line in lines]
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()
    assert said["train"][0] == "phase"
    assert said["train"][-1] == "done"
    assert {"phase", "step", "epoch"} <= set(said["train"])
    assert said["verify"][-2:] == ["verified", "done"]


def test_a_failure_is_an_event_and_exit_status_one(make_job: MakeJob, small_items: list[Row]) -> None:
    job_dir = make_job("job", [row for row in small_items if row["split"] != "val" or row["label"] == 0])
    process = start_recipe("train", str(job_dir))
    out, log = process.communicate(timeout=120)
    assert process.returncode == 1
    failed = json.loads(out.splitlines()[-1])
    assert failed == {"event": "fail", "code": "no_ng_in_validation", "params": {"val": 16}}
    assert "Traceback" in log  # the log has the whole story


def wait_for(process: subprocess.Popen[str], event: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == event:
            return
    raise AssertionError(f"ended before {event}")


@pytest.fixture
def long_job(make_job: MakeJob, small_items: list[Row]) -> Path:
    return make_job("job", small_items, train={"epochs": 5000, "batch": 8})


def test_sigterm_leaves_a_checkpoint_and_143(long_job: Path) -> None:
    process = start_recipe("train", str(long_job))
    wait_for(process, "epoch")
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert time.monotonic() - began < 60
    assert list((long_job / "checkpoint").iterdir())
    assert not (long_job / "out").exists()


def test_it_dies_at_once_with_its_group_when_the_supervisor_lets_go_of_stdin(long_job: Path) -> None:
    process = start_recipe("train", str(long_job))
    wait_for(process, "step")
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(20) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), "out_of_memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "out_of_memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_memory"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "disk_full"),
        (Failed("class_missing", code="OK", where="train"), "class_missing"),
        (KeyError("classes"), "crashed"),
    ],
)
def test_exceptions_become_codes_that_a_plant_engineer_can_act_on(error: Exception, code: str) -> None:
    assert failure_of(error).code == code
