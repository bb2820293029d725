"""The manifest: which packs there are; creating the next one is the commit."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from turnstate.schemas.errors import (
    CorruptDataError,
    FencedError,
    NotFoundError,
    UnavailableError,
)
from turnstate.storage.cold.names import pack_time_ms
from turnstate.storage.cold.numbered import FORMAT, NumberedObjects
from turnstate.storage.cold.objects import ObjectStore

MANIFESTS: Final = "manifest/"

RECENT: Final = 64
"""How many of the manifests before it a manifest names, so that a writer can
tell whether its own is among them."""

TRIES: Final = 64
"""Lost races until a writer gives up; each one was somebody's success."""

_TOKEN_BYTES: Final = 8


class PackInfo(msgspec.Struct, frozen=True):
    """What the manifest says of a pack.

    Attributes:
        bytes: The length of the object.
        entries: Sessions in it.
        image_bytes: Of all images in it.
        live_bytes: Of images still pointed to, as the last compaction found.
        created_ms: When it was committed.
        order: The greatest order of its entries; a pack with a greater one is
            newer in what it says of a session.
    """

    bytes: int
    entries: int
    image_bytes: int
    live_bytes: int
    created_ms: int
    order: int


class Pin(msgspec.Struct, frozen=True):
    """Keep the bytes of packs, in the manifest or not.

    Attributes:
        until_ms: When it ends; None = when it is taken away.
        packs: Names.
    """

    until_ms: int | None
    packs: list[str]


class Manifest(msgspec.Struct, frozen=True):
    """Everything that is true of the cold tier at one number.

    Attributes:
        number: Its own; 0 = there is none yet.
        epoch: The greatest fencing token that committed.
        order: The last order that was given to a pack.
        boundary_ms: Packs named before this time are only those that are in
            here; others may have been deleted, so none of them comes in.
        packs: By name.
        pins: By name: checkpoints, savepoints, long readers.
        previous: The number that it was made from.
        recent: Tokens of this manifest and of those before it, newest last.
        format: The version of the format.
    """

    number: int = 0
    epoch: int = 0
    order: int = 0
    boundary_ms: int = 0
    packs: dict[str, PackInfo] = {}
    pins: dict[str, Pin] = {}
    previous: int = 0
    recent: list[str] = []
    format: int = FORMAT

    def newest_first(self) -> list[tuple[str, PackInfo]]:
        """Return the packs, the ones with the newest entries first."""
        return sorted(self.packs.items(), key=lambda each: (-each[1].order, each[0]))

    def pinned(self, now_ms: int) -> set[str]:
        """Return the packs that a pin keeps at a moment."""
        return {
            name
            for pin in self.pins.values()
            if pin.until_ms is None or pin.until_ms > now_ms
            for name in pin.packs
        }


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(Manifest)

Change = Callable[[Manifest], Manifest]
"""Makes the next manifest of the newest one; asked again after a lost race."""


def encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as JSON; equal ones give equal bytes."""
    return _encoder.encode(manifest)


def decode_manifest(body: bytes, name: str) -> Manifest:
    """Invert `encode_manifest`.

    Raises:
        CorruptDataError: it is no manifest.
    """
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"{name} is no manifest: {error}") from error


def with_packs(packs: Mapping[str, PackInfo]) -> Change:
    """Return the change that takes packs in, later ones being newer.

    Those with an order keep it (copies); the others get the next ones. A pack
    whose name is older than the boundary may be deleted at this moment, so it
    is refused.
    """

    def change(manifest: Manifest) -> Manifest:
        order, taken = manifest.order, dict(manifest.packs)
        for name, info in packs.items():
            if pack_time_ms(name) < manifest.boundary_ms:
                raise UnavailableError(
                    f"garbage collection has passed the pack {name}, which took"
                    " too long to commit, or was made by a clock that is behind",
                    hint="write it again; compare the clocks of both machines",
                    code="collected",
                )
            if not info.order:
                order += 1
            taken[name] = info if info.order else replace(info, order=order)
        return replace(manifest, packs=taken, order=order)

    return change


def without_packs(names: Iterable[str]) -> Change:
    """Return the change after which packs are in no manifest."""
    gone = frozenset(names)
    return lambda manifest: replace(
        manifest,
        packs={name: info for name, info in manifest.packs.items() if name not in gone},
    )


def with_live_bytes(live: Mapping[str, int]) -> Change:
    """Return the change that notes how much of each pack is pointed to."""
    return lambda manifest: replace(
        manifest,
        packs={
            name: replace(info, live_bytes=live.get(name, 0))
            for name, info in manifest.packs.items()
        },
    )


def with_pin(name: str, until_ms: int | None) -> Change:
    """Return the change that pins all packs of this moment under a name."""
    return lambda manifest: replace(
        manifest,
        pins={**manifest.pins, name: Pin(until_ms, sorted(manifest.packs))},
    )


def without_pin(name: str) -> Change:
    """Return the change that takes a pin away; one that is not there is away."""
    return lambda manifest: replace(
        manifest,
        pins={each: pin for each, pin in manifest.pins.items() if each != name},
    )


class Manifests:
    """Read the newest manifest, and commit the next one.

    Safe from several threads: what it remembers is one immutable value.

    Args:
        objects: Where they are.
        chance: Gives so many random bytes.
    """

    def __init__(self, objects: ObjectStore, chance: Callable[[int], bytes]) -> None:
        self.numbered = NumberedObjects(objects, MANIFESTS)
        self._chance = chance
        self._known = Manifest()

    @property
    def known(self) -> Manifest:
        """Return the newest that was seen, without asking."""
        return self._known

    def latest(self) -> Manifest:
        """Return the newest: a list behind what is known, and what it shows.

        Raises:
            UnavailableError: the store is away.
            CorruptDataError: the newest manifest is damaged.
        """
        for _ in range(TRIES):
            known = self._known
            number = self.numbered.newest(known.number)
            if number is None:
                return known
            try:
                found = self._read(number)
            except NotFoundError:
                continue  # collected meanwhile: there are newer ones
            self._known = found
            return found
        raise UnavailableError(
            "manifests of the cold tier go faster than they can be read",
            code="contended",
        )

    def commit(self, change: Change, *, epoch: int) -> Manifest:
        """Apply a change to the newest manifest and make the result the newest.

        Nothing is written where the change changes nothing.

        Args:
            change: Asked again with the newer manifest whenever a race is lost.
            epoch: The fencing token of whoever commits.

        Returns:
            The manifest with the change.

        Raises:
            FencedError: a greater token has committed.
            UnavailableError: the store is away, and the change may or may not
                have come in; or too many others commit.
        """
        for _ in range(TRIES):
            before = self.latest()
            if before.epoch > epoch:
                raise FencedError(
                    f"the manifest has epoch {before.epoch}, this is {epoch}",
                    hint="another job has taken over the cold tier: stop",
                )
            after = self._following(before, change(before), epoch)
            if after is None:
                return before
            if self.numbered.create(after.number, encode_manifest(after)) and (
                self._is_in(after)
            ):
                return after
        raise UnavailableError(
            f"{TRIES} other commits to the cold tier came first",
            hint="fewer jobs at once, or larger packs",
            code="contended",
        )

    def _following(
        self, before: Manifest, changed: Manifest, epoch: int
    ) -> Manifest | None:
        if changed == before and epoch == before.epoch:
            return None
        token = self._chance(_TOKEN_BYTES).hex()
        fields: dict[str, Any] = {
            "number": before.number + 1,
            "previous": before.number,
            "epoch": epoch,
            "recent": [*before.recent, token][-RECENT:],
        }
        return replace(changed, **fields)

    def _is_in(self, mine: Manifest) -> bool:
        """Say whether a manifest that was just created is one of the line.

        Its number may have been free only because it is old and collected;
        then the newest one does not know it.
        """
        newest = self.numbered.newest(mine.number)
        if newest is None:
            self._known = mine
            return True
        found = self.latest()
        if mine.recent[-1] in found.recent:
            return True
        if found.number - mine.number >= RECENT:
            raise UnavailableError(
                f"manifest {mine.number} took so long that it is not known whether"
                f" {found.number} follows from it",
                hint="run it again; a pack that nobody points to is collected",
                code="contended",
            )
        return False

    def _read(self, number: int) -> Manifest:
        name = self.numbered.name(number)
        return decode_manifest(self.numbered.read(number), name)
