"""What worlds have found, cut to the fewest steps that show it."""

from msgspec import Raw

from support.offline import Offline
from support.region import Region
from support.strategies import GRAPH
from turnstate.agents.session.recorded import recorded_bytes
from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.head import Head, digest
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Body
from turnstate.schemas.turn import Slots, Turn
from turnstate.schemas.wire.json import turn_to_json
from turnstate.storage.session_reader import chunks, fold_at
from turnstate.streams.clock import VirtualClock

NAME = SessionName("t", "s")
KEY = NAME.key()


def said(turn_id: str, content: str = "hi") -> bytes:
    return turn_to_json(Turn(*NAME, "user", turn_id=turn_id, content=content))


def copy_of(turn_id: str, content: str = "hi") -> bytes:
    """Return the same turn as another region stamped it."""
    body = Body(role="user", content=content)
    op = Offline("us").write(KEY, body, (), turn_id=turn_id)
    return recorded_bytes(NAME, op.record)


def read(region: Region, version: int) -> Head:
    return fold_at(region.store, KEY, region.stored(KEY), version, GRAPH).head()


def every_version_reads(region: Region) -> None:
    state = DialogueState.empty(GRAPH)
    for version, op in enumerate(region.ops(KEY), start=1):
        state = state.apply([op])
        assert digest(read(region, version)) == state.digest(), version


def test_a_rollback_sees_the_turns_of_its_own_batch() -> None:
    back = turn_to_json(Turn(*NAME, "system", op="rollback", to={"eu": 1}))
    batches = [[said("a"), said("b"), back], [said("a")], [said("b"), back]]
    digests: set[bytes] = set()
    for split in (batches[:1], batches[1:]):
        region = Region("eu", VirtualClock(1))
        for batch in split:
            region.handle(batch)
        assert region.ops(KEY)[2].parents == (Dot("eu", 1),)
        digests.add(digest(region.stored(KEY).head))
    assert len(digests) == 1


def test_a_rollback_behind_an_erase_does_not_see_the_life_before() -> None:
    erase = turn_to_json(Turn(*NAME, "system", op="erase"))
    back = turn_to_json(Turn(*NAME, "system", op="rollback", to={"eu": 2}))
    region = Region("eu", VirtualClock(1))
    region.handle([said("a"), said("b")])
    region.handle([erase, said("c"), back])
    assert region.stored(KEY).head.incarnation == 2
    assert region.ops(KEY)[1].parents == (Dot("eu", 1),)


def test_a_segment_does_not_know_an_id_before_it_came() -> None:
    """The second frame notes what answers to the id; the first one brought it."""
    region = Region("eu", VirtualClock(1))
    region.handle([said("p")])
    region.handle([copy_of("p")])
    assert region.stored(KEY).head.turn_count == 1
    region.seal(KEY)
    every_version_reads(region)
    assert read(region, 1).turn_count == 1


def test_a_second_segment_knows_the_ids_of_the_first() -> None:
    """One frame becomes two segments; a turn of the second copies one of the first."""
    region = Region("eu", VirtualClock(1))
    plain = [said(f"p{number}") for number in range(120)]
    region.handle([*plain[:100], copy_of("p3"), *plain[100:]])
    region.seal(KEY)
    assert len(list(chunks(region.store, KEY, region.stored(KEY)))) > 1
    assert read(region, 121).turn_count == 120
    every_version_reads(region)


def test_a_frame_keeps_a_state_as_it_was_before_a_redaction_behind_it() -> None:
    """Two turns start from a turn that is redacted between them, all in one batch."""
    region = Region("eu", VirtualClock(1))
    slots = Slots(set={"food": Raw(b'"a"')})
    region.handle([turn_to_json(Turn(*NAME, "user", turn_id="a", slots=slots))])
    region.handle([said("b"), said("c")])
    region.seal(KEY)
    hide = turn_to_json(Turn(*NAME, "system", op="redact", target="a"))
    late = [
        turn_to_json(Turn(*NAME, "user", content="no", parent="a")) for _ in range(2)
    ]
    region.handle([late[0], hide, late[1]])
    every_version_reads(region)
    region.handle([turn_to_json(Turn(*NAME, "user", content="oh", parent="a"))])
    region.seal(KEY)
    every_version_reads(region)
