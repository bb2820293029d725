"""Sessions folded from turns, as the archive agent is given them."""

import json
from collections.abc import Sequence
from typing import Any

from turnstate.agents.archive.archiving import ToArchive, to_archive
from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import rebuild
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.streams.clock import VirtualClock

NOW_MS = 1_700_000_000_000
"""When sessions are archived."""


def folded(name: SessionName, turns: Sequence[dict[str, Any]]) -> ToArchive:
    """Return a session of turns that have no tenant and session yet."""
    records = [
        Record(
            json.dumps(
                {"tenant": name.tenant, "session": name.session} | turn
            ).encode(),
            Position(b"log", 0, at),
        )
        for at, turn in enumerate(turns)
    ]
    key = name.key()
    graph = default_graph()
    clock = VirtualClock(NOW_MS)
    session = rebuild(key, records, graph=graph, log_name="log", clock=clock)
    assert session.stored is not None, "a turn was accepted"
    return to_archive(session, key, session.stored, graph)
