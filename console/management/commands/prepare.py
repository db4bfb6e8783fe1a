"""`manage.py prepare`: bring a plant's own database up to date. `up` does the same when it starts."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console import children, database
from console.environment import envsecret


class Command(BaseCommand):
    help = "Migrate as DATABASE_OWNER_URL and grant to the role of DATABASE_URL what the running console needs."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        app = envsecret("DATABASE_URL", settings.SERVICES.database)
        try:
            said = database.prepare(
                owner_url=settings.DATABASE_OWNER_URL or app, app_url=app, checkout=settings.BASE_DIR
            )
        except children.NotStarted as error:
            raise CommandError(str(error)) from None
        self.stdout.write(said)
