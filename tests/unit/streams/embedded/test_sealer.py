"""A session is sealed when its frames are enough, and not once more for nothing."""

import threading
import time
from pathlib import Path

from support.told import turn
from turnstate.schemas.ids import SessionName
from turnstate.storage.frames.segment import is_due
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

ENOUGH = 64
KEY = SessionName("t", "s").key()


def test_one_that_was_due_and_is_sealed_by_request_is_not_due_any_more(
    tmp_path: Path,
) -> None:
    assert is_due(ENOUGH, 0)
    with EmbeddedStore(Settings(data=tmp_path)) as store:
        engine = store.engine
        free = threading.Event()
        engine.call(free.wait)
        # While requests wait, so does sealing.
        engine.submit([turn(number) for number in range(ENOUGH)])
        asked = engine.call(lambda: engine.seal([KEY]))
        engine.submit([turn(ENOUGH)])
        free.set()
        assert asked.result(20) == 1
        for _ in range(10):
            # It may seal whenever nobody asks for anything.
            engine.call(lambda: None).result(20)
            time.sleep(0.02)
        head = engine.head(KEY)
        assert head is not None
        assert (head.frame_turns, head.sealed_version) == (1, ENOUGH)
