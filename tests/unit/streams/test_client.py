"""The Python API: plain values in and out, in the owner's process and beside it."""

import asyncio
import re
import runpy
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.source import ROOT
from support.told import places
from turnstate.schemas.admission import Verdict
from turnstate.schemas.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    TurnstateError,
    UnavailableError,
)
from turnstate.schemas.turn import Turn
from turnstate.streams import client as clients
from turnstate.streams.client import AsyncClient, Client
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.embedded.remote import RemoteStore


@pytest.fixture(params=["owning", "beside"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    with clients.open(tmp_path) as first:
        assert isinstance(first.store, OwnedStore)
        if request.param == "owning":
            yield first
            return
        with clients.open(tmp_path) as second:
            assert isinstance(second.store, RemoteStore)
            yield second


def told(**fields: Any) -> dict[str, Any]:
    return {"tenant": "t", "session": "s", "role": "user", **fields}


def test_a_turn_may_be_a_dict_a_turn_or_json(client: Client) -> None:
    assert client.publish(told(content="a")).version == 1
    assert client.publish(Turn("t", "s", "user", content="b")).version == 2
    assert client.publish(b'{"tenant":"t","session":"s","role":"user"}').version == 3
    shown = client.turns("t", "s")["turns"]
    assert [turn.get("content", "none") for turn in shown] == ["a", "b", "none"]


def test_values_come_back_as_plain_python_and_exact(client: Client) -> None:
    value = {"n": [2**53 + 1, 2**64, -(2**63) - 1, 1.5, None, True], "s": "\u4f60\0"}
    client.publish(told(slots={"set": {"x": value}}, metadata=value))
    state = client.state("t", "s")
    assert state["slots"] == {"x": {"value": value, "siblings": []}}
    assert state["turns"][0]["metadata"] == value
    assert type(state["slots"]["x"]["value"]["n"][1]) is int


def test_a_refusal_is_raised_and_the_first_stands(client: Client) -> None:
    first = client.publish(told(turn_id="1", content="a"))
    again = client.publish(told(turn_id="1", content="a"))
    assert (first.verdict, again.verdict) == (Verdict.ACCEPTED, Verdict.DUPLICATE)
    assert first.version == again.version == 1
    with pytest.raises(ConflictError) as conflict:
        client.publish(told(turn_id="1", content="b"))
    assert (conflict.value.code, conflict.value.field) == ("conflict", "turn_id")
    with pytest.raises(ConflictError) as stale:
        client.publish(told(if_version=7))
    assert stale.value.code == "version_conflict"
    with pytest.raises(NotFoundError):
        client.state("t", "no")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"metadata": float("nan")}, None),
        ({"metadata": {"x": float("inf")}}, None),
        ({"content": "half \ud83d"}, "lone_surrogate"),
        ({"metadata": {1, 2}}, "not_json"),
        ({"metadata": b"bytes"}, "not_json"),
        ({"role": 7}, None),
        ({"session": "a\0b"}, None),
    ],
)
def test_what_json_cannot_say_is_refused(
    client: Client, wrong: dict[str, Any], code: str | None
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        client.publish({**told(), **wrong})
    assert code is None or refused.value.code == code
    assert list(client.sessions()) == []


def test_many_turns_are_answered_in_order(client: Client) -> None:
    answers = client.publish_many([told(content=str(n)) for n in range(5)] + [b"{"])
    assert [answer.version for answer in answers[:5]] == [1, 2, 3, 4, 5]
    assert isinstance(answers[5].error, InvalidInputError)
    assert client.publish_many([]) == []


def test_operations_have_names_of_their_own(client: Client) -> None:
    client.publish_many([told(turn_id=str(n), content=str(n)) for n in range(4)])
    client.fork("t", "s", "b", turn="1")
    client.rollback("t", "s", 2)
    client.end("t", "s", branch="b", to="s2")
    shown = client.turns("t", "s", branch="b")["turns"]
    assert [turn["turn_id"] for turn in shown] == ["0", "1"]
    assert len(client.turns("t", "s")["turns"]) == 2
    assert client.state("t", "s", branch="b")["ended"] == {"branch": "b", "to": "s2"}
    assert client.state("t", "s", version=4)["version"] == 4
    assert client.history("t", "s")["versions"][-1]["to"] == 7


def test_the_context_is_ready_for_a_model(client: Client) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    client.publish_many(
        [
            told(role="system", content="be kind"),
            told(content="one"),
            told(role="assistant", content=None, tool_calls=[call]),
        ]
    )
    found = client.context("t", "s", budget_tokens=500, complete_open_calls=True)
    assert [m["role"] for m in found["messages"]] == [
        *("system", "user"),
        *("assistant", "tool"),
    ]
    assert found["messages"][2]["tool_calls"] == [call]
    assert found["left_out"] == []
    assert found["tokens"] <= found["budget_tokens"] == 500
    with pytest.raises(InvalidInputError):
        client.context("t", "s", budget_tokens=0)


def test_a_reader_can_wait_for_what_it_wrote(client: Client) -> None:
    client.publish(told(content="a"))
    (event,) = client.subscribe(token="0", follow=False)
    assert client.state("t", "s", at_least=1)["version"] == 1
    assert client.state("t", "s", at_least="1-1")["version"] == 1
    assert client.state("t", "s", at_least=event["token"])["version"] == 1
    threading.Timer(0.2, lambda: client.publish(told(content="b"))).start()
    assert client.state("t", "s", at_least=2)["version"] == 2
    with pytest.raises(UnavailableError) as late:
        client.store.reach(tenant="t", session="s", at_least=9, timeout_ms=10)
    assert late.value.code == "not_yet"


def test_a_subscription_goes_on_by_its_token(client: Client) -> None:
    client.publish_many([told(content=str(n)) for n in range(3)])
    events = client.subscribe("t", "s", token="0")
    first = next(events)
    assert first["turn"]["content"] == "0"
    client.publish(told(content="3"))
    rest = [next(events) for _ in range(3)]
    events.close()
    assert places([first, *rest]) == [("s", 1, n) for n in (1, 2, 3, 4)]
    again = client.subscribe("t", "s", token=first["token"], follow=False)
    assert list(again) == rest


def test_the_async_client_does_the_same(client: Client) -> None:
    async def main() -> None:
        beside = AsyncClient(client)
        answers = await asyncio.gather(
            *(beside.publish(told(turn_id=str(n))) for n in range(40))
        )
        assert sorted(a.version for a in answers) == list(range(1, 41))
        with pytest.raises(ConflictError):
            await beside.publish(told(turn_id="1", content="other"))
        assert (await beside.state("t", "s", at_least=40))["turn_count"] == 40
        assert [row["session"] async for row in beside.sessions()] == ["s"]
        seen: list[int] = []
        events = beside.subscribe("t", "s", token="1-30")
        async for event in events:
            seen.append(event["version"])
            if len(seen) == 10:
                await beside.publish(told(turn_id="more"))
            if len(seen) == 11:
                break
        await events.aclose()
        assert seen == list(range(31, 42))
        # One that waits can be cancelled.
        waiting = asyncio.ensure_future(anext(beside.subscribe("t", "s")))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    owned = client.store
    if isinstance(owned, OwnedStore):
        deadline = time.monotonic() + 5
        while owned.feed._of_session and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not owned.feed._of_session


def test_a_closed_client_says_so(client: Client) -> None:
    client.close()
    with pytest.raises(TurnstateError):
        client.publish(told())


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: Any) -> None:
    page = (ROOT / "docs" / "client.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 2
    for number, block in enumerate(blocks):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        Path("example.py").write_text(block)
        runpy.run_path("example.py", run_name="__main__")


def test_the_example_is_ten_lines() -> None:
    page = (ROOT / "docs" / "client.md").read_text()
    first = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    assert len(first.strip().splitlines()) == 10
