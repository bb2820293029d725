"""A dialogue turn as producers send it: the OpenAI message and what rides with it."""

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

OPERATIONS = ("edit", "redact", "rollback", "fork", "end", "erase")
"""What `op` may be; a turn without `op` is text."""

OperationName = Literal["edit", "redact", "rollback", "fork", "end", "erase"]

if TYPE_CHECKING:
    OptionalRaw = Raw | None
else:
    # msgspec reads `Raw | None` as "null and nothing else"; a bare Raw takes any
    # value, null as the bytes `null`, which the draft drops.
    OptionalRaw = Raw

SeenWire = dict[str, int | list[int]]
"""replica → highest counter, or flat inclusive bounds where there are holes."""


class Slots(Struct, omit_defaults=True, frozen=True, gc=False):
    """What a turn does to slots: values to set, names to delete."""

    set: dict[str, Raw] | None = None
    delete: list[str] | None = None


class Tags(Struct, omit_defaults=True, frozen=True, gc=False):
    """What a turn does to tags. Removals act before additions."""

    add: list[str] | None = None
    remove: list[str] | None = None


class Stamp(Struct, omit_defaults=True, frozen=True, gc=False):
    """The logical time of an operation, set once.

    Attributes:
        dot: (replica, counter), counters from 1 without holes.
        lamport: 1 + the maximum of everything the replica had folded.
        seen: What the replica had folded and attached, as `SeenWire`.
        incarnation: Which life of the session it belongs to, from 1.
    """

    dot: tuple[str, int]
    lamport: int
    seen: SeenWire = {}
    incarnation: int = 1


class Turn(Struct, omit_defaults=True, frozen=True, gc=False):
    """One turn, or one operation, on the wire. Only three fields are needed.

    Free-form values (`metadata`, slot values, content parts, tool calls) are
    the JSON bytes that came. `content` is exact: UNSET = the key is not there,
    None = null, text, or a list of parts. `parent` UNSET = all heads, None =
    a root. `extra` holds fields that this version does not know, as JSON
    bytes; it is no field of the wire.

    Example:
        >>> Turn(tenant="t", session="s", role="user", content="hi").content
        'hi'
    """

    tenant: str
    session: str
    role: str
    turn_id: str | None = None
    content: str | list[Raw] | None | UnsetType = UNSET
    tool_calls: OptionalRaw = None
    tool_call_id: str | None = None
    name: str | None = None
    slots: Slots | None = None
    tags: Tags | None = None
    usage: dict[str, int] | None = None
    intent: str | None = None
    confidence: float | None = None
    action: str | None = None
    parent: str | list[str] | None | UnsetType = UNSET
    branch: str | None = None
    continues: str | None = None
    stage: str | None = None
    time: int | str | None = None
    user: str | None = None
    metadata: OptionalRaw = None
    request_id: str | None = None
    if_version: int | None = None
    op: str | None = None
    target: str | None = None
    to: str | SeenWire | None = None
    incarnation: int | None = None
    stamp: Stamp | None = None
    extra: dict[str, bytes] | None = None

    def with_(self, **changes: Any) -> "Turn":
        """Return the turn with some fields changed."""
        return msgspec.structs.replace(self, **changes)


WIRE_FIELDS = frozenset(Turn.__struct_fields__) - {"extra"}
"""Top-level names that the JSON form knows."""
