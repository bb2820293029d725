"""The envelope of a frame says what its header says, or is refused."""

from collections.abc import Callable

import pytest

from support.framed import frame, turn_record
from support.protobuf_wire import fields_of, held, number
from turnstate.schemas.errors import CorruptDataError, InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.wire.proto import turnstate_pb2
from turnstate.storage.frames.codec import decode_frame, session_hash
from turnstate.storage.frames.envelope import enveloped, open_envelope
from turnstate.storage.frames.header import KINDS
from turnstate.storage.frames.operations import encode_operations

NAME = SessionName("t", "s")
BODY = encode_operations([b"one", b"two"])
DELTA_BODY = b"".join(turn_record(number) for number in range(1, 9))


def one(**fields: object) -> bytes:
    told: dict[str, object] = {
        "session_hash": session_hash(NAME.key()),
        "from_version": 3,
        "to_version": 5,
        "time_ms": 1_700_000_000_000,
    }
    told |= {"body": BODY} | fields
    return frame(**told)  # type: ignore[arg-type]


def test_a_frame_comes_back_with_its_name() -> None:
    raw = enveloped(NAME, one(), traceparent="00-01-02-01")

    found = open_envelope(raw)

    assert (found.name, found.frame, found.traceparent) == (NAME, one(), "00-01-02-01")
    assert (found.header.from_version, found.header.to_version) == (3, 5)
    assert decode_frame(found.frame)[1] == BODY
    message = turnstate_pb2.Frame.FromString(raw)
    assert (message.from_version, message.to_version) == (3, 5)
    assert (message.kind, message.time_ms) == (2, 1_700_000_000_000)
    assert open_envelope(enveloped(NAME, one(time_ms=0))).traceparent is None


def test_kinds_have_the_numbers_of_the_header() -> None:
    for kind, name in KINDS.items():
        assert turnstate_pb2.FrameKind.Value(f"FRAME_KIND_{name.upper()}") == kind


def test_a_newer_field_is_passed_over() -> None:
    assert open_envelope(enveloped(NAME, one()) + number(99, 1)).frame == one()


def test_what_would_not_be_readable_is_not_sent() -> None:
    with pytest.raises(InvalidInputError) as caught:
        enveloped(SessionName("t", "other"), one())
    assert caught.value.field == "session"
    with pytest.raises(InvalidInputError) as caught:
        enveloped(NAME, one(body=DELTA_BODY, dictionary=DELTA_BODY))
    assert caught.value.field == "frame"


def without(at: int) -> Callable[[list[bytes]], list[bytes]]:
    return lambda fields: fields[:at] + fields[at + 1 :]


def put(at: int, field: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda fields: [*fields[:at], field, *fields[at + 1 :]]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (without(0), "tenant"),
        (without(2), "incarnation"),
        (without(7), "frame"),
        (put(1, held(3, b"other")), "session"),
        (put(1, held(3, b"\xff")), "session"),
        (put(2, number(5, 2)), "incarnation"),
        (put(3, number(7, 2)), "from_version"),
        (put(4, number(8, 9)), "to_version"),
        (put(4, held(8, b"9")), "to_version"),
        (put(0, held(2, b"t") * 2), "tenant"),
        (put(7, held(11, b"no frame")), None),
        (put(7, held(11, b"no frame")[:-1]), "frame"),
    ],
)
def test_what_disagrees_is_refused_by_field(
    change: Callable[[list[bytes]], list[bytes]], field: str | None
) -> None:
    fields = change(fields_of(enveloped(NAME, one())))

    with pytest.raises(CorruptDataError) as caught:
        open_envelope(b"".join(fields))
    assert caught.value.field == field
