"""Who works on the cold tier: one holder at a time, with a fencing token."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from turnstate.schemas.errors import (
    CorruptDataError,
    FencedError,
    NotFoundError,
    UnavailableError,
    UnknownVersionError,
)
from turnstate.storage.cold.numbered import FORMAT, NumberedObjects
from turnstate.storage.cold.objects import ObjectInfo, ObjectStore

LEASES: Final = "lease/"

TTL_MS: Final = 60_000
"""How long a lease holds unless it is renewed."""

MARGIN_MS: Final = 10_000
"""How far two clocks may be apart, or one may step, before the fencing token
is needed to keep two holders from meeting."""

_TOKEN_BYTES: Final = 8
_TRIES: Final = 16


class Lease(msgspec.Struct, frozen=True):
    """One state of the lease: taken, renewed or released.

    Attributes:
        number: Of this state; each one is an object of its own.
        token: The number at which the holder took it: the fencing token. It
            stays as the lease is renewed, and is greater than any before.
        holder: Who; unique to a process.
        taken_ms: When this state was made, by the holder's clock.
        expires_ms: Until when, by the holder's clock.
        released: Whether the holder has let go.
        nonce: Chance, so that no two states are equal bytes.
        format: The version of the format.
    """

    number: int
    token: int
    holder: str
    taken_ms: int
    expires_ms: int
    released: bool = False
    nonce: str = ""
    format: int = FORMAT

    def is_held(self, now_ms: int, margin_ms: int = MARGIN_MS) -> bool:
        """Say whether the holder may go on working: it stops a margin early."""
        return not self.released and now_ms < self.expires_ms - margin_ms


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(Lease)


class Leases:
    """Take, renew and release the one lease of a cold tier.

    The lease saves work; what makes it safe is the token, which every commit
    to the manifest carries (`FencedError`). So a clock that lies can make two
    jobs work at once, and only one of them commits.

    Args:
        objects: Where it is kept.
        chance: Gives so many random bytes.
        ttl_ms: How long it holds unless it is renewed.
        margin_ms: How far clocks may be apart.
    """

    def __init__(
        self,
        objects: ObjectStore,
        chance: Callable[[int], bytes],
        *,
        ttl_ms: int = TTL_MS,
        margin_ms: int = MARGIN_MS,
    ) -> None:
        assert ttl_ms > 2 * margin_ms >= 0, "a holder would have no time to work"
        self.numbered = NumberedObjects(objects, LEASES)
        self.ttl_ms = ttl_ms
        self.margin_ms = margin_ms
        self._chance = chance

    def latest(self) -> Lease | None:
        """Return the newest state, None where nobody ever took it.

        One that is damaged counts as taken when its object was made, by nobody
        who is known: it holds no data, so it ends by itself like any other.

        Raises:
            UnavailableError: the store is away.
            UnknownVersionError: a newer turnstate made it.
        """
        for _ in range(_TRIES):
            found = max(self.numbered.infos(), default=None, key=_number)
            if found is None:
                return None
            number, info = found
            try:
                return _decoder.decode(self.numbered.read(number))
            except NotFoundError:
                continue  # collected meanwhile: there are newer ones
            except UnknownVersionError:
                raise
            except (CorruptDataError, msgspec.MsgspecError, ValueError):
                made_ms = info.modified_ms
                holder = f"{info.name}, which is damaged"
                return Lease(number, number, holder, made_ms, made_ms + self.ttl_ms)
        raise UnavailableError("the lease changes faster than it is read")

    def take(self, holder: str, now_ms: int) -> Lease:
        """Take the lease, where nobody else holds it.

        Args:
            holder: Who; unique to this process. The same holder takes it again
                at once, with a new token.
            now_ms: The time by the clock of this machine.

        Raises:
            UnavailableError: another one holds it, or took it just now; the
                code is `leased`.
        """
        before = self.latest()
        if before is not None and self._keeps_out(before, holder, now_ms):
            raise _leased(before)
        number = before.number + 1 if before else 1
        mine = Lease(number, number, holder, now_ms, now_ms + self.ttl_ms)
        made = self._created(mine)
        if made is None:
            raise _leased(self.latest() or mine)
        return made

    def renew(self, lease: Lease, now_ms: int) -> Lease:
        """Hold on for another time; the token stays.

        Raises:
            FencedError: another one has taken it.
        """
        return self._followed(lease, now_ms, now_ms + self.ttl_ms, released=False)

    def release(self, lease: Lease, now_ms: int) -> None:
        """Let go; one that another has taken is let go."""
        try:
            self._followed(lease, now_ms, now_ms, released=True)
        except FencedError:
            return

    def _followed(
        self, lease: Lease, now_ms: int, expires_ms: int, *, released: bool
    ) -> Lease:
        made = self._created(
            replace(
                lease,
                number=lease.number + 1,
                taken_ms=now_ms,
                expires_ms=expires_ms,
                released=released,
            )
        )
        if made is None:
            other = self.latest() or lease
            raise FencedError(
                f"{other.holder} has taken the lease of the cold tier",
                hint="stop; what was committed stays",
            )
        return made

    def _created(self, lease: Lease) -> Lease | None:
        mine = replace(lease, nonce=self._chance(_TOKEN_BYTES).hex())
        if not self.numbered.create(mine.number, _encoder.encode(mine)):
            return None
        # A number that is free because it is old and collected holds nothing.
        return mine if self.numbered.newest(mine.number) is None else None

    def _keeps_out(self, lease: Lease, holder: str, now_ms: int) -> bool:
        """Say whether a lease keeps a holder out.

        One that was taken later than now, by more than clocks differ, shows
        that a clock was wrong: waiting for it could take years.
        """
        return (
            not lease.released
            and lease.holder != holder
            and now_ms < lease.expires_ms + self.margin_ms
            and lease.taken_ms <= now_ms + self.margin_ms
        )


def _number(found: tuple[int, ObjectInfo]) -> int:
    return found[0]


def _leased(lease: Lease) -> UnavailableError:
    until = datetime.fromtimestamp(lease.expires_ms / 1000, UTC)
    return UnavailableError(
        f"{lease.holder} works on the cold tier, until"
        f" {until.isoformat(timespec='seconds')} unless it goes on",
        hint="wait for it; if it is dead, its lease ends by itself then",
        code="leased",
    )
