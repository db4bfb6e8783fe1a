"""JSON, YAML and XML from strangers: size-limited, no entities, no objects, every failure a sentence with the file."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as Plain

import yaml
from defusedxml import ElementTree  # type: ignore[import-untyped]
from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped]
from django.utils.translation import gettext_noop

from registry.lifecycle import Refused
from training.formats import archive as archives

if TYPE_CHECKING:
    from training.formats.archive import Archive

UNREADABLE = gettext_noop("%(file)s cannot be read as %(format)s: %(detail)s")
WRONG_VALUE = gettext_noop("%(file)s: “%(value)s” is not what %(field)s can be.")
SMALL = 16 << 20  # tables of classes and other files of a few lines


def load_json(archive: Archive, name: str) -> Any:
    try:
        return json.loads(archives.read(archive, name).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Refused(UNREADABLE, file=name, format="JSON", detail=str(error)) from error


def load_yaml(archive: Archive, name: str) -> Any:
    try:
        return yaml.safe_load(archives.read(archive, name, SMALL).decode("utf-8-sig"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Refused(UNREADABLE, file=name, format="YAML", detail=str(error)) from error


def load_xml(archive: Archive, name: str) -> Plain.Element:
    """The root element; a document type is refused, and with it entities and files from elsewhere."""
    data = archives.read(archive, name)
    try:
        root: Plain.Element = ElementTree.fromstring(data, forbid_dtd=True)
    except DefusedXmlException as error:
        raise Refused(UNREADABLE, file=name, format="XML", detail="DTD") from error
    except (Plain.ParseError, ValueError, LookupError) as error:
        raise Refused(UNREADABLE, file=name, format="XML", detail=str(error)) from error
    return root


def load_lines(archive: Archive, name: str) -> list[str]:
    try:
        return archives.read(archive, name, SMALL).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise Refused(UNREADABLE, file=name, format="UTF-8", detail=str(error)) from error


def dump_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False).encode()


def dump_xml(root: Plain.Element, *, declared: bool = True) -> bytes:
    """`declared`: with the line `<?xml ...?>`."""
    Plain.indent(root)
    data: bytes = Plain.tostring(root, encoding="utf-8", xml_declaration=declared)
    return data


def number(value: Any, *, file: str, field: str) -> float:
    """A finite number, also one in a string."""
    try:
        result = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        result = math.nan
    if not math.isfinite(result):
        raise Refused(WRONG_VALUE, file=file, field=field, value=_short(value))
    return result


def whole(value: Any, *, file: str, field: str) -> int:
    """A whole number. 3.0 and "3" are, True and 3.5 are not."""
    result = number(value, file=file, field=field)
    if result != int(result):
        raise Refused(WRONG_VALUE, file=file, field=field, value=_short(value))
    return int(result)


def text(value: Any, *, file: str, field: str) -> str:
    if not isinstance(value, str):
        raise Refused(WRONG_VALUE, file=file, field=field, value=_short(value))
    return value


def dicts(value: Any, *, file: str, field: str) -> list[dict[str, Any]]:
    """A list of objects; nothing at all is an empty list."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Refused(WRONG_VALUE, file=file, field=field, value=_short(value))
    return value


def items(value: Any) -> list[Any]:
    """The list; anything else holds nothing."""
    return value if isinstance(value, list) else []


def numbers_of(value: Any, allowed: set[int]) -> tuple[int, ...]:
    """Those of a list of ours that are class numbers, each once."""
    return tuple(dict.fromkeys(n for n in items(value) if isinstance(n, int) and n in allowed))


def mapping(value: Any) -> dict[str, Any]:
    """What Loopline wrote for itself; whatever else stands there says nothing."""
    return value if isinstance(value, dict) else {}


def _short(value: Any) -> str:
    shown = str(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
