"""Rows that make versions: captures and decisions, snapshots and golden sets, jobs and their attempts.

A model with a life has `State` and a `MOVES` table; only `lifecycle.move` changes a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.utils.translation import gettext_lazy as _
from pgvector.django import HalfVectorField, HnswIndex

from registry.models import Aggregate, DefectClass, Device, Line, Row, Station, Version

if TYPE_CHECKING:
    from registry.models import Moves


class Verdict(models.TextChoices):
    """What a model or a person says of a part. REVIEW is a device's doubt; a person never decides it."""

    OK = "OK", "OK"
    NG = "NG", "NG"
    REVIEW = "REVIEW", "RV"


IN_QUEUE = models.Q(state__in=("NEW", "DISPUTED", "RETRACTED"), reserved=False)  # a capture that waits for a person


class Capture(Aggregate):
    """One picture: original bytes by digest, what the model said, why it was flagged, and where it comes from."""

    class State(models.TextChoices):
        NEW = "NEW", _("undecided")
        DECIDED = "DECIDED", _("decided")
        DISPUTED = "DISPUTED", _("disputed")
        RETRACTED = "RETRACTED", _("retracted")

    class Reason(models.TextChoices):
        BAND = "band", _("in the review band")
        AUDIT = "audit", _("audit sample")
        OPERATOR = "operator", _("asked by an operator")
        NO_MODEL = "no_model", _("no model on the device yet")
        IMPORT = "import", _("imported")

    MOVES: ClassVar[Moves] = {
        "NEW": ("DECIDED", "DISPUTED"),
        "DISPUTED": ("DECIDED", "NEW"),  # back: the opinion that differed was taken back
        "DECIDED": ("RETRACTED",),
        "RETRACTED": ("DECIDED", "DISPUTED"),
    }
    OPEN = ("NEW", "DISPUTED", "RETRACTED")  # in the queue

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="captures")
    station = models.ForeignKey(Station, on_delete=models.PROTECT, null=True, related_name="+")
    device = models.ForeignKey(Device, on_delete=models.PROTECT, null=True, related_name="captures")
    device_capture_id = models.CharField(max_length=80, blank=True)
    state = models.CharField(max_length=16, choices=State, default=State.NEW)
    digest = models.CharField(max_length=64, db_index=True)
    size_bytes = models.PositiveIntegerField()
    width = models.PositiveIntegerField()
    height = models.PositiveIntegerField()
    mode = models.CharField(max_length=16)
    file_name = models.CharField(max_length=255, blank=True)

    lot = models.CharField(max_length=80, blank=True)
    serial = models.CharField(max_length=80, blank=True)
    part = models.CharField(max_length=80, blank=True)
    product = models.CharField(max_length=80, blank=True)
    shift = models.CharField(max_length=16, blank=True)
    taken_at = models.DateTimeField(null=True)
    received_at = models.DateTimeField(auto_now_add=True)

    reason = models.CharField(max_length=16, choices=Reason)
    sampling_weight = models.FloatField(default=1.0)
    blind = models.BooleanField(
        default=False, db_default=False, help_text="people judge it before they see the machine's answer"
    )
    release_number = models.PositiveIntegerField(null=True)
    verdict = models.CharField(max_length=8, choices=Verdict, blank=True)
    score = models.FloatField(null=True, help_text="1 - p(OK), as the device said")
    prediction = models.JSONField(default=dict, help_text="probabilities, thresholds, coarse activation map")
    predicted_class = models.PositiveIntegerField(null=True, help_text="number of the most probable class; 0 = OK")
    doubt = models.FloatField(default=1.0, help_text="1 in the middle of the review band or unjudged, 0 at its far end")
    urgent = models.BooleanField(default=False, help_text="the device saw a class that was critical when it arrived")

    claimed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    claimed_until = models.DateTimeField(null=True)
    second_look = models.BooleanField(default=False)
    opinions = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="how many stand, where a line asks for several"
    )
    disagreed = models.BooleanField(
        default=False, db_default=False, help_text="the opinions differ: an adjudicator decides"
    )
    reserved = models.BooleanField(default=False, help_text="in a golden set: never trained on")
    decision = models.ForeignKey("Decision", on_delete=models.PROTECT, null=True, related_name="+")
    decided_class = models.PositiveIntegerField(null=True, help_text="main class of the standing decision; 0 = OK")
    embedded = models.BooleanField(default=False, db_default=False, help_text="has its row of features, good or bad")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=("device", "device_capture_id"),
                condition=models.Q(device__isnull=False),
                name="device_capture_once",
            ),
            models.UniqueConstraint(
                fields=("line", "digest"), condition=models.Q(device__isnull=True), name="import_once_per_line"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=("line", "state", "received_at", "id"), name="capture_by_state"),
            models.Index(fields=("line", "received_at", "id"), condition=IN_QUEUE, name="capture_open"),
            models.Index(fields=("line", "-doubt", "id"), condition=IN_QUEUE, name="capture_open_by_doubt"),
            models.Index(fields=("line", "-urgent", "id"), condition=IN_QUEUE, name="capture_open_by_urgency"),
            models.Index(
                fields=("line", "id"), condition=IN_QUEUE & models.Q(opinions__gt=0), name="capture_open_said"
            ),
            models.Index(fields=("line", "taken_at"), condition=models.Q(reason="audit"), name="capture_audit_sample"),
            models.Index(fields=("line", "taken_at"), condition=models.Q(decided_class__gt=0), name="capture_defects"),
            models.Index(fields=("line", "lot"), name="capture_lot"),
            models.Index(fields=("line", "serial"), name="capture_serial"),
            models.Index(
                fields=("line", "-received_at", "-id"), condition=models.Q(embedded=False), name="capture_unembedded"
            ),
            models.Index(
                fields=("line", "decided_class", "received_at", "id"),
                condition=models.Q(decided_class__isnull=False),
                name="capture_by_class",
            ),
        ]

    def __str__(self) -> str:
        return self.serial or self.device_capture_id or str(self.pk)

    def topics(self) -> list[str]:
        return [f"{self.line.code}.captures"]

    @property
    def masked(self) -> bool:
        """Is the machine's answer kept from whoever has yet to judge it?"""
        return self.blind and self.state in self.OPEN


class Decision(Row):
    """What a person said of a capture at one moment. Rows are only added; an undo is a row of its own."""

    class Kind(models.TextChoices):
        DECIDED = "DECIDED", _("decided")
        RETRACTED = "RETRACTED", _("taken back")
        SKIPPED = "SKIPPED", _("skipped")
        UNSKIPPED = "UNSKIPPED", _("skip taken back")
        SECOND_LOOK = "SECOND_LOOK", _("asked for a second look")
        OPINION = "OPINION", _("one opinion of several")
        OPINION_BACK = "OPINION_BACK", _("opinion taken back")
        SETTLED = "SETTLED", _("decided by the opinions that were there")
        MERGED = "MERGED", _("class merged")
        UNMERGED = "UNMERGED", _("merge of the class undone")

    SAID = ("DECIDED", "OPINION", "SETTLED")  # kinds that say what the part is

    capture = models.ForeignKey(Capture, on_delete=models.PROTECT, related_name="decisions")
    kind = models.CharField(max_length=16, choices=Kind, default=Kind.DECIDED)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    verdict = models.CharField(max_length=8, choices=Verdict, blank=True)
    classes = ArrayField(models.PositiveIntegerField(), default=list, help_text="defect class numbers; empty for OK")
    regions = models.JSONField(default=list, help_text='[{"number", "kind", "points"}], pixels of the upright picture')
    comment = models.TextField(blank=True)
    batch = models.UUIDField(null=True, help_text="decided or merged together: undone together")
    replaces = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, related_name="+", db_index=False, help_text="stood before a merge"
    )
    predicted = models.JSONField(default=dict, help_text="what the reviewer was shown of the prediction")

    class Meta:
        ordering = ("created_at", "id")
        indexes: ClassVar = [
            models.Index(fields=("by", "-created_at"), name="decision_by_person"),
            models.Index(
                fields=("created_at", "capture"), condition=models.Q(kind="RETRACTED"), name="decision_taken_back"
            ),
            models.Index(fields=("batch",), condition=models.Q(batch__isnull=False), name="decision_by_batch"),
            GinIndex(fields=("classes",), name="decision_by_class"),
        ]


class Opinion(Row):
    """What one person says of a capture on a line that asks for several, as long as it counts. Its Decision is history;
    this row goes when it is taken back, or when the picture is to be judged anew."""

    capture = models.ForeignKey(Capture, on_delete=models.CASCADE, related_name="opinion_rows")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    decision = models.OneToOneField(Decision, on_delete=models.PROTECT, related_name="opinion")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("capture", "by"), name="opinion_once_per_person")]
        indexes: ClassVar = [models.Index(fields=("by", "-created_at"), name="opinion_by_person")]
        ordering = ("created_at", "id")


class Check(Row):
    """A picture with a known answer that a person is given among ordinary ones: of a golden set, or their own earlier
    one again. Answering it changes nothing but this row."""

    class Kind(models.TextChoices):
        KNOWN = "known", _("known answer")
        REPEAT = "repeat", _("blind repeat")

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=8, choices=Kind)
    capture = models.ForeignKey(Capture, on_delete=models.PROTECT, related_name="checks")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    beside = models.UUIDField(help_text="the waiting capture with which it was drawn: one draw per capture and person")
    verdict = models.CharField(max_length=8, choices=Verdict)
    classes = ArrayField(models.PositiveIntegerField(), default=list)
    answered_at = models.DateTimeField(null=True)
    skipped_at = models.DateTimeField(null=True)
    answered_verdict = models.CharField(
        max_length=8, choices=Verdict, blank=True, help_text="empty when the person asked for a second look instead"
    )
    answered_classes = ArrayField(models.PositiveIntegerField(), default=list)
    answered_regions = models.JSONField(default=list)
    comment = models.TextField(blank=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("by", "beside"), name="one_draw_per_person")]
        indexes: ClassVar = [models.Index(fields=("line", "by", "answered_at"), name="check_by_person")]


class Draft(Row):
    """What one person has drawn and typed on a capture and not yet decided; gone with their decision."""

    capture = models.ForeignKey(Capture, on_delete=models.CASCADE, related_name="drafts")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    data = models.JSONField(default=dict, help_text='{"regions", "comment", "tab": which page saved it}')
    row_version = models.PositiveBigIntegerField(default=1, help_text="rises with each save: two tabs see each other")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("capture", "by"), name="draft_once_per_person")]


class Embedding(models.Model):
    """What a picture is compared by: a vector of the base model, and a small grey copy of the picture.

    `basis` names everything that both depend on; only rows of one basis are comparable. Without a vector, `problem`
    says why the picture cannot be compared.
    """

    DIMS = 256

    capture = models.OneToOneField(Capture, on_delete=models.CASCADE, primary_key=True, related_name="embedding")
    line = models.ForeignKey(Line, on_delete=models.CASCADE, related_name="+", db_index=False)
    basis = models.CharField(max_length=64)
    vector = HalfVectorField(dimensions=DIMS, null=True)
    grey = models.BinaryField(null=True)
    problem = models.CharField(max_length=32, blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=("line", "basis"), name="embedding_by_basis"),
            HnswIndex(fields=("vector",), name="embedding_nearest", opclasses=("halfvec_cosine_ops",)),
            models.Index(fields=("line",), condition=~models.Q(problem=""), name="embedding_problems"),
        ]


class NearDuplicate(models.Model):
    """Two captures of a line that show the same picture in other bytes. `a` has the smaller id."""

    line = models.ForeignKey(Line, on_delete=models.CASCADE, related_name="+")
    a = models.ForeignKey(Capture, on_delete=models.CASCADE, related_name="+")
    b = models.ForeignKey(Capture, on_delete=models.CASCADE, related_name="+")
    similarity = models.FloatField(help_text="share of one grey copy that the other explains, 0 to 1")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("a", "b"), name="near_duplicate_once")]


class ClassExample(Row):
    """A picture that shows in the defect book what a class looks like, as long as it is decided so."""

    entry = models.ForeignKey(DefectClass, on_delete=models.PROTECT, related_name="examples")
    capture = models.ForeignKey(Capture, on_delete=models.CASCADE, related_name="example_of")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("entry", "capture"), name="example_once_per_class")]
        ordering = ("created_at", "id")


class ClassMerge(Row):
    """One class of the defect book merged into another, and its undo. Its key is the batch of the decisions."""

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="class_merges")
    source = models.ForeignKey(DefectClass, on_delete=models.PROTECT, related_name="+")
    target = models.ForeignKey(DefectClass, on_delete=models.PROTECT, related_name="+")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    reason = models.TextField()
    moved = models.PositiveIntegerField(default=0, help_text="decisions that named the source")
    undone_at = models.DateTimeField(null=True)
    undone_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    restored = models.PositiveIntegerField(default=0, help_text="of the moved ones: as before; the rest had changed")

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.source.code} -> {self.target.code}"

    @property
    def left(self) -> int:
        """After an undo: decisions that somebody had changed since the merge."""
        return self.moved - self.restored


class Explanation(Row):
    """What a version says of a capture when somebody asks: for pictures that no device judged, or another one did.

    The row is the queue entry; computing it twice does no harm, the first answer stays.
    """

    capture = models.ForeignKey(Capture, on_delete=models.CASCADE, related_name="explanations")
    version = models.ForeignKey(Version, on_delete=models.PROTECT, related_name="+")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    tries = models.PositiveSmallIntegerField(default=0)
    woken_at = models.DateTimeField(null=True)
    done_at = models.DateTimeField(null=True)
    answer = models.JSONField(default=dict, help_text="probabilities by the version's class table, score, map")
    failure = models.JSONField(default=dict, help_text="why there is no answer: {text, params}")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("capture", "version"), name="explained_once_per_version")
        ]
        indexes: ClassVar = [
            models.Index(fields=("created_at",), condition=models.Q(done_at=None), name="explanation_waiting")
        ]


class GoldenSet(Row):
    """Captures that are never trained on and that every version is compared on. The leading one is shown first."""

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="golden_sets")
    code = models.SlugField(max_length=32)
    number = models.PositiveIntegerField(default=1, help_text="edition of this set")
    name_ko = models.CharField(max_length=120)
    name_en = models.CharField(max_length=120)
    leads = models.BooleanField(default=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    expires_at = models.DateTimeField()
    retired_at = models.DateTimeField(null=True)
    digest = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("line", "code", "number"), name="golden_edition_per_line")
        ]
        ordering = ("-leads", "code")

    def __str__(self) -> str:
        return self.code


class GoldenItem(models.Model):
    golden_set = models.ForeignKey(GoldenSet, on_delete=models.CASCADE, related_name="items")
    capture = models.ForeignKey(Capture, on_delete=models.PROTECT, related_name="golden_items")
    label = models.PositiveIntegerField(help_text="defect class number; 0 = OK")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("golden_set", "capture"), name="capture_once_per_golden_set")
        ]


class Snapshot(Row):
    """An immutable list of (capture, decision, split) with its digest and class table. It has no life."""

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="snapshots")
    number = models.PositiveIntegerField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the manifest blob")
    rule = models.JSONField(help_text="what was asked for: products, splits, seed")
    classes = models.JSONField(help_text="class table as at freezing, OK first")
    counts = models.JSONField(help_text='{"train": {"0": n, "1": n}, ...} and lots per split')
    warnings = models.JSONField(default=list, help_text="sentences: {text, params}")
    frozen_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"S-{self.number:04d}"

    def topics(self) -> list[str]:
        return [f"{self.line.code}.snapshots"]


class SnapshotItem(models.Model):
    class Split(models.TextChoices):
        TRAIN = "train", _("train")
        VAL = "val", _("validation")
        TEST = "test", _("test")

    snapshot = models.ForeignKey(Snapshot, on_delete=models.CASCADE, related_name="items")
    capture = models.ForeignKey(Capture, on_delete=models.PROTECT, related_name="snapshot_items")
    decision = models.ForeignKey(Decision, on_delete=models.PROTECT, related_name="snapshot_items")
    split = models.CharField(max_length=8, choices=Split)
    label = models.PositiveIntegerField(help_text="defect class number; 0 = OK")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=("snapshot", "capture"), name="capture_once_per_snapshot")
        ]


class Job(Aggregate):
    """One requested training. The row is the queue entry; its lease and fence decide who may write for it."""

    class State(models.TextChoices):
        QUEUED = "QUEUED", _("queued")
        RUNNING = "RUNNING", _("running")
        CANCELLING = "CANCELLING", _("cancelling")
        SUCCEEDED = "SUCCEEDED", _("succeeded")
        FAILED = "FAILED", _("failed")
        CANCELLED = "CANCELLED", _("cancelled")
        POISONED = "POISONED", _("poisoned")

    MOVES: ClassVar[Moves] = {
        "QUEUED": ("RUNNING", "CANCELLED"),
        "RUNNING": ("SUCCEEDED", "FAILED", "CANCELLING", "QUEUED", "POISONED"),
        "CANCELLING": ("CANCELLED",),
        "SUCCEEDED": (),
        "FAILED": (),
        "CANCELLED": (),
        "POISONED": (),
    }
    ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "POISONED")

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="jobs")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=State, default=State.QUEUED)
    snapshot = models.ForeignKey(Snapshot, on_delete=models.PROTECT, related_name="jobs")
    parent = models.ForeignKey(Version, on_delete=models.PROTECT, null=True, related_name="+", help_text="continued")
    champion = models.ForeignKey(
        Version, on_delete=models.PROTECT, null=True, related_name="+", help_text="compared with"
    )
    config = models.JSONField(help_text="recipe config: mode, lora, train, seed")
    submitted_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    fence = models.PositiveIntegerField(
        default=0, help_text="rises with each claim; a stale holder's writes are refused"
    )
    deaths = models.PositiveSmallIntegerField(default=0)
    lease_until = models.DateTimeField(null=True)
    woken_at = models.DateTimeField(null=True)
    cancel_asked_at = models.DateTimeField(null=True)
    cancel_asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    progress = models.JSONField(default=dict, help_text="last phase and step: what the page shows in figures")
    failure = models.JSONField(default=dict, help_text="why it ended badly: {text, params}")
    version = models.ForeignKey(Version, on_delete=models.PROTECT, null=True, related_name="+")

    class Meta:
        ordering = ("-created_at",)
        indexes: ClassVar = [models.Index(fields=("state", "created_at"), name="job_queue")]

    def __str__(self) -> str:
        return f"J-{self.number:04d}"

    def topics(self) -> list[str]:
        return [f"{self.line.code}.job.{self.pk}", f"{self.line.code}.jobs"]


class Attempt(Row):
    """One try of a job on one worker. (pgid, start time, boot id) name its process group beyond doubt."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts")
    fence = models.PositiveIntegerField()
    worker = models.CharField(max_length=120)
    pgid = models.PositiveIntegerField(null=True)
    process_started = models.CharField(max_length=32, blank=True, help_text="start time in clock ticks since boot")
    boot_id = models.CharField(max_length=40, blank=True)
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(
        max_length=24, blank=True, help_text="succeeded, failed, cancelled, died, lease_lost, stopped"
    )

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("job", "fence"), name="attempt_per_fence")]
        ordering = ("fence",)


class JobPoint(models.Model):
    """One point of a job's curve. `seq` is the page's cursor; it rises under the job's lease, one writer at a time."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="points")
    fence = models.PositiveIntegerField()
    seq = models.PositiveIntegerField()
    at = models.DateTimeField(auto_now_add=True)
    step = models.PositiveIntegerField(null=True)
    epoch = models.FloatField(null=True)
    loss = models.FloatField(null=True)
    val_loss = models.FloatField(null=True)
    pictures_per_s = models.FloatField(null=True)
    escapes = models.JSONField(null=True, help_text="[n, of] on validation")
    overkills = models.JSONField(null=True, help_text="[n, of] on validation")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("job", "seq"), name="point_once_per_seq")]
        ordering = ("seq",)


class Transfer(Aggregate):
    """Annotated pictures on their way in or out. The row is the queue entry, like a job's; an uploaded archive waits in
    it, looked at but not run, until a person confirms it."""

    class Kind(models.TextChoices):
        IMPORT = "import", _("import")
        EXPORT = "export", _("export")

    class State(models.TextChoices):
        QUEUED = "QUEUED", _("queued")
        RUNNING = "RUNNING", _("running")
        DONE = "DONE", _("done")
        FAILED = "FAILED", _("failed")
        CANCELLED = "CANCELLED", _("cancelled")

    MOVES: ClassVar[Moves] = {
        "QUEUED": ("RUNNING", "CANCELLED"),
        "RUNNING": ("DONE", "FAILED", "QUEUED", "CANCELLED"),
        "DONE": (),
        "FAILED": (),
        "CANCELLED": (),
    }
    ENDED = ("DONE", "FAILED", "CANCELLED")

    line = models.ForeignKey(Line, on_delete=models.PROTECT, related_name="transfers")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=State, default=State.QUEUED)
    kind = models.CharField(max_length=8, choices=Kind)
    format = models.CharField(max_length=16, blank=True, help_text="code of training.formats, manifest or pictures")
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    snapshot = models.ForeignKey(Snapshot, on_delete=models.PROTECT, null=True, related_name="transfers")
    options = models.JSONField(default=dict, help_text="export: selection, with_pictures, first_id")
    digest = models.CharField(max_length=64, blank=True, help_text="of the archive that came in or was made")
    size_bytes = models.PositiveBigIntegerField(null=True)
    file_name = models.CharField(max_length=255, blank=True, help_text="as the uploader's machine called it")
    look = models.JSONField(default=dict, help_text="what importing would do, counted before anybody confirms")
    progress = models.JSONField(default=dict, help_text="phase, done, of; after: last picture that was recorded")
    report = models.JSONField(default=dict, help_text="what became of the pictures")
    failure = models.JSONField(default=dict, help_text="why it ended badly: {text, params}")
    confirmed_at = models.DateTimeField(null=True)
    fence = models.PositiveIntegerField(default=0, help_text="rises with each claim, as a job's does")
    deaths = models.PositiveSmallIntegerField(default=0)
    lease_until = models.DateTimeField(null=True)
    woken_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-created_at",)
        indexes: ClassVar = [models.Index(fields=("state", "created_at"), name="transfer_queue")]

    def __str__(self) -> str:
        return f"T-{self.number:04d}"

    def topics(self) -> list[str]:
        return [f"{self.line.code}.transfer.{self.pk}", f"{self.line.code}.transfers"]
