"""Every turn that was ever written still reads, to the byte, in both forms."""

import json
from typing import Any, Final

import pytest
from compat.make_golden_turns import FILE, main, recorded

from turnstate.schemas.operation import Op, content_hash_of, encode_body
from turnstate.schemas.wire.json import draft_from_json, turn_from_json
from turnstate.schemas.wire.protobuf import (
    draft_from_bytes,
    draft_from_protobuf,
    turn_from_protobuf,
    turn_to_protobuf,
)

VECTORS: Final[list[dict[str, Any]]] = json.loads(FILE.read_text(encoding="utf-8"))

each = pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])


@each
def test_both_forms_are_one_operation(vector: dict[str, Any]) -> None:
    line, raw = vector["json"].encode(), bytes.fromhex(vector["protobuf"])
    drafts = [
        draft_from_json(line),
        draft_from_protobuf(raw),
        draft_from_bytes(line),
        draft_from_bytes(raw),
    ]

    for draft in drafts:
        op = recorded(draft)
        assert op.record.hex() == vector["record"]
        assert op.content_hash.hex() == vector["content_hash"]


@each
def test_the_record_holds_its_hash(vector: dict[str, Any]) -> None:
    op = Op.decode(bytes.fromhex(vector["record"]))

    assert content_hash_of(encode_body(op.body)).hex() == vector["content_hash"]


@each
def test_what_is_written_today_reads_the_same(vector: dict[str, Any]) -> None:
    """Bytes may differ with the library's version; what they say may not."""
    line, raw = vector["json"].encode(), bytes.fromhex(vector["protobuf"])
    for written in (
        turn_to_protobuf(turn_from_json(line)),
        turn_to_protobuf(turn_from_protobuf(raw)),
    ):
        assert recorded(draft_from_protobuf(written)).record.hex() == vector["record"]


def test_golden_turns_are_never_written_again() -> None:
    with pytest.raises(SystemExit):
        main()
