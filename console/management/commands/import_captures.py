"""`manage.py import_captures DIR --line NAME`: a folder with pictures and a manifest.csv, as captures of a line."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.text import slugify
from django.utils.translation import gettext

from console.models import Membership, User
from registry import lines
from registry.lifecycle import Refused
from registry.models import Line, Site
from training import imports


class Command(BaseCommand):
    help = "Import a folder of pictures with a manifest.csv as captures of a line. A new line name makes a new line."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, metavar="DIR")
        parser.add_argument("--line", required=True, help="code or name of the line; made when there is no such line")
        parser.add_argument(
            "--by", help="whose decisions the manifest's labels are (login name; default: an engineer of the line)"
        )
        parser.add_argument(
            "--undecided", action="store_true", help="put the pictures into the queue, without decisions"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            line = self._line(options["line"])
            by = self._person(line, options["by"])
            report = imports.import_manifest(
                line, options["folder"], by=by or "import", decided=not options["undecided"]
            )
        except Refused as refused:
            raise CommandError(str(refused)) from refused
        self.stdout.write(
            f"line {line.code}: {report.rows} rows, {report.created} pictures new, {report.known} here already, "
            f"{report.decided} decided, {report.undecided} wait in the queue, {len(report.refused)} refused"
        )
        if report.classes_added:
            self.stdout.write(f"new in the defect book: {', '.join(report.classes_added)}")
        for row in report.refused:
            text = gettext(row["text"])
            self.stdout.write(f"refused {row['image']}: {text % row['params'] if row['params'] else text}")

    def _line(self, name: str) -> Line:
        found = Line.objects.filter(code=name).first() or Line.objects.filter(name=name).first()
        if found:
            return found
        site = Site.objects.order_by("created_at").first() or Site.objects.create(code="site", name="Site")
        elder = Line.objects.filter(site=site).order_by("created_at").first()
        made = lines.create_line(site, code=slugify(name)[:32], name=name, by="import")
        lines.add_station(made, code="s1", name="Station 1", by="import")
        people = Membership.objects.filter(line=elder).select_related("user") if elder else []
        Membership.objects.bulk_create(Membership(user=one.user, line=made, role=one.role) for one in people)
        roles = f" The roles of line {elder.code} hold on it, too." if elder else ""
        self.stdout.write(f"There was no line {name}: made line {made.code}.{roles}")
        return made

    def _person(self, line: Line, username: str | None) -> User | None:
        if username:
            person = User.objects.filter(username=username).first()
            if person is None:
                raise CommandError(f"There is no person with the login name {username}.")
            return person
        engineers = User.objects.filter(memberships__line=line, memberships__role="engineer", is_active=True)
        return engineers.order_by("username").first()
