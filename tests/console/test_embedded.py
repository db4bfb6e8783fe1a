"""The embedded services: prove by talking to them."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest
import redis
from django.conf import settings

from console import children, embedded
from tests.running import wait_for


@pytest.fixture
def state(request: pytest.FixtureRequest) -> Path:
    """A state folder that PostgreSQL's own user can reach when the tests run as root."""
    return Path(settings.STATE.parent / f"embedded-{request.node.name[:20]}")


def test_the_app_role_uses_tables_and_cannot_alter_the_audit(services: embedded.Services, migrated: str) -> None:
    with psycopg.connect(services.addresses.database) as db:
        assert db.execute("SELECT count(*) FROM registry_auditevent").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute("DELETE FROM registry_auditevent")
        db.rollback()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute("CREATE TABLE mine (id int)")


def test_pgvector_is_there(services: embedded.Services) -> None:
    with psycopg.connect(services.addresses.owner) as db:
        assert db.execute("SELECT '[1,2]'::vector <-> '[1,4]'::vector").fetchone() == (2.0,)


def test_nothing_but_mlflow_listens_on_a_port_and_mlflow_only_on_loopback(
    services: embedded.Services, mlflow_url: str
) -> None:
    for service in services.services:
        assert service.process is not None
        listening = {
            connection.laddr.ip
            for process in _family(service.process.pid)
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == ({"127.0.0.1"} if service.name == "mlflow" else set())


def test_the_sockets_folder_is_closed_to_other_users(services: embedded.Services) -> None:
    run = embedded.sockets_folder(settings.STATE)
    assert stat.S_IMODE((run / "pg").stat().st_mode) == 0o700
    assert stat.S_IMODE((run / "valkey.sock").stat().st_mode) == 0o700


def test_mlflow_keeps_what_it_is_told_and_refuses_unknown_hosts_and_sources(mlflow_url: str) -> None:
    api = f"{mlflow_url}/api/2.0/mlflow"
    made = httpx.post(f"{api}/experiments/create", json={"name": "held-to-its-meaning"}).json()
    artifacts = httpx.get(f"{api}/experiments/get", params={"experiment_id": made["experiment_id"]}).json()
    assert artifacts["experiment"]["artifact_location"].startswith("mlflow-artifacts:/")
    assert httpx.get(f"{api}/experiments/search", headers={"Host": "evil.example"}).status_code == 403
    httpx.post(f"{api}/registered-models/create", json={"name": "line-x-class"})
    refused = httpx.post(f"{api}/model-versions/create", json={"name": "line-x-class", "source": "runs:/0/nothing"})
    assert refused.status_code == 400


def test_a_clone_is_independent(services: embedded.Services, cloned_database: str) -> None:
    with psycopg.connect(cloned_database) as db:
        assert db.execute("SELECT count(*) FROM console_user").fetchone() == (0,)


def test_services_die_with_a_killed_owner_and_the_next_start_recovers(state: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from console.embedded import Services\n"
        "services = Services(Path(sys.argv[1])); services.start(); print('up', flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program, str(state)], stdout=subprocess.PIPE, cwd=settings.BASE_DIR)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"up\n"
    family = _family(owner.pid)
    assert len(family) > 5
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    wait_for(lambda: not [process for process in family if _alive(process)], within_s=20)
    with embedded.Services(state) as again:
        with psycopg.connect(again.addresses.owner) as db:
            assert db.execute("SELECT 1").fetchone() == (1,)
        with redis.Redis.from_url(again.addresses.redis) as client:
            assert client.ping()


def test_a_stale_pid_file_of_somebody_elses_process_does_not_stop_a_start(state: Path) -> None:
    with embedded.Services(state):
        pass
    # After a reboot the number in the file may belong to anyone: here it is ours, alive and no PostgreSQL.
    (state / "postgres" / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n{state}/postgres/data\n1\n5432\n\n\n")
    with embedded.Services(state) as services, psycopg.connect(services.addresses.database) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_a_second_owner_of_a_state_folder_is_refused_and_told_who_has_it(services: embedded.Services) -> None:
    with pytest.raises(children.Held, match=str(os.getpid())):
        embedded.Services(settings.STATE).start()


def test_long_state_folders_get_their_sockets_elsewhere() -> None:
    assert str(embedded.sockets_folder(Path("/" + "long/" * 40))).startswith("/tmp/loopline-")
    assert embedded.sockets_folder(Path("/var/lib/loopline/x")) == Path("/var/lib/loopline/x/run")


def _family(pid: int) -> list[psutil.Process]:
    head = psutil.Process(pid)
    return [head, *head.children(recursive=True)]


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
