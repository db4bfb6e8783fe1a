"""`manage.py loop`: the whole loop without a browser, on services and state of its own; a table, then one JSON line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.sample import cells as sample_cells
from console.sample import play
from console.sample.report import MemoryWatch, Report, judge
from console.supervisor import StopAsked, Supervisor


class Command(BaseCommand):
    help = "Play the whole loop on real pictures: train, approve and ship a champion, then its successor, and measure."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--small", action="store_true", help="a small slice: every step happens, quality is not judged"
        )
        parser.add_argument("--report", type=Path, default=Path("loop-report.json"), help="file for the JSON line")
        parser.add_argument("--base", type=Path, metavar="DIR", help="a base bundle that was exported before")
        parser.add_argument("--here", action="store_true", help="use the state folder of the environment, and keep it")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["here"]:
            sys.exit(_in_a_state_of_its_own())
        report = Report(say=self.say)
        size = sample_cells.SMALL if options["small"] else sample_cells.WHOLE
        supervisor = Supervisor(port=0, say=self.say)
        with MemoryWatch() as memory:
            supervisor.run(lambda running: self._play(running, report, size, options["base"]))
        report.figures["peak_memory_mb"] = round(memory.peak_bytes / 1e6)
        if not report.failures and "release_digest" not in report.figures:
            report.failures.append("stopped before the end of the loop")
        if not report.failures and not options["small"]:
            report.failures += judge(report.figures)
        report.seconds["total"] = round(sum(report.seconds.values()), 1)
        line = json.dumps(report.line())
        options["report"].write_text(line + "\n")
        self.say(report.table())
        self.say(line)
        if report.failures:
            sys.exit(1)

    def _play(self, supervisor: Supervisor, report: Report, size: sample_cells.Size, base: Path | None) -> None:
        try:
            supervisor.tend_during(lambda: play.whole_loop(supervisor, report, size, base))
        except Exception as error:  # noqa: BLE001  said in the report and by the exit status, with its traceback
            traceback.print_exception(error)
            report.failures.append(f"{type(error).__name__}: {error}")
        raise StopAsked

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _in_a_state_of_its_own() -> int:
    """Run this command again on a temporary state folder; nothing of the demo or a plant is touched."""
    if "loop" not in sys.argv:
        raise CommandError("call loop with --here when it is not the process's own command")
    with tempfile.TemporaryDirectory(prefix="loopline-loop-") as folder:
        os.chmod(folder, 0o711)  # as root, PostgreSQL's own user passes through
        unset = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "MLFLOW_TRACKING_URI")
        env = {name: value for name, value in os.environ.items() if name.removesuffix("_FILE") not in unset}
        command = [sys.executable, *sys.argv, "--here"]
        child = subprocess.Popen(command, env=env | {"LOOPLINE_STATE": folder}, cwd=settings.BASE_DIR)
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                continue  # the child got the Ctrl-C, too, and is stopping
