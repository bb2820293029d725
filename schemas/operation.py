"""The canonical operation: what is hashed, stored and folded, with its stamp."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from turnstate.schemas.clocks import Dot, DotSet, dot_from_address
from turnstate.schemas.errors import ConflictError, InvalidInputError
from turnstate.schemas.ids import ADDRESS_SIGN

MAIN: Final = "main"
"""The branch that is meant where none is named."""

Reference = Dot | str
"""A turn named by its dot; by its id only where the id was not yet known."""

SeenVector = dict[str, int | tuple[int, ...]]
"""replica → highest counter, or flat inclusive bounds where there are holes."""

Kind = Literal["turn", "edit", "redact", "rollback", "fork", "end", "erase"]


class Body(Struct, omit_defaults=True, frozen=True, gc=False, kw_only=True):
    """What an operation says, apart from who stamped it where and when.

    Encoded as a MessagePack map in this order, defaults left out, inner maps
    sorted: equal bodies have equal bytes. `bytes` are canonical JSON.
    `content` is text, None for null, UNSET where there is none; a message
    whose content is a list has it in `parts`, as canonical JSON.
    """

    role: str = msgspec.field(name="r")
    content: str | None | UnsetType = msgspec.field(default=UNSET, name="c")
    parts: bytes | None = msgspec.field(default=None, name="b")
    tool_calls: bytes | None = msgspec.field(default=None, name="t")
    tool_call_id: str | None = msgspec.field(default=None, name="i")
    name: str | None = msgspec.field(default=None, name="n")
    slot_set: dict[str, bytes] | None = msgspec.field(default=None, name="s")
    slot_delete: list[str] | None = msgspec.field(default=None, name="d")
    tag_add: list[str] | None = msgspec.field(default=None, name="g")
    tag_remove: list[str] | None = msgspec.field(default=None, name="h")
    usage: dict[str, int] | None = msgspec.field(default=None, name="u")
    intent: str | None = msgspec.field(default=None, name="e")
    confidence: float | None = msgspec.field(default=None, name="f")
    action: str | None = msgspec.field(default=None, name="a")
    continues: str | None = msgspec.field(default=None, name="o")
    stage: str | None = msgspec.field(default=None, name="p")
    user: str | None = msgspec.field(default=None, name="w")
    metadata: bytes | None = msgspec.field(default=None, name="m")
    op: str | None = msgspec.field(default=None, name="k")
    target: str | None = msgspec.field(default=None, name="x")
    to: str | dict[str, int | list[int]] | None = msgspec.field(default=None, name="y")
    extra: dict[str, bytes] | None = msgspec.field(default=None, name="q")
    hidden: "Hidden | None" = msgspec.field(default=None, name="z")


class Hidden(Struct, array_like=True, frozen=True, gc=False):
    """What a stub keeps of the bytes that a redaction took.

    The stub folds like the operation did: names that it wrote are known by
    their hash alone (`name_hash`), so that what it replaced does not come back.
    """

    operation_hash: bytes
    content_hash: bytes
    slot_names: list[bytes]
    tag_names: list[bytes]


class Envelope(Struct, array_like=True, frozen=True, gc=False):
    """The record around a body: the stamp, the id, the place in the dialogue.

    Encoded as a MessagePack array; `body` is the body's own bytes, so that
    its hash can be checked, and the envelope read, without decoding it.
    """

    replica: str
    counter: int
    lamport: int
    seen: dict[str, int | list[int]]
    incarnation: int
    parents: list[tuple[str, int] | str]
    branch: str | None
    turn_id: str | None
    time: int | str | None
    body: Raw


_body_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_body_decoder: Final = msgspec.msgpack.Decoder(Body)
_envelope_decoder: Final = msgspec.msgpack.Decoder(Envelope)


def encode_body(body: Body) -> bytes:
    """Return the canonical bytes of a body."""
    return _body_encoder.encode(body)


def content_hash_of(body_bytes: bytes | Raw) -> bytes:
    """Return the 8 bytes by which two copies of one turn are known equal.

    Over the operation without stamp, turn id, time, parent and branch.
    """
    return blake2b(body_bytes, digest_size=32).digest()[:8]


def name_hash(name: str) -> bytes:
    """Return the 8 bytes by which a stub remembers a slot or tag name."""
    return blake2b(name.encode(), digest_size=8).digest()


class Op:
    """A stamped operation, ready to be folded.

    Built once by `Op.stamped` or `Op.decode`; nothing changes it afterwards.

    Attributes:
        dot: Its dot.
        lamport: Its Lamport time.
        seen: What its writer had folded and attached.
        incarnation: The life of the session that it belongs to.
        parents: What it follows, the first one leading; empty = a root.
        branch: Its branch; `main` where the record holds null.
        turn_id: The id it was given, or None.
        time: As it came; never orders.
        body: What it says.
        content_hash: 8 bytes, see `content_hash_of`.
        record: The canonical bytes.
    """

    __slots__ = (
        "_body_bytes",
        "_content_hash",
        "body",
        "branch",
        "dot",
        "incarnation",
        "lamport",
        "parents",
        "record",
        "seen",
        "time",
        "turn_id",
    )

    dot: Dot
    lamport: int
    seen: SeenVector
    incarnation: int
    parents: tuple[Reference, ...]
    branch: str
    turn_id: str | None
    time: int | str | None
    body: Body
    record: bytes
    _body_bytes: bytes | Raw
    _content_hash: bytes | None

    @classmethod
    def stamped(
        cls,
        body: Body,
        body_bytes: bytes,
        *,
        dot: Dot,
        lamport: int,
        seen: SeenVector,
        incarnation: int,
        parents: tuple[Reference, ...],
        branch: str = MAIN,
        turn_id: str | None = None,
        time: int | str | None = None,
        content_hash: bytes | None = None,
    ) -> "Op":
        """Return the operation that a stamp makes of a body."""
        op = cls.__new__(cls)
        op.dot = dot
        op.lamport = lamport
        op.seen = seen
        op.incarnation = incarnation
        op.parents = parents
        op.branch = branch
        op.turn_id = turn_id
        op.time = time
        op.body = body
        op._body_bytes = body_bytes
        op._content_hash = content_hash
        op.record = _body_encoder.encode(
            (
                dot.replica,
                dot.counter,
                lamport,
                seen,
                incarnation,
                parents,
                None if branch == MAIN else branch,
                turn_id,
                time,
                Raw(body_bytes),
            )
        )
        return op

    @classmethod
    def decode(cls, record: bytes) -> "Op":
        """Read canonical bytes back.

        Raises:
            msgspec.DecodeError: they are no operation record.
        """
        envelope = _envelope_decoder.decode(record)
        op = cls.__new__(cls)
        op.dot = Dot(envelope.replica, envelope.counter)
        op.lamport = envelope.lamport
        op.seen = {
            replica: high if isinstance(high, int) else tuple(high)
            for replica, high in envelope.seen.items()
        }
        op.incarnation = envelope.incarnation
        op.parents = tuple(
            parent if isinstance(parent, str) else Dot(*parent)
            for parent in envelope.parents
        )
        op.branch = envelope.branch or MAIN
        op.turn_id = envelope.turn_id
        op.time = envelope.time
        op.body = _body_decoder.decode(envelope.body)
        hidden = op.body.hidden
        op._body_bytes = envelope.body
        op._content_hash = hidden.content_hash if hidden else None
        op.record = record
        return op

    @property
    def content_hash(self) -> bytes:
        """Return the 8 bytes of `content_hash_of`; taken when first asked for."""
        found = self._content_hash
        if found is None:
            found = self._content_hash = content_hash_of(self._body_bytes)
        return found

    def stub(self) -> "Op":
        """Return what a rewrite leaves of a redacted operation.

        It folds as the operation did and has its hash, but holds no text, no
        name, no value: what it wrote is known by the hash of the names only.
        """
        body = self.body
        if body.hidden is not None:
            return self
        body = Body(
            role=body.role,
            op=body.op,
            usage=body.usage,
            action=body.action,
            target=body.target,
            to=body.to,
            tool_call_id=body.tool_call_id,
            continues=body.continues,
            hidden=Hidden(
                self.operation_hash,
                self.content_hash,
                sorted(
                    map(name_hash, [*(body.slot_set or ()), *(body.slot_delete or ())])
                ),
                sorted(
                    map(name_hash, [*(body.tag_add or ()), *(body.tag_remove or ())])
                ),
            ),
        )
        return Op.stamped(
            body,
            encode_body(body),
            dot=self.dot,
            lamport=self.lamport,
            seen=self.seen,
            incarnation=self.incarnation,
            parents=self.parents,
            branch=self.branch,
            turn_id=self.turn_id,
            time=self.time,
            content_hash=self.content_hash,
        )

    @property
    def kind(self) -> str:
        """Return `turn`, or the name of the operation."""
        return self.body.op or "turn"

    @property
    def order(self) -> tuple[int, str, int]:
        """Return its place in the total order: (lamport, replica, counter)."""
        return (self.lamport, self.dot.replica, self.dot.counter)

    @property
    def operation_hash(self) -> bytes:
        """Return BLAKE2b-256 of the record, the summand of S (design §4)."""
        if self.body.hidden is not None:
            return self.body.hidden.operation_hash
        return blake2b(self.record, digest_size=32).digest()

    def seen_set(self) -> DotSet:
        """Return `seen` as a set of dots."""
        return seen_dots(self.seen)

    def address(self) -> str:
        """Return its id, or `@replica:counter` where it has none."""
        return self.turn_id or self.dot.address()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Op) and self.record == other.record

    def __hash__(self) -> int:
        return hash(self.record)

    def __repr__(self) -> str:
        return f"Op({self.kind} {self.dot.address()} {self.turn_id!r} on {self.branch})"


def target_of(op: Op) -> Reference:
    """Return what an edit or redaction is about.

    The owner that stamps one writes the dot of a turn that it knows as its
    parent, so that a later claim to the same id changes nothing; else the
    target is what was given: an address or an id that is to come.
    """
    return op.parents[0] if op.parents else reference_of(op.body.target or "")


def reference_of(name: str) -> Reference:
    """Return the dot that an address names; any other text is an id.

    Example:
        >>> reference_of("@log:3"), reference_of("t-3")
        (Dot(replica='log', counter=3), 't-3')
    """
    if name.startswith(ADDRESS_SIGN):
        try:
            return dot_from_address(name, "reference")
        except InvalidInputError:
            return name  # No id starts so: it names nothing.
    return name


def seen_dots(seen: Mapping[str, Any]) -> DotSet:
    """Return the dots that a `seen` names.

    Example:
        >>> seen_dots({"a": 2, "b": (1, 1, 3, 4)})
        DotSet({'a': (1, 2), 'b': (1, 1, 3, 4)})
    """
    return DotSet(
        {
            replica: (1, high) if isinstance(high, int) else tuple(high)
            for replica, high in seen.items()
            if high
        }
    )


def seen_vector(dots: DotSet) -> SeenVector:
    """Return the short form of a set of dots, replicas in order.

    Example:
        >>> seen_vector(DotSet({"a": (1, 2), "b": (1, 1, 3, 4)}))
        {'a': 2, 'b': (1, 1, 3, 4)}
    """
    return {
        replica: spans[1] if len(spans) == 2 and spans[0] == 1 else spans
        for replica, spans in sorted(dots.spans.items())
    }


def dot_reused(dot: Dot) -> ConflictError:
    """Return the error for one dot with two different operations."""
    return ConflictError(
        f"the dot {dot.address()} is already another operation",
        field="stamp.dot",
        hint="a replica numbers each of its operations once",
        code="dot_reused",
    )
