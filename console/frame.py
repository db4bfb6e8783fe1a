"""What stands around every page: the menu with the work that waits at each stop, lines, person, shift, plant time.

Figures come from counter rows and from the few rows that are under way, never from counting captures.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.functional import cached_property
from django.utils.translation import gettext as _

from console import keys
from console.roles import ROLES
from registry import lines

if TYPE_CHECKING:
    from datetime import datetime

    from console.http import Request
    from registry.models import Line

# All that waits, in one question: it stands around every page.
WAITING = """
SELECT
    (SELECT coalesce(sum(value), 0)::bigint FROM registry_counter
        WHERE line_id = ANY(%(lines)s) AND name = 'captures_new'),
    (SELECT count(*) FROM training_job
        WHERE line_id = ANY(%(lines)s) AND state IN ('QUEUED', 'RUNNING', 'CANCELLING')),
    (SELECT count(*) FROM registry_promotion WHERE line_id = ANY(%(lines)s) AND state = 'REQUESTED'),
    (SELECT count(*) FROM registry_rollout WHERE line_id = ANY(%(lines)s) AND state IN ('RUNNING', 'PAUSED')),
    (SELECT count(*) FROM registry_rollout WHERE line_id = ANY(%(lines)s) AND state = 'PAUSED'),
    (SELECT count(*) FROM registry_device WHERE line_id = ANY(%(lines)s) AND state = 'QUARANTINED')
"""
LANGUAGE_SHORT = {"en": "EN", "ko": "한국어"}


@dataclass(frozen=True)
class Stop:
    """One stop of the menu. `count` is work that waits there; `due` when a person must act."""

    noun: str
    name: str
    url: str
    count: int = 0
    due: bool = False


def frame(request: Any) -> dict[str, Any]:
    """The frame of a page as template context; everything in it is read only when the template asks for it."""
    return {"frame": Frame(request)}


class Frame:
    def __init__(self, request: Request) -> None:
        self._request = request
        match = request.resolver_match
        self.name = (match.url_name if match else None) or ""
        # The menu is also re-read on its own, for the page that it stands on.
        noun = request.GET.get("at", "") if self.name == "overview-stops" else self.name.split("-")[0]
        under = {"transfer": "capture", "reviewer": "capture", "golden": "snapshot"}
        self.noun = under.get(noun, noun)  # what hangs under another stop
        self.theme = getattr(request, "theme", "light")
        self.line = getattr(request, "line", None)
        self.signed_in = request.user.is_authenticated if hasattr(request, "user") else False

    @cached_property
    def lines(self) -> list[Line]:
        return self._request.lines.all if self.signed_in else []

    @cached_property
    def shown_lines(self) -> list[Line]:
        return [self.line] if self.line else self.lines

    @cached_property
    def site(self) -> Any:
        return self.shown_lines[0].site if self.shown_lines else None

    @property
    def scope_path(self) -> str:
        """Where another line leads to: the same list, or the overview from a page about one thing."""
        match = self._request.resolver_match
        return reverse("overview") if match is None or match.kwargs else self._request.path

    @property
    def languages(self) -> list[tuple[str, str]]:
        """Code and short name of every language but the one being read."""
        now = translation.get_language()
        return [(code, LANGUAGE_SHORT.get(code, name)) for code, name in settings.LANGUAGES if code != now]

    @cached_property
    def keys(self) -> dict[str, str]:
        """What the keys of the review do for this person: act -> key."""
        return keys.of(self._request.user if self.signed_in else None)

    @property
    def fkeys(self) -> bool:
        """Does this workstation say OK by F5 and NG by F8?"""
        return self._request.COOKIES.get(keys.FKEYS_COOKIE) == "1"

    @property
    def keys_json(self) -> str:
        """For the scripts."""
        return json.dumps({"keys": self.keys, "fkeys": self.fkeys})

    @property
    def roles(self) -> str:
        """The person's roles on the lines shown, in words."""
        return ", ".join(str(ROLES[code].name) for code in self._request.user.roles_on(self.shown_lines))

    @property
    def now(self) -> datetime:
        return timezone.now()

    @property
    def zone(self) -> str:
        return self.site.timezone if self.site else settings.TIME_ZONE

    @property
    def shift(self) -> str:
        """The code of the shift that is on now, when all lines shown agree on it."""
        codes = {lines.shift_at(line, self.now) for line in self.shown_lines}
        return codes.pop() if len(codes) == 1 else ""

    @cached_property
    def topics(self) -> str:
        """What the menu's counts depend on."""
        return " ".join(
            f"{line.code}.{noun}"
            for line in self.shown_lines
            for noun in ("captures", "jobs", "promotions", "rollouts")
        )

    @cached_property
    def stops(self) -> list[Stop]:
        """The menu, in the order in which the work travels."""
        with connection.cursor() as cursor:
            cursor.execute(WAITING, {"lines": [line.pk for line in self.shown_lines]})
            new, running, asked, rolling, paused, held = cursor.fetchone()
        stops = [
            Stop("overview", _("Overview"), reverse("overview")),
            Stop("capture", _("Review"), reverse("capture-list"), new, due=new > 0),
            Stop("snapshot", _("Snapshots"), reverse("snapshot-list")),
            Stop("job", _("Jobs"), reverse("job-list"), running),
            Stop("version", _("Versions"), reverse("version-list")),
            Stop("promotion", _("Promotions"), reverse("promotion-list"), asked, due=asked > 0),
            Stop("rollout", _("Rollouts"), reverse("rollout-list"), rolling, due=paused > 0),
            Stop("device", _("Devices"), reverse("device-list"), held, due=held > 0),
            Stop("line", _("Lines"), reverse("line-list")),
        ]
        if self._request.lines.allow("audit.view"):
            stops.append(Stop("audit", _("Audit"), reverse("audit-list")))
        return stops
