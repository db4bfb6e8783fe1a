"""Settings: the page lists what the code reads, secrets come from files, a wrong value gets a sentence."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from console import environment
from console.environment import SettingWrong

CHECKOUT = Path(settings.BASE_DIR)
NAME = re.compile(r"\b(LOOPLINE_[A-Z_]+|DATABASE_URL|DATABASE_OWNER_URL|REDIS_URL|MLFLOW_TRACKING_URI)\b")


def test_the_page_lists_exactly_the_variables_that_the_code_reads() -> None:
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", (CHECKOUT / "docs" / "settings.md").read_text(), re.M))
    sources = [*CHECKOUT.glob("console/*.py"), *CHECKOUT.glob("deploy/*.sh"), *CHECKOUT.glob("tests/**/conftest.py")]
    used = {name for file in sources for name in NAME.findall(file.read_text())}
    assert documented == {name.removesuffix("_FILE") for name in used}


def test_a_secret_is_read_from_the_file_that_its_name_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s").write_text("from a file\n")
    monkeypatch.setenv("SOME_SECRET_FILE", str(tmp_path / "s"))
    assert environment.envsecret("SOME_SECRET") == "from a file"
    monkeypatch.setenv("SOME_SECRET_FILE", str(tmp_path / "missing"))
    with pytest.raises(SettingWrong, match=r"SOME_SECRET_FILE names .*missing, which cannot be read"):
        environment.envsecret("SOME_SECRET")


def test_a_secret_nobody_gave_is_made_once_for_all_processes(tmp_path: Path) -> None:
    file = tmp_path / "deeper" / "key"
    program = (
        "import sys; from pathlib import Path; from console.environment import kept; print(kept(Path(sys.argv[1])))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE, cwd=CHECKOUT)
        for _ in range(3)
    ]
    secrets = {process.communicate()[0] for process in started}
    assert len(secrets) == 1
    assert len(secrets.pop()) > 50
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("LOOPLINE_HTTPS", "maybe", "LOOPLINE_HTTPS is 'maybe'. Write 1 or 0."),
        ("LOOPLINE_DATABASE_POOL", "many", "Write a whole number"),
        ("LOOPLINE_SESSION_HOURS", "0", "It must lie from 1"),
        ("DATABASE_URL", "mysql://somewhere", "DATABASE_URL is not a PostgreSQL URL"),
        ("DATABASE_URL", "postgresql://host", "names no database"),
        ("REDIS_URL", "amqp://somewhere", "Write redis://, rediss:// or unix:///path"),
    ],
)
def test_a_wrong_value_stops_the_start_with_one_sentence(variable: str, value: str, sentence: str) -> None:
    env = {**os.environ, variable: value}
    done = subprocess.run(
        [sys.executable, "manage.py", "check"], cwd=CHECKOUT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plants_own_servers_are_understood() -> None:
    own = environment.database("postgresql://loopline:s%40crt@db.plant:5433/loopline?sslmode=verify-full", pool=4)
    assert (own["HOST"], own["PORT"], own["PASSWORD"]) == ("db.plant", "5433", "s@crt")
    assert own["OPTIONS"]["sslmode"] == "verify-full"
    assert own["OPTIONS"]["pool"]["max_size"] == 4
    assert environment.broker("rediss://:pw@valkey:6379/0") == "rediss://:pw@valkey:6379/0"
    assert environment.broker("unix:///run/valkey.sock?db=3") == "redis+socket:///run/valkey.sock?virtual_host=3"


def test_behind_https_djangos_deployment_checks_find_nothing() -> None:
    env = {**os.environ, "LOOPLINE_HTTPS": "1"}
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(command, cwd=CHECKOUT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
