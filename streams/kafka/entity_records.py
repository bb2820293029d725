"""Entity upserts as records of their topic: made of a round's changes, read again."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from turnstate.agents.tiering.entities import (
    VERSIONS_AN_UPSERT,
    EntityUpsert,
    entity_upserts,
)
from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.tier import SessionChange
from turnstate.streams.kafka.records import TRACEPARENT, headers_of

INCARNATION: Final = "incarnation"
BOUNDARY: Final = "boundary"
VERSION: Final = "version"
"""Headers of a record; with its key the first two name the upsert."""

EntityRow = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
"""Key, value and headers of a record to send."""


def entity_rows(
    changes: Sequence[SessionChange], traces: Mapping[int, str]
) -> list[EntityRow]:
    """Return the records that a round's changes lead to; most lead to none.

    They go out with the frames, before the changelog: so no state is ever
    restored whose entity was not told, and turns that come again tell it again
    (docs/decisions/0016-entities-go-with-the-frames.md).

    Args:
        changes: What was folded.
        traces: Offset of a turn → the trace that it came with.
    """
    rows: list[EntityRow] = []
    for change in changes:
        before, after = change.before.head, change.after.head
        if before.incarnation == after.incarnation and (
            before.version // VERSIONS_AN_UPSERT == after.version // VERSIONS_AN_UPSERT
        ):
            continue
        at = change.after.position
        trace = traces.get(at.offset) if at is not None else None
        rows += (
            entity_row(upsert, trace)
            for upsert in entity_upserts(change.before, change.after, change.key)
        )
    return rows


def entity_row(upsert: EntityUpsert, trace: str | None = None) -> EntityRow:
    """Return the record of an upsert; without a value it removes the entity.

    Example:
        >>> key, value, headers = entity_row(EntityUpsert(b"k", 2, 0, None))
        >>> value is None, headers
        (True, [('incarnation', b'2'), ('boundary', b'0'), ('version', b'0')])
    """
    told = (
        (INCARNATION, upsert.incarnation),
        (BOUNDARY, upsert.boundary),
        (VERSION, upsert.version),
    )
    headers = [(name, b"%d" % number) for name, number in told]
    if trace is not None:
        headers.append((TRACEPARENT, trace.encode()))
    return upsert.key, upsert.value, headers


def entity_of(record: Any) -> EntityUpsert:
    """Read a record of the topic of entities.

    Raises:
        CorruptDataError: it is none: no key, or not the headers of one.
    """
    headers = headers_of(record)
    try:
        incarnation, boundary, version = (
            int(headers[name]) for name in (INCARNATION, BOUNDARY, VERSION)
        )
    except (KeyError, ValueError) as error:
        raise CorruptDataError(
            f"a record of entities does not say what it is of: {error!r}"
        ) from error
    if record.key is None:
        raise CorruptDataError("a record of entities has no key")
    return EntityUpsert(record.key, incarnation, boundary, record.value, version)
