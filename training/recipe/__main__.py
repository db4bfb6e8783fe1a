"""`python -m training.recipe import-base|prefix|train|verify|evaluate|embed|explain DIR`: events on stdout.

Torch is imported only after the supervisor watch and the SIGTERM handler stand: importing takes seconds, and a cancel
or a dead supervisor must count during them too.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from .events import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_STOPPED,
    Events,
    Stopped,
    StopRequest,
    die_with_supervisor,
    failure_of,
    own_stdout,
)


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, datefmt="%Y-%m-%dT%H:%M:%S%z",
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )  # fmt: skip
    # Libraries here can fetch weights by name; this product never asks the outside for anything.
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1")
    # Threads that spin while waiting for each other are several times slower on a machine that serves other processes
    # too.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    events = own_stdout()
    stop = StopRequest().install()
    if not arguments.no_watch:
        die_with_supervisor()
    try:
        _run(arguments, events, stop)
    except Stopped:
        logging.getLogger(__name__).info("stopped on request")
        return EXIT_STOPPED
    except Exception as error:  # the one place where a crash becomes an event; the trace goes to the log
        logging.getLogger(__name__).exception("failed")
        failed = failure_of(error)
        events.emit("fail", code=failed.code, params=failed.params)
        return EXIT_FAILED
    events.emit("done")
    return EXIT_OK


def _run(arguments: argparse.Namespace, events: Events, stop: StopRequest) -> None:
    events.phase("load", 0, 1)
    if arguments.command == "import-base":
        from .bases import import_base

        height, width = arguments.size
        import_base(arguments.dir, name=arguments.name, weights=arguments.weights, size=(height, width))
    elif arguments.command == "verify":
        from .verify import verify

        verify(arguments.dir, events)
    elif arguments.command == "explain":
        from .explain import explain

        explain(arguments.dir, events)
    elif arguments.command == "train":
        from .train import train

        train(arguments.dir, events, stop)
    elif arguments.command == "embed":
        from .embed import embed

        os.nice(10)  # pages and devices on the same machine come first
        embed(arguments.dir, events, stop)
    elif arguments.command == "prefix":
        from .train import warm

        warm(arguments.dir, events, stop)
    else:
        from .train import evaluate

        evaluate(arguments.dir, events, stop)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training.recipe", description=__doc__)
    parser.add_argument("command", choices=["import-base", "prefix", "train", "verify", "evaluate", "embed", "explain"])
    parser.add_argument("dir", type=Path, metavar="DIR")
    parser.add_argument("--no-watch", action="store_true", help="do not end when stdin closes (for use by hand)")
    parser.add_argument("--name", default="tf_efficientnet_lite0", help="import-base: timm name of the network")
    parser.add_argument("--weights", type=Path, help="import-base: safetensors file instead of the packaged weights")
    parser.add_argument("--size", type=int, nargs=2, default=[224, 224], metavar=("H", "W"))
    return parser


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # Not sys.exit: worker threads of the tensor libraries can hold up an ordinary exit for seconds.
    os._exit(status)
