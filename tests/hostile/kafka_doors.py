"""Doors into one shared cluster: plain records, packed records, reads from Redis.

Cases that only a record can be (a wrong key, a key and a body that disagree, headers
missing or lying, a tombstone, 5 MB, a partition that is not the session's, one bad
turn in a pack) are in tests/integration/test_kafka_worker.py,
`test_bad_records_of_every_kind_are_letters_and_nothing_more`; a batch with one bad
turn in it is there too, `test_one_poison_turn_in_five_hundred_is_one_letter`.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from hostile.contract import (
    CONTEXT,
    ERASE,
    KILL,
    LETTERS,
    OBJECTS,
    OUTLIVE,
    READ,
    REOPEN,
    SEAL,
    STATE,
    Door,
    Refusal,
    Sent,
)
from hostile.doors import plain
from hostile.shared_cluster import WAIT_S, Outcome, Place, SharedCluster, waited

from support.cluster import Sent as Keyed
from support.protobuf_wire import as_protobuf
from turnstate.schemas.draft import Draft
from turnstate.schemas.errors import InvalidInputError, NotFoundError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.limits import PACK_BYTES_MAX
from turnstate.schemas.operation import MAIN
from turnstate.schemas.wire.json import draft_from_json
from turnstate.schemas.wire.packed import CONTENT_TYPE, pack_turns, packed_bytes_max
from turnstate.streams.kafka.delivery import VALUE_BYTES_MAX
from turnstate.streams.kafka.receipts import Receipt

_TENANT: Final = re.compile(rb'("tenant"\s*:\s*")(?=[^"])')
"""Before the name of a tenant, where there is one."""


class KafkaDoor:
    """Turns as records of the topic of turns, plain JSON, to a worker.

    All cases share the worker: each has tenants of its own, by a number before
    their names.

    A producer is not told what became of a turn. Here a refusal is a letter, what
    was let in is in a frame, and an erase is what ended a life; of the rest, what
    was stamped in an ended life was dropped, and any other turn was there before.
    """

    def __init__(self, _: Path, shared: SharedCluster) -> None:
        self.shared = shared
        self.number = next(shared.numbers)
        self._letters: list[Refusal] = []
        self._top: dict[tuple[bytes, int], int] = {}
        self._lives: dict[bytes, int] = {}

    def close(self) -> None:
        """The next case goes on with the same worker."""

    # -- in -------------------------------------------------------------------------

    def send(self, lines: Sequence[bytes]) -> Sent:
        numbered = [self._numbered(each) for each in lines]
        drafts = [_draft(each) for each in numbered]
        spelled = self._spelled(numbered)
        places, refused = self.shared.thread.run(self._publish(spelled, drafts))
        if places:
            self.shared.folded(max(place.offset for place in places))
        outcome = self.shared.outcome()
        for letter in outcome.letters:
            at = places.get(Place(letter.letter.offset, letter.index))
            told = letter.letter
            raw = told.raw if at is None else lines[at]
            refusal = Refusal(told.reason, told.field, raw)
            self._letters.append(refusal)
            if at is not None:
                refused[at] = refusal
        assert len(outcome.letters) == len(refused), "each refusal is one letter"
        let_in = [
            draft
            for at, draft in enumerate(drafts)
            if draft is not None and at not in refused
        ]
        assert len(let_in) + len(refused) == len(lines), "what is no turn has a letter"
        return self._counted(let_in, [refused[at] for at in sorted(refused)], outcome)

    def _counted(
        self, let_in: list[Draft], refusals: list[Refusal], outcome: Outcome
    ) -> Sent:
        folded = self._new_operations(outcome)
        late = Counter(
            each.key
            for each in let_in
            if each.stamp is not None
            and (each.stamp.incarnation or 1) < self._lives.get(each.key, 1)
        )
        said = Counter(each.key for each in let_in if each.body.op != "erase")
        erasing = {each.key for each in let_in if each.body.op == "erase"}
        for key in erasing:
            ended = self._lives_ended(key)
            folded[key] += ended
            if ended:
                # What came together with the end of its life has no frame.
                folded[key] = max(folded[key], ended + said[key] - late[key])
        left = len(let_in) - folded.total()
        dropped = min(left, late.total())
        return Sent(folded.total(), left - dropped, dropped, refusals)

    def _new_operations(self, outcome: Outcome) -> Counter[bytes]:
        """Count operations of frames; a frame that is sent again has none."""
        new = Counter[bytes]()
        for frame in outcome.frames:
            header = frame.header
            life = frame.key, header.incarnation
            top = max(self._top.get(life, 0), header.from_version)
            new[frame.key] += max(0, header.to_version - top)
            self._top[life] = max(top, header.to_version)
        return new

    def _lives_ended(self, key: bytes) -> int:
        """Count lives of a session that are over, and were not before."""
        before = self._lives.get(key, 1)
        self._lives[key] = self.shared.life(key)
        return self._lives[key] - before

    async def _publish(
        self, lines: Sequence[bytes], drafts: Sequence[Draft | None]
    ) -> tuple[dict[Place, int], dict[int, Refusal]]:
        """Publish, and wait for the brokers; return what lies where, what did not go.

        What is longer than any record goes to the dead letters without a detour.
        """
        producer = self.shared.producer
        refused: dict[int, Refusal] = {}
        waiting: list[tuple[int, int, Receipt]] = []
        for group in self._records(lines):
            value, key, headers = self._record(lines, drafts, group)
            try:
                sent = await producer.publish_raw(value, key, headers=headers)
            except InvalidInputError as error:
                (at,) = group
                await (await producer.refuse(value, error))
                refused[at] = Refusal(error.code, error.field, value)
            else:
                waiting += [(at, index, sent) for index, at in enumerate(group)]
        places = {Place((await sent).offset, i): at for at, i, sent in waiting}
        return places, refused

    def _spelled(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return turns as they are sent."""
        return lines

    def _records(self, lines: Sequence[bytes]) -> Iterator[list[int]]:
        """Yield which turns go into each record: one, by itself."""
        yield from ([at] for at in range(len(lines)))

    def _record(
        self, lines: Sequence[bytes], drafts: Sequence[Draft | None], group: list[int]
    ) -> tuple[bytes, bytes | None, list[tuple[str, bytes]]]:
        """Return value, key and headers of a record."""
        (at,) = group
        draft = drafts[at]
        return lines[at], None if draft is None else draft.key, []

    def _numbered(self, raw: bytes) -> bytes:
        return _TENANT.sub(rb"\g<1>%d~" % self.number, raw)

    def _tenant(self, tenant: str) -> str:
        return f"{self.number}~{tenant}"

    # -- out ------------------------------------------------------------------------

    def turns(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> list[dict[str, Any]]:
        try:
            page = self.shared.owner.turns(self._tenant(tenant), session, branch=branch)
        except NotFoundError:
            return []
        turns: list[dict[str, Any]] = plain(page)["turns"]
        return turns

    def state(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> dict[str, Any]:
        name = self._tenant(tenant), session
        return plain(self.shared.owner.state(*name, branch=branch))

    def letters(self) -> list[Refusal]:
        return self._letters

    def context(self, budget_tokens: int, **options: Any) -> dict[str, Any]:
        name = {"tenant": self._tenant("t"), "session": "s"}
        asked = {**name, "budget_tokens": budget_tokens, **options}
        found = plain(self.shared.owner.call("context", **asked))
        found.pop("reflects")
        return found

    def reopen(self) -> None:
        self.shared.restart()

    def killed_amid(self, lines: Sequence[bytes]) -> int:
        numbered = [self._numbered(each) for each in lines]
        records = [Keyed(each, draft_from_json(each).key) for each in numbered]
        cut = self.shared.killed_amid(records)
        self._new_operations(self.shared.outcome())
        return cut

    def seal(self) -> None:
        raise AssertionError("a worker seals when it wants to")

    def erase(self, tenant: str, **which: Any) -> dict[str, Any]:
        raise AssertionError("the cluster is erased from elsewhere")

    def files(self) -> list[Path]:
        raise AssertionError("others have files there, too")


class PackedDoor(KafkaDoor):
    """Turns together in one record, where they fit; every other one as protobuf."""

    def _spelled(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        return [as_protobuf(raw) if at % 2 else raw for at, raw in enumerate(lines)]

    def _records(self, lines: Sequence[bytes]) -> Iterator[list[int]]:
        group: list[int] = []
        for at in range(len(lines)):
            together = [lines[each] for each in (*group, at)]
            if group and packed_bytes_max(together) > PACK_BYTES_MAX:
                yield group
                group = []
            group.append(at)
        yield group

    def _record(
        self, lines: Sequence[bytes], drafts: Sequence[Draft | None], group: list[int]
    ) -> tuple[bytes, bytes | None, list[tuple[str, bytes]]]:
        turns = [lines[at] for at in group]
        if len(group) == 1 and packed_bytes_max(turns) > VALUE_BYTES_MAX:
            return super()._record(lines, drafts, group)
        headers = [("content-type", CONTENT_TYPE.encode())]
        return pack_turns(turns), None, headers


class RedisDoor(KafkaDoor):
    """The same records, read back from Redis: it says what the owner says."""

    def turns(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> list[dict[str, Any]]:
        found = super().turns(session, tenant=tenant, branch=branch)
        try:
            state = self.state(session, tenant=tenant, branch=branch)
        except NotFoundError:
            assert not found
        else:
            last = state["turns"]
            assert last == found[len(found) - len(last) :]
        return found

    def state(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> dict[str, Any]:
        name = self._tenant(tenant), session
        end = time.monotonic() + WAIT_S
        try:
            expected = super().state(session, tenant=tenant, branch=branch)
        except NotFoundError:
            assert self.shared.held(SessionName(*name).key()) is None
            raise
        while True:
            found = plain(self.shared.hot.state(*name, branch=branch))
            if found["tier"] == "hot":
                break
            assert time.monotonic() < end, f"{name} does not come from hot"
            time.sleep(0.02)
        same = dict.fromkeys(("tier", "reflects"))
        assert found | same == expected | same
        return found

    def outlive(self, session: str = "s") -> dict[str, Any]:
        name = SessionName(self._tenant("t"), session)
        waited(lambda: self.shared.held(name.key()) is None, "hot keeps it for ever")
        return plain(self.shared.hot.state(*name))

    def faults(self) -> int:
        found = self.shared.swept()
        wrong = found.without_ttl + found.without_body + found.without_head
        return wrong + found.malformed + found.strange


def _draft(raw: bytes) -> Draft | None:
    """Return what a turn says, None where it is none."""
    try:
        return draft_from_json(raw)
    except InvalidInputError:
        return None


SHARED: Final = ("cluster",)
BACK: Final = "the same worker as behind `kafka`: it comes back there"
BY_ITSELF: Final = "a worker seals by itself, when a session is quiet"
ERASED_THERE: Final = (
    "every store and topic is looked through in tests/integration/test_kafka_erase.py"
)
FOLDED: Final = frozenset({READ, STATE, LETTERS, CONTEXT, OBJECTS, REOPEN})
LACKS: Final = {SEAL: BY_ITSELF, ERASE: ERASED_THERE}

KAFKA_DOORS: Final = (
    Door("kafka", KafkaDoor, FOLDED | {KILL}, LACKS, services=SHARED),
    Door(
        "kafka-packed",
        PackedDoor,
        FOLDED - {REOPEN},
        LACKS | {REOPEN: BACK},
        services=SHARED,
    ),
    Door(
        "redis",
        RedisDoor,
        frozenset({READ, STATE, LETTERS, OBJECTS, OUTLIVE}),
        LACKS
        | {
            CONTEXT: "messages for a model come from the owner",
            REOPEN: BACK,
        },
        services=SHARED,
        rows=frozenset({6, 22, 23, 24, 25, 26}),
    ),
)
"""Redis gets the rows that are about which session it is, and whether it is there.

After an edit or an end the owner says how a session stands: Redis has frames alone.
"""
