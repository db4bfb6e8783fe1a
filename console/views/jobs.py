"""Training jobs: the list, asking for one, and watching one from queue to version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpResponse, JsonResponse
from django.urls import reverse
from django.utils import timezone

from console.facts import jobs as facts
from console.facts import snapshots as snapshot_facts
from console.forms import JobForm
from console.http import acting_lines, go, page, render
from console.parts import changed, show, why_not_on
from registry import versions
from training import jobs
from training.models import Job
from training.recipe.config import DEFAULTS

if TYPE_CHECKING:
    from console.http import Request

TEMPLATE = "jobs/detail.html"


@page("line.view")
def index(request: Request) -> HttpResponse:
    lines = acting_lines(request, "line.view")
    context = {
        "jobs": facts.listing(lines, request.GET.get("after", "")),
        "topics": " ".join(f"{line.code}.jobs" for line in lines),
        "why_new": why_not_on(request, "job.submit"),
    }
    return show(request, "jobs/list.html", context, parts=("rows",))


@page("job.submit", methods="GET POST")
def new(request: Request) -> HttpResponse:
    lines = acting_lines(request, "job.submit")
    chosen = snapshot_facts.asked_for(lines, request.GET.get("snapshot") or request.POST.get("snapshot", ""))
    if chosen is None:
        return render(request, "jobs/choose.html", {"snapshots": facts.snapshots_to_train(lines)})
    champion = versions.champion(chosen.line)
    form = JobForm(request.POST or None, modes=facts.modes(champion), defaults=DEFAULTS)
    if request.method == "POST" and form.is_valid():
        job = jobs.submit(chosen, mode=form.cleaned_data["mode"], config_overrides=form.overrides(), by=request.user)
        return go(request, reverse("job-detail", args=[job.pk]))
    context = {"form": form, "champion": champion, **facts.asked(chosen, by=request.user)}
    return render(request, "jobs/new.html", context, status=422 if form.errors else 200)


@page("line.view", of=Job)
def detail(request: Request, job: Job) -> HttpResponse:
    return show(request, TEMPLATE, _context(request, job), parts=("now", "acts", "tail"))


@page("line.view", of=Job)
def points(request: Request, job: Job) -> HttpResponse:
    after = request.GET.get("after", "0")
    return JsonResponse(facts.curve(job, int(after) if after.isdecimal() and len(after) < 10 else 0))


@page("line.view", of=Job)
def log(request: Request, job: Job) -> HttpResponse:
    return HttpResponse(facts.whole_log(job), content_type="text/plain; charset=utf-8")


@page("job.cancel", of=Job, methods="POST")
def cancel(request: Request, job: Job) -> HttpResponse:
    jobs.cancel(job, by=request.user)
    return changed(request, reverse("job-detail", args=[job.pk]), TEMPLATE, lambda: _context(request, job))


@page("job.submit", of=Job, methods="POST")
def again(request: Request, job: Job) -> HttpResponse:
    return go(request, reverse("job-detail", args=[jobs.requeue(job, by=request.user).pk]))


def _context(request: Request, job: Job) -> dict[str, Any]:
    return {"job": job, **facts.detail(job, by=request.user, now=timezone.now())}
