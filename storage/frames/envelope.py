"""A frame as protobuf: for readers that route or resume without reading headers."""

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from turnstate.schemas.errors import CorruptDataError, InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.wire.proto import turnstate_pb2 as pb
from turnstate.schemas.wire.protobuf_walk import FRAME, checked
from turnstate.storage.frames.codec import session_hash
from turnstate.storage.frames.header import DELTA, Header, decode_header

_NEEDED: Final = ("tenant", "session", "incarnation", "from_version", "to_version")


class Enveloped(NamedTuple):
    """A frame and whose it is.

    Attributes:
        name: The session.
        header: The frame's header; the envelope says the same.
        frame: Header and body; `decode_frame` reads it.
        traceparent: The W3C trace context that it came with.
    """

    name: SessionName
    header: Header
    frame: bytes
    traceparent: str | None = None


def enveloped(
    name: SessionName, frame: bytes, *, traceparent: str | None = None
) -> bytes:
    """Return a message `turnstate.v1.Frame` around a frame that left the store.

    Args:
        name: The session, which the frame has only the hash of.
        frame: A self-contained frame.
        traceparent: The W3C trace context, if there is one.

    Raises:
        InvalidInputError: the frame is another session's, or needs a
            dictionary, which its reader would not have.
        CorruptDataError: it is no frame.
    """
    header = decode_header(frame)
    if header.session_hash != session_hash(name.key()):
        raise InvalidInputError("the frame is another session's", field="session")
    if header.flags & DELTA:
        raise InvalidInputError(
            "the frame needs a dictionary", field="frame", hint="write it whole"
        )
    message = pb.Frame(
        tenant=name.tenant,
        session=name.session,
        incarnation=header.incarnation,
        from_version=header.from_version,
        to_version=header.to_version,
        # Its name: the numbers are the header's own.
        kind=f"FRAME_KIND_{header.kind_name.upper()}",
        frame=frame,
        traceparent=traceparent,
    )
    if header.time_ms:
        message.time_ms = header.time_ms
    return message.SerializeToString(deterministic=True)


def open_envelope(raw: bytes) -> Enveloped:
    """Invert `enveloped`; the frame's body is not read.

    Fields of a newer version are passed over: the frame is what counts.

    Raises:
        CorruptDataError: it is no such message, or its fields and the frame's
            header disagree; the field is named.
        UnknownVersionError: a newer version wrote the frame.
    """
    try:
        checked(raw, FRAME)
        message = pb.Frame.FromString(raw)
    except (InvalidInputError, DecodeError) as error:
        raise CorruptDataError(
            f"no envelope of a frame: {error}", field=getattr(error, "field", None)
        ) from error
    for field in (*_NEEDED, "frame"):
        if not message.HasField(field):
            raise CorruptDataError(f"{field} is missing", field=field)
    header = decode_header(message.frame)
    name = SessionName(message.tenant, message.session)
    if header.session_hash != session_hash(name.key()):
        raise CorruptDataError("the frame is another session's", field="session")
    for field, told in (
        ("incarnation", header.incarnation),
        ("from_version", header.from_version),
        ("to_version", header.to_version),
    ):
        if getattr(message, field) != told:
            raise CorruptDataError(f"the frame has another {field}", field=field)
    trace = message.traceparent if message.HasField("traceparent") else None
    return Enveloped(name, header, message.frame, trace)
