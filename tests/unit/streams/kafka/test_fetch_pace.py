"""An idle worker asks seldom, and a busy one lets records gather."""

from typing import Any

import pytest

from turnstate.streams.kafka.transport import (
    FETCH_BYTES_MIN,
    IDLE_AFTER_S,
    IDLE_WAIT_MS,
    ChunkConsumer,
    ChunkThread,
)


class Fetcher:
    """What of aiokafka's fetcher is read for each request."""

    _fetch_min_bytes = FETCH_BYTES_MIN
    _fetch_max_wait_ms = 10


class Thread:
    """The thread of a consumer, as far as its pace goes."""

    pace = ChunkThread.pace

    def __init__(self, wait_ms: int) -> None:
        self._fetcher = Fetcher()
        self.app = self
        self.fetch_max_wait_ms = wait_ms

    def _ensure_consumer(self) -> "Thread":
        return self

    @property
    def asks(self) -> tuple[int, int]:
        return self._fetcher._fetch_min_bytes, self._fetcher._fetch_max_wait_ms


@pytest.mark.parametrize(("wait_ms", "idle_ms"), [(10, IDLE_WAIT_MS), (900, 900)])
def test_the_wait_is_long_while_nothing_comes(
    wait_ms: int, idle_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    consumer: Any = ChunkConsumer.__new__(ChunkConsumer)
    consumer._heard_at, consumer._is_idle = now[0], False
    thread = consumer._thread = Thread(wait_ms)
    busy = FETCH_BYTES_MIN, thread.asks[1]
    consumer._pace(heard=False)
    assert thread.asks == busy
    now[0] += IDLE_AFTER_S + 0.1
    consumer._pace(heard=False)
    assert thread.asks == (1, idle_ms)
    consumer._pace(heard=True)
    assert thread.asks == (FETCH_BYTES_MIN, wait_ms)
