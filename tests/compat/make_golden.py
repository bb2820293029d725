"""Write the golden files of a format version that has none yet.

Run once, when a format version is born:

    python tests/compat/make_golden.py

It refuses where the folder of the version is there: old bytes are what old
programs wrote, and no later program may write them again. Each file holds one
frame; `expected.json` says what has to come out of it, and the dictionary or
key that it needs.
"""

import json
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.framed import SESSION, frame, frames_of, segment, turn_record, turn_records
from turnstate.schemas.clocks import Dot
from turnstate.schemas.operation import Body, Op, encode_body
from turnstate.storage.frames import header
from turnstate.storage.frames.chain import START_LINK, link_of
from turnstate.storage.frames.codec import SMALL, dictionary_of
from turnstate.storage.frames.operations import PositionRange, encode_operations
from turnstate.storage.frames.segment import Contents, encode_segment

KEY: Final = b"a key of the golden files"
GOLDEN: Final = Path(__file__).parent / "golden"


def odd_records() -> list[bytes]:
    """Return records that use every field and every column."""
    records = [
        turn_record(1, role="system", content="你好 \0 🙂", user="u-1", stage="start"),
        turn_record(2, content=None, tool_calls=b'[{"id":"c1"}]', action="offer"),
        turn_record(3, role="tool", tool_call_id="c1", content="x" * 70_000),
        turn_record(4, slot_set={f"slot {n:02}": b'"v"' for n in range(20)}),
        turn_record(5, slot_delete=["a"], tag_add=["t"], tag_remove=["u"]),
        turn_record(6, usage={"cost": -2, "tokens": 900}, confidence=0.25),
        turn_record(7, extra={"later": b'{"n":123456789012345678901}'}, name="n"),
        b"no record at all",
    ]
    bodies = [
        Body(role="user", parts=b'[{"type":"text","text":"a"}]'),
        Body(role="system", op="rollback", to={"log": 3, "eu": [1, 2, 4, 9]}),
        Body(role="system", op="end", to="the next session"),
        Body(role="user", content="late", continues="3", intent="Inform"),
    ]
    records += [
        Op.stamped(
            body,
            encode_body(body),
            dot=Dot("eu:长", 300 + 7 * at),
            lamport=70_000 + at,
            seen={"eu:长": (1, 5, 7, 9), "log": 7},
            incarnation=1,
            parents=(Dot("log", 7), "an id"),
            branch="side",
            turn_id=("9f1c2d3e-0000-4000-8000-00000000000a", "t-9", None, "x")[at],
            time=("2024-01-01T00:00:00+02:00", -5, None, 1 << 40)[at],
        ).record
        for at, body in enumerate(bodies)
    ]
    stub = Op.decode(turn_record(8, slot_set={"secret": b"1"}, tag_add=["s"])).stub()
    return [*records, stub.record]


def golden_frames() -> dict[str, tuple[bytes, dict[str, Any]]]:
    """Return file name → (frame, what is needed and what has to come out)."""
    plain, odd = turn_records(70), odd_records()
    position = PositionRange(bytes(range(16)), 3, (1 << 40, 0), ((1 << 40) + 9, 2))
    bases = {Dot("log", 2): b"state two", Dot("eu", 9): b"state nine"}
    dictionary = dictionary_of(b"".join(plain[:60]))
    chain = frames_of(plain, [2, 1, 3], key=KEY)
    delta = frame(
        encode_operations(plain[60:62]),
        from_version=60,
        to_version=62,
        dictionary=dictionary,
    )
    came_from = PositionRange(b"the log", 0, (0, 0), (5, 0))
    sealed = encode_segment(
        Contents(plain[:6], b"", link_of(chain[-1], KEY), [came_from]),
        session_hash=SESSION,
        incarnation=1,
        from_version=0,
        previous_link=START_LINK,
        key_id=1,
        time_ms=1 << 41,
    )
    made: dict[str, tuple[bytes, dict[str, Any]]] = {
        "head.bin": (
            frame(b"a head " * 40, kind=header.HEAD, from_version=9, to_version=9),
            {"body": (b"a head " * 40).hex()},
        ),
        "frame_raw.bin": (
            frame(encode_operations([odd[7]], [position], bases), key_id=7, time_ms=5),
            {"records": [odd[7]], "positions": [position], "bases": bases},
        ),
        "frame_lz4.bin": (
            frame(
                encode_operations(plain[:3]), to_version=3, incarnation=(1 << 53) - 1
            ),
            {"records": plain[:3]},
        ),
        "frame_lz4hc.bin": (
            frame(encode_operations(odd), to_version=len(odd), level=SMALL),
            {"records": odd},
        ),
        "frame_delta.bin": (
            delta,
            {"records": plain[60:62], "dictionary": dictionary.hex()},
        ),
        "segment_plain.bin": (
            segment(plain[:64], positions=[position]),
            {"records": plain[:64], "positions": [position]},
        ),
        "segment_odd.bin": (
            segment(odd, after=64, start_head=b"the head before", bases=bases),
            {"records": odd, "bases": bases, "start_head": b"the head before".hex()},
        ),
        "segment_sealed.bin": (
            sealed,
            {
                "records": plain[:6],
                "positions": [came_from],
                "replaced_link": link_of(chain[-1], KEY).hex(),
            },
        ),
    }
    for at, one in enumerate(chain):
        begin, end = ((0, 2), (2, 3), (3, 6))[at]
        came_from = PositionRange(b"the log", 0, (begin, 0), (end - 1, 0))
        told = {"records": plain[begin:end], "positions": [came_from]}
        made[f"chain_{at}.bin"] = (one, told)
    return made


def record_hash(record: bytes) -> str:
    """Return what stands for a record in `expected.json`."""
    return blake2b(record, digest_size=16).hexdigest()


def expectation(data: bytes, told: dict[str, Any]) -> dict[str, Any]:
    """Return what stands in `expected.json` about one frame."""
    fields = header.decode_header(data)
    keyed = fields.key_id == 1
    return {
        **told,
        "records": [record_hash(record) for record in told.get("records", [])],
        "positions": [
            [span.log.hex(), span.partition, span.first, span.last]
            for span in told.get("positions", [])
        ],
        "bases": [
            [dot.replica, dot.counter, state.hex()]
            for dot, state in sorted(told.get("bases", {}).items())
        ],
        "kind": fields.kind_name,
        "codec": fields.codec_name,
        "key_id": fields.key_id,
        "time_ms": fields.time_ms,
        "session_hash": fields.session_hash.hex(),
        "incarnation": fields.incarnation,
        "versions": [fields.from_version, fields.to_version],
        "previous_link": fields.previous_link.hex(),
        "key": KEY.hex() if keyed else None,
        "link": link_of(data, KEY if keyed else None).hex(),
    }


def main() -> None:
    """Write the files of the format version that this program writes."""
    folder = GOLDEN / f"v{header.FORMAT_VERSION}"
    if any(folder.glob("*.bin")):
        raise SystemExit(f"{folder} is written; it stays as it is")
    folder.mkdir(parents=True, exist_ok=True)
    expected: dict[str, dict[str, Any]] = {}
    for name, (data, told) in golden_frames().items():
        (folder / name).write_bytes(data)
        expected[name] = expectation(data, told)
    text = json.dumps(expected, indent=1, sort_keys=True) + "\n"
    (folder / "expected.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
