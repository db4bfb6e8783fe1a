"""`manage.py demo`: everything on this machine, with a sample plant that gets a new product while people watch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console import children
from console.sample import cells as sample_cells
from console.sample import plant, play, turns
from console.sample.cells import CREDIT
from console.sample.report import Report
from console.supervisor import Supervisor, already_running

BANNER = """
  Loopline            {url}
  password of all     {password}

{people}
  What to do next
    1  sign in as haneul, open Review. Poly cells arrive: the champion, which knows mono cells only, calls nearly all of
       them NG, so the operator asked each device for its first pictures. Decide some dozens by keyboard (O = OK,
       1 = cell defect, Enter = what the model says, Space = skip, Ctrl+Z = undo). Defects are dark areas and dark lines
       across the fine grid; grain as such is none of them. The more you decide, the better the next model
    2  Snapshots: freeze a new one. Jobs: train on it, continuing the champion, and watch
    3  Versions: compare it with the champion on the golden set, and request its promotion
    4  sign in as jihun (another person): approve it
    5  sign in as minsu: roll it out, and watch the three devices commit

  {credit}
  State and logs: {state}. Ctrl-C stops everything; the next start goes on where it was.
"""


class Command(BaseCommand):
    help = "Run the whole product on this machine with a sample plant and three simulated devices, until Ctrl-C."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
        parser.add_argument("--port", type=int, default=8000, help="port, or the next free one (default 8000; 0 = any)")
        parser.add_argument("--small", action="store_true", help="a slice of the pictures, arriving fast: for tests")

        parser.add_argument("--base", type=Path, metavar="DIR", help="a base bundle that was exported before")

    def handle(self, *args: Any, **options: Any) -> None:
        supervisor = Supervisor(host=options["host"], port=options["port"], say=self.say)
        self.base: Path | None = options["base"]
        self.size = sample_cells.SMALL if options["small"] else sample_cells.WHOLE
        try:
            supervisor.run(self._tell_the_story)
        except children.Held as held:
            url = already_running(settings.STATE)
            raise CommandError(f"The demo runs already (process {held}{f', {url}' if url else ''}).") from None
        except children.NotStarted as error:
            raise CommandError(str(error)) from None

    def _tell_the_story(self, supervisor: Supervisor) -> None:
        if not plant.exists():
            self.say(
                "Making the sample plant, training its first model: five to ten minutes, once. You may sign in already."
            )
        try:
            supervisor.tend_during(lambda: play.demo(supervisor, Report(say=self.say), self.size, self.base))
        except turns.StepFailed as error:
            self.say(f"The sample plant is not complete: {error}. The console runs; the next start tries again.")
        people = "".join(f"    {name:<10}{shown:<8}{', '.join(roles)}\n" for name, shown, roles in plant.PEOPLE)
        self.say(
            BANNER.format(
                url=supervisor.url, password=plant.PASSWORD, people=people, credit=CREDIT, state=settings.STATE
            )
        )

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
