"""Stored sentences ({"text": msgid, "params": {...}}) in the reader's language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext


def render(stored: Mapping[str, Any] | None) -> str:
    """The sentence in the active language, "" for none.

    A parameter may itself be a stored sentence. One that the text asks for and the row lacks is shown by its name: an
    old row must stay readable after its sentence has been reworded.
    """
    if not stored or not stored.get("text"):
        return ""
    text = gettext(stored["text"])
    params = {
        name: render(value) if _is_sentence(value) else value for name, value in (stored.get("params") or {}).items()
    }
    return text % _Named(params) if "%" in text else text


def _is_sentence(value: Any) -> bool:
    return isinstance(value, Mapping) and "text" in value


class _Named(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return f"({name})"
