"""A small program that speaks the recipe's protocol without learning anything: for tests of what happens to processes.

`scripted_recipe.py SCRIPT.json train|verify|embed JOBDIR`. The script says how many steps there are, how long each
takes, and what goes wrong where. It leaves a real version's files, so that what follows a training is real, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent.parent
DEFAULT: dict[str, Any] = {
    "steps": 4, "step_s": 0.02, "fail": None, "die_at": None, "die_times": 99, "ignore_term": False, "helpers": 0,
    "exit": 0, "write_out": True, "stop_at": None, "verify_s": 0.0, "max_abs": 1e-5, "noise": False,
    "picture_s": 0.0, "crash_at": None,
}  # fmt: skip


def emit(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def watch_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    script_path, command, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    script = DEFAULT | json.loads(script_path.read_text())
    threading.Thread(target=watch_stdin, daemon=True).start()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if script["ignore_term"] else lambda *_: stopped.set())
    (folder / f"seen-{command}.json").write_text(json.dumps({"env": dict(os.environ), "argv": sys.argv}))
    if command == "verify":
        time.sleep(script["verify_s"])
        emit("phase", phase="verify", done=1, of=1)
        emit("verified", max_abs=script["max_abs"])
        emit("done")
        return 0
    if command == "embed":
        return embed(script, folder)
    return train(script, script_path, folder, stopped)


def embed(script: dict[str, Any], folder: Path) -> int:
    """A part per picture; a picture's vector depends on its digest alone. Deaf to SIGTERM when the script says so."""
    import numpy as np
    from safetensors.numpy import save_file

    config = json.loads((folder / "config.json").read_text())
    rows = [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]
    for index, row in enumerate(rows):
        emit("phase", phase="embed", done=index, of=len(rows))
        if script["crash_at"] == row["id"]:
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(script["picture_s"])
        rng = np.random.default_rng(int(row["id"][:8], 16))
        tensors = {
            "vectors": rng.normal(size=(1, config["dims"])).astype(np.float32),
            "greys": rng.integers(0, 255, (1, 576)).astype(np.uint8),
        }
        save_file(tensors, folder / f"part-{index}", metadata={"ids": json.dumps([row["id"]]), "refused": "[]"})
        emit("part", file=f"part-{index}", count=1)
    emit("done")
    return 0


def train(script: dict[str, Any], script_path: Path, folder: Path, stopped: threading.Event) -> int:
    for _ in range(script["helpers"]):
        # like a data loader's worker: it does not listen, and it left the session
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.DEVNULL)
    checkpoint = folder / "checkpoint" / "state.json"
    start = json.loads(checkpoint.read_text())["step"] if checkpoint.exists() else 0
    emit("phase", phase="load", done=1, of=1)
    if script["noise"]:
        print("not an event", flush=True)
    for step in range(start + 1, script["steps"] + 1):
        if stopped.wait(script["step_s"]):
            return 143
        if script["die_at"] == step and died_before(script_path) < script["die_times"]:
            os.kill(os.getpid(), signal.SIGKILL)
        emit("step", step=step, of=script["steps"], epoch=1, loss=1 / step, pictures_per_s=50.0, eta_s=1.0)
        checkpoint.parent.mkdir(exist_ok=True)
        checkpoint.write_text(json.dumps({"step": step}))
    emit("epoch", epoch=1, of=1, val_loss=0.5, escapes=[1, 20], overkills=[2, 40])
    if script["fail"]:
        emit("fail", code=script["fail"], params={"id": "c-1", "reason": "missing"})
        return 1
    if script["write_out"]:
        write_out(folder)
    if script["exit"] == 0:
        emit("done")
    return int(script["exit"])


def died_before(script_path: Path) -> int:
    """How often this script has died so far; counts this time."""
    deaths = script_path.with_suffix(".deaths")
    count = int(deaths.read_text()) if deaths.exists() else 0
    deaths.write_text(str(count + 1))
    return count


def write_out(folder: Path) -> None:
    sys.path.insert(0, str(CHECKOUT))
    from tests.registry import out_files

    config = json.loads((folder / "config.json").read_text())
    out_files.write_out(
        folder / "out", Path(config["base_dir"]), line=config["line"], job=config["job"], classes=config["classes"]
    )


if __name__ == "__main__":
    sys.exit(main())
