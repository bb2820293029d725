"""Publishing counts every line once, in order, and follows a live producer."""

import io
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from turnstate.agents.session.step import Answer
from turnstate.replay.readers import Refusal
from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.cli.publishing import (
    BATCH_LINES,
    Counts,
    _Followed,
    _Pace,
    publish_files,
)
from turnstate.streams.embedded.letters import dead_letter, dead_letters
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings


def line(session: str, turn: int | None, text: str = "hi") -> bytes:
    name = f'"turn_id":"{turn}",' if turn is not None else ""
    return (
        f'{{"tenant":"t","session":"{session}",{name}'
        f'"role":"user","content":"{text}"}}\n'
    ).encode()


def written(folder: Path, *lines: bytes) -> list[str]:
    path = folder / "turns.jsonl"
    path.write_bytes(b"".join(lines))
    return [str(path)]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with EmbeddedStore(Settings(data=tmp_path / "data")) as opened:
        yield opened


def test_every_line_is_counted_once(store: Any, tmp_path: Path) -> None:
    files = written(
        tmp_path,
        line("a", 1),
        line("a", 1),
        line("a", 1, "other"),
        line("b", 1),
        b"\n",
        b'{"tenant":"t"}\n',
        b"no json\n",
    )

    counts = publish_files(store, files, "turns")

    assert counts.document(waited=True) == {
        "turns": 6,
        "accepted": 2,
        "duplicates": 1,
        "conflicts": 1,
        "refused": 2,
        "sessions": 2,
        "seconds": round(counts.seconds, 3),
        "turns_per_s": round(6 / counts.seconds, 1),
    }
    assert not counts.is_clean


def test_more_than_a_batch_keeps_its_order(store: Any, tmp_path: Path) -> None:
    count = 2 * BATCH_LINES + 7
    files = written(tmp_path, *(line("a", number) for number in range(count)))

    assert publish_files(store, files, "turns").accepted == count
    turns = store.turns("t", "a", limit=count)["turns"]
    assert [turn["turn_id"] for turn in turns] == [str(n) for n in range(count)]


def test_a_line_that_a_format_refuses_never_gets_in(store: Any, tmp_path: Path) -> None:
    # By itself this is a turn, and no corpus line: its time is a word.
    bad = b'{"tenant":"t","session":"a","turn":0,"role":"user","text":"x","ts_ms":"y"}'
    good = b'{"tenant":"t","session":"b","turn":0,"role":"user","text":"x"}'
    files = written(tmp_path, good + b"\n", bad + b"\n")

    counts = publish_files(store, files, "corpus")

    assert (counts.accepted, counts.refused) == (1, 1)
    assert [row["session"] for row in store.sessions()] == ["b"]


def test_what_a_format_refuses_is_kept_as_it_came(store: Any, tmp_path: Path) -> None:
    bad = b'{"tenant":"t","session":"a","turn":0,"role":"user","text":"x","ts_ms":"y"}'
    good = b'{"tenant":"t","session":"b","turn":0,"role":"user","text":"x"}'

    publish_files(store, written(tmp_path, good + b"\n", bad + b"\n"), "corpus")

    (letter,) = dead_letters(store)["dead_letters"]
    assert letter["field"] == "ts_ms"
    assert dead_letter(store, letter["id"]).raw == bad


def test_a_recorded_operation_is_no_line(store: Any, tmp_path: Path) -> None:
    recorded = b"\x93\xa1t\xa1s\xc4\x01x"

    counts = publish_files(
        store, written(tmp_path, line("a", 1) + recorded + b"\n"), "turns"
    )

    assert (counts.accepted, counts.refused) == (1, 1)
    (letter,) = dead_letters(store)["dead_letters"]
    assert dead_letter(store, letter["id"]).raw == recorded


def test_without_waiting_what_became_of_turns_is_not_known(
    store: Any, tmp_path: Path
) -> None:
    files = written(tmp_path, line("a", 1), b"oh\n", line("b", 1))

    document = publish_files(store, files, "turns", wait=False).document(waited=False)

    assert document["accepted"] == 2
    assert document["refused"] == 1
    assert document["sessions"] == 2
    assert document["duplicates"] is None
    assert document["conflicts"] is None


def test_a_missing_file_is_named_before_anything_is_published(
    store: Any, tmp_path: Path
) -> None:
    files = [*written(tmp_path, line("a", 1)), str(tmp_path / "missing")]

    with pytest.raises(InvalidInputError, match="missing"):
        publish_files(store, files, "turns")
    assert list(store.sessions()) == []


def test_a_rate_bounds_the_lines_read_a_second() -> None:
    start = time.monotonic()
    lines = list(_Pace(200.0).paced(iter([b"x"] * 40), lambda: None))

    assert len(lines) == 40
    assert 39 / 200 <= time.monotonic() - start < 2.0


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_is_above_nought(rate: float) -> None:
    with pytest.raises(InvalidInputError, match="rate"):
        _Pace(rate)


def test_a_pause_of_the_producer_sends_on_what_was_read() -> None:
    ours, theirs = os.pipe()
    flushed = threading.Event()
    with os.fdopen(ours, "rb") as reading, os.fdopen(theirs, "wb", 0) as writing:
        followed = _Followed(reading, flushed.set)
        writing.write(b"one\n")
        assert followed.read1(100) == b"one\n"
        assert not flushed.is_set()
        later = threading.Timer(0.2, writing.write, [b"two\n"])
        later.start()
        assert followed.read1(100) == b"two\n"
        assert flushed.is_set()
        later.join()


def test_a_file_that_cannot_be_asked_is_read_all_the_same() -> None:
    followed = _Followed(io.BytesIO(b"one"), lambda: None)

    assert followed.read(100) == b"one"


def test_another_process_is_handed_batches_in_order(tmp_path: Path) -> None:
    class Door:
        def __init__(self) -> None:
            self.seen: list[bytes] = []

        def publish(self, records: Sequence[bytes], refused: object) -> list[Answer]:
            assert not refused
            self.seen += records
            return [Answer(accepted, 1, "x")] * len(records)

    from turnstate.schemas.admission import Verdict

    accepted = Verdict.ACCEPTED
    door = Door()
    lines = [line("a", number) for number in range(3 * BATCH_LINES)]

    counts = publish_files(door, written(tmp_path, *lines), "turns")

    assert counts.accepted == len(lines)
    assert door.seen == [each.rstrip(b"\n") for each in lines]


def test_nothing_at_all_is_clean() -> None:
    assert Counts().is_clean
    assert Refusal(1, None, "why", "code", b"").raw == b""
