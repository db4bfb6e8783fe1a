"""The keys of the review: one table of what they do, and what each person made of it. Unchosen ones are the defaults.

Digits and further letters belong to the defect books of the lines; Esc, Tab, Backspace and ? stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from console.models import User

if TYPE_CHECKING:
    from collections.abc import Mapping

FKEYS_COOKIE = "loopline_fkeys"  # on this workstation F5 says OK and F8 says NG

SCOPES: dict[str, Any] = {
    "review": gettext_lazy("Review"),
    "drawing": gettext_lazy("Drawing"),
    "levels": gettext_lazy("16-bit pictures"),
}
# Keys that have a name instead of a sign, as they are written on a cap.
NAMED = {
    "Enter": "Enter", "Space": "Space", "Delete": "Del", "Insert": "Ins", "Home": "Home", "End": "End",
    "PageUp": "PgUp", "PageDown": "PgDn", "ArrowLeft": "←", "ArrowRight": "→", "ArrowUp": "↑", "ArrowDown": "↓",
    "F2": "F2", "F4": "F4", "F6": "F6", "F7": "F7", "F9": "F9", "F10": "F10",
}  # fmt: skip


@dataclass(frozen=True)
class Act:
    """One thing that a key does. `words` say it on the sheet and on the page of one's keys."""

    code: str
    words: Any
    key: str
    scope: str


ACTS: dict[str, Act] = {
    act.code: act
    for act in (
        Act("ok", "OK", "o", "review"),
        Act("ng", gettext_lazy("NG; the class key follows where there are several"), "n", "review"),
        Act("accept", gettext_lazy("accept what the machine finds most probable"), "Enter", "review"),
        Act("skip", gettext_lazy("skip without a decision"), "Space", "review"),
        Act("second_look", gettext_lazy("ask somebody else for a second look"), "l", "review"),
        Act("previous", gettext_lazy("previous picture"), "ArrowLeft", "review"),
        Act("next", gettext_lazy("next picture"), "ArrowRight", "review"),
        Act("comment", gettext_lazy("comment; Esc leaves the field"), "c", "review"),
        Act("grid", pgettext_lazy("key", "grid, and back"), "g", "review"),
        Act("similar", gettext_lazy("similar pictures"), "s", "review"),
        Act("overlays", gettext_lazy("show and hide everything drawn"), "a", "review"),
        Act("heat", gettext_lazy("heat map: where the model looked"), "e", "review"),
        Act("fit", gettext_lazy("fit the picture"), "r", "review"),
        Act("zoom_in", gettext_lazy("larger"), "+", "review"),
        Act("zoom_out", gettext_lazy("smaller"), "-", "review"),
        Act("select", gettext_lazy("select and move"), "v", "drawing"),
        Act("box", gettext_lazy("draw a box"), "b", "drawing"),
        Act("polygon", gettext_lazy("draw a polygon; Enter or its first point closes it"), "p", "drawing"),
        Act("remove", gettext_lazy("remove the selected shape"), "Delete", "drawing"),
        Act("level_down", gettext_lazy("level down"), "[", "levels"),
        Act("level_up", gettext_lazy("level up"), "]", "levels"),
        Act("width_down", gettext_lazy("narrower"), "{", "levels"),
        Act("width_up", gettext_lazy("wider"), "}", "levels"),
        Act("window", gettext_lazy("reset the window"), "w", "levels"),
    )
}  # fmt: skip


def of(user: User | None) -> dict[str, str]:
    """Act -> key, for this person."""
    own = (user.keys if user is not None else None) or {}
    return {code: own.get(code, act.key) for code, act in ACTS.items()}


def cap(key: str) -> str:
    """The key as it is written on a cap."""
    return NAMED.get(key, "−" if key == "-" else key.upper())


def read(sent: Mapping[str, str]) -> dict[str, str]:
    """The map that a form says; what it does not say is the default."""
    said = {code: sent.get(code, "").strip()[:16] or act.key for code, act in ACTS.items()}
    return {code: key.lower() if len(key) == 1 else key for code, key in said.items()}


def problems(wanted: Mapping[str, str], class_keys: Mapping[str, str]) -> dict[str, str]:
    """Act -> the sentence that speaks against its key. `class_keys`: key -> the class that has it."""
    found: dict[str, str] = {}
    holders: dict[str, str] = {}
    for code, key in wanted.items():
        if not _usable(key):
            found[code] = _("This key cannot be used here.")
        elif key in holders:
            found[code] = _("%(key)s is also: %(other)s") % {"key": cap(key), "other": ACTS[holders[key]].words}
        elif key in class_keys:
            found[code] = _("%(key)s is the key of class %(name)s.") % {"key": cap(key), "name": class_keys[key]}
        holders.setdefault(key, code)
    return found


def choose(user: User, wanted: Mapping[str, str]) -> None:
    """Keep this person's map: only what differs from the defaults, so that new defaults reach everybody else."""
    own = {code: key for code, key in wanted.items() if key != ACTS[code].key}
    User.objects.filter(pk=user.pk).update(keys=own)


def _usable(key: str) -> bool:
    sign = len(key) == 1 and "!" <= key <= "~" and not key.isdecimal() and not key.isupper() and key != "?"
    return sign or key in NAMED
