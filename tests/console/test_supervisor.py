"""`manage.py up`: restarts what dies, stops clean, leaves nothing behind when it is killed, and recovers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests.running import Running, wait_for

pytestmark = pytest.mark.slow


def test_each_process_that_is_killed_is_started_again(running_console: Running) -> None:
    for name in ("web", "worker", "train", "beat"):
        old = running_console.kill_child(name)
        assert running_console.wait_for_restart(name, old) != old
    wait_for(lambda: _answers(running_console.base_url), within_s=30)
    assert b"web ended (exit -9)" in running_console.log.read_bytes()


def test_while_every_web_process_starts_anew_nobody_is_turned_away(running_console: Running) -> None:
    webs = [name for name in running_console.pids() if name.startswith("web")]
    old = {name: running_console.kill_child(name) for name in webs}
    # Nobody accepts at this moment: the connection waits in the supervisor's socket, and is answered.
    assert httpx.get(running_console.base_url + "/sign-in/", timeout=60).status_code == 200
    for name, pid in old.items():
        running_console.wait_for_restart(name, pid)


def test_a_second_start_on_the_same_state_says_who_runs_and_ends(running_console: Running) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=running_console.checkout,
        env=running_console.full_env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert running_console.process is not None
    assert done.returncode == 1
    assert f"process {running_console.process.pid}" in done.stderr
    assert running_console.base_url in done.stderr
    assert "Traceback" not in done.stderr


def test_web_worker_and_beat_never_load_torch(running_console: Running) -> None:
    assert _answers(running_console.base_url)
    for name in ("web", "worker", "train", "beat"):
        maps = Path(f"/proc/{running_console.pids()[name]}/maps").read_text()
        assert "libtorch" not in maps, name


def test_a_taken_port_is_named_and_the_next_one_used(running_console: Running, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        other = Running(
            checkout=running_console.checkout,
            state=tmp_path / "other",
            env=running_console.env,
            command=("up", "--port", str(port), "--no-train"),
        )
        with other:
            assert f"Port {port} is taken: using" in other.log.read_text()
            assert other.base_url != running_console.base_url
            assert "train" not in other.pids()
        assert "Stopped." in other.log.read_text()


def test_killed_it_leaves_nothing_behind_and_the_next_start_recovers_and_stops_clean(private_console: Running) -> None:
    family = _family(private_console)
    assert {"postgres", "valkey", "mlflow", "web", "worker", "train", "beat"} <= set(private_console.pids())
    private_console.kill()
    wait_for(lambda: not [process for process in family if _alive(process)], within_s=20)

    private_console.start()
    assert _answers(private_console.base_url)
    family = _family(private_console)
    old = private_console.kill_child("postgres")
    private_console.wait_for_restart("postgres", old)
    old = private_console.kill_child("valkey")
    private_console.wait_for_restart("valkey", old)
    wait_for(lambda: _answers(private_console.base_url), within_s=30)
    for worker, task in {"worker": "registry.tasks.tick", "train": "training.tasks.run_job"}.items():
        log = private_console.state / "log" / f"{worker}.log"
        already = log.read_text().count(f"{task}[")
        if worker == "train":  # a job that is not there: only the message counts here
            _send(private_console, task, "train", job_id="00000000-0000-0000-0000-000000000000")
        wait_for(lambda log=log, task=task, already=already: log.read_text().count(f"{task}[") > already, within_s=60)

    family += _family(private_console)
    began = time.monotonic()
    assert private_console.stop() == 0
    assert time.monotonic() - began < 25
    assert not [process for process in family if _alive(process)]
    assert not [name for name in os.listdir("/proc") if name.isdigit() and _mentions(name, str(private_console.state))]


def _send(console: Running, task: str, queue: str, **arguments: str) -> None:
    program = (
        "import sys, json; from console.celery import app\n"
        "app.send_task(sys.argv[1], queue=sys.argv[2], kwargs=json.loads(sys.argv[3]))"
    )
    command = [sys.executable, "-c", program, task, queue, json.dumps(arguments)]
    subprocess.run(command, cwd=console.checkout, env=console.full_env, check=True)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url + "/", timeout=20).status_code < 500
    except httpx.TransportError:
        return False


def _family(console: Running) -> list[psutil.Process]:
    assert console.process is not None
    head = psutil.Process(console.process.pid)
    return [head, *head.children(recursive=True)]


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _mentions(pid: str, text: str) -> bool:
    try:
        return text.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
