"""What people type, checked before a domain function sees it. Widgets carry the console's classes, never a style."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.utils.translation import gettext_lazy as _

from training.models import Verdict


def dressed(field: forms.Field) -> None:
    """Give a field's widget the console's class."""
    if isinstance(
        field.widget, (forms.TextInput, forms.Textarea, forms.Select, forms.PasswordInput, forms.NumberInput)
    ):
        field.widget.attrs.setdefault("class", "input")


class Form(forms.Form):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("label_suffix", "")
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            dressed(field)


class SignInForm(AuthenticationForm):
    error_messages = {
        "invalid_login": _("This name and password do not belong together."),
        "inactive": _("This name and password do not belong together."),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("label_suffix", "")
        super().__init__(*args, **kwargs)
        self.fields["username"].label = _("Name")
        self.fields["password"].label = _("Password")
        for field in self.fields.values():
            dressed(field)


class ReasonForm(Form):
    """A reason for the audit log."""

    reason = forms.CharField(label=_("Reason"), max_length=500, widget=forms.Textarea(attrs={"rows": 3}))


class DecisionForm(Form):
    """One decision: OK without a class, NG with one or none; the key caps fill it in."""

    verdict = forms.ChoiceField(choices=[("OK", "OK"), ("NG", "NG")])
    classes = forms.TypedMultipleChoiceField(coerce=int, required=False)
    comment = forms.CharField(required=False, max_length=2000)

    def __init__(self, *args: Any, numbers: list[int] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["classes"].choices = [(number, number) for number in numbers or []]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("verdict") == Verdict.OK and cleaned.get("classes"):
            raise forms.ValidationError(_("A good part has no defect class."))
        return cleaned


class CommentForm(Form):
    comment = forms.CharField(required=False, max_length=2000)
