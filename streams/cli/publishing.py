"""Pump lines of files into a store: several batches in flight, each counted once."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from typing import Any, BinaryIO, Final

import msgspec
from msgspec import Struct

from turnstate.agents.session.step import Answer
from turnstate.replay.readers import Format, Refusal, read
from turnstate.replay.readers.lines import STDIN, UTF8_MARK, lines_of_open, opened
from turnstate.schemas.admission import Verdict
from turnstate.schemas.errors import ConflictError, InvalidInputError
from turnstate.streams.embedded.store import EmbeddedStore

BATCH_LINES: Final = 2048
"""Lines handed over at once: two batches fill one group commit."""

BATCH_BYTES: Final = 4 << 20
"""Large turns make a smaller batch."""

IN_FLIGHT: Final = 16
"""Batches that wait for their answers; reading goes on meanwhile."""

_PATIENCE_S: Final = 0.05
"""A pause of the source longer than this sends on what was read."""


class _Named(Struct, frozen=True, gc=False):
    tenant: str
    session: str


_decode_name: Final = msgspec.json.Decoder(_Named).decode


@dataclass
class Counts:
    """What became of the turns of a publish.

    Attributes:
        turns: Turns read, refused ones too.
        accepted: Folded and durable now; without waiting, handed over.
        duplicates: Were there already, with the same content.
        conflicts: Contradict what is stored.
        refused: Are no turns.
        sessions: Sessions that took a turn.
        seconds: From the first line read to the last answer.
    """

    turns: int = 0
    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    refused: int = 0
    sessions: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Say whether every turn was new and went in."""
        return not (self.duplicates or self.conflicts or self.refused)

    def document(self, *, waited: bool) -> dict[str, Any]:
        """Return the shape of design §13."""
        return {
            "turns": self.turns,
            "accepted": self.accepted,
            "duplicates": self.duplicates if waited else None,
            "conflicts": self.conflicts if waited else None,
            "refused": self.refused,
            "sessions": len(self.sessions),
            "seconds": round(self.seconds, 3),
            "turns_per_s": round(self.turns / self.seconds, 1) if self.seconds else 0.0,
        }


Reason = tuple[str, str | None, str]
"""Why a reader refused a line: message, field, code."""

Submit = Callable[
    [Sequence[bytes], Mapping[int, Reason]], "Future[list[Answer]]"
]
Watch = Callable[[Counts, BinaryIO], None]


def publish_files(
    store: Any,
    sources: Sequence[str],
    format_name: Format,
    *,
    rate: float | None = None,
    wait: bool = True,
    watch: Watch | None = None,
) -> Counts:
    """Publish files in order; return once every turn is durable.

    Args:
        store: Where to; the process that owns it, or a door to that one, or to
            a cluster, which settles the counts at the end.
        sources: Paths, `-` for standard input.
        format_name: What the lines are.
        rate: Lines read a second at most.
        wait: Whether to look at the answers.
        watch: Called now and then with the counts so far and the open file.

    Raises:
        InvalidInputError: a file cannot be read at all. Those before it are in.
    """
    for source in sources:
        if source != STDIN and not Path(source).is_file():
            with opened(source):  # says why, before anything is published
                pass
    start = time.monotonic()
    pace = _Pace(rate)
    settle = getattr(store, "settle", None)
    with _submitter(store) as submit:
        pump = _Pump(submit, wait=wait or settle is not None)
        for source in sources:
            with opened(source) as (file, name):
                followed: Any = _Followed(file, pump.flush) if source == STDIN else file
                lines = pace.paced(lines_of_open(followed, name), pump.flush)
                for item in read(lines, format_name):
                    if pump.take(item) and watch is not None:
                        watch(pump.counts, file)
        pump.finish()
    if settle is not None:
        settle(pump.counts)
    pump.counts.seconds = time.monotonic() - start
    return pump.counts


class _Pump:
    """Gather lines into batches and count their answers, in order."""

    def __init__(self, submit: Submit, *, wait: bool) -> None:
        self.counts = Counts()
        self._submit = submit
        self._wait = wait
        self._batch: list[bytes] = []
        self._bytes = 0
        self._refused: dict[int, Reason] = {}  # by the reader, of the batch
        self._waiting: deque[tuple[list[bytes], Future[list[Answer]]]] = deque()

    def take(self, item: bytes | Refusal) -> bool:
        """Take a line; say whether a batch went out.

        A line that the reader refused goes in, too: the agent refuses it and
        keeps it as a dead letter.
        """
        if isinstance(item, Refusal):
            raw = item.raw
            self._refused[len(self._batch)] = (item.reason, item.field, item.code)
        else:
            raw = item
        self._batch.append(raw)
        self._bytes += len(raw)
        if len(self._batch) < BATCH_LINES and self._bytes < BATCH_BYTES:
            return False
        self.flush()
        return True

    def flush(self) -> None:
        """Send on what was gathered; look at old answers where too many wait."""
        if self._batch:
            self.counts.turns += len(self._batch)
            answers = self._submit(self._batch, self._refused)
            if self._wait:
                self._waiting.append((self._batch, answers))
            else:
                self._note_sessions()
            self._batch, self._bytes, self._refused = [], 0, {}
        while len(self._waiting) > IN_FLIGHT or (
            self._waiting and self._waiting[0][1].done()
        ):
            self._count(*self._waiting.popleft())

    def finish(self) -> None:
        """Send on the rest and wait for every answer."""
        self.flush()
        while self._waiting:
            self._count(*self._waiting.popleft())

    def _count(self, batch: list[bytes], answers: "Future[list[Answer]]") -> None:
        counts = self.counts
        for raw, answer in zip(batch, answers.result(), strict=True):
            verdict = answer.verdict
            if verdict is Verdict.ACCEPTED:
                counts.accepted += 1
            elif verdict is Verdict.DUPLICATE:
                counts.duplicates += 1
            elif isinstance(answer.error, ConflictError):
                counts.conflicts += 1
            else:
                counts.refused += 1
                continue
            named = _decode_name(raw.removeprefix(UTF8_MARK))
            counts.sessions.add((named.tenant, named.session))

    def _note_sessions(self) -> None:
        """Count a batch whose answers nobody waits for, as far as one can."""
        self.counts.refused += len(self._refused)
        self.counts.accepted += len(self._batch) - len(self._refused)
        for raw in self._batch:
            try:
                named = _decode_name(raw)
            except (ValueError, RecursionError):
                continue
            self.counts.sessions.add((named.tenant, named.session))


class _Pace:
    """Hand on so many lines a second, without bursts after a pause."""

    def __init__(self, rate: float | None) -> None:
        if rate is not None and not rate > 0:
            raise InvalidInputError(
                f"--rate is {rate}", field="rate", hint="lines a second, above 0"
            )
        self._gap = 1.0 / rate if rate is not None else 0.0
        self._next = time.monotonic()

    def paced(
        self, lines: Iterator[bytes | Refusal], before_pause: Callable[[], None]
    ) -> Iterator[bytes | Refusal]:
        """Yield the lines, each when it is due."""
        if not self._gap:
            yield from lines
            return
        for line in lines:
            now = time.monotonic()
            pause = self._next - now
            if pause > 0:
                if pause > _PATIENCE_S:
                    before_pause()
                time.sleep(max(0.0, self._next - time.monotonic()))
            self._next = max(self._next, now - 1.0) + self._gap
            yield line


class _Followed:
    """Standard input that sends on what was read before it waits for more."""

    def __init__(self, file: BinaryIO, before_wait: Callable[[], None]) -> None:
        self._file = file
        self._read: Callable[[int], bytes] = getattr(file, "read1", file.read)
        self._before_wait = before_wait

    def read1(self, size: int) -> bytes:
        """Return what is there; wait only when nothing is."""
        if not self._is_ready():
            self._before_wait()
        return self._read(size)

    read = read1

    def _is_ready(self) -> bool:
        try:
            return bool(select([self._file], [], [], _PATIENCE_S)[0])
        except (OSError, ValueError):  # what cannot be asked: send on each time
            return False


def _submitter(store: Any) -> Any:
    """Return a context that gives how batches are handed over, in order."""
    if isinstance(store, EmbeddedStore):
        return nullcontext(_local(store))
    if hasattr(store, "settle"):
        return nullcontext(store.submit)
    return _Remote(store)


def _local(store: EmbeddedStore) -> Submit:
    def submit(
        records: Sequence[bytes], refused: Mapping[int, Reason]
    ) -> "Future[list[Answer]]":
        return store.engine.submit(records, refused=refused)

    return submit


class _Remote:
    """Hand batches to another process from one thread: order is kept."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(max_workers=1)

    def __enter__(self) -> Submit:
        def submit(
            records: Sequence[bytes], refused: Mapping[int, Reason]
        ) -> "Future[list[Answer]]":
            return self._thread.submit(self._store.publish, records, refused)

        return submit

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
