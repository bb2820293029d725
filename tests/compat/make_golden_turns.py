"""Write the golden turns of both wire forms, once.

    python tests/compat/make_golden_turns.py

It refuses where they are there: old bytes are what old programs wrote. Each
vector is a turn as JSON, as protobuf, and what both have to become: the
canonical record of the operation and the content hash, in hex. A turn without
stamp is recorded as the first of replica `log`: counter and Lamport time 1,
nothing seen, its own parents or none.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from msgspec import UNSET

from support.protobuf_wire import number
from turnstate.schemas.clocks import Dot
from turnstate.schemas.draft import Draft, stamped_op
from turnstate.schemas.operation import MAIN, Op
from turnstate.schemas.wire.json import draft_from_json, turn_from_json, turn_to_json
from turnstate.schemas.wire.protobuf import turn_from_protobuf, turn_to_protobuf

FILE: Final = Path(__file__).parent / "golden" / "turns" / "v1.json"

_CALL: Final = {
    "id": "c1",
    "type": "function",
    "function": {"name": "find", "arguments": '{"q": "a\\u00e9'},
}
_SEEN: Final = {"eu:长": 6, "us": [1, 2, 4, 9]}
_STAMP: Final = {"dot": ["eu:长", 7], "lamport": 9, "seen": _SEEN}

TURNS: Final[dict[str, dict[str, Any]]] = {
    "bare": {},
    "text": {"turn_id": "u1", "content": "你好 \0 🙂 \\u0041", "time": 1705975097379},
    "empty": {"content": "", "name": "", "slots": {}, "tags": {}, "usage": {}},
    "null content": {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    "parts": {"content": [{"type": "text", "text": "a"}, 1e2, None]},
    "no parts": {"content": []},
    "a root": {"parent": None, "branch": "b", "content": "x"},
    "two parents": {"parent": ["@eu:1", "an id"], "content": "x"},
    "slots": {
        "slots": {
            "set": {"n": 123456789012345678901234567890, "a": [1.0, -0.0], "z": None},
            "delete": ["y", "x", "y"],
        },
        "tags": {"add": ["b", "a"], "remove": ["c"]},
        "usage": {"out": 9007199254740991, "in": -3},
    },
    "described": {
        "intent": "inform",
        "confidence": 0.1,
        "action": "offer",
        "stage": "p",
        "user": "w",
        "continues": "u0",
        "time": "2024-05-01T12:00:00.5+02:00",
        "metadata": {"b": 1, "a": {"é": "\u2028"}, "n": 10**400},
        "request_id": "r",
        "if_version": 0,
    },
    "a tool's": {"role": "tool", "tool_call_id": "c1", "content": "{}"},
    "unknown fields": {"mood": {"b": 1, "a": []}, "extra": {"a": "YQ=="}, "x": None},
    "stamped": {"stamp": _STAMP, "parent": ["@us:2"], "content": "x", "turn_id": "t"},
    "stamped again": {"stamp": _STAMP | {"incarnation": 2}, "parent": None},
    "edit": {"op": "edit", "target": "u1", "content": None},
    "redact": {"op": "redact", "target": "@log:3"},
    "rollback": {"op": "rollback", "to": {"log": 3, "eu": [1, 2, 4, 9]}},
    "fork": {"op": "fork", "branch": "f1", "target": "u1"},
    "end": {"op": "end", "to": "s2"},
    "erase": {"op": "erase", "incarnation": 3},
}


def recorded(draft: Draft) -> Op:
    """Return the operation of a draft, stamped as the file says."""
    if draft.stamp is not None:
        return stamped_op(draft)
    return Op.stamped(
        draft.body,
        draft.body_bytes,
        dot=Dot("log", 1),
        lamport=1,
        seen={},
        incarnation=1,
        parents=() if draft.parents is UNSET else draft.parents,
        branch=draft.branch or MAIN,
        turn_id=draft.turn_id,
        time=draft.time,
        content_hash=draft.content_hash,
    )


def vectors() -> list[dict[str, str]]:
    """Return the vectors of this program."""
    made: list[dict[str, str]] = []
    for name, fields in TURNS.items():
        turn = {"tenant": "t", "session": "s", "role": "user"} | fields
        line = json.dumps(turn, ensure_ascii=False)
        raw = turn_to_protobuf(turn_from_json(line.encode()))
        made.append(_vector(name, line, raw))
    newer = turn_to_protobuf(turn_from_json(b'{"tenant":"t","session":"s","role":"u"}'))
    newer += number(99, 5)
    line = turn_to_json(turn_from_protobuf(newer)).decode()
    made.append(_vector("a newer producer's", line, newer))
    return made


def _vector(name: str, line: str, protobuf: bytes) -> dict[str, str]:
    op = recorded(draft_from_json(line.encode()))
    return {
        "name": name,
        "json": line,
        "protobuf": protobuf.hex(),
        "record": op.record.hex(),
        "content_hash": op.content_hash.hex(),
    }


def main() -> None:
    """Write the file."""
    if FILE.exists():
        raise SystemExit(f"{FILE} is written; it stays as it is")
    FILE.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n"
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
