"""Every ten versions of a session become one entity upsert, made from its head."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from turnstate.schemas.crdt import counter, slot_map
from turnstate.schemas.dialogue.head import Head, NodeState, digest
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import MAIN
from turnstate.storage.stored_head import StoredHead

VERSIONS_AN_UPSERT: Final = 10
"""B10: the context becomes an entity every ten versions."""

ENTITY_BYTES_MAX: Final = 900 << 10
"""Of a value: with key and headers it fits a topic that takes 1 MiB, as topics do
by default. One that is larger goes without slots, tags and usage, and says so."""

_encoder: Final = msgspec.json.Encoder(order="sorted")


class EntityUpsert(NamedTuple):
    """What goes to the topic of entities.

    Attributes:
        key: The session key.
        incarnation: Which life of the session; with `boundary` it names the
            upsert, so that one that comes again is known.
        boundary: The multiple of ten that was passed; 0 for a removal.
        value: Canonical JSON; None removes the entity: the life was ended by
            an erase.
        version: Which state the value shows: the boundary, or a later one.
    """

    key: bytes
    incarnation: int
    boundary: int
    value: bytes | None
    version: int = 0

    @property
    def rank(self) -> tuple[int, int, int]:
        """Return what orders the upserts of one session, the newest last.

        A removal stands behind all that its life ever sent, and before the
        next life.
        """
        if self.value is None:
            return (self.incarnation + 1, 0, 0)
        return (self.incarnation, self.boundary, self.version)


def boundaries(before: int, after: int) -> range:
    """Return the multiples of ten above one version, up to another.

    Example:
        >>> list(boundaries(8, 31)), list(boundaries(10, 19)), list(boundaries(19, 20))
        ([10, 20, 30], [], [20])
    """
    step = VERSIONS_AN_UPSERT
    return range((before // step + 1) * step, after + 1, step)


def entity_upserts(
    before: StoredHead, after: StoredHead, key: bytes
) -> list[EntityUpsert]:
    r"""Return the upserts that a change leads to. Pure.

    One for every boundary that was passed, so that their number depends on the
    versions and not on how turns were batched. A batch that passes several
    shows in each the state that it came to (`version` in the value says which):
    the states between were never heads. The topic is compacted, the last wins.
    Where an erase ended a life that had an entity, its removal comes first.

    Args:
        before: The head that the change was decided from.
        after: The head that it came to.
        key: The session key.

    Example:
        >>> from turnstate.storage.stored_head import NO_SESSION
        >>> entity_upserts(NO_SESSION, NO_SESSION, b"\0\1ts")
        []
    """
    old, new = before.head, after.head
    found: list[EntityUpsert] = []
    version = old.version
    if new.incarnation != old.incarnation:
        found.append(EntityUpsert(key, new.incarnation - 1, 0, None))
        version = 0
    passed = boundaries(version, new.version)
    if passed:
        value = entity_value(key, new)
        life, shown = new.incarnation, new.version
        found += (EntityUpsert(key, life, at, value, shown) for at in passed)
    return found


def entity_value(key: bytes, head: Head) -> bytes:
    """Return what is told of a session: its state without any text, as JSON.

    Canonical: keys in order, no white space, slot values as they are stored;
    equal states give equal bytes. A state that is too large for a record is
    told without slots, tags and usage: `left_out` names them.
    """
    name = SessionName.from_key(key)
    state = head.branch_state(MAIN)
    told: dict[str, Any] = {
        "tenant": name.tenant,
        "session": name.session,
        "incarnation": head.incarnation,
        "version": head.version,
        "digest": digest(head).hex(),
        "slots": _slots(state),
        "tags": sorted(state.tags) if state else [],
        "phase": state.phase if state else None,
        "usage": counter.values(head.usage),
        "turn_count": head.turn_count,
        "left_out": [],
    }
    value = _encoder.encode(told)
    if len(value) <= ENTITY_BYTES_MAX:
        return value
    left_out = ["slots", "tags", "usage"]
    less: dict[str, Any] = {"slots": {}, "tags": [], "usage": {}}
    return _encoder.encode(told | less | {"left_out": left_out})


def _slots(state: NodeState | None) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for name, entries in state.slots.items() if state else ():
        first, *rest = slot_map.shown(entries)
        found[name] = {
            "value": Raw(first[3]),
            "siblings": [Raw(entry[3]) for entry in rest],
        }
    return found
