"""Brings the database up to date: migrations by the role that owns the tables, then what the other role may do.

Two roles, because an append-only table means nothing to a role that owns it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from console import children

# The running console may add to these tables and read them, nothing else.
APPEND_ONLY = ("registry_auditevent",)
MIGRATION_LOCK = 0x4C4F4F50  # two hosts that start at once migrate one after the other


def prepare(*, owner_url: str, app_url: str, checkout: Path) -> str:
    """Migrate as the owner and grant to the app's role. Returns what migrate said; raises `children.NotStarted`."""
    app_role = str(conninfo_to_dict(app_url).get("user", ""))
    with psycopg.connect(owner_url, autocommit=True, connect_timeout=10) as db:
        db.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
        env = {**os.environ, "DATABASE_URL": owner_url, "LOOPLINE_DATABASE_POOL": "0"}
        env.pop("DATABASE_URL_FILE", None)
        command = children.python("manage.py", "migrate", "--noinput", "--verbosity", "1")
        done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise children.NotStarted(f"The database could not be brought up to date.\n{done.stdout}{done.stderr}")
        if app_role and app_role != db.info.user:
            grant(db, app_role)
    return done.stdout


def grant(db: psycopg.Connection, role: str) -> None:
    """Let `role` use what the connected owner owns in schema public; append-only tables stay so."""
    to = sql.Identifier(role)
    db.execute(sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(to))
    db.execute(sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}").format(to))
    db.execute(sql.SQL("GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {}").format(to))
    present = {row[0] for row in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
    for table in present.intersection(APPEND_ONLY):
        db.execute(sql.SQL("REVOKE UPDATE, DELETE, TRUNCATE ON {} FROM {}").format(sql.Identifier(table), to))
