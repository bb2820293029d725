"""The slots of a branch as answers show them: a value, and its siblings."""

from typing import Any

from msgspec import Raw

from turnstate.schemas.crdt import slot_map
from turnstate.schemas.dialogue.head import NodeState


def shown_slots(state: NodeState | None) -> dict[str, Any]:
    """Return name → value shown and siblings, in the order of the names.

    Values are the JSON bytes that came, untouched.

    Example:
        >>> shown_slots(None)
        {}
    """
    slots: dict[str, Any] = {}
    for name in sorted(state.slots if state else {}):
        assert state is not None
        first, *rest = slot_map.shown(state.slots[name])
        slots[name] = {
            "value": Raw(first[3]),
            "siblings": [Raw(entry[3]) for entry in rest],
        }
    return slots
