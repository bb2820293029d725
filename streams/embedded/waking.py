"""Turns of cold sessions wait here, in order, while the sessions are fetched."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from turnstate.agents.session.agent import cannot_be_woken
from turnstate.agents.session.step import Answer
from turnstate.schemas.admission import Verdict
from turnstate.schemas.errors import ErasedKeyError, TurnstateError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.storage.cold.deadline import too_slow
from turnstate.storage.session_image import SessionImage
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.embedded.submissions import Merged, Submission

_log = structlog.get_logger(__name__)

FETCHED_MAX: Final = 16
"""Sessions that are fetched, or are in memory and not folded yet, at a time."""

LATE_MAX: Final = 16
"""Fetches that came too late and are kept for who tries again."""


class AwaitedError(UnavailableError):
    """What the fold is told of a cold session: its turns are folded later.

    No sender ever sees it.

    Attributes:
        key: The session key.
    """

    def __init__(self, key: bytes) -> None:
        super().__init__("the session is cold", code="cold_away")
        self.key = key


@dataclass(slots=True, eq=False)
class _Waiting:
    """A cold session, and what waits for it in the order in which it came."""

    since: float
    parts: list[Submission] = field(default_factory=list[Submission])
    fetched: "Future[SessionImage] | None" = None
    cold: ColdHead | None = None


_Ready = tuple[ColdHead, SessionImage | None]
"""A pointer and what lay there; None where the key of it was destroyed."""


class Waking:
    """Have cold sessions fetched in threads while all others are folded.

    The fold asks for cold sessions and is told that their turns wait; they
    are parked here. A session is in one of these states: in the queue, being
    fetched, or ready. It stays cold until its turns are folded, so whatever
    comes for it meanwhile is parked behind them. The owner's thread only, but
    for what fetches call.

    Args:
        store: Says what is cold, and fetches it.
        nudge: Called, from any thread, when there is something to do.
        refused: Told how many turns were refused.
        wait_s: How long a session may take to come.
        now: Tells seconds that never go back.

    Attributes:
        lacked: Whether the fold has asked for a cold session since `take`.
    """

    def __init__(
        self,
        store: WarmStore,
        *,
        nudge: Callable[[], None],
        refused: Callable[[int], None],
        wait_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lacked = False
        self._store = store
        self._nudge = nudge
        self._refused = refused
        self._wait_s = wait_s
        self._now = now
        self._sessions: dict[bytes, _Waiting] = {}
        self._queued: OrderedDict[bytes, None] = OrderedDict()
        self._flying: set[bytes] = set()
        self._settled: dict[bytes, _Ready | None] = {}
        self._ready: dict[bytes, _Ready] = {}
        self._late: OrderedDict[bytes, _Waiting] = OrderedDict()
        self._arrived: deque[tuple[bytes, Future[SessionImage]]] = deque()
        self._something = threading.Event()
        self._progress_at = now()
        self._ends_at: float | None = None

    def __bool__(self) -> bool:
        """Say whether anything waits."""
        return bool(self._sessions)

    # -- what the fold asks ------------------------------------------------

    def images(
        self, keys: Sequence[bytes]
    ) -> tuple[dict[bytes, SessionImage], dict[bytes, TurnstateError]]:
        """Return cold sessions that are ready, and that the turns of others wait."""
        cold, failed = self._store.cold_heads(keys)
        found: dict[bytes, SessionImage] = {}
        for key, at in cold.items():
            ready = self._ready.get(key)
            if ready is None or ready[0] != at:
                failed[key] = AwaitedError(key)
                self.lacked = True
            elif ready[1] is not None:
                found[key] = ready[1]
        return found, failed

    def park(self, submission: Submission, answers: Sequence[Answer]) -> int:
        """Keep what of a submission waits for cold sessions; return how many turns."""
        places: dict[bytes, list[int]] = {}
        for at, answer in enumerate(answers):
            if isinstance(answer.error, AwaitedError):
                places.setdefault(answer.error.key, []).append(at)
        merged = Merged(submission, answers, len(places))
        for key, mine in places.items():
            is_whole = len(mine) == len(answers)
            part = submission if is_whole else merged.part(mine)
            waiting = self._sessions.get(key)
            if waiting is None:
                waiting = self._sessions[key] = _Waiting(self._now())
                self._queued[key] = None
            waiting.parts.append(part)
        return sum(map(len, places.values()))

    # -- what the owner does between two groups -------------------------------

    def take(self, group: list[Submission], turns_max: int) -> None:
        """Begin a group with what is to be folded before anything else.

        Args:
            group: It goes there, in its order.
            turns_max: No more turns than that, but all those of one session.
        """
        self._ready.clear()
        self.lacked = False
        if not self._sessions:
            self._arrived.clear()
            return
        self._something.clear()
        self._land()
        self._give_up()
        self._fetch()
        turns = 0
        for key in list(self._settled):
            if turns >= turns_max:
                break
            ready = self._settled.pop(key)
            if ready is not None:
                self._ready[key] = ready
            parts = self._sessions.pop(key).parts
            group += parts
            turns += sum(len(part.records) for part in parts)
        self._fetch()

    def look_again(self) -> None:
        """Be told that something may have brought sessions back, or moved them."""
        waiting = [*self._queued, *self._flying]
        for key, found in zip(waiting, self._store.located(waiting), strict=True):
            if not isinstance(found, ColdHead):
                self._settle(key, None)

    def due_s(self, idle_s: float) -> float:
        """Return when to look again though nothing has come, in seconds from now."""
        if not self._sessions:
            return idle_s
        if self._settled:
            return 0.0
        first = next(iter(self._queued), None)
        keys = self._flying if first is None else {first, *self._flying}
        now = self._now()
        return min([idle_s, *(max(0.0, self._ends_of(key) - now) for key in keys)])

    def end(self) -> None:
        """Give what waits its usual time from now on, and no more."""
        self._ends_at = self._now() + self._wait_s

    def pause(self) -> None:
        """Wait until there is something to do."""
        self._something.wait(self.due_s(self._wait_s))

    def drained(self) -> list[Submission]:
        """Return all that waits, and forget it."""
        parts = [part for each in self._sessions.values() for part in each.parts]
        for held in (self._sessions, self._queued, self._flying, self._settled):
            held.clear()
        return parts

    # -- inside ------------------------------------------------------------

    def _land(self) -> None:
        """Look at what has come."""
        while self._arrived:
            key, fetched = self._arrived.popleft()
            waiting = self._sessions.get(key)
            if waiting is None or waiting.fetched is not fetched:
                continue
            cold = waiting.cold
            assert cold is not None, "it was fetched from somewhere"
            (stands,) = self._store.located([key])
            if not isinstance(stands, ColdHead):
                self._settle(key, None)
                continue
            if stands != cold:
                # Its pack was rewritten meanwhile: the first in the queue again.
                self._flying.discard(key)
                waiting.fetched = None
                self._queued[key] = None
                self._queued.move_to_end(key, last=False)
                continue
            error = fetched.exception()
            if error is None:
                self._progress_at = self._now()
                self._open(key, cold, fetched.result())
            elif isinstance(error, TurnstateError):
                self._refuse([key], error)
            else:
                raise error

    def _open(self, key: bytes, cold: ColdHead, image: SessionImage) -> None:
        try:
            self._settle(key, (cold, self._store.opened_whole(image)))
        except ErasedKeyError:
            self._settle(key, (cold, None))
        except TurnstateError as error:
            self._refuse([key], error)

    def _settle(self, key: bytes, ready: _Ready | None) -> None:
        self._queued.pop(key, None)
        self._flying.discard(key)
        self._settled[key] = ready

    def _fetch(self) -> None:
        """Begin to fetch those that are next."""
        while self._queued and len(self._flying) + len(self._settled) < FETCHED_MAX:
            key, _ = self._queued.popitem(last=False)
            (cold,) = self._store.located([key])
            if not isinstance(cold, ColdHead):
                self._settle(key, None)
                continue
            waiting = self._sessions[key]
            waiting.cold = cold
            waiting.since = max(waiting.since, self._now())
            late = self._late.pop(key, None)
            try:
                if late is None or late.cold != cold or _has_failed(late.fetched):
                    waiting.fetched = self._store.fetching(key, cold)
                else:
                    waiting.fetched = late.fetched
            except TurnstateError as error:
                self._refuse([key], error)
                continue
            assert waiting.fetched is not None
            self._flying.add(key)
            waiting.fetched.add_done_callback(partial(self._has_come, key))

    def _has_come(self, key: bytes, fetched: "Future[SessionImage]") -> None:
        """Note that a fetch has ended; in its thread."""
        self._arrived.append((key, fetched))
        self._something.set()
        self._nudge()

    def _ends_of(self, key: bytes) -> float:
        """Return when a session is given up.

        One in the queue waits for as long as others come: a tier that is slow
        under many wakes is not away.
        """
        since = self._sessions[key].since
        if key in self._queued:
            since = max(since, self._progress_at)
        ends_at = since + self._wait_s
        return ends_at if self._ends_at is None else min(ends_at, self._ends_at)

    def _give_up(self) -> None:
        """Refuse the turns of sessions that did not come in time."""
        now = self._now()
        slow = [key for key in self._flying if self._ends_of(key) <= now]
        for key in slow:
            self._late[key] = self._sessions[key]
        while len(self._late) > LATE_MAX:
            self._late.popitem(last=False)
        for key in self._queued:  # the oldest is the first
            if self._ends_of(key) > now:
                break
            slow.append(key)
        if slow:
            self._refuse(slow, too_slow(self._wait_s))

    def _refuse(self, keys: Iterable[bytes], error: TurnstateError) -> None:
        """Tell whoever waits for sessions that they cannot be had."""
        told = cannot_be_woken(error)
        refused = Answer(Verdict.REFUSED, 0, None, told)
        count = 0
        for key in keys:
            self._queued.pop(key, None)
            self._flying.discard(key)
            waiting = self._sessions.pop(key)
            parts, waiting.parts = waiting.parts, []
            for part in parts:
                count += len(part.records)
                part.done.set_result([refused] * len(part.records))
            name = SessionName.from_key(key)
            _log.warning(
                "cold.not_woken",
                tenant=name.tenant,
                session=name.session,
                turns=sum(len(part.records) for part in parts),
                why=str(told),
            )
        self._refused(count)


def _has_failed(fetched: "Future[SessionImage] | None") -> bool:
    return fetched is None or (fetched.done() and fetched.exception() is not None)
