"""What the command says: its documents, its errors, its exit codes."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from support.commands import GOOD, SHAPES, Run, line, lines


def test_every_document_has_the_keys_that_were_agreed(filled: Any) -> None:
    for command, keys in SHAPES.items():
        code, document = filled(*command.split())

        assert code == 0, (command, document)
        assert set(keys) <= document.keys(), command
    assert {"from", "to", "time", "bytes", "raw_bytes", "codec"} <= filled(
        "history", "acme", "a"
    )[1]["versions"][0].keys()
    assert {"tenant", "session", "version", "turn_count", "tier", "digest"} <= filled(
        "sessions"
    )[1]["sessions"][0].keys()
    assert filled("state", "acme", "b")[1]["turns"][0]["content"] == "北京"


def test_publish_counts_and_strict_says_so_by_its_exit_code(told: Any) -> None:
    mixed = GOOD + lines(line("a", 1, "something else"), b'{"tenant":"acme"}', b"oh")

    code, document = told("publish", "-", stdin=mixed)

    assert code == 0
    assert list(document) == [
        "turns",
        "accepted",
        "duplicates",
        "conflicts",
        "refused",
        "sessions",
        "seconds",
        "turns_per_s",
    ]
    assert [document[name] for name in list(document)[:6]] == [6, 3, 0, 1, 2, 2]
    code, again = told("publish", "-", "--strict", stdin=GOOD)
    assert (code, again["duplicates"]) == (1, 3)
    code, handed_over = told("publish", "-", "--no-wait", stdin=GOOD)
    assert (handed_over["duplicates"], handed_over["conflicts"]) == (None, None)
    letters = told("dead-letters", "list")[1]["dead_letters"]
    assert len(letters) == 3
    keys = ["id", "reason", "field", "topic", "partition", "offset", "time"]
    assert set(keys) <= letters[0].keys()


def test_gz_files_and_several_files_are_read(told: Any, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl.gz").write_bytes(gzip.compress(GOOD))
    (tmp_path / "two.jsonl").write_bytes(lines(line("c", 1)))

    code, document = told("publish", "one.jsonl.gz", "two.jsonl")

    assert (code, document["accepted"], document["sessions"]) == (0, 4, 3)


def test_a_dead_letter_gives_its_bytes_back(filled: Any, run: Run) -> None:
    run("publish", "-", stdin=b'{"tenant":"acme","role":"user"}\n')

    assert run("dead-letters", "show", "1", "--raw").stdout == (
        b'{"tenant":"acme","role":"user"}'
    )
    code, document = filled("dead-letters", "redrive", "1")
    assert (code, document["refused"]) == (0, 1)
    assert filled("dead-letters", "discard", "--all")[0] == 0
    assert filled("dead-letters", "list")[1] == {"dead_letters": []}


@pytest.mark.parametrize(
    ("arguments", "code", "name"),
    [
        ("state acme", 2, "usage"),
        ("state acme nobody", 3, "not_found"),
        ("state acme a --version 99", 3, "not_found"),
        ("state acme a --branch nowhere", 3, "not_found"),
        ("state acme a --since 99", 3, "not_found"),
        ("turns acme nobody", 3, "not_found"),
        ("rollback acme nobody 1", 3, "not_found"),
        ("dead-letters show 77", 3, "not_found"),
        ("fork acme a other", 4, "branch_exists"),
        ("publish missing.jsonl", 2, "unreadable_file"),
    ],
)
def test_an_error_has_its_exit_code_and_its_words(
    filled: Any, run: Run, arguments: str, code: int, name: str
) -> None:
    filled("fork", "acme", "a", "other")
    found, document = filled(*arguments.split())

    assert (found, document["error"]["code"]) == (code, name)
    assert list(document["error"]) == ["code", "message", "field", "hint"]
    plain = run(*arguments.split())
    assert (plain.returncode, plain.stdout) == (code, b"")
    assert plain.stderr.startswith(b"error: ")
    assert plain.stderr.count(b"\n") == 1


def test_brokers_that_do_not_answer_are_waited_for_and_named(told: Any) -> None:
    code, document = told("sessions", "--profile", "cluster")

    assert (code, document["error"]["code"]) == (6, "unavailable")
    assert list(document["error"]) == ["code", "message", "field", "hint"]


def test_an_empty_store_lists_nothing_and_that_is_no_error(told: Any) -> None:
    assert told("sessions") == (0, {"sessions": []})
    assert told("verify")[0] == 0
    assert told("dead-letters", "list") == (0, {"dead_letters": []})


def test_recordings_travel_and_replay_finds_what_differs(
    filled: Any, tmp_path: Path
) -> None:
    assert filled("export", "all.tsrec")[0] == 0
    assert filled("export", "all.tsrec")[0] == 4  # it is there
    assert filled("export", "all.jsonl.gz")[0] == 0
    for recording in ("all.tsrec", "all.jsonl.gz"):
        code, report = filled("replay", recording, "--against", ".turnstate")
        assert (code, report["equal"], report["different"]) == (0, 2, [])
        assert report.keys() >= {"turns", "sessions", "missing", "turns_per_s"}
    copied = filled("import", "all.tsrec", "--data", "copy")[1]
    assert copied["accepted"] == 3
    again = filled("import", "all.jsonl.gz", "--data", "copy")[1]
    assert (again["accepted"], again["duplicates"]) == (0, 3)
    assert filled("replay", "all.tsrec", "--shuffle", "7", "--against", "copy")[0] == 0

    filled("publish", "-", stdin=lines(line("a", 3), line("c", 1)))
    code, report = filled("replay", "all.tsrec", "--against", ".turnstate")
    assert code == 1
    assert report["different"] == [
        {"tenant": "acme", "session": "a", "field": "version"}
    ]
    assert [row["session"] for row in report["missing"]] == ["c"]

    whole = (tmp_path / "all.tsrec").read_bytes()
    (tmp_path / "cut.tsrec").write_bytes(whole[:-20])
    assert filled("replay", "cut.tsrec")[0] == 5
    assert filled("import", "cut.tsrec", "--data", "never")[0] == 5
    assert filled("sessions", "--data", "never") == (0, {"sessions": []})


def test_damage_is_found_and_exits_5(filled: Any, run: Run, tmp_path: Path) -> None:
    filled("seal")
    tables = sorted((tmp_path / ".turnstate" / "store").glob("*.sst"))
    assert tables
    for table in tables:
        data = bytearray(table.read_bytes())
        data[len(data) // 4] ^= 0xFF
        table.write_bytes(data)

    assert run("verify").returncode == 5


def test_tail_gives_one_document_a_line(filled: Any, run: Run) -> None:
    done = run("tail", "acme", "a", "--from", "0", "--no-follow", "--json")

    events = [json.loads(each) for each in done.stdout.splitlines()]
    assert [event["version"] for event in events] == [1, 2]
    rest = run("tail", "acme", "a", "--from", events[0]["token"], "--no-follow")
    assert rest.stdout.startswith(b"1-2\t")


def test_the_demo_does_the_main_job(told: Any, tmp_path: Path) -> None:
    code, document = told("demo")

    assert (code, document["holds"]) == (0, True)
    assert document["replay"]["equal"] == document["sessions"] > 0
    assert document["verify"]["bad"] == []
    assert all(sample["slots"] for sample in document["samples"])
    assert list(tmp_path.iterdir()) == []  # it leaves nothing behind
