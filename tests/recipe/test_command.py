"""The command line as its supervisor sees it: only events on stdout, death with the supervisor, stopping on request."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.recipe.conftest import Recipe, Row
from training.recipe.events import Failed, failure_of

MakeJob = Callable[..., Path]
Start = Callable[..., Recipe]


def test_train_and_verify_run_from_the_command_line_with_events_alone_on_stdout(
    start: Start, make_job: MakeJob, small_items: list[Row]
) -> None:
    job_dir = make_job("job", small_items, train={"epochs": 6, "batch": 16, "lr": 0.01})
    said: dict[str, list[str]] = {}
    for command in ("train", "verify"):
        recipe = start(command, str(job_dir))
        said[command] = [event["event"] for event in recipe.finish()]
        assert recipe.process.returncode == 0, recipe.log.read_text()
    assert said["train"][0] == "phase"
    assert said["train"][-1] == "done"
    assert {"phase", "step", "epoch"} <= set(said["train"])
    assert said["verify"][-2:] == ["verified", "done"]


def test_a_failure_is_an_event_and_exit_status_one(start: Start, make_job: MakeJob, small_items: list[Row]) -> None:
    job_dir = make_job("job", [row for row in small_items if row["split"] != "val" or row["label"] == 0])
    recipe = start("train", str(job_dir))
    failed = recipe.finish()[-1]
    assert recipe.process.returncode == 1
    assert failed == {"event": "fail", "code": "no_ng_in_validation", "params": {"val": 16}}
    assert "Traceback" in recipe.log.read_text()  # the log has the whole story


@pytest.fixture
def long_job(make_job: MakeJob, small_items: list[Row]) -> Path:
    return make_job("job", small_items, train={"epochs": 5000, "batch": 8})


def test_sigterm_leaves_a_checkpoint_and_143(start: Start, long_job: Path) -> None:
    recipe = start("train", str(long_job))
    recipe.wait_for("epoch")
    recipe.process.send_signal(signal.SIGTERM)
    recipe.finish()
    assert recipe.process.returncode == 143
    assert list((long_job / "checkpoint").iterdir())
    assert not (long_job / "out").exists()


def test_it_dies_at_once_with_its_group_when_the_supervisor_lets_go_of_stdin(start: Start, long_job: Path) -> None:
    recipe = start("train", str(long_job))
    recipe.wait_for("step")
    recipe.let_go()
    assert recipe.process.wait(20) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.killpg(recipe.process.pid, 0)


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
