"""A cluster as tier jobs see it: one store, asked at the owner of each partition."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from turnstate.agents.ports import Clock
from turnstate.agents.tiering.facts import SessionFacts
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import turn_to_json
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.moves.journal import Plan
from turnstate.storage.moves.owner import Copied
from turnstate.storage.session_image import EncodedImage
from turnstate.streams.clock import SystemClock
from turnstate.streams.documents import Document
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.cold_place import open_cold
from turnstate.streams.kafka.partitioning import partition_of
from turnstate.streams.kafka.sync_producer import SyncReceipt, SyncTurnProducer
from turnstate.streams.kafka.tier_queries import ITEMS_MAX
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.archiving import forget_archived
from turnstate.streams.tiers.opening import OpenedTiers

REQUEST_BYTES: Final = 1 << 20
"""Of what one request tells: heads of some kilobytes each."""

_T = TypeVar("_T")


class ClusterTiers:
    """Answer for all partitions of a cluster, as the owner of a store does.

    A question about all of them that one cannot answer fails: a job must not
    take a pointer that it did not hear of for garbage.

    Args:
        reader: Finds the owners.
        settings: Of the job: whether what expires is to be archived before, and
            where; nothing is, without.
        clock: Tells the time; the machine's where None.
    """

    def __init__(
        self,
        reader: ClusterReader,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings, clock = settings or Settings(), clock or SystemClock()
        self.reader = reader
        self._archives = bool(settings.archive)
        self._methods: dict[str, Callable[..., Any]] = {
            "tier_facts": self._facts,
            "tier_facts_of": self._facts_of,
            "tier_fills": self._fills,
            "tier_plan": self._plan,
            "tier_images": self._images,
            "tier_flip": self._flip,
            "tier_release": self._release,
            "tier_fill": self._fill,
            "tier_warm": self.warm,
            "tier_repoint": self.repoint,
            "tier_pointers": self.pointers,
            "tier_unfinished": self._unfinished,
            "tier_give_up": self._give_up,
            "tier_expire": self._expire,
            "tier_forget_archived": partial(forget_archived, settings, clock),
            "stats": self.reader.stats,
        }

    def call(self, method: str, **arguments: Any) -> Any:
        """Perform a method by name, at whichever workers it concerns.

        Raises:
            InvalidInputError: jobs know no such method.
            UnavailableError: a worker does not answer.
            TurnstateError: what the method raises.
        """
        try:
            found = self._methods[method]
        except KeyError:
            raise InvalidInputError(
                f"a cluster knows no method {method!r} of jobs", code="unknown_method"
            ) from None
        return found(**arguments)

    # -- what is there ------------------------------------------------------------

    def _facts(self) -> Iterator[SessionFacts]:
        for page in self._all_pages("tier_facts", {}):
            yield from _made(page["facts"], list[SessionFacts])

    def _facts_of(self, key: bytes) -> SessionFacts | None:
        found: SessionFacts | None = self._ask(
            self._home(key), "tier_facts_of", {"key": key}
        )
        return found

    def _fills(self) -> dict[str, list[int]]:
        """Return, of each tier, how full it is where it is fullest."""
        fullest: dict[str, list[int]] = {}
        for number in range(self.reader.cluster.partitions):
            for tier, (used, most) in self._ask(number, "tier_fills", {}).items():
                known = fullest.get(tier, [0, 1])
                if used * known[1] > known[0] * most:
                    fullest[tier] = [used, most]
        return fullest

    def pointers(self, token: int | None = None) -> Iterator[tuple[bytes, Pointer]]:
        """Yield where each cold session lies; see `embedded.tiering.pointers`."""
        for page in self._all_pages("tier_pointers", {"token": token}):
            yield from _made(page["pointers"], list[tuple[bytes, Pointer]])

    def _unfinished(self, before_ms: int) -> list[Plan]:
        return [
            plan
            for number in range(self.reader.cluster.partitions)
            for plan in self._ask(number, "tier_unfinished", {"before_ms": before_ms})
        ]

    # -- moves ----------------------------------------------------------------------

    def _plan(self, plans: Sequence[Plan]) -> Document:
        for number, part in self._parts(plans, _key_of_plan):
            self._ask(number, "tier_plan", {"plans": part})
        return {"planned": len(plans)}

    def _images(
        self, plans: Sequence[Plan]
    ) -> Iterator[tuple[bytes, EncodedImage | None]]:
        for number, part in self._parts(plans, _key_of_plan):
            rest = part
            while rest:
                found = self._ask(number, "tier_images", {"plans": rest})
                yield from found
                rest = rest[len(found) :]

    def _flip(self, copied: Sequence[Copied], token: int) -> list[bytes]:
        asked = self._parts(copied, lambda each: each.plan.key)
        return [
            made
            for number, part in asked
            for made in self._ask(number, "tier_flip", {"copied": part, "token": token})
        ]

    def _release(self, plans: Sequence[Plan]) -> list[bytes]:
        return self._made_of("tier_release", plans)

    def _fill(self, plans: Sequence[Plan]) -> list[bytes]:
        return self._made_of("tier_fill", plans)

    def _made_of(self, method: str, plans: Sequence[Plan]) -> list[bytes]:
        return [
            made
            for number, part in self._parts(plans, _key_of_plan)
            for made in self._ask(number, method, {"plans": part})
        ]

    def warm(self, keys: Sequence[bytes]) -> list[bytes]:
        """Bring cold sessions back; return the keys that came."""
        return [
            came
            for number, part in self._parts(keys, lambda key: key)
            for came in self._ask(number, "tier_warm", {"keys": part})
        ]

    def repoint(
        self, moved: Sequence[tuple[bytes, Pointer, Pointer]], token: int
    ) -> list[bytes]:
        """Point to other copies; return the keys that do now."""
        asked = self._parts(moved, lambda each: each[0])
        return [
            made
            for number, part in asked
            for made in self._ask(
                number, "tier_repoint", {"moved": part, "token": token}
            )
        ]

    def _give_up(self, plans: Sequence[Plan]) -> Document:
        for number, part in self._parts(plans, _key_of_plan):
            self._ask(number, "tier_give_up", {"plans": part})
        return {"given_up": len(plans)}

    def _expire(
        self, keys: Sequence[bytes], versions: Sequence[int] | None = None
    ) -> Document:
        """Have each archived where it lies, if that is set, then publish its erase.

        Over Kafka every change of a session is a turn. The erase names life and
        version, so one that is spoken in meanwhile stays, and one that is
        published again changes nothing.

        Returns:
            `{"erased", "archived", "gone_on"}`, the last one the places of those
            that had gone on.

        Raises:
            UnavailableError: they are to be archived before, and cannot be. What
                was archived has been erased.
        """
        asked = {} if versions is None else dict(zip(keys, versions, strict=True))
        places = {key: place for place, key in enumerate(keys)}
        erased = archived = 0
        gone_on: list[int] = []
        with SyncTurnProducer(self.reader.cluster) as producer:
            for number, part in self._parts(keys, lambda key: key):
                for made, stands in self._archived(number, part):
                    archived += made
                    receipts: list[SyncReceipt] = []
                    for key, incarnation, version in stands:
                        if asked.get(key, version) != version:
                            gone_on.append(places[key])
                            continue
                        erase = _erase(SessionName.from_key(key), incarnation, version)
                        receipts.append(producer.publish(turn_to_json(erase)))
                    for receipt in receipts:
                        receipt.result()
                    erased += len(receipts)
        return {"erased": erased, "archived": archived, "gone_on": gone_on}

    def _archived(
        self, number: int, keys: Sequence[bytes]
    ) -> Iterator[tuple[int, list[tuple[bytes, int, int]]]]:
        """Yield of each batch how many were archived, and how its sessions stand."""
        rest = list(keys)
        while rest:
            told = {"keys": rest, "wanted": self._archives}
            made = self._ask(number, "tier_archive", told)
            stands = [(rest[place], life, at) for place, life, at in made["stands"]]
            yield made["archived"], stands
            rest = rest[made["taken"] :]

    # -- inside -----------------------------------------------------------------------

    def _home(self, key: bytes) -> int:
        # A key that is none has no home.
        SessionName.from_key(key)
        return partition_of(key, self.reader.cluster.partitions)

    def _ask(self, number: int, method: str, arguments: Mapping[str, Any]) -> Any:
        return self.reader.ask(number, method, {"partition": number, **arguments})

    def _all_pages(
        self, method: str, options: dict[str, Any]
    ) -> Iterator[Document]:
        for number in range(self.reader.cluster.partitions):
            yield from self.reader.pages(number, method, options)

    def _parts(
        self, items: Iterable[_T], key_of: Callable[[_T], bytes]
    ) -> Iterator[tuple[int, list[_T]]]:
        """Yield (partition, items) of bounded size; each item once."""
        homes: dict[int, list[_T]] = {}
        for item in items:
            homes.setdefault(self._home(key_of(item)), []).append(item)
        for number, mine in homes.items():
            part: list[_T] = []
            size = 0
            for item in mine:
                more = len(msgspec.msgpack.encode(item))
                if part and (len(part) == ITEMS_MAX or size + more > REQUEST_BYTES):
                    yield number, part
                    part, size = [], 0
                part.append(item)
                size += more
            yield number, part


@contextmanager
def opened_tiers(
    settings: Settings,
    cluster: ClusterSettings,
    *,
    progress: Callable[[int], None] | None = None,
) -> Generator[OpenedTiers]:
    """Give a cluster and its cold tier, as a job has them.

    Args:
        settings: The policy, and how large packs are.
        cluster: Where everything is.
        progress: Told how many sessions are done.

    Raises:
        UnavailableError: there is no cold tier, or it cannot be opened.
        InvalidInputError: the name of the place makes no sense.
    """
    clock = SystemClock()
    packs = open_cold(cluster, clock, pack_bytes=settings.cold_pack_bytes)
    # A job looks at what the owners have, not at a copy of it.
    with ClusterReader(replace(cluster, redis="")) as reader:
        yield OpenedTiers(
            settings,
            ClusterTiers(reader, settings, clock),
            clock,
            progress=progress,
            packs=packs,
        )


def _erase(name: SessionName, incarnation: int, version: int) -> Turn:
    return Turn(
        tenant=name.tenant,
        session=name.session,
        role="system",
        op="erase",
        incarnation=incarnation,
        if_version=version,
    )


def _key_of_plan(plan: Plan) -> bytes:
    return plan.key


def _made(values: Any, kind: type[_T]) -> _T:
    return msgspec.convert(values, kind, builtin_types=(bytes,))
