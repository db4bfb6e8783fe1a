"""`loopline-edge`, also `python -m edge`: enrol, run, simulate, status. Arguments and environment only; no prompts."""

from __future__ import annotations

import argparse
import ctypes
import logging
import logging.handlers
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

from edge import __version__
from edge.client import Denied, Final, Offline, enrol
from edge.config import ConfigError, Home, Settings

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 failed unexpectedly, 2 cannot (the sentence on stderr says why)."""
    options = _parser().parse_args(arguments)
    _die_with_parent()
    try:
        status: int = options.do(options)
    except (ConfigError, ValueError, FileNotFoundError) as error:
        print(f"loopline-edge: {error}", file=sys.stderr)
        return 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="loopline-edge", description="The Loopline agent of a device at the line.")
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("enrol", help="make a key and take a place on a line with a one-time token")
    _home_argument(verb, _enrol)
    verb.add_argument("--server", required=True, help="address of the console, such as https://loopline.plant:8443")
    verb.add_argument("--token", default=os.environ.get("EDGE_TOKEN", ""), help="one-time token (or EDGE_TOKEN)")
    verb.add_argument("--ca-file", default="", help="the plant's certificate authority, PEM")
    verb = verbs.add_parser("run", help="inspect the pictures of the camera folder until SIGTERM")
    _home_argument(verb, _run)
    verb.add_argument("--rate", type=float, help="pictures per second at most (default: as they come)")
    verb.add_argument("--server", help="another address of the same console")
    verb = verbs.add_parser("simulate", help="be the camera: replay a manifest into the camera folder")
    _home_argument(verb, _simulate)
    verb.add_argument("--manifest", type=Path, required=True, help="CSV with a column `image`")
    verb.add_argument("--rate", type=float, default=1.0, help="pictures per second")
    verb.add_argument("--loop", action="store_true", help="start again at the end")
    verb = verbs.add_parser("status", help="print state.json")
    _home_argument(verb, _status)
    return parser


def _home_argument(verb: argparse.ArgumentParser, do: object) -> None:
    verb.set_defaults(do=do)
    verb.add_argument("--home", type=Path, required=True, help="the agent's directory")


def _enrol(options: argparse.Namespace) -> int:
    home = Home(options.home)
    home.make()
    if home.settings_file.exists():
        print(f"{home.root} is already enrolled as {home.settings().code or home.settings().device}")
        return 0
    ca_file = str(Path(options.ca_file).absolute()) if options.ca_file else ""
    try:
        place = enrol(options.server, options.token, home.make_key(), ca_file=ca_file)
    except Final as error:
        print(f"loopline-edge: the console refuses: {error.sentence or error.code}", file=sys.stderr)
        return 2
    except (Offline, Denied) as error:
        print(f"loopline-edge: no answer from {options.server}: {error}", file=sys.stderr)
        return 2
    home.write_settings(
        Settings(
            server=options.server,
            ca_file=ca_file,
            device=place["device"],
            code=place.get("code", ""),
            line=place.get("line", ""),
            station=place.get("station", ""),
            task=place.get("task", "class"),
            poll_s=float(place.get("poll_s", 10.0)),
        )
    )
    print(f"enrolled as {place.get('code') or place['device']} on {place.get('line', '')}")
    return 0


def _run(options: argparse.Namespace) -> int:
    from edge.agent import Agent

    home = Home(options.home)
    settings = home.settings()
    if options.rate is not None:
        settings = replace(settings, rate=options.rate)
    if options.server:
        settings = replace(settings, server=options.server)
    home.make()
    _log_to(home.log_file)
    with home.only_one():
        agent = Agent(home, settings)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: agent.stop())
        agent.run()
    return 0


def _simulate(options: argparse.Namespace) -> int:
    from edge.simulate import Camera

    if options.rate <= 0:
        raise ConfigError("--rate must be above 0")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    put = Camera(Home(options.home), options.manifest, loop=options.loop).run(options.rate, stop)
    print(f"{put} pictures")
    return 0


def _status(options: argparse.Namespace) -> int:
    print(Home(options.home).state_file.read_text(encoding="utf-8"))
    return 0


def _log_to(file: Path) -> None:
    file_log = logging.handlers.RotatingFileHandler(file, maxBytes=5_000_000, backupCount=3, encoding="utf-8")
    logging.basicConfig(
        level=os.environ.get("EDGE_LOG", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        handlers=[file_log, logging.StreamHandler()],
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per request would be most of the log


def _die_with_parent() -> None:
    """Only where the starter asks for it (a demo on one machine); a service manager's agent outlives its starter."""
    if os.environ.get("EDGE_DIE_WITH_PARENT") == "1":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


if __name__ == "__main__":
    sys.exit(main())
