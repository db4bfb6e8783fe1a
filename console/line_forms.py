"""What people type about a line: how it is run, and the entries of its defect book."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.translation import gettext_lazy as _

from console.forms import Form

if TYPE_CHECKING:
    from registry.models import Line


class ShiftsField(forms.CharField):
    """Shifts as people write them, one a line: A 06:00-14:00."""

    widget = forms.Textarea(attrs={"rows": 3})

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return "\n".join(f"{shift['code']} {shift['from']}-{shift['to']}" for shift in value)

    def to_python(self, value: Any) -> list[dict[str, str]]:  # type: ignore[override]
        found = []
        for row in (row.strip() for row in str(value or "").splitlines()):
            if not row:
                continue
            code, _space, hours = row.replace("–", "-").replace("~", "-").rpartition(" ")
            start, dash, end = hours.partition("-")
            if not (code and dash):
                raise forms.ValidationError(_("%(row)s is no shift. Write: A 06:00-14:00"), params={"row": row})
            found.append({"code": code.strip(), "from": start.zfill(5), "to": end.zfill(5)})
        return found


class LineForm(Form):
    """What a line is run by, in the units that people use: hours and per cent."""

    due_h = forms.FloatField(
        label=_("Review deadline, hours"), min_value=0.1, max_value=24 * 30,
        help_text=_("A flagged picture is late after this."),
    )  # fmt: skip
    audit_percent = forms.FloatField(
        label=_("Audit rate, %"), min_value=0, max_value=100,
        help_text=_("Share of the parts judged OK that devices send in anyway, so that escapes can be estimated."),
    )  # fmt: skip
    limit_percent = forms.FloatField(
        label=_("Escape limit, %"), min_value=0, max_value=100,
        help_text=_("Share of NG parts that may pass at the operating point. Holds for trainings from now on."),
    )  # fmt: skip
    window_low = forms.FloatField(label=_("16-bit: black at"), required=False)
    window_high = forms.FloatField(
        label=_("16-bit: white at"), required=False, help_text=_("Stored grey values. Empty: chosen by each picture.")
    )
    shifts = ShiftsField(
        label=_("Shifts, plant time"), required=False, help_text=_("One a line: A 06:00-14:00. They may pass midnight.")
    )
    reason = forms.CharField(label=_("Reason, goes into the audit log"), max_length=500)

    @staticmethod
    def shown(line: Line) -> dict[str, Any]:
        """The settings as the form shows them."""
        return {
            "due_h": _tidy(line.review_due_s / 3600), "audit_percent": _tidy(100 * line.audit_rate),
            "limit_percent": _tidy(100 * line.escape_limit), "window_low": line.window_low,
            "window_high": line.window_high, "shifts": line.shifts,
        }  # fmt: skip

    def wanted(self) -> dict[str, Any]:
        """What was changed, as `lines.change_settings` takes it: a field left alone keeps its exact value."""
        said = self.cleaned_data
        values = {
            "due_h": ("review_due_s", round(3600 * said["due_h"])),
            "audit_percent": ("audit_rate", said["audit_percent"] / 100),
            "limit_percent": ("escape_limit", said["limit_percent"] / 100),
            **{name: (name, said[name]) for name in ("window_low", "window_high", "shifts")},
        }
        return dict(values[name] for name in values if said[name] != self.initial.get(name))


def _tidy(value: float) -> float:
    """Without the noise of binary fractions, and without a point where none is needed."""
    rounded = round(value, 4)
    return int(rounded) if rounded.is_integer() else rounded


class ClassForm(Form):
    """An entry of the defect book. Its code and number are fixed once it is there."""

    code = forms.CharField(
        label=_("Code"), max_length=48, help_text=_("For files and models. Fixed for ever: letters, digits, hyphens.")
    )
    name_ko = forms.CharField(label=_("Korean name"), max_length=80)
    name_en = forms.CharField(label=_("English name"), max_length=80)
    hotkey = forms.CharField(
        label=_("Key"), max_length=1, required=False, help_text=_("A digit or a letter that the review does not use.")
    )
    critical = forms.BooleanField(label=_("critical: one miss on it weighs more than anything else"), required=False)

    def __init__(self, *args: Any, fixed: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if fixed:
            del self.fields["code"]
