"""Fixtures of the console's tests: a world in a transaction, and clients that are signed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from django.test import Client

    from tests.console.world import World


@pytest.fixture
def world(db: None, tmp_path: Path, settings: Any) -> World:
    """One line with people and pictures, and a second one with a stranger; rolled back after the test."""
    from tests.console import world as worlds  # models: only once Django is set up

    settings.BLOB_ROOT, settings.JOBS_ROOT = tmp_path / "blobs", tmp_path / "jobs"
    return worlds.make(tmp_path)


@pytest.fixture
def signed_in() -> Callable[..., Client]:
    """A client that a person is signed in with."""
    from django.test import Client

    def sign_in(person: Any) -> Client:
        client = Client()
        client.force_login(person)
        return client

    return sign_in
