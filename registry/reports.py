"""What a device's report codes mean, as sentences. Devices send codes; the English text is the message id."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_noop

SENTENCES: dict[str, str] = {
    "digest_mismatch": gettext_noop("The bytes that arrived are not those that their name promises."),
    "too_long": gettext_noop("More bytes came than were declared."),
    "manifest_invalid": gettext_noop("The manifest is not of a format that this agent knows."),
    "release_number_falls": gettext_noop("The release number is lower than one that was installed before."),
    "base_mismatch": gettext_noop("Base graph, targets and map do not belong together."),
    "adapter_does_not_fit_base": gettext_noop("The adapter's factors do not fit the base model."),
    "adapter_has_no_effect": gettext_noop("With the adapter the outputs equal those of the bare base model."),
    "golden_mismatch": gettext_noop("On the golden pictures the outputs differ from the expected ones by too much."),
    "not_finite": gettext_noop("The model gave outputs that are not finite numbers."),
    "picture_unreadable": gettext_noop("A golden picture cannot be decoded."),
    "load_failed": gettext_noop("The runtime refused to load the model."),
    "load_timeout": gettext_noop("Loading the model took too long."),
    "child_died": gettext_noop("The inference process ended by itself."),
    "disk_full": gettext_noop("The device has no space left."),
    "not_found": gettext_noop("The console does not give the device these bytes."),
    "withdrawn": gettext_noop("The console said that the release is no longer wanted."),
    # The console's own:
    "other_bytes": gettext_noop("The device says that it loaded other bytes than the release's."),
    "deadline": gettext_noop("The device did not finish before the stage's deadline."),
    "newer_rollout": gettext_noop("A newer rollout took over."),
    "stopped": gettext_noop("The rollout was stopped."),
    "device_retired": gettext_noop("The device was retired."),
}
OTHER = gettext_noop("The device gave the reason “%(code)s”, which this console does not know.")


def sentence(code: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """The stored form {"text", "params"} of a report code; {} for no code."""
    if not code:
        return {}
    if text := SENTENCES.get(code):
        return {"text": text, "params": params or {}}
    return {"text": OTHER, "params": {"code": code}}
