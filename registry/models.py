"""Rows of the record: plant, defect book, devices, versions, promotions, releases, rollouts, audit, topics.

A model with a life has `State` and a `MOVES` table; only `lifecycle.move` changes a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _

from registry.ids import new_id

if TYPE_CHECKING:
    Moves = dict[str, tuple[str, ...]]


class Row(models.Model):
    """Every row: a UUIDv7 key and when it was made."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True


class Aggregate(Row):
    """A row with a life of its own: its `row_version` rises with each change."""

    row_version = models.PositiveBigIntegerField(default=0)

    class Meta:
        abstract = True


# ------------------------------------------------------------------------------------------------ plant


class Site(Row):
    code = models.SlugField(unique=True)
    name = models.CharField(max_length=120)
    timezone = models.CharField(max_length=64, default="Asia/Seoul")

    def __str__(self) -> str:
        return self.name


class Line(Aggregate):
    """A production line: permissions, statistics, the defect book and the champion hang on it."""

    site = models.ForeignKey(Site, on_delete=models.PROTECT, related_name="lines")
    code = models.SlugField(unique=True, max_length=32)
    name = models.CharField(max_length=120)
    product = models.CharField(max_length=120, blank=True)
    task = models.CharField(max_length=16, default="class")
    escape_limit = models.FloatField(default=0.0, help_text="share of NG parts that may pass at the operating point")
    audit_rate = models.FloatField(default=0.02, help_text="share of OK-judged pictures that devices send in anyway")
    review_due_s = models.PositiveIntegerField(default=8 * 3600, help_text="a flagged picture is late after this")
    opinions = models.PositiveSmallIntegerField(
        default=1, help_text="independent decisions that a picture needs, 1 to 5"
    )
    known_rate = models.FloatField(default=0.0, help_text="known-answer pictures per picture that a person is given")
    repeat_rate = models.FloatField(default=0.0, help_text="a person's own earlier pictures, asked again, likewise")
    blind_share = models.FloatField(
        default=0.0, help_text="share of arriving pictures judged without the machine's answer"
    )
    window_low = models.FloatField(null=True, blank=True, help_text="16-bit grey value shown black; empty = by picture")
    window_high = models.FloatField(null=True, blank=True)
    shifts = models.JSONField(
        default=list, help_text='[{"code": "A", "from": "06:00", "to": "14:00"}, ...] in plant time'
    )
    credit = models.CharField(
        max_length=400, blank=True, help_text="source and licence of sample pictures, shown with them"
    )

    class Meta:
        ordering = ("code",)

    def __str__(self) -> str:
        return self.name

    @property
    def line(self) -> Line:
        return self

    def topics(self) -> list[str]:
        return [f"{self.code}.line"]


class Station(Row):
    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="stations")
    code = models.SlugField(max_length=32)
    name = models.CharField(max_length=120)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("line", "code"), name="station_code_per_line")]
        ordering = ("code",)

    def __str__(self) -> str:
        return self.name


class DefectClass(Row):
    """An entry of a line's defect book. Its number is never given again; number 0 means OK and is not in the book."""

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="defect_classes")
    number = models.PositiveIntegerField()
    code = models.SlugField(max_length=48, allow_unicode=True)
    name_ko = models.CharField(max_length=80)
    name_en = models.CharField(max_length=80)
    hotkey = models.CharField(max_length=1, blank=True)
    critical = models.BooleanField(default=False)
    retired_at = models.DateTimeField(null=True, blank=True)
    merged_into = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, related_name="+", help_text="the class that it means since a merge"
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("line", "number"), name="defect_number_per_line"),
            models.UniqueConstraint(fields=("line", "code"), name="defect_code_per_line"),
            models.CheckConstraint(condition=models.Q(number__gt=0), name="defect_number_is_positive"),
        ]
        ordering = ("number",)

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return self.name_ko if (get_language() or "en").startswith("ko") else self.name_en

    @property
    def other_name(self) -> str:
        """The name in the language that is not being read, where it differs."""
        other = self.name_en if self.name == self.name_ko else self.name_ko
        return other if other != self.name else ""


class Numbering(models.Model):
    """The last human number given per site and noun (J-0424)."""

    site = models.ForeignKey(Site, on_delete=models.PROTECT)
    noun = models.CharField(max_length=32)
    last = models.PositiveIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("site", "noun"), name="numbering_per_site_and_noun")]


class Counter(models.Model):
    """A count that pages show, changed in the same transaction as the rows that it counts."""

    line = models.ForeignKey(Line, on_delete=models.CASCADE, related_name="counters")
    name = models.CharField(max_length=48)
    value = models.BigIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("line", "name"), name="counter_per_line_and_name")]


class Topic(models.Model):
    name = models.CharField(max_length=120, primary_key=True)
    version = models.PositiveBigIntegerField(default=0)


class AuditEvent(models.Model):
    """Who did what to which row, when, why: append-only, written by `audit.record` alone."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(auto_now_add=True)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    by_label = models.CharField(max_length=150)
    action = models.CharField(max_length=64)
    noun = models.CharField(max_length=32)
    object_id = models.CharField(max_length=40)
    name = models.CharField(max_length=120)
    line = models.ForeignKey(Line, on_delete=models.PROTECT, null=True, related_name="+")
    old = models.JSONField(default=dict)
    new = models.JSONField(default=dict)
    reason = models.TextField(blank=True)
    refused = models.BooleanField(default=False)

    class Meta:
        ordering = ("-id",)
        indexes: ClassVar = [models.Index(fields=("noun", "object_id")), models.Index(fields=("line", "-id"))]


# ------------------------------------------------------------------------------------------------ devices


class Device(Aggregate):
    """An edge box at a station: enrolled once by token, known by its own ed25519 key from then on."""

    class State(models.TextChoices):
        ENROLLED = "ENROLLED", _("enrolled")
        ACTIVE = "ACTIVE", _("active")
        QUARANTINED = "QUARANTINED", _("quarantined")
        RETIRED = "RETIRED", _("retired")

    MOVES: ClassVar[Moves] = {
        "ENROLLED": ("ACTIVE",),
        "ACTIVE": ("QUARANTINED", "RETIRED"),
        "QUARANTINED": ("ACTIVE", "RETIRED"),
        "RETIRED": (),
    }

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="devices")
    station = models.ForeignKey(Station, on_delete=models.PROTECT, related_name="devices")
    code = models.SlugField(unique=True, max_length=48)
    state = models.CharField(max_length=16, choices=State, default=State.ENROLLED)
    token_digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the one-time enrolment token")
    token_expires_at = models.DateTimeField(null=True, blank=True)
    public_key = models.CharField(max_length=64, blank=True, help_text="base64 of 32 raw bytes")
    nonce = models.CharField(max_length=64, blank=True)
    nonce_counter = models.BigIntegerField(default=0)
    agent_version = models.CharField(max_length=32, blank=True)
    hardware = models.JSONField(default=dict)
    seen_at = models.DateTimeField(null=True, blank=True)
    clock_offset_s = models.FloatField(default=0.0, help_text="device clock minus server clock at the last check-in")
    running_digest = models.CharField(
        max_length=64, blank=True, help_text="manifest digest that the device says it loaded"
    )
    running_number = models.PositiveIntegerField(null=True, blank=True)
    base_digest = models.CharField(max_length=64, blank=True)
    counts = models.JSONField(default=dict)
    outbox_waiting = models.PositiveIntegerField(default=0)
    outbox_bytes = models.BigIntegerField(default=0)
    free_bytes = models.BigIntegerField(null=True, blank=True)
    flag_next = models.PositiveIntegerField(default=0, help_text="pictures asked for by a person, told at check-in")

    class Meta:
        ordering = ("code",)

    def __str__(self) -> str:
        return self.code

    def topics(self) -> list[str]:
        return [f"{self.line.code}.device.{self.pk}", f"{self.line.code}.devices"]


# ------------------------------------------------------------------------------------------------ versions


class BaseModel(Row):
    """A frozen pretrained network, known by the digest of its weights."""

    name = models.CharField(max_length=120)
    digest = models.CharField(max_length=64, unique=True)
    licence = models.CharField(max_length=120)
    parameters = models.PositiveBigIntegerField()
    bundle = models.JSONField(help_text="the bundle's base.json")
    map_digest = models.CharField(max_length=64, help_text="blob of base.json as devices fetch it")

    def __str__(self) -> str:
        return self.name


class Version(Aggregate):
    """A registered model version of a line. Job and snapshot are plain values: no foreign key points upwards."""

    class State(models.TextChoices):
        REGISTERED = "REGISTERED", _("registered")
        VALIDATED = "VALIDATED", _("validated")
        REFUSED = "REFUSED", _("refused")
        RELEASED = "RELEASED", _("released")
        RETIRED = "RETIRED", _("retired")

    MOVES: ClassVar[Moves] = {
        "REGISTERED": ("VALIDATED", "REFUSED"),
        "VALIDATED": ("RELEASED", "RETIRED"),
        "REFUSED": (),
        "RELEASED": ("RETIRED",),
        "RETIRED": (),
    }

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=State, default=State.REGISTERED)
    base = models.ForeignKey(BaseModel, on_delete=models.PROTECT, related_name="versions")
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="children")
    job_id = models.UUIDField(unique=True)
    snapshot_id = models.UUIDField()
    trained_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    manifest_digest = models.CharField(max_length=64)
    manifest = models.JSONField()
    files = models.JSONField(help_text='every output file: {"name": {"digest": ..., "bytes": ...}}')
    evidence = models.JSONField(help_text="frozen at registration: what trained it, metrics per set, warnings, checks")
    dossier_digest = models.CharField(max_length=64, help_text="blob: champion against candidate, picture by picture")
    champion_number = models.PositiveIntegerField(null=True, help_text="version it was compared with")
    mlflow_run_id = models.CharField(max_length=64, blank=True)
    mlflow_model_id = models.CharField(max_length=64, blank=True)
    mlflow_version = models.PositiveIntegerField(null=True)
    mirrored_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("line", "number"), name="version_number_per_line")]
        indexes: ClassVar = [models.Index(fields=("snapshot_id",), name="version_by_snapshot")]
        ordering = ("-number",)

    def __str__(self) -> str:
        return f"v{self.number}"

    def topics(self) -> list[str]:
        return [f"{self.line.code}.version.{self.pk}", f"{self.line.code}.versions"]


class TrackingEntry(Row):
    """One write that MLflow still owes us (outbox): done when `done_at` is set; tried again until then."""

    class Kind(models.TextChoices):
        LOG_VERSION = "LOG_VERSION"
        SET_CHAMPION = "SET_CHAMPION"

    kind = models.CharField(max_length=16, choices=Kind)
    version = models.ForeignKey(Version, on_delete=models.PROTECT, related_name="tracking_entries")
    tries = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True)
    next_try_at = models.DateTimeField(auto_now_add=True)
    done_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("created_at",)


# ------------------------------------------------------------------------------------------ promotions and releases


class Promotion(Aggregate):
    """A request to release a version for its line, with a reason."""

    class State(models.TextChoices):
        REQUESTED = "REQUESTED", _("requested")
        APPROVED = "APPROVED", _("approved")
        REJECTED = "REJECTED", _("rejected")
        WITHDRAWN = "WITHDRAWN", _("withdrawn")
        EXPIRED = "EXPIRED", _("expired")
        VOIDED = "VOIDED", _("voided")

    MOVES: ClassVar[Moves] = {
        "REQUESTED": ("APPROVED", "REJECTED", "WITHDRAWN", "EXPIRED", "VOIDED"),
        "APPROVED": (),
        "REJECTED": (),
        "WITHDRAWN": (),
        "EXPIRED": (),
        "VOIDED": (),
    }

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="promotions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=State, default=State.REQUESTED)
    version = models.ForeignKey(Version, on_delete=models.PROTECT, related_name="promotions")
    manifest_digest = models.CharField(max_length=64, help_text="what is asked for, and what an approval binds")
    reason = models.TextField()
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=("line",), condition=models.Q(state="REQUESTED"), name="one_open_promotion_per_line"
            )
        ]
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"P-{self.number:04d}"

    def topics(self) -> list[str]:
        return [f"{self.line.code}.promotion.{self.pk}", f"{self.line.code}.promotions"]


class Approval(Row):
    """One person's answer to a promotion, bound to the manifest digest that they saw."""

    class Meaning(models.TextChoices):
        APPROVE = "APPROVE", _("approve")
        REJECT = "REJECT", _("reject")

    promotion = models.ForeignKey(Promotion, on_delete=models.PROTECT, related_name="approvals")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    meaning = models.CharField(max_length=8, choices=Meaning)
    reason = models.TextField(blank=True)
    manifest_digest = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("promotion", "by"), name="one_answer_per_person")]
        ordering = ("created_at",)


class Release(Aggregate):
    """The numbered thing that devices of a line may install. Numbers rise for ever; going back is a new number."""

    class State(models.TextChoices):
        PUBLISHED = "PUBLISHED", _("published")
        SUPERSEDED = "SUPERSEDED", _("superseded")
        REVOKED = "REVOKED", _("revoked")

    MOVES: ClassVar[Moves] = {"PUBLISHED": ("SUPERSEDED", "REVOKED"), "SUPERSEDED": (), "REVOKED": ()}

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="releases")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=State, default=State.PUBLISHED)
    version = models.ForeignKey(Version, on_delete=models.PROTECT, related_name="releases")
    promotion = models.OneToOneField(Promotion, on_delete=models.PROTECT, related_name="release")
    manifest_digest = models.CharField(max_length=64)
    manifest_bytes = models.PositiveIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("line", "number"), name="release_number_per_line"),
            models.UniqueConstraint(
                fields=("line",), condition=models.Q(state="PUBLISHED"), name="one_published_release_per_line"
            ),
        ]
        ordering = ("-number",)

    def __str__(self) -> str:
        return f"R-{self.number:03d}"

    def topics(self) -> list[str]:
        return [f"{self.line.code}.release.{self.pk}", f"{self.line.code}.rollouts"]


# ------------------------------------------------------------------------------------------------ rollouts


class Rollout(Aggregate):
    """Shipping one release to a frozen set of devices, in stages."""

    class State(models.TextChoices):
        DRAFTED = "DRAFTED", _("drafted")
        SCHEDULED = "SCHEDULED", _("scheduled")
        RUNNING = "RUNNING", _("running")
        PAUSED = "PAUSED", _("paused")
        COMPLETED = "COMPLETED", _("completed")
        COMPLETED_WITH_EXCEPTIONS = "COMPLETED_WITH_EXCEPTIONS", _("completed with exceptions")
        STOPPED = "STOPPED", _("stopped")
        REVERTED = "REVERTED", _("reverted")

    MOVES: ClassVar[Moves] = {
        "DRAFTED": ("SCHEDULED", "RUNNING"),
        "SCHEDULED": ("RUNNING", "STOPPED"),
        "RUNNING": ("PAUSED", "COMPLETED", "COMPLETED_WITH_EXCEPTIONS", "STOPPED", "REVERTED"),
        "PAUSED": ("RUNNING", "STOPPED", "REVERTED"),
        "COMPLETED": (),
        "COMPLETED_WITH_EXCEPTIONS": (),
        "STOPPED": (),
        "REVERTED": (),
    }

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="rollouts")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=32, choices=State, default=State.DRAFTED)
    release = models.ForeignKey(Release, on_delete=models.PROTECT, related_name="rollouts")
    started_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    pause_sentence = models.JSONField(default=dict, help_text="why it is paused: {text, params}")

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"RO-{self.number:04d}"

    def topics(self) -> list[str]:
        return [f"{self.line.code}.rollout.{self.pk}", f"{self.line.code}.rollouts"]


class Stage(Aggregate):
    class State(models.TextChoices):
        WAITING = "WAITING", _("waiting")
        RUNNING = "RUNNING", _("running")
        SOAKING = "SOAKING", _("soaking")
        PASSED = "PASSED", _("passed")
        FAILED = "FAILED", _("failed")
        SKIPPED = "SKIPPED", _("skipped")

    MOVES: ClassVar[Moves] = {
        "WAITING": ("RUNNING", "SKIPPED"),
        "RUNNING": ("SOAKING", "FAILED"),
        "SOAKING": ("PASSED", "FAILED"),
        "PASSED": (),
        "FAILED": (),
        "SKIPPED": (),
    }

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="stages")
    index = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=40)
    state = models.CharField(max_length=16, choices=State, default=State.WAITING)
    success_share = models.FloatField(default=1.0, help_text="committed of attempted that must be reached")
    error_share = models.FloatField(default=0.0, help_text="failed of attempted above which the rollout pauses")
    soak_s = models.PositiveIntegerField(default=0)
    deadline_s = models.PositiveIntegerField(default=24 * 3600)
    started_at = models.DateTimeField(null=True)
    soaking_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("rollout", "index"), name="stage_index_per_rollout")]
        ordering = ("index",)

    def __str__(self) -> str:
        return f"{self.rollout} {self.name}"

    @property
    def line(self) -> Line:
        return self.rollout.line

    def topics(self) -> list[str]:
        return self.rollout.topics()


class Deployment(Aggregate):
    """One device's part of a rollout. COMMITTED is only ever set by the device's own signed report."""

    class State(models.TextChoices):
        PENDING = "PENDING", _("pending")
        OFFERED = "OFFERED", _("offered")
        DOWNLOADING = "DOWNLOADING", _("downloading")
        VERIFIED = "VERIFIED", _("verified")
        STAGED = "STAGED", _("staged")
        PROBATION = "PROBATION", _("probation")
        COMMITTED = "COMMITTED", _("committed")
        REFUSED = "REFUSED", _("refused")
        FAILED = "FAILED", _("failed")
        FELL_BACK = "FELL_BACK", _("fell back")
        EXPIRED = "EXPIRED", _("expired")
        SUPERSEDED = "SUPERSEDED", _("superseded")

    ENDS = ("REFUSED", "FAILED", "FELL_BACK", "EXPIRED", "SUPERSEDED")
    UNDER_WAY = ("PENDING", "OFFERED", "DOWNLOADING", "VERIFIED", "STAGED", "PROBATION")
    MOVES: ClassVar[Moves] = {
        "PENDING": ("OFFERED", *ENDS),
        "OFFERED": ("DOWNLOADING", *ENDS),
        "DOWNLOADING": ("VERIFIED", *ENDS),
        "VERIFIED": ("STAGED", *ENDS),
        "STAGED": ("PROBATION", *ENDS),
        "PROBATION": ("COMMITTED", *ENDS),
        "COMMITTED": ("FELL_BACK",),
        "REFUSED": (),
        "FAILED": (),
        "FELL_BACK": (),
        "EXPIRED": (),
        "SUPERSEDED": (),
    }

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="deployments")
    stage = models.ForeignKey(Stage, on_delete=models.CASCADE, related_name="deployments")
    device = models.ForeignKey(Device, on_delete=models.PROTECT, related_name="deployments")
    state = models.CharField(max_length=16, choices=State, default=State.PENDING)
    sequence = models.PositiveBigIntegerField(default=0, help_text="highest report number taken from the device")
    loaded_digest = models.CharField(max_length=64, blank=True)
    delivered_bytes = models.BigIntegerField(default=0)
    base_bytes = models.BigIntegerField(default=0)
    code = models.CharField(max_length=64, blank=True, help_text="why it ended without a commit, as the device says")
    params = models.JSONField(default=dict)
    offered_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("rollout", "device"), name="one_deployment_per_rollout_and_device"),
            models.UniqueConstraint(
                fields=("device",),
                condition=models.Q(state__in=("PENDING", "OFFERED", "DOWNLOADING", "VERIFIED", "STAGED", "PROBATION")),
                name="one_deployment_under_way_per_device",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.rollout} {self.device}"

    @property
    def line(self) -> Line:
        return self.device.line

    def topics(self) -> list[str]:
        return [*self.rollout.topics(), *self.device.topics()]


class DeploymentStep(models.Model):
    """History of a deployment: every report that was taken, in order."""

    id = models.BigAutoField(primary_key=True)
    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="steps")
    at = models.DateTimeField(auto_now_add=True)
    state = models.CharField(max_length=16)
    sequence = models.PositiveBigIntegerField(default=0)
    code = models.CharField(max_length=64, blank=True)
    params = models.JSONField(default=dict)

    class Meta:
        ordering = ("id",)
