"""Events: what subscribers are told of one operation, and the tokens to resume by."""

import re
from typing import Any, Final, NamedTuple

from msgspec import UNSET, Raw

from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Op, target_of
from turnstate.storage.session_view import ShownTurn
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.documents import Document, turn_document

START: Final = "0"
"""The token that means: from the beginning of what is kept."""

_SESSION_TOKEN: Final = re.compile(r"(\d{1,15})-(\d{1,15})", re.ASCII)
_LOG_TOKEN: Final = re.compile(r"([0-9a-f]{1,128}):(\d{1,9}):(\d{1,18})", re.ASCII)


class Place(NamedTuple):
    """How far a subscriber of one session has come."""

    incarnation: int
    version: int

    def token(self) -> str:
        """Return the token that resumes after it.

        Example:
            >>> Place(1, 7).token()
            '1-7'
        """
        return f"{self.incarnation}-{self.version}"


def session_place(token: str) -> Place:
    """Read the token of one session.

    Raises:
        InvalidInputError: it is none.

    Example:
        >>> session_place("2-15")
        Place(incarnation=2, version=15)
    """
    if token == START:
        return Place(0, 0)
    match = _SESSION_TOKEN.fullmatch(token)
    if match is None:
        raise InvalidInputError(
            f"{token!r} is no token of a session",
            field="token",
            hint="send the token of its last event, as 1-15, or 0 for the beginning",
        )
    return Place(int(match[1]), int(match[2]))


def log_offset(token: str, identity: bytes, partition: int) -> int:
    """Read the offset out of a token of the log; -1 = before all.

    Raises:
        InvalidInputError: it is none, or one of another log.
    """
    if token == START:
        return -1
    match = _LOG_TOKEN.fullmatch(token)
    if match is None:
        raise InvalidInputError(
            f"{token!r} is no token of a log",
            field="token",
            hint="send the token of the last event, as log:partition:offset, or 0",
        )
    if match[1] != identity.hex() or int(match[2]) != partition:
        raise InvalidInputError(
            "the token is of another log",
            field="token",
            hint="this store was made anew since: begin at 0",
            code="other_log",
        )
    return int(match[3])


def event_document(
    store: WarmStore, key: bytes, head: Head, place: Place, op: Op, token: str
) -> Document:
    """Return the event of an operation, as every door sends it.

    What has been redacted since is hidden; an edit is an event of its own, so
    a turn is shown as it came.

    Args:
        store: Where turn ids are looked up.
        key: The session key.
        head: The newest head; says what is redacted.
        place: Where the operation stands.
        op: The operation.
        token: What resumes after it.
    """
    name = SessionName.from_key(key)
    return {
        "tenant": name.tenant,
        "session": name.session,
        "incarnation": place.incarnation,
        "version": place.version,
        "token": token,
        "turn": _turn(op, place.version, head)
        if op.body.op is None
        else _operation(store, key, op, place.version, head),
    }


def _turn(op: Op, version: int, head: Head) -> Document:
    twins = head.twins.get(op.turn_id or "")
    answers = (
        not twins
        or min(twins, key=lambda twin: twin.order).content_hash == op.content_hash
    )
    return turn_document(ShownTurn(op, version, None, op.dot in head.redacted, answers))


def _operation(
    store: WarmStore, key: bytes, op: Op, version: int, head: Head
) -> Document:
    hidden = op.body.op == "edit" and (
        op.dot in head.redacted or _target_is_redacted(store, key, op, head)
    )
    return operation_document(op, version, hidden=hidden)


def operation_document(op: Op, version: int, *, hidden: bool) -> Document:
    """Return an operation that is no turn; of a hidden edit not its text."""
    body = op.body
    document: dict[str, Any] = {
        "op": body.op,
        "turn_id": op.address(),
        "version": version,
        "dot": list(op.dot),
        "branch": op.branch,
        "parent": [p if isinstance(p, str) else p.address() for p in op.parents],
        "time": op.time,
    }
    for field in ("target", "to", "user"):
        value = getattr(body, field)
        if value is not None:
            document[field] = value
    if body.op == "edit":
        if hidden:
            document["redacted"] = True
            document["content"] = None
        elif body.parts is not None:
            document["content"] = Raw(body.parts)
        elif body.content is not UNSET:
            document["content"] = body.content
    return document


def _target_is_redacted(store: WarmStore, key: bytes, op: Op, head: Head) -> bool:
    if not head.redacted:
        return False
    reference = target_of(op)
    if isinstance(reference, Dot):
        return reference in head.redacted
    entry = store.entry(key, head.incarnation, reference)
    return entry is not None and entry.dot in head.redacted
