"""The agent is its own distribution: its wheel builds, and runs without the server's packages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALONE = """
import sys
sys.path.insert(0, sys.argv[1])
import edge, edge.agent, edge.simulate, edge.inference, edge.model, edge.__main__
assert edge.__file__.startswith(sys.argv[1]), edge.__file__
strangers = {"django", "torch", "timm", "peft", "mlflow", "celery", "redis", "psycopg"} & set(sys.modules)
assert not strangers | {"registry", "training", "console"} & set(sys.modules), strangers
sys.exit(edge.__main__.main(["--version"]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # A copy: setuptools leaves build folders beside the sources.
    shutil.copytree(ROOT / "edge", folder / "edge", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(folder / "edge"),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = folder.glob("loopline_edge-*.whl")
    return found


def test_the_wheel_holds_the_agent_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
        entry = archive.read(next(n for n in names if n.endswith("entry_points.txt"))).decode()
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {"edge"}
    assert {f"edge/{p.name}" for p in (ROOT / "edge").glob("*.py")} <= set(names)
    assert "loopline-edge = edge.__main__:main" in entry
    needs = set(re.findall(r"^Requires-Dist: ([a-z]+)", metadata, re.MULTILINE))
    assert needs == {"cryptography", "httpx", "numpy", "onnxruntime", "pillow", "safetensors"}


def test_the_wheel_runs_alone(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-c", ALONE, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "0.1.0"
