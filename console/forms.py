"""What people type, checked before a domain function sees it. Widgets carry the console's classes, never a style."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop, ngettext_lazy

from console.models import User
from registry.models import Station
from training import opinions as policy
from training.models import Verdict

if TYPE_CHECKING:
    from registry.models import Line
    from training.models import GoldenSet


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


def read_regions(text: str) -> list[Any]:
    """What the page drew, as JSON; training.regions checks what is in it. Raises ValidationError."""
    try:
        found = json.loads(text or "[]")
    except ValueError as error:
        raise forms.ValidationError(_("The drawn shapes could not be read.")) from error
    if not isinstance(found, list) or not all(isinstance(region, dict) for region in found):
        raise forms.ValidationError(_("The drawn shapes could not be read."))
    return found


class DecisionForm(Form):
    """One decision, as its button says it: `OK`, `NG:3` (class numbers, main one first), or a bare `NG`."""

    choice = forms.CharField(max_length=80)
    comment = forms.CharField(required=False, max_length=2000)
    regions = forms.CharField(required=False)

    problem = gettext_noop("The form did not say OK or NG. Reload the page and decide again.")

    def clean_choice(self) -> tuple[str, list[int]]:
        verdict, _colon, numbers = self.cleaned_data["choice"].partition(":")
        if verdict not in (Verdict.OK, Verdict.NG) or not all(
            part.isdecimal() for part in numbers.split(",") if numbers
        ):
            raise forms.ValidationError(_("Unknown choice."))
        return verdict, [int(part) for part in numbers.split(",") if part]

    def clean_regions(self) -> list[Any]:
        return read_regions(self.cleaned_data["regions"])


class DraftForm(Form):
    """What is drawn and typed so far, the version that it began with, and which page sends it."""

    comment = forms.CharField(required=False, max_length=2000, strip=False)
    regions = forms.CharField(required=False)
    version = forms.IntegerField(min_value=0, max_value=2**53)
    tab = forms.CharField(required=False, max_length=64)

    problem = gettext_noop("This draft could not be read. Reload the page; what you drew is kept in this browser.")

    def clean_regions(self) -> list[Any]:
        return read_regions(self.cleaned_data["regions"])


class WindowForm(Form):
    """Black and white of a 16-bit picture, in stored values; both or none."""

    low = forms.FloatField(required=False)
    high = forms.FloatField(required=False)

    def window(self) -> tuple[float, float] | None:
        """(black, white), or None for the line's own: also when the address says nothing useful."""
        if not self.is_valid():
            return None
        low, high = self.cleaned_data["low"], self.cleaned_data["high"]
        return (low, high) if low is not None and high is not None and low < high else None


class ReviewPolicyForm(Form):
    """How a line's pictures are reviewed. Shares are typed in per cent."""

    opinions = forms.IntegerField(
        label=_("Independent opinions per picture"),
        min_value=1,
        max_value=policy.MOST,
        help_text=_("1: one person decides. 2: two people judge each picture without seeing each other's answer."),
    )
    known_rate = forms.FloatField(
        label=_("Known answers, %"),
        min_value=0,
        max_value=100 * policy.MOST_RATE,
        help_text=_("Golden-set pictures mixed in unmarked, per 100 pictures that a person is given."),
    )
    repeat_rate = forms.FloatField(
        label=_("Blind repeats, %"),
        min_value=0,
        max_value=100 * policy.MOST_RATE,
        help_text=_("A person's own earlier pictures, asked again unmarked, per 100 pictures."),
    )
    blind_share = forms.FloatField(
        label=_("Judged without the machine's answer, %"),
        min_value=0,
        max_value=100,
        help_text=_("Of the pictures that arrive from now on. Audit samples and checks always are; these hide them."),
    )

    SHARES = ("known_rate", "repeat_rate", "blind_share")

    def __init__(self, data: Any, *, line: Line, reviewers: int) -> None:
        shown = {name: f"{100 * getattr(line, name):g}" for name in self.SHARES}
        super().__init__(data, initial={"opinions": line.opinions, **shown})
        self._reviewers = reviewers

    def clean_opinions(self) -> int:
        wanted: int = self.cleaned_data["opinions"]
        if wanted > max(1, self._reviewers):
            raise forms.ValidationError(
                ngettext_lazy(
                    "Only %(n)s person may review this line: no picture would ever be decided.",
                    "Only %(n)s people may review this line: no picture would ever be decided.",
                    "n",
                )
                % {"n": self._reviewers}
            )
        return wanted

    def policy(self) -> dict[str, Any]:
        """As `opinions.set_policy` takes it; call it on a valid form."""
        sent = self.cleaned_data
        return {"opinions": sent["opinions"], **{name: sent[name] / 100 for name in self.SHARES}}


class CommentForm(Form):
    comment = forms.CharField(required=False, max_length=2000)


class AnswerForm(Form):
    """A second person's answer to a promotion: its meaning, why, and the digest that stood on the page."""

    meaning = forms.ChoiceField(choices=[("APPROVE", "APPROVE"), ("REJECT", "REJECT")])
    reason = forms.CharField(label=_("Reason"), max_length=2000, widget=forms.Textarea(attrs={"rows": 3}))
    seen_digest = forms.CharField(max_length=64)


class RolloutForm(Form):
    """How many devices go first."""

    canary = forms.IntegerField(
        label=_("Canary devices"), min_value=1, help_text=_("They go first; the rest waits for them.")
    )

    def __init__(self, *args: Any, targets: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["canary"].widget.attrs["max"] = max(targets, 1)
        self.fields["canary"].max_value = max(targets, 1)  # type: ignore[attr-defined]
        self.fields["canary"].initial = 1
        self.targets = targets

    @property
    def shown_canary(self) -> int:
        """What stands in the field, for the table beside it."""
        value = self["canary"].value()
        return int(value) if str(value).isdecimal() else 1

    def clean_canary(self) -> int:
        canary = int(self.cleaned_data["canary"])
        if canary > max(self.targets, 1):
            raise forms.ValidationError(_("There are only %(n)s devices."), params={"n": self.targets})
        return canary


class DeviceForm(Form):
    """A device that is to be enrolled."""

    code = forms.SlugField(
        label=_("Code"), max_length=48, help_text=_("Letters, digits and hyphens, as written on the device: EL-1-04")
    )
    station = forms.ModelChoiceField(label=_("Station"), queryset=Station.objects.none())

    def __init__(self, *args: Any, lines: list[Line], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["station"]
        field.queryset = Station.objects.filter(line__in=lines).select_related("line")
        field.label_from_instance = lambda station: f"{station.line.name} · {station.name}"


class FlagForm(Form):
    """How many of the next pictures a device shall send whatever it thinks of them."""

    count = forms.IntegerField(label=_("Pictures"), min_value=1, max_value=1000, initial=10)


class AuditFilterForm(Form):
    """Filters of the audit log; all of them may be empty, and a wrong one filters nothing."""

    person = forms.CharField(label=_("Person"), required=False, widget=forms.Select)
    noun = forms.ChoiceField(label=_("About"), required=False)
    words = forms.CharField(label=_("Words"), required=False, max_length=120)

    def __init__(self, *args: Any, people: list[Any], nouns: list[tuple[str, Any]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = [(person.username, str(person)) for person in people]
        self.fields["person"].widget.choices = [("", _("everybody")), *known]
        self.fields["noun"].choices = [("", _("everything")), *nouns]  # type: ignore[attr-defined]

    def filters(self) -> dict[str, str]:
        self.is_valid()
        return {name: str(self.cleaned_data.get(name) or "") for name in ("person", "noun", "words")}


class ExportForm(Form):
    """How pictures leave: which format, with the files or only labels, and what COCO counts from."""

    format = forms.ChoiceField(label=_("Format"), widget=forms.RadioSelect, initial="coco")
    with_pictures = forms.BooleanField(label=_("With the pictures"), required=False, initial=True)
    first_id = forms.ChoiceField(
        label=_("COCO counts classes from"),
        choices=[("1", "1"), ("0", "0")],
        required=False,
        help_text=_("The file says which; Loopline reads both."),
    )

    def __init__(self, *args: Any, formats: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["format"].choices = formats  # type: ignore[attr-defined]


class SnapshotForm(Form):
    """What goes into a snapshot and how it is split. Always bound: a field that was not sent has its default."""

    val_share = forms.IntegerField(label=_("Validation, %"), min_value=5, max_value=45)
    test_share = forms.IntegerField(label=_("Test, %"), min_value=0, max_value=45)
    seed = forms.IntegerField(label=_("Seed"), min_value=0, max_value=2**31 - 1)
    products = forms.MultipleChoiceField(label=_("Products"), required=False, widget=forms.CheckboxSelectMultiple)

    ASSIGN = "lot:"  # prefix of the fields that put one lot on a side by hand

    def __init__(self, data: Any, *, products: list[str], defaults: dict[str, Any]) -> None:
        shares = {"val_share": round(100 * defaults["val_share"]), "test_share": round(100 * defaults["test_share"])}
        values = {**shares, "seed": defaults["seed"]}
        sent = {name: data.get(name, value) for name, value in values.items()}
        super().__init__({**sent, "products": data.getlist("products")})
        self.fields["products"].choices = [(name, name or _("without a product")) for name in products]  # type: ignore[attr-defined]
        self.exact = data.get("exact") == "1"  # deal the sides of a very large line too
        lots = ((key, data.get(key)) for key in data if key.startswith(self.ASSIGN))
        self.assigned = {key.removeprefix(self.ASSIGN): side for key, side in lots if side in ("train", "val", "test")}

    def rule(self) -> dict[str, Any]:
        """The rule as `snapshots.freeze` takes it; call it on a valid form."""
        asked = self.cleaned_data
        return {
            "products": asked["products"] or None,
            "val_share": asked["val_share"] / 100,
            "test_share": asked["test_share"] / 100,
            "seed": asked["seed"],
            "assign": self.assigned or None,
        }


def end_of_day(day: date, line: Line) -> datetime:
    """The last second of a plant day."""
    return datetime.combine(day, time(23, 59, 59), tzinfo=ZoneInfo(line.site.timezone))


def _day_field() -> forms.DateField:
    return forms.DateField(label=_("Expires on"), widget=forms.DateInput(attrs={"type": "date", "class": "input"}))


class OwnerForm(Form):
    """Who answers for a golden set: a person of its line."""

    owner = forms.ModelChoiceField(label=_("Owner"), queryset=User.objects.none(), empty_label=None)

    problem = gettext_noop("Choose a person who has a role on this line.")

    def __init__(self, *args: Any, owners: list[User], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["owner"].queryset = User.objects.filter(pk__in=[one.pk for one in owners])  # type: ignore[attr-defined]


class EditionForm(OwnerForm):
    """What an edition of a golden set has beside its pictures."""

    expires_on = _day_field()
    leads = forms.BooleanField(
        label=_("Leads every comparison"), required=False, help_text=_("The set that led before steps back.")
    )

    @classmethod
    def of(cls, golden_set: GoldenSet) -> dict[str, Any]:
        """As the edition before has it."""
        day = timezone.localtime(golden_set.expires_at).date()
        return {"owner": golden_set.owner, "expires_on": day, "leads": golden_set.leads}

    def fields_of(self, line: Line) -> dict[str, Any]:
        """As golden.renew takes them; call it on a valid form."""
        asked = self.cleaned_data
        return {
            "owner": asked["owner"],
            "expires_at": end_of_day(asked["expires_on"], line),
            "leads": asked["leads"],
        }


class GoldenForm(EditionForm):
    """A new golden set."""

    code = forms.SlugField(label=_("Code"), max_length=32, help_text=_("Short, for files and figures: master"))
    name_ko = forms.CharField(label=_("Name, Korean"), max_length=120)
    name_en = forms.CharField(label=_("Name, English"), max_length=120)

    field_order = ("code", "name_ko", "name_en", "owner", "expires_on", "leads")

    def fields_of(self, line: Line) -> dict[str, Any]:
        asked = self.cleaned_data
        return super().fields_of(line) | {name: asked[name] for name in ("code", "name_ko", "name_en")}


class ExpiryForm(ReasonForm):
    """A later day, and why."""

    expires_on = _day_field()

    problem = gettext_noop("Give the new day and a reason.")

    def expires_at(self, line: Line) -> datetime:
        return end_of_day(self.cleaned_data["expires_on"], line)


class JobForm(Form):
    """One training: where it starts from, and the recipe's settings with their defaults."""

    mode = forms.ChoiceField(widget=forms.RadioSelect)
    epochs = forms.IntegerField(
        label=_("Epochs"), min_value=1, max_value=200, help_text=_("How often each picture is seen.")
    )
    lr = forms.FloatField(label=_("Learning rate"), min_value=1e-6, max_value=1.0)
    batch = forms.IntegerField(label=_("Batch"), min_value=2, max_value=512, help_text=_("Pictures per step."))
    rank = forms.IntegerField(
        label=_("Adapter rank"), min_value=1, max_value=64, help_text=_("More learns more and weighs more.")
    )
    replay = forms.FloatField(
        label=_("Replay share"),
        min_value=0.0,
        max_value=1.0,
        help_text=_("Earlier pictures mixed in, so that old knowledge is kept."),
    )
    seed = forms.IntegerField(
        label=_("Seed"), min_value=0, max_value=2**31 - 1, help_text=_("The same seed gives the same order.")
    )

    def __init__(self, *args: Any, modes: list[tuple[str, Any]], defaults: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, initial={**_recipe_fields(defaults), "mode": modes[0][0]}, **kwargs)
        self.fields["mode"].choices = modes  # type: ignore[attr-defined]
        self._defaults = _recipe_fields(defaults)

    def overrides(self) -> dict[str, Any]:
        """Only what differs from the defaults, in the recipe's own nesting."""
        asked = {
            name: value for name, value in self.cleaned_data.items() if name != "mode" and value != self._defaults[name]
        }
        train = {name: asked.pop(name) for name in ("epochs", "lr", "batch") if name in asked}
        lora = {"rank": asked.pop("rank")} if "rank" in asked else {}
        return asked | ({"train": train} if train else {}) | ({"lora": lora} if lora else {})


def _recipe_fields(config: dict[str, Any]) -> dict[str, Any]:
    train = config["train"]
    return {
        "epochs": train["epochs"], "lr": train["lr"], "batch": train["batch"], "rank": config["lora"]["rank"],
        "replay": config["replay"], "seed": config["seed"],
    }  # fmt: skip
