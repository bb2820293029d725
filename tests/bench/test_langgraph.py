"""State bytes and append cost beside LangGraph's SQLite saver, in the same run."""

import sqlite3
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstate.streams.bench.publishing import bench_store
from turnstate.streams.bench.sizes import RANDOM_BYTES, random_turns, random_words
from turnstate.streams.embedded import upkeep

pytestmark = pytest.mark.bench

TURNS = 250


def listen(state: Any) -> dict[str, Any]:
    """Answer nothing."""
    return {}


def langgraph_run(path: Path, texts: list[str]) -> dict[str, float]:
    """Say the texts in one thread of a message graph with the SQLite saver.

    The usual way: one invocation for each turn of the dialogue, the node
    answers nothing, every step is a checkpoint.
    """
    # Only `make bench` brings these, so checkers of types do not know them.
    graphs: Any = import_module("langgraph.graph")
    savers: Any = import_module("langgraph.checkpoint.sqlite")
    builder = graphs.StateGraph(graphs.MessagesState)
    builder.add_node("listen", listen)
    builder.add_edge(graphs.START, "listen")
    builder.add_edge("listen", graphs.END)
    times: list[float] = []
    with savers.SqliteSaver.from_conn_string(str(path)) as saver:
        graph = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "words"}}
        for at, text in enumerate(texts):
            start = time.perf_counter()
            role = "assistant" if at % 2 else "user"
            graph.invoke({"messages": [{"role": role, "content": text}]}, config)
            times.append(1e3 * (time.perf_counter() - start))
    with sqlite3.connect(path) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.execute("vacuum")
    said = sum(len(text) for text in texts)
    return {
        "state_by_text": path.stat().st_size / said,
        "first_ms": sum(times[5:15]) / 10,
        "last_ms": sum(times[-10:]) / 10,
    }


def turnstate_run(turns: list[bytes]) -> dict[str, float]:
    """Say the same, one durable turn at a time, then seal."""
    times: list[float] = []
    with bench_store() as store:
        for turn in turns:
            start = time.perf_counter()
            store.publish([turn])
            times.append(1e3 * (time.perf_counter() - start))
        upkeep.seal(store)
        told = upkeep.stats(store)
    return {
        "state_by_text": told["state_bytes"] / told["text_bytes"],
        "first_ms": sum(times[5:15]) / 10,
        "last_ms": sum(times[-10:]) / 10,
    }


def test_state_beside_the_sqlite_saver(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random words: at most a byte of state for each byte of text; theirs grows."""
    ours = turnstate_run(random_turns(TURNS))
    theirs = langgraph_run(tmp_path / "saver.sqlite", random_words(TURNS))
    report = {"turns": TURNS, "bytes_a_turn": RANDOM_BYTES}
    with capsys.disabled():
        print(msgspec.json.encode(report | {"turnstate": ours, "sqlite": theirs}))
    assert ours["state_by_text"] <= 1.0
    assert ours["state_by_text"] * 8 < theirs["state_by_text"]
