"""Give real dialogues as turns: many sessions at once, each in its order, no end."""

from collections import deque
from collections.abc import Iterator
from functools import cache
from itertools import count, islice
from random import Random
from typing import Any, Final

import msgspec

from turnstate.replay.readers import Refusal, read_file
from turnstate.replay.samples import sample_paths

OPEN_SESSIONS: Final = 60
"""Sessions that are spoken in at the same time."""


@cache
def sample_sessions() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the turns of each session that ships, decoded, in their order."""
    sessions: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for path in sample_paths():
        for line in read_file(path, "corpus"):
            assert not isinstance(line, Refusal)
            turn = msgspec.json.decode(line)
            sessions.setdefault((turn["tenant"], turn["session"]), []).append(turn)
    return sessions


def endless_turns(seed: int, *, open_sessions: int = OPEN_SESSIONS) -> Iterator[bytes]:
    """Yield turns of interleaved sessions; those of a later round have new names.

    Every turn has an id, so that one that is sent again is known.
    """
    chance = Random(seed)
    for round_number in count():
        names = sorted(sample_sessions())
        chance.shuffle(names)
        waiting = iter(names)
        talks = [
            deque(sample_sessions()[name]) for name in islice(waiting, open_sessions)
        ]
        while talks:
            at = chance.randrange(len(talks))
            turn = talks[at].popleft()
            assert turn["turn_id"] is not None
            if round_number:
                turn = {**turn, "session": f"{turn['session']}~{round_number}"}
            yield msgspec.json.encode(turn)
            if not talks[at]:
                name = next(waiting, None)
                if name is None:
                    del talks[at]
                else:
                    talks[at] = deque(sample_sessions()[name])
