"""Rows and bytes for a console that runs: committed to its database and store by a test that drives it from outside."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Running

T = TypeVar("T")


def on(running: Running, blocker: Any, work: Callable[[], T]) -> T:
    """What `work` returns, done in the running console's database and blob store.

    In a thread of its own: a test with a browser has an event loop, in which Django refuses the database.
    """

    def there() -> T:
        kept = settings.BLOB_ROOT
        settings.BLOB_ROOT = running.state / "blobs"
        try:
            with blocker.unblock(), running.database():
                return work()
        finally:
            settings.BLOB_ROOT = kept

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(there).result()
