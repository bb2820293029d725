"""Every frame that was ever written still reads, by us and by FORMAT.md alone."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from compat import other_reader
from compat.make_golden import GOLDEN, main, record_hash

from turnstate.storage.frames import header
from turnstate.storage.frames.chain import link_of, verify_chain
from turnstate.storage.frames.codec import decode_frame
from turnstate.storage.frames.header import Header
from turnstate.storage.frames.operations import PositionRange, decode_operations
from turnstate.storage.frames.segment import open_segment

FILES: Final = sorted(GOLDEN.glob("v*/*.bin"))
CHAIN: Final = sorted(GOLDEN.glob("v1/chain_*.bin"))
"""Sealed later as `segment_sealed.bin`."""

each_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}"
)


def expected_of(path: Path) -> dict[str, Any]:
    text = (path.parent / "expected.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)[path.name]
    return found


def dictionary_for(path: Path) -> bytes:
    return bytes.fromhex(expected_of(path).get("dictionary", ""))


def key_for(path: Path) -> bytes:
    return bytes.fromhex(expected_of(path)["key"] or "")


def as_told(spans: list[PositionRange]) -> list[Any]:
    return [
        [one.log.hex(), one.partition, list(one.first), list(one.last)] for one in spans
    ]


def test_every_format_version_has_files() -> None:
    versions = {path.parent.name for path in FILES}

    assert versions == {f"v{n}" for n in range(1, header.FORMAT_VERSION + 1)}
    assert len(FILES) >= 11


@each_file
def test_its_header_says_what_it_said(path: Path) -> None:
    told = expected_of(path)
    found: Header = header.decode_header(path.read_bytes())

    assert found.kind_name == told["kind"]
    assert found.codec_name == told["codec"]
    assert (found.key_id, found.time_ms) == (told["key_id"], told["time_ms"])
    assert found.session_hash.hex() == told["session_hash"]
    assert found.incarnation == told["incarnation"]
    assert [found.from_version, found.to_version] == told["versions"]
    assert found.previous_link.hex() == told["previous_link"]
    assert link_of(path.read_bytes(), key_for(path)).hex() == told["link"]


@each_file
def test_its_body_holds_what_it_held(path: Path) -> None:
    told = expected_of(path)
    data = path.read_bytes()
    found, body = decode_frame(data, dictionary=dictionary_for(path))
    if found.kind == header.HEAD:
        assert body.hex() == told["body"]
        return
    if found.kind == header.SEGMENT:
        segment = open_segment(data)
        records, positions, bases = segment.records(), segment.positions, segment.bases
        assert segment.start_head.hex() == told.get("start_head", "")
        assert segment.replaced_link.hex() == told.get("replaced_link", "00" * 16)
    else:
        records, positions, bases = decode_operations(body)

    assert [record_hash(record) for record in records] == told["records"]
    assert as_told(positions) == told["positions"]
    assert [
        [dot.replica, dot.counter, state.hex()] for dot, state in sorted(bases.items())
    ] == told["bases"]


@each_file
def test_the_page_is_enough_to_read_it(path: Path) -> None:
    told = expected_of(path)
    data = path.read_bytes()
    found = other_reader.read_frame(data, dictionary_for(path))

    for name, value in found._asdict().items():
        if name != "body":
            assert value == told[name], name
    assert other_reader.link(data, key_for(path)) == told["link"]
    if found.kind == "head":
        assert found.body.hex() == told["body"]
        return
    if found.kind == "segment":
        value, records = other_reader.read_segment(found.body)
        positions, bases = value[2:4]
        assert value[0].hex() == told.get("start_head", "")
        assert value[1].hex() == told.get("replaced_link", "00" * 16)
    else:
        value, end = other_reader.unpack(found.body)
        assert end == len(found.body)
        records, positions, bases = value

    assert [record_hash(record) for record in records] == told["records"]
    assert [[one[0].hex(), *one[1:]] for one in positions] == told["positions"]
    assert [[name, counter, state.hex()] for name, counter, state in bases] == told[
        "bases"
    ]


def test_both_chains_hold_and_the_segment_knows_the_link_it_replaced() -> None:
    frames = [path.read_bytes() for path in CHAIN]
    sealed = CHAIN[0].with_name("segment_sealed.bin")
    keys = {1: key_for(sealed)}

    newest = verify_chain(frames, keys=keys)

    assert newest.hex() == expected_of(sealed)["replaced_link"]
    verify_chain([sealed.read_bytes()], keys=keys)


def test_golden_files_are_never_written_again() -> None:
    with pytest.raises(SystemExit):
        main()
