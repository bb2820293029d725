"""A Faust application as its guide shows it: one event a turn, one table write."""

import sys
from pathlib import Path
from typing import Any

import faust

brokers, topic, group, partitions, folder = sys.argv[1:6]
del sys.argv[1:6]  # the rest is Faust's: `worker -l warn`

app: Any = faust.App(
    group,
    broker=f"kafka://{brokers}",
    store="rocksdb://",
    datadir=folder,
    topic_partitions=int(partitions),
    web_enabled=False,
    autodiscover=False,
    consumer_auto_offset_reset="earliest",
)
turns = app.topic(topic, key_type=bytes, value_type=bytes, value_serializer="json")
table: Any = app.Table("state", default=dict, options={"driver": "rocksdict"})


async def fold(stream: Any) -> None:
    """Keep the number of turns, the last one and the slots of each session."""
    turn: Any
    async for turn in stream:
        key = f"{turn['tenant']}/{turn['session']}"
        state = table[key]
        state["turns"] = state.get("turns", 0) + 1
        state["last"] = turn.get("content")
        slots: Any = turn.get("slots") or {}
        state.setdefault("slots", {}).update(slots.get("set") or {})
        table[key] = state


app.agent(turns)(fold)

if __name__ == "__main__":
    Path(folder).mkdir(parents=True, exist_ok=True)
    app.main()
