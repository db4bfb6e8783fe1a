"""How settings are read from the environment: three helpers, and two URLs turned into what libraries want.

Each error names the variable, what it held and what it takes: whoever installs the plant's server reads it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TRUE = {"1", "true", "yes", "on"}
FALSE = {"0", "false", "no", "off", ""}


class SettingWrong(SystemExit):
    """A setting cannot be used. Exits with its sentence: a traceback would hide it."""


def envbool(name: str, default: bool) -> bool:
    """A yes or no from the environment."""
    text = os.environ.get(name)
    if text is None:
        return default
    if text.strip().lower() in TRUE:
        return True
    if text.strip().lower() in FALSE:
        return False
    raise SettingWrong(f"{name} is {text!r}. Write 1 or 0.")


def envint(name: str, default: int, *, least: int = 0, most: int = 2**53) -> int:
    """A whole number from the environment, within bounds."""
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        raise SettingWrong(f"{name} is {text!r}. Write a whole number from {least} to {most}.") from None
    if not least <= number <= most:
        raise SettingWrong(f"{name} is {number}. It must lie from {least} to {most}.")
    return number


def envsecret(name: str, default: str = "", *, keep_in: Path | None = None) -> str:
    """A secret from NAME, or from the file that NAME_FILE names (how systemd and containers hand over credentials).

    With `keep_in`, a secret that nobody gave is made once and kept in that file, readable by its owner only.
    """
    if f"{name}_FILE" in os.environ:
        file = Path(os.environ[f"{name}_FILE"])
        try:
            return file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SettingWrong(f"{name}_FILE names {file}, which cannot be read: {error.strerror}.") from None
    if name in os.environ:
        return os.environ[name]
    return kept(keep_in) if keep_in else default


def kept(file: Path) -> str:
    """The secret in this file, made at the first call; two processes that make it at once agree on one."""
    try:
        return file.read_text(encoding="ascii")
    except FileNotFoundError:
        pass
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f".{file.name}.{os.getpid()}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(secrets.token_urlsafe(48))
        try:
            os.link(fresh, file)  # unlike rename, refuses when another process was first
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
        return file.read_text(encoding="ascii")
    except OSError as error:
        raise SettingWrong(
            f"{file} cannot be written: {error.strerror}. Set LOOPLINE_STATE to a folder of yours."
        ) from None


def state_folder(checkout: Path) -> Path:
    """Where everything is kept that a run makes: $LOOPLINE_STATE, else one folder per checkout in the user's state."""
    if given := os.environ.get("LOOPLINE_STATE"):
        return Path(given).expanduser().resolve()
    mark = hashlib.sha256(str(checkout).encode()).hexdigest()[:12]
    if os.geteuid() == 0:
        # Not below /root: the embedded PostgreSQL refuses to run as root and its own user must reach its folder.
        return Path("/var/lib/loopline") / mark
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "loopline" / mark


def database(url: str, *, name: str = "DATABASE_URL", pool: int = 0) -> dict[str, Any]:
    """Django's connection settings from a PostgreSQL URL (socket folders too: postgresql://user@/db?host=/folder)."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = dict(conninfo_to_dict(url))
    except ProgrammingError as error:
        raise SettingWrong(f"{name} is not a PostgreSQL URL: {str(error).strip()}") from None
    if not parts.get("dbname"):
        raise SettingWrong(f"{name} names no database. Write postgresql://user:password@host:5432/loopline.")
    options: dict[str, Any] = {
        key: value for key, value in parts.items() if key not in {"dbname", "user", "password", "host", "port"}
    }
    if pool:
        options["pool"] = {"min_size": 0, "max_size": pool, "timeout": 10, "max_idle": 60}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
        "HOST": parts.get("host", ""),
        "PORT": str(parts.get("port", "")),
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": options,
    }


def broker(url: str) -> str:
    """Celery's spelling of a Valkey or Redis URL (a socket is unix:///path?db=0 elsewhere)."""
    parts = urlsplit(url)
    if parts.scheme in {"redis", "rediss"}:
        return url
    if parts.scheme == "unix":
        return f"redis+socket://{parts.path}?virtual_host={parse_qs(parts.query).get('db', ['0'])[0]}"
    raise SettingWrong(f"REDIS_URL begins with {parts.scheme!r}. Write redis://, rediss:// or unix:///path.")
