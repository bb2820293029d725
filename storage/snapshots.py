"""A pool of recent states, and the JSON Patch that leads from one to a later one."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jsonpatch
import msgspec

from turnstate.schemas.errors import ConflictError, CorruptDataError

PATCH_TURNS: Final = 5
"""How many turns, the last ones, a snapshot shows and a patch can tell of (A2)."""

STATIC_FIELDS: Final = frozenset({"system", "tools", "functions"})
"""Fields of a state that stay as they are for a whole session: the system
prompt and the schemas of tools. A patch tells of them only if they changed."""

VERSIONS_KEPT: Final = 16
"""Of one session; who is further behind takes the whole state."""

Document = dict[str, Any]
"""A state as JSON values."""

_encoder: Final = msgspec.json.Encoder(order="sorted")
_decoder: Final = msgspec.json.Decoder()


class Patch(NamedTuple):
    """What leads from one version to another.

    Attributes:
        from_version: The version that it is applied to.
        to_version: The version that comes of it.
        operations: The operations of RFC 6902, as JSON.
    """

    from_version: int
    to_version: int
    operations: bytes


class Snapshot(NamedTuple):
    """A state at one version.

    Attributes:
        version: The version.
        document: The state with its last turns, as canonical JSON, without
            static fields.
        static: The static fields, as canonical JSON; shared between versions.
    """

    version: int
    document: bytes
    static: bytes

    def whole(self) -> Document:
        """Return the state with its static fields."""
        return {**_decoder.decode(self.static), **_decoder.decode(self.document)}


class _Session:
    __slots__ = ("bytes", "expires_ms", "versions")

    def __init__(self) -> None:
        self.versions: OrderedDict[int, Snapshot] = OrderedDict()
        self.expires_ms = 0
        self.bytes = 0


class SnapshotPool:
    """Keep the last states of the sessions used last, each at several versions.

    For readers that hold an older version and want to know what changed: a
    patch is a fifth of a state and less. Never the only copy. Not for use from
    several threads at once.

    Args:
        budget_bytes: About how much memory it may take.
        ttl_ms: How long after it was put in last a session is kept.
        versions_kept: How many versions of a session.
        turns: How many turns a snapshot shows.
        static_fields: See `STATIC_FIELDS`.

    Example:
        >>> pool = SnapshotPool(1 << 20, ttl_ms=60_000)
        >>> pool.put(b"k", 1, {"phase": "open", "turns": []}, now_ms=0)
        >>> pool.put(b"k", 2, {"phase": "done", "turns": []}, now_ms=0)
        >>> pool.patch(b"k", 1, 2, now_ms=0).operations
        b'[{"op":"replace","path":"/phase","value":"done"}]'
    """

    def __init__(
        self,
        budget_bytes: int,
        *,
        ttl_ms: int,
        versions_kept: int = VERSIONS_KEPT,
        turns: int = PATCH_TURNS,
        static_fields: frozenset[str] = STATIC_FIELDS,
    ) -> None:
        self.budget_bytes = budget_bytes
        self.ttl_ms = ttl_ms
        self.versions_kept = versions_kept
        self.turns = turns
        self.static_fields = static_fields
        self.bytes_held = 0
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    def __len__(self) -> int:
        """Return how many sessions are held; some may have expired since."""
        return len(self._sessions)

    def put(
        self, key: bytes, version: int, document: Mapping[str, Any], now_ms: int
    ) -> None:
        """Take a state in; another one of that version is replaced.

        Args:
            key: The session key.
            version: Its version.
            document: The state; `turns`, where there are any, oldest first.
            now_ms: The time.
        """
        session = self._live(key, now_ms)
        if session is None:
            session = self._sessions[key] = _Session()
        self._sessions.move_to_end(key)
        session.expires_ms = now_ms + self.ttl_ms
        snapshot = self.snapshot(version, document)
        newest = next(reversed(session.versions.values()), None)
        if newest is not None and newest.static == snapshot.static:
            snapshot = snapshot._replace(static=newest.static)
        session.versions[version] = snapshot
        if newest is not None and version < newest.version:
            session.versions = OrderedDict(sorted(session.versions.items()))
        while len(session.versions) > self.versions_kept:
            session.versions.popitem(last=False)
        self._resize(session, _size_of(key, session))
        while self.bytes_held > self.budget_bytes and self._sessions:
            self._drop(next(iter(self._sessions)))

    def get(
        self, key: bytes, now_ms: int, version: int | None = None
    ) -> Snapshot | None:
        """Return a state, the newest where no version is named; None on a miss."""
        session = self._live(key, now_ms)
        if session is None:
            return None
        self._sessions.move_to_end(key)
        if version is None:
            return next(reversed(session.versions.values()))
        return session.versions.get(version)

    def patch(
        self, key: bytes, from_version: int, to_version: int, now_ms: int
    ) -> Patch | None:
        """Return what leads from one version to another, exactly.

        None where one of them is not held any more: the reader takes the whole
        state. The other way round works as well.
        """
        old = self.get(key, now_ms, from_version)
        new = self.get(key, now_ms, to_version)
        return patch_between(old, new) if old and new else None

    def forget(self, key: bytes) -> None:
        """Forget a session, as when it was erased."""
        if key in self._sessions:
            self._drop(key)

    def snapshot(self, version: int, document: Mapping[str, Any]) -> Snapshot:
        """Return what is kept of a state: its last turns, static fields apart."""
        static = {n: v for n, v in document.items() if n in self.static_fields}
        moving = {n: v for n, v in document.items() if n not in self.static_fields}
        if isinstance(moving.get("turns"), list):
            moving["turns"] = moving["turns"][-self.turns :]
        return Snapshot(version, _encoder.encode(moving), _encoder.encode(static))

    def _live(self, key: bytes, now_ms: int) -> _Session | None:
        session = self._sessions.get(key)
        if session is not None and now_ms >= session.expires_ms:
            self._drop(key)
            return None
        return session

    def _drop(self, key: bytes) -> None:
        self.bytes_held -= self._sessions.pop(key).bytes

    def _resize(self, session: _Session, size: int) -> None:
        self.bytes_held += size - session.bytes
        session.bytes = size


def _size_of(key: bytes, session: _Session) -> int:
    statics = {id(each.static): len(each.static) for each in session.versions.values()}
    documents = sum(len(each.document) for each in session.versions.values())
    return len(key) + documents + sum(statics.values())


def patch_between(old: Snapshot, new: Snapshot) -> Patch:
    """Return the patch that makes of one snapshot the other, checked by doing it.

    Static fields are looked at only where they are not the same bytes. That
    the turns are a window which moves, `jsonpatch` sees by itself: what a
    diff of our own gave was no byte smaller (docs/bench.md, tiers).
    """
    if old[1:] == new[1:]:
        return Patch(old.version, new.version, b"[]")
    before, after = _decoder.decode(old.document), _decoder.decode(new.document)
    if old.static != new.static:
        before |= _decoder.decode(old.static)
        after |= _decoder.decode(new.static)
    operations: list[Document] = list(jsonpatch.make_patch(before, after))
    if _applied(before, operations) != _encoder.encode(after):
        # Exact is what counts; a whole state is a patch, too.
        operations = [{"op": "replace", "path": "", "value": after}]
    return Patch(old.version, new.version, _encoder.encode(operations))


def apply_patch(document: Document, patch: Patch) -> Document:
    """Return the state that a patch leads to; what is given stays as it is.

    Raises:
        ConflictError: the document is not the one that the patch starts from.
        CorruptDataError: it is no patch.

    Example:
        >>> patch = Patch(1, 2, b'[{"op":"add","path":"/a","value":1}]')
        >>> apply_patch({}, patch)
        {'a': 1}
    """
    try:
        operations = jsonpatch.JsonPatch(_decoder.decode(patch.operations))
        changed: Document = operations.apply(document)
        return changed
    except (jsonpatch.InvalidJsonPatch, msgspec.MsgspecError) as error:
        raise CorruptDataError(f"this is no JSON Patch: {error}") from error
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise ConflictError(
            f"the patch does not fit this state: {error}",
            hint="take the whole state of the version that you want",
        ) from error


def _applied(before: Document, operations: list[Document]) -> bytes:
    try:
        return _encoder.encode(jsonpatch.JsonPatch(operations).apply(before))
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        return b""
