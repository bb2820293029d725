"""A turn that is sent again has an id, so that the fold knows it."""

import msgspec
import pytest

from turnstate.schemas.turn import Stamp, Turn
from turnstate.schemas.wire.json import draft_from_json, turn_to_json
from turnstate.schemas.wire.protobuf import turn_to_protobuf
from turnstate.streams.kafka.dead_letters import _with_id
from turnstate.streams.kafka.letter_records import LetterId

LETTER = LetterId(3, 17)
TURN = Turn("acme", "chat", "user", content="hi")


@pytest.mark.parametrize(
    "raw",
    [
        turn_to_json(TURN),
        b'{"tenant":"acme","session":"chat","role":"user","content":"hi"} \n',
        b'{"turn_id":null,"tenant":"acme","session":"chat","role":"user","content":"hi"}',
        turn_to_protobuf(TURN),
    ],
)
def test_a_turn_without_an_id_gets_that_of_its_letter(raw: bytes) -> None:
    sent, _ = _with_id(raw, None, LETTER)
    draft = draft_from_json(sent)
    assert draft.turn_id == "redriven:3-17"
    assert draft.content_hash == draft_from_json(turn_to_json(TURN)).content_hash
    assert _with_id(sent, None, LetterId(5, 1))[0] == sent


@pytest.mark.parametrize(
    "raw",
    [
        turn_to_json(TURN.with_(turn_id="t1")),
        turn_to_json(TURN.with_(stamp=Stamp(("eu", 1), 1), parent=None)),
        turn_to_protobuf(TURN.with_(turn_id="t1")),
        b"nope",
        b"",
        b"{}",
        b"[]",
        b"\xc1\x01\x90",
        b"\x12\x01",
        b'{"tenant":' + b"[" * 10_000,
    ],
)
def test_anything_else_is_sent_as_it_came(raw: bytes) -> None:
    assert _with_id(raw, None, LETTER) == (raw, None)


def test_what_is_refused_for_another_field_gets_an_id_too() -> None:
    sent, _ = _with_id(b'{"role":"user"}', "application/json", LETTER)
    assert msgspec.json.decode(sent) == {"role": "user", "turn_id": "redriven:3-17"}
