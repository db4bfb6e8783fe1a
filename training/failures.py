"""What the recipe's fail codes mean to a plant engineer: {"text", "params"}, rendered in the reader's language."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_noop

SENTENCES: dict[str, str] = {
    "out_of_memory": gettext_noop(
        "The machine had not enough memory. Use a smaller batch, or free memory on the machine."
    ),
    "non_finite_loss": gettext_noop(
        "The loss stopped being a number. Use a lower learning rate; the log names the pictures."
    ),
    "no_ng_in_validation": gettext_noop(
        "Validation has no NG part, so no operating point can be chosen. Freeze another snapshot."
    ),
    "class_missing": gettext_noop(
        "A class that must be there is missing: %(code)s in %(where)s. Freeze another snapshot."
    ),
    "picture_unreadable": gettext_noop(
        "Picture %(id)s cannot be read (%(reason)s). Its bytes in the store are missing or damaged."
    ),
    "disk_full": gettext_noop("There is no space left on the disk of the training machine."),
    "adapter_does_not_fit_base": gettext_noop(
        "Reloaded on a clean base, the result gave other outputs than in training. It was not registered."
    ),
    "crashed": gettext_noop("The training program ended by an error of its own (%(kind)s). The log says more."),
    # the supervisor's own
    "no_result": gettext_noop("The training program ended without leaving a result."),
    "died": gettext_noop(
        "The training program was ended from outside %(deaths)s times (%(detail)s). It is not tried again."
    ),
    "worker_died": gettext_noop("The worker vanished %(deaths)s times while it held this job. It is not tried again."),
    "supervisor": gettext_noop("The worker could not go on (%(kind)s). Its log says more."),
    "blob_missing": gettext_noop(
        "A file that the training needs is missing from the store, or is damaged (%(digest)s)."
    ),
}


def sentence(code: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """The stored form of a code; an unknown code is a crash of the training program."""
    params = dict(params or {})
    if code not in SENTENCES:
        return {"text": SENTENCES["crashed"], "params": {"kind": code, "code": code}}
    if code == "class_missing" and "code" not in params:
        params["code"] = str(params.get("number", "?"))
    return {"text": SENTENCES[code], "params": params | {"failure": code}}
