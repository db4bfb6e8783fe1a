"""Human numbers per site and noun (J-0424), given in order of asking; a rolled-back transaction gives its own back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connection

if TYPE_CHECKING:
    from registry.models import Site

NEXT = """
    INSERT INTO registry_numbering (site_id, noun, last) VALUES (%s, %s, 1)
    ON CONFLICT (site_id, noun) DO UPDATE SET last = registry_numbering.last + 1
    RETURNING last
"""


def next_number(site: Site, noun: str) -> int:
    """The next number of this noun at this site, from 1. Holds the noun's row until the transaction ends: ask late."""
    with connection.cursor() as cursor:
        cursor.execute(NEXT, [site.pk, noun])
        return int(cursor.fetchone()[0])
