"""What pages show the same way everywhere: states, verdicts, rates with counts, sizes, ages, plant time, digests."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import template
from django.template.defaultfilters import date as format_date
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from console import keys, sentences
from registry.intervals import wilson

register = template.Library()

# state -> (colour class, glyph); the glyph alone tells the state in a grey print
PILLS: dict[str, dict[str, tuple[str, str]]] = {
    "capture": {"NEW": ("un", "un"), "DECIDED": ("", "done"), "DISPUTED": ("rv", "rv"), "RETRACTED": ("rv", "back")},
    "job": {
        "QUEUED": ("", "wait"), "RUNNING": ("act", "run"), "CANCELLING": ("rv", "half"), "SUCCEEDED": ("ok", "done"),
        "FAILED": ("ng", "ng"), "CANCELLED": ("un", "stopx"), "POISONED": ("ng", "stopx"),
    },
    "transfer": {
        "QUEUED": ("", "wait"), "RUNNING": ("act", "run"), "DONE": ("ok", "done"), "FAILED": ("ng", "ng"),
        "CANCELLED": ("un", "stopx"),
    },
    "version": {
        "REGISTERED": ("", "wait"), "VALIDATED": ("act", "half"), "REFUSED": ("ng", "ng"), "RELEASED": ("ok", "done"),
        "RETIRED": ("un", "stopx"),
    },
    "promotion": {
        "REQUESTED": ("rv", "half"), "APPROVED": ("ok", "done"), "REJECTED": ("ng", "ng"), "WITHDRAWN": ("un", "stopx"),
        "EXPIRED": ("rv", "rv"), "VOIDED": ("ng", "stopx"),
    },
    "release": {"PUBLISHED": ("ok", "done"), "SUPERSEDED": ("un", "un"), "REVOKED": ("ng", "stopx")},
    "rollout": {
        "DRAFTED": ("", "wait"), "SCHEDULED": ("", "wait"), "RUNNING": ("act", "run"), "PAUSED": ("rv", "paused"),
        "COMPLETED": ("ok", "done"), "COMPLETED_WITH_EXCEPTIONS": ("rv", "half"), "STOPPED": ("un", "stopx"),
        "REVERTED": ("rv", "back"),
    },
    "stage": {
        "WAITING": ("un", "un"), "RUNNING": ("act", "run"), "SOAKING": ("act", "half"), "PASSED": ("ok", "done"),
        "FAILED": ("ng", "ng"), "SKIPPED": ("un", "stopx"),
    },
    "deployment": {
        "PENDING": ("un", "wait"), "OFFERED": ("un", "un"), "DOWNLOADING": ("act", "run"), "VERIFIED": ("act", "half"),
        "STAGED": ("act", "half"), "PROBATION": ("act", "run"), "COMMITTED": ("ok", "done"), "REFUSED": ("ng", "ng"),
        "FAILED": ("ng", "ng"), "FELL_BACK": ("ng", "back"), "EXPIRED": ("rv", "rv"), "SUPERSEDED": ("un", "stopx"),
    },
    "device": {
        "ENROLLED": ("", "wait"), "ACTIVE": ("ok", "done"), "QUARANTINED": ("ng", "stopx"), "RETIRED": ("un", "stopx"),
    },
}  # fmt: skip
MARKS = {"OK": ("ok", "OK"), "NG": ("ng", "NG"), "REVIEW": ("rv", "RV")}
DASH = "–"


# ------------------------------------------------------------------------------------------------ drawing


@register.simple_tag
def icon(name: str) -> SafeString:
    """An icon of the sprite, hidden from screen readers: the words beside it say it."""
    return format_html('<svg class="i" aria-hidden="true"><use href="#i-{}"/></svg>', name)


@register.simple_tag
def glyph(name: str) -> SafeString:
    return format_html('<svg class="g" aria-hidden="true"><use href="#g-{}"/></svg>', name)


@register.simple_tag(takes_context=True)
def cap(context: dict[str, Any], act: str) -> SafeString:
    """The key cap of an act of the review, as the reader has set it."""
    frame = context.get("frame")
    return format_html('<kbd class="key">{}</kbd>', keys.cap(frame.keys[act] if frame else keys.ACTS[act].key))


@register.simple_tag
def pill(row: Any, words: str = "") -> SafeString:
    """The state of a row. `words` replaces the state's own name where a page knows better ("1 of 2 signed")."""
    colour, shape = PILLS[row._meta.model_name][row.state]
    return badge(words or row.get_state_display(), colour, shape)


@register.simple_tag
def badge(words: Any, colour: str = "", shape: str = "un") -> SafeString:
    """A pill for what is derived and no state of its own: champion, candidate, silent, behind."""
    return format_html('<span class="pill {}">{}{}</span>', colour, glyph(shape), words)


@register.simple_tag
def mark(verdict: str, says: bool = False) -> SafeString:
    """A verdict: solid when a person decided it, dashed (`says=True`) when a machine said it."""
    colour, letters = MARKS.get(verdict, ("un", DASH))
    return format_html(
        '<span class="mark {}{}">{}{}</span>', colour, " says" if says and verdict else "", glyph(colour), letters
    )


@register.simple_tag
def meter(n: float, of: float, colour: str = "fg") -> SafeString:
    """A flat bar of n of `of`. Colours: fg, ac, okf, ngf, rvf."""
    width = f"{100 * min(1.0, n / of) if of else 0:.1f}"
    return format_html(
        '<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="bg" d="M0 0H100V8H0z"/><path class="{}" d="M0 0H{}V8H0z"/></svg>',
        colour,
        width,
    )


# ------------------------------------------------------------------------------------------------ rates


@register.inclusion_tag("components/rate.html")
def rate(label: str, n: int | None, of: int | None, noun: str = "", limit: float | None = None) -> dict[str, Any]:
    """A rate never stands alone: value, `n / of noun`, 95 % interval, limit (a share). Nothing inspected: no rate."""
    if n is None or not of:
        return {"label": label, "noun": noun, "limit": None if limit is None else f"{100 * limit:.2f}", "empty": True}
    share, (low, high) = n / of, wilson(n, of)
    top = max(high, share, limit or 0.0) * 1.1 or 1.0
    return {
        "label": label, "n": n, "of": of, "noun": noun, "value": f"{100 * share:.2f}", "low": f"{100 * low:.2f}",
        "high": f"{100 * high:.2f}", "limit": None if limit is None else f"{100 * limit:.2f}",
        "x_low": f"{200 * low / top:.1f}", "x_high": f"{200 * high / top:.1f}",
        "x": f"{max(1.0, 200 * share / top):.1f}",
        "x_limit": None if limit is None else f"{200 * limit / top:.1f}", "over": limit is not None and share > limit,
    }  # fmt: skip


@register.filter
def counts(pair: Any) -> str:
    """`[n, of]` as "n / of"; a dash for none."""
    return f"{pair[0]:,} / {pair[1]:,}" if pair else DASH


@register.filter
def tally(pair: Any) -> str:
    """`[n, of]` as "n / of"; a dash where nothing was counted."""
    return counts(pair) if pair and pair[1] else DASH


@register.filter
def as_percent(share: float) -> str:
    """A share that is a setting, not a rate: 0.02 as "2 %"."""
    return f"{100 * share:g} %"


@register.filter
def percent(pair: Any) -> str:
    """`[n, of]` as "1.52 %". Print `counts` beside it, and `interval` where there is room."""
    return f"{100 * pair[0] / pair[1]:.2f} %" if pair and pair[1] else DASH


@register.filter
def share(value: float) -> str:
    """A setting that is a share, as "2.5 %": nothing was counted, so nothing stands beside it."""
    return f"{100 * value:g} %"


@register.filter
def interval(pair: Any) -> str:
    """The 95 % interval of `[n, of]` as "0.30–1.99 %"."""
    if not pair or not pair[1]:
        return DASH
    low, high = wilson(*pair)
    return f"{100 * low:.2f}–{100 * high:.2f} %"


# ------------------------------------------------------------------------------------------------ figures, times, names


@register.filter
def thousands(value: Any) -> str:
    return DASH if value is None or value == "" else f"{value:,}"


@register.filter
def fixed(value: Any, places: int = 2) -> str:
    return DASH if value is None or value == "" else f"{float(value):,.{places}f}"


@register.filter
def size(value: Any) -> str:
    """Bytes in decimal units: 940 B, 12.3 kB, 1.02 MB."""
    if value is None:
        return DASH
    number = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5 or unit == "GB":
            return f"{number:,.0f} {unit}" if unit == "B" or number >= 99.95 else f"{number:.3g} {unit}"
        number /= 1000
    return DASH


@register.filter
def age(value: Any) -> str:
    """A length of time (seconds, timedelta) or since a moment, as people say it: 12 s, 5 min, 2 h 48 min, 1 d 3 h."""
    if value is None or value == "":
        return DASH
    if isinstance(value, datetime):
        value = timezone.now() - value
    seconds = max(0, int(value.total_seconds() if isinstance(value, timedelta) else value))
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return _("%(d)d d %(h)d h") % {"d": days, "h": hours}
    if hours:
        return _("%(h)d h %(min)d min") % {"h": hours, "min": minutes}
    return _("%(min)d min") % {"min": minutes} if minutes else _("%(s)d s") % {"s": seconds}


@register.filter
def clock(value: datetime | None) -> str:
    """Plant time with seconds today, with the date on other days. The plant's zone was activated for the request."""
    if value is None:
        return DASH
    local = timezone.localtime(value)
    today = timezone.localtime()
    if local.date() == today.date():
        return local.strftime("%H:%M:%S")
    year = pgettext("date format of another year", "j M Y H:i") if local.year != today.year else ""
    return format_date(local, year or pgettext("date format of another day", "j M H:i"))


@register.filter
def moment(value: datetime | None) -> str:
    """Plant time, in full."""
    return DASH if value is None else timezone.localtime(value).strftime("%Y-%m-%d %H:%M:%S")


@register.filter
def due(value: datetime | None) -> str:
    """A deadline: "due 06:00", with the date when it is another day's; "%(age)s late" once it has passed."""
    if value is None:
        return ""
    if value < timezone.now():
        return _("%(age)s late") % {"age": age(value)}
    local = timezone.localtime(value)
    if local.date() == timezone.localtime().date():
        return _("due %(time)s") % {"time": local.strftime("%H:%M")}
    return _("due %(time)s") % {"time": format_date(local, pgettext("date format of another day", "j M H:i"))}


@register.filter
def digest(value: str | None) -> str:
    """The first twelve digits of a SHA-256; pages that are about it print it in full."""
    return value[:12] if value else DASH


@register.filter
def sentence(stored: Any) -> str:
    return sentences.render(stored)


@register.filter
def person(value: Any) -> str:
    """A person's name, or a machine's label as it is."""
    return str(value) if value else DASH


@register.filter
def words(text: str) -> list[str]:
    """The words of a literal, for short loops in templates."""
    return text.split()


@register.filter
def why_short(capture: Any) -> str:
    """Why a picture is in the queue, in one word for a tile; nothing for the usual reason."""
    words = {"audit": _("audit"), "operator": _("asked"), "import": _("imported"), "no_model": _("no model")}
    return words.get(capture.reason, "")
