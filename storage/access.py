"""When sessions were used: the last K uses of each, a burst counted once (LRU-K)."""

from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec

from turnstate.schemas.errors import CorruptDataError

K: Final = 3
"""How many uses are remembered: the third last decides what is let go (A15)."""

CORRELATED_MS: Final = 5_000
"""Uses that follow one another closer than this are one burst: a question, its
tool calls and its answer say no more about tomorrow than one of them does."""

BURST_FACTOR: Final = 12
"""A burst lasts so many times `correlated_ms` at most, a minute: what is used
without a pause is used often. (In the paper it has no end, and then what is
used most of all counts once.)"""

INFINITE_MS: Final = 1 << 62
"""Distance of a session with fewer than K uses: longer than any time."""

_K_MAX: Final = 16
"""More times than this in a row are no history that we wrote."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[int])


class Accesses(NamedTuple):
    """When one session was used.

    Attributes:
        times_ms: When its last bursts of use were, the newest first; the older
            ones moved up by how long the bursts after them took, so that only
            the time between bursts counts (O'Neil, O'Neil and Weikum 1993).
        last_ms: When it was used last, within a burst or not.
    """

    times_ms: tuple[int, ...] = ()
    last_ms: int = 0


NO_ACCESSES: Final = Accesses()
"""What is known of a session that was never seen."""


def shifted(
    times_ms: tuple[int, ...], last_ms: int, now_ms: int, k: int
) -> tuple[int, ...]:
    """Return the times after a use that begins a new burst.

    Example:
        >>> shifted((100, 40), 130, 500, 3)
        (500, 130, 70)
    """
    if not times_ms:
        return (now_ms,)
    burst_ms = last_ms - times_ms[0]
    if not burst_ms:
        return (now_ms, *times_ms[: k - 1])
    return (now_ms, *[time + burst_ms for time in times_ms[: k - 1]])


def touched(
    accesses: Accesses, now_ms: int, *, correlated_ms: int = CORRELATED_MS, k: int = K
) -> Accesses:
    """Return the history with one more use in it.

    A use within `correlated_ms` of the one before belongs to its burst, and so
    does one that comes from before it, by a clock that was set back.

    Example:
        >>> first = touched(NO_ACCESSES, 10_000)
        >>> touched(touched(first, 12_000), 60_000)
        Accesses(times_ms=(60000, 12000), last_ms=60000)
    """
    times_ms, last_ms = accesses
    if times_ms and not begins_burst(accesses, now_ms, correlated_ms):
        return Accesses(times_ms, max(last_ms, now_ms))
    return Accesses(shifted(times_ms, last_ms, now_ms, k), now_ms)


def begins_burst(accesses: Accesses, now_ms: int, correlated_ms: int) -> bool:
    """Say whether a use is not of the same burst as the one before."""
    times_ms, last_ms = accesses
    if not times_ms or now_ms > last_ms + correlated_ms:
        return True
    return now_ms > max(last_ms, times_ms[0] + BURST_FACTOR * correlated_ms)


def backward_distance_ms(accesses: Accesses, now_ms: int, k: int = K) -> int:
    """Return how long ago the K-th last use was; `INFINITE_MS` with fewer.

    Example:
        >>> backward_distance_ms(Accesses((90, 50, 20), 95), 100)
        80
        >>> backward_distance_ms(Accesses((90,), 95), 100) == INFINITE_MS
        True
    """
    if len(accesses.times_ms) < k:
        return INFINITE_MS
    return max(0, now_ms - accesses.times_ms[k - 1])


def uses_within(accesses: Accesses, now_ms: int, window_ms: float) -> int:
    """Return how many of the remembered uses are younger than a window.

    Example:
        >>> uses_within(Accesses((90, 50, 20), 95), 100, 60)
        2
    """
    return sum(now_ms - time < window_ms for time in accesses.times_ms)


def encode_accesses(accesses: Accesses) -> bytes:
    """Return a history in a few bytes, to lie beside a session's other facts.

    The last use, then each time as what lies between it and the one before.

    Example:
        >>> len(encode_accesses(Accesses((1_700_000_009_000,), 1_700_000_010_000)))
        13
    """
    numbers = [accesses.last_ms]
    newer = accesses.last_ms
    for time in accesses.times_ms:
        numbers.append(newer - time)
        newer = time
    return _encoder.encode(numbers)


def decode_accesses(data: bytes) -> Accesses:
    """Invert `encode_accesses`.

    Raises:
        CorruptDataError: the bytes are no history.
    """
    try:
        last_ms, *gaps = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(
            f"a history of uses cannot be read: {error}",
            hint="leave it out: the session counts as never used",
        ) from error
    if len(gaps) > _K_MAX or any(gap < 0 for gap in gaps):
        raise CorruptDataError(
            "a history of uses holds times that are no times",
            hint="leave it out: the session counts as never used",
        )
    times: list[int] = []
    newer = last_ms
    for gap in gaps:
        newer -= gap
        times.append(newer)
    return Accesses(tuple(times), last_ms)


class AccessHistory:
    """Remember the uses of many sessions in bounded memory.

    What was used last is kept; a session that is forgotten counts as never
    seen. Scans and replays do not count: they say nothing about readers.
    About 300 bytes a session. Not for use from several threads at once.

    Args:
        keys_max: How many sessions are remembered.
        k: How many bursts of each.
        correlated_ms: See `touched`.

    Example:
        >>> history = AccessHistory(1_000)
        >>> for now_ms in (0, 60_000, 120_000):
        ...     _ = history.touch(b"k", now_ms)
        >>> _ = history.touch(b"k", 150_000, counts=False)
        >>> history.distance_ms(b"k", 180_000)
        180000
    """

    def __init__(
        self, keys_max: int, *, k: int = K, correlated_ms: int = CORRELATED_MS
    ) -> None:
        assert 1 <= k <= _K_MAX, f"K is 1 to {_K_MAX}"
        self.keys_max = keys_max
        self.k = k
        self.correlated_ms = correlated_ms
        self._known: OrderedDict[bytes, Accesses] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def touch(self, key: bytes, now_ms: int, *, counts: bool = True) -> Accesses:
        """Note a use, and return the history with it.

        Args:
            key: The session key.
            now_ms: The time.
            counts: False for scans and replays, which leave no trace.
        """
        known = self._known.get(key, NO_ACCESSES)
        if not counts:
            return known
        seen = touched(known, now_ms, correlated_ms=self.correlated_ms, k=self.k)
        self.put(key, seen)
        return seen

    def get(self, key: bytes) -> Accesses:
        """Return what is known of a session."""
        return self._known.get(key, NO_ACCESSES)

    def distance_ms(self, key: bytes, now_ms: int) -> int:
        """Return the backward K-distance of a session."""
        return backward_distance_ms(self.get(key), now_ms, self.k)

    def put(self, key: bytes, accesses: Accesses) -> None:
        """Take over a history, as one that was persisted."""
        known = self._known
        known[key] = accesses
        known.move_to_end(key)
        if len(known) > self.keys_max:
            known.popitem(last=False)

    def take(self, key: bytes) -> Accesses:
        """Return what is known of a session, and forget it."""
        return self._known.pop(key, NO_ACCESSES)
