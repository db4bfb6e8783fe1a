"""Fixtures of training's tests: a plant in a transaction, and one on a database of its own where commits are real."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.training import plant as plants

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.training.plant import Plant


@pytest.fixture
def folders(tmp_path: Path, settings: Any) -> Path:
    """Blob store, cache and job folders of the test's own."""
    settings.BLOB_ROOT = tmp_path / "blobs"
    settings.CACHE_ROOT = tmp_path / "cache"
    settings.JOBS_ROOT = tmp_path / "jobs"
    return tmp_path


@pytest.fixture
def plant(db: None, folders: Path) -> Plant:
    """One line with people; rolled back after the test."""
    return plants.make()


@pytest.fixture
def real_database(cloned_database: str, folders: Path, django_db_blocker: Any, django_db_setup: None) -> Iterator[str]:
    """The default connection on a fresh clone: threads and processes see each other's commits. Yields its URL."""
    with django_db_blocker.unblock(), connected_to(cloned_database):
        yield cloned_database


@pytest.fixture
def real_plant(real_database: str) -> Plant:
    return plants.make()


@contextmanager
def connected_to(url: str) -> Iterator[None]:
    """Django's default connection, in every thread that connects from now on, to this database."""
    from django.db import connections

    parts = urlsplit(url)
    connection = connections["default"]
    before = dict(connection.settings_dict)
    connection.close()
    connection.settings_dict |= {"NAME": parts.path.lstrip("/"), "HOST": parse_qs(parts.query)["host"][0]}
    try:
        yield
    finally:
        connections.close_all()
        connection.settings_dict |= {"NAME": before["NAME"], "HOST": before["HOST"]}
