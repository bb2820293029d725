"""What a hostile case is, the table of them all, and how their lines are built."""

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from hostile.contract import OpenDoor, Sent


class Case(NamedTuple):
    """One case of one row.

    Attributes:
        row: The row, 1 to 30; 0 = one of our own.
        name: The function's name.
        title: What is right, in a sentence.
        needs: What a door must be able to do.
        play: Sends and asserts.
    """

    row: int
    name: str
    title: str
    needs: frozenset[str]
    play: Callable[[OpenDoor], None]


CASES: Final[list[Case]] = []


def case(row: int, *needs: str) -> Callable[[Callable[[OpenDoor], None]], Any]:
    """Put a function into the table."""

    def put(play: Callable[[OpenDoor], None]) -> Callable[[OpenDoor], None]:
        title = (play.__doc__ or "").strip()
        CASES.append(Case(row, play.__name__, title, frozenset(needs), play))
        return play

    return put


def line(content: Any = "hi", /, **fields: Any) -> bytes:
    """Return a turn as JSON; `content` is left out where it is `...`."""
    turn: dict[str, Any] = {"tenant": "t", "session": "s", "role": "user"}
    if content is not ...:
        turn["content"] = content
    return json.dumps(turn | fields, ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def raw_line(inner: bytes) -> bytes:
    """Return a turn whose last fields are the given bytes."""
    return b'{"tenant":"t","session":"s","role":"user",' + inner + b"}"


def op(name: str, **fields: Any) -> bytes:
    """Return an operation as JSON."""
    return line(..., role="system", op=name, **fields)


def call(arguments: str, call_id: str = "c1") -> dict[str, Any]:
    """Return a tool call."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "search", "arguments": arguments},
    }


def stamp(replica: str, counter: int, lamport: int, **seen: int) -> dict[str, Any]:
    """Return the stamp of a replica with a clock of its own."""
    return {"dot": [replica, counter], "lamport": lamport, "seen": seen}


def accepted(door: OpenDoor, *lines: bytes) -> Sent:
    """Send lines that are all let in."""
    sent = door.send(lines)
    assert sent.counts == (len(lines), 0, 0, 0), sent
    return sent


def refused(door: OpenDoor, code: str, field: str | None, *lines: bytes) -> None:
    """Send lines that are all refused for one reason; good ones still go through."""
    sent = door.send(lines)
    assert sent.counts == (0, 0, 0, len(lines)), sent
    assert {(each.code, each.field) for each in sent.refusals} == {(code, field)}


def contents(turns: Iterable[dict[str, Any]]) -> list[Any]:
    """Return what turns say."""
    return [turn.get("content") for turn in turns]
