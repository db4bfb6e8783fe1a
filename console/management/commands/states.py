"""`manage.py states`: docs/states.md from the MOVES tables, or with --check whether it is current."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from pathlib import Path

    from django.db.models import Field, Model

HEAD = """# States

Written by `python manage.py states` from the `MOVES` tables of the models; a test compares.
Only `lifecycle.move` changes a state, and only along these arrows.
"""


def models_with_a_life() -> list[type[Model]]:
    """Every model with a MOVES table, in the order in which the apps define them."""
    return [model for model in apps.get_models() if hasattr(model, "MOVES")]


def page() -> str:
    """The whole page as Markdown with one Mermaid diagram per model."""
    return "\n".join([HEAD, *(section(model) for model in models_with_a_life())])


def section(model: type[Model]) -> str:
    """Heading and diagram of one model; `[*]` marks its first state and its ends."""
    moves: dict[str, tuple[str, ...]] = model.MOVES  # type: ignore[attr-defined]
    first = cast("Field[Any, Any]", model._meta.get_field("state")).default
    arrows = [f"    [*] --> {first}"]
    for state, targets in moves.items():
        arrows += [f"    {state} --> {target}" for target in targets] or [f"    {state} --> [*]"]
    return "\n".join([f"## {model.__name__}", "", "```mermaid", "stateDiagram-v2", *arrows, "```", ""])


class Command(BaseCommand):
    help = "Write docs/states.md from the MOVES tables."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="only say whether docs/states.md is current")

    def handle(self, *args: Any, **options: Any) -> None:
        file: Path = settings.BASE_DIR / "docs" / "states.md"
        wanted = page()
        if not options["check"]:
            file.write_text(wanted, encoding="utf-8")
            self.stdout.write(f"{file.name}: written")
        elif not file.is_file() or file.read_text(encoding="utf-8") != wanted:
            raise CommandError("docs/states.md does not say what the MOVES tables say. Run: python manage.py states")
