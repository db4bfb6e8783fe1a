"""`manage.py up`: the whole console on this machine, until Ctrl-C."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console import children
from console.supervisor import Supervisor, already_running


class Command(BaseCommand):
    help = "Start PostgreSQL, Valkey and MLflow (or use those that the environment names), web, workers and beat."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
        parser.add_argument("--port", type=int, default=8000, help="port, or the next free one (default 8000; 0 = any)")
        parser.add_argument("--no-train", action="store_true", help="no train worker on this machine")

    def handle(self, *args: Any, **options: Any) -> None:
        supervisor = Supervisor(host=options["host"], port=options["port"], train=not options["no_train"], say=self.say)
        try:
            supervisor.run()
        except children.Held as held:
            url = already_running(settings.STATE)
            raise CommandError(
                f"Loopline runs already on {settings.STATE} (process {held}{f', {url}' if url else ''})."
            ) from None
        except children.NotStarted as error:
            raise CommandError(str(error)) from None

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
