"""The web face: the only package that knows HTTP, sessions, forms and templates."""

# Tasks declared with shared_task publish through whichever application exists first: this one, in every process.
from console.celery import app as celery_app

__all__ = ["celery_app"]
