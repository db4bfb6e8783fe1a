"""Checks what devices send against the types of `edge.protocol`, once, before any domain function sees it."""

from __future__ import annotations

import typing
from functools import cache
from typing import Any, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import pydantic

from edge import protocol

MAX_TEXT = pydantic.StringConstraints(max_length=4096)
LENIENT = pydantic.ConfigDict(extra="ignore", allow_inf_nan=False, strict=False)


class BadMessage(ValueError):
    """The device's message is not what the protocol says; the text names the first wrong field."""


def check(kind: type, data: bytes | dict[str, Any]) -> dict[str, Any]:
    """The message as plain values of the protocol's type `kind` (a TypedDict); raises BadMessage."""
    try:
        model = _model(kind)
        message = model.model_validate_json(data) if isinstance(data, bytes) else model.model_validate(data)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "message"
        raise BadMessage(f"{where}: {first['msg']}") from error
    return message.model_dump(exclude_unset=True)


@cache
def _model(kind: type) -> type[pydantic.BaseModel]:
    """A pydantic model of a TypedDict: pydantic itself takes TypedDicts only from Python 3.12 on."""
    hints = get_type_hints(kind, include_extras=True)
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        optional = get_origin(hint) is NotRequired
        inner = _field(get_args(hint)[0] if optional else hint)
        fields[name] = (inner, None) if optional else (inner, ...)
    return pydantic.create_model(kind.__name__, __config__=LENIENT, **fields)


def _field(hint: Any) -> Any:
    if is_typeddict(hint):
        return _model(hint)
    if hint is str:
        return typing.Annotated[str, MAX_TEXT]
    if get_origin(hint) is not None and any(is_typeddict(part) for part in get_args(hint)):
        return typing.Union[tuple(_field(part) for part in get_args(hint))]  # noqa: UP007  (built at run time)
    return hint


ENROL, CHECK_IN, REPORT, CAPTURE = protocol.EnrolRequest, protocol.CheckIn, protocol.Report, protocol.CaptureHeader
