"""One private PostgreSQL, Valkey and MLflow per test run, in a temporary folder; the user's own state stays untouched.

Ordinary tests run in transactions on one clone of a migrated template, as the role that the running console has. Tests
of real processes use `running_console`: the real `manage.py up` on a clone of its own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

# Django reads its settings once: the environment must say which state folder before anything imports them.
CHECKOUT = Path(__file__).resolve().parent.parent
ROOT = Path(tempfile.mkdtemp(prefix="loopline-tests-"))
ROOT.chmod(0o711)  # as root, PostgreSQL's own user passes through
for name in ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "MLFLOW_TRACKING_URI", "LOOPLINE_HTTPS"):
    os.environ.pop(name, None)
    os.environ.pop(f"{name}_FILE", None)
os.environ |= {
    "DJANGO_SETTINGS_MODULE": "console.settings",
    "LOOPLINE_STATE": str(ROOT / "state"),
    "LOOPLINE_DATABASE_POOL": "0",  # a clone can only be dropped when nobody holds a connection to it
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "HF_HUB_OFFLINE": "1",
}

import django  # noqa: E402
from django.conf import settings  # noqa: E402

from console import database, embedded  # noqa: E402
from tests.running import Running  # noqa: E402

django.setup()  # here, because test modules import models while they are collected

TEMPLATE = "loopline"


def pytest_configure(config: pytest.Config) -> None:
    """Workers that run modules side by side choose a state folder of their own, before they read the settings."""
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        del os.environ["DJANGO_SETTINGS_MODULE"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long modules early, but not side by side. Without the folder of real pictures, deselect what needs it."""
    items[:] = _spread(items)
    if settings.SHARED_DATA.is_dir():
        return
    needing = [
        item
        for item in items
        if item.get_closest_marker("needs_shared_data") or "shared_data" in getattr(item, "fixturenames", ())
    ]
    config.hook.pytest_deselected(items=needing)
    items[:] = [item for item in items if item not in needing]


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """The first long module at the front, the next one in the middle: each of them keeps both cores busy."""
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    long = [found for found in modules.values() if found[0].get_closest_marker("long")]
    rest = [found for found in modules.values() if not found[0].get_closest_marker("long")]
    for place, found in enumerate(long):
        rest.insert(place * (len(rest) // len(long)), found)
    return [item for found in rest for item in found]


def pytest_sessionfinish(session: pytest.Session) -> None:
    shutil.rmtree(ROOT, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real inspection pictures (LOOPLINE_SHARED_DATA, else beside the checkout)."""
    return Path(settings.SHARED_DATA)


@pytest.fixture(scope="session")
def base_bundle(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The bundle of the real base model, exported once per run, also when modules run side by side."""
    here = tmp_path_factory.getbasetemp()
    shared = here if worker_id == "master" else here.parent
    folder = shared / "base"
    with (shared / "base.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "base.json").exists():
            command = [sys.executable, "-m", "training.recipe", "import-base", str(folder), "--no-watch"]
            subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, timeout=240)
    return folder


@pytest.fixture(scope="session")
def services() -> Iterator[embedded.Services]:
    """PostgreSQL and Valkey of this run."""
    with embedded.Services(settings.STATE, durable=False) as running:
        yield running


@pytest.fixture(scope="session")
def mlflow_url(services: embedded.Services) -> str:
    """MLflow of this run, started at the first use; settings and environment name it from then on."""
    url = services.start_mlflow()
    settings.MLFLOW_TRACKING_URI = os.environ["MLFLOW_TRACKING_URI"] = url
    return url


@pytest.fixture(scope="session")
def migrated(services: embedded.Services) -> str:
    """The name of a migrated, granted, empty database in which nobody works: the template of all clones."""
    here = services.addresses
    database.prepare(owner_url=here.owner, app_url=here.database, checkout=CHECKOUT)
    return TEMPLATE


@pytest.fixture(scope="session")
def django_db_setup(
    migrated: str, services: embedded.Services, django_db_blocker: pytest.FixtureRequest
) -> Iterator[None]:
    """Django's tests run on a clone, as the app's role: a missing grant fails here, not at the plant."""
    from django.db import connections

    services.clone(migrated, "loopline_tests")
    connections["default"].settings_dict["NAME"] = "loopline_tests"
    yield
    connections.close_all()


@pytest.fixture
def cloned_database(migrated: str, services: embedded.Services) -> Iterator[str]:
    """The URL (app's role) of a fresh clone, dropped afterwards: for processes that commit."""
    name = f"clone_{uuid.uuid4().hex[:12]}"
    services.clone(migrated, name)
    yield embedded.database_url(settings.STATE, embedded.APP, name)
    services.drop(name)


@pytest.fixture(scope="session")
def running_console(migrated: str, services: embedded.Services, mlflow_url: str) -> Iterator[Running]:
    """The real console (`manage.py up`) on a clone, shared by modules: each has lines of its own there.

    It restarts what a test kills.
    """
    name = f"clone_{uuid.uuid4().hex[:12]}"
    services.clone(migrated, name)
    running = Running(
        checkout=CHECKOUT,
        state=ROOT / name,
        env={
            "DATABASE_URL": embedded.database_url(settings.STATE, embedded.APP, name),
            "DATABASE_OWNER_URL": embedded.database_url(settings.STATE, embedded.OWNER, name),
            "REDIS_URL": services.addresses.redis.replace("db=0", f"db={_next_redis_database()}"),
            "MLFLOW_TRACKING_URI": mlflow_url,
        },
    )
    with running:
        yield running
    services.drop(name)


@pytest.fixture
def private_console() -> Iterator[Running]:
    """A console with services of its own, for tests that kill those: `manage.py up` as a plant engineer types it."""
    running = Running(checkout=CHECKOUT, state=ROOT / f"private-{uuid.uuid4().hex[:8]}", env={})
    with running:
        yield running


def _next_redis_database(_taken: list[int] = [0]) -> int:  # noqa: B006
    _taken[0] = _taken[0] % 60 + 1
    return _taken[0]
