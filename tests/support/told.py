"""Turns as JSON lines for tests of the embedded store, and what is read back."""

import json
from typing import Any


def turn(number: int, session: str = "s", tenant: str = "t", **fields: Any) -> bytes:
    """Return the n-th turn of a session; `fields` override or add."""
    told: dict[str, Any] = {
        "tenant": tenant,
        "session": session,
        "turn_id": f"{session}-{number}",
        "role": "user" if number % 2 else "assistant",
        "content": f"turn {number} of {session}",
        "slots": {"set": {f"slot{number % 5}": number}},
    }
    told.update(fields)
    kept = {name: value for name, value in told.items() if value is not ...}
    return json.dumps(kept).encode()


def places(events: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Return (session, incarnation, version) of each event."""
    return [(e["session"], e["incarnation"], e["version"]) for e in events]
