"""How the partitions of a replay are divided."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from turnstate.schemas.dialogue.phases import default_graph
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.replay_loop import Share
from turnstate.streams.kafka.replay_plan import Plan
from turnstate.streams.kafka.replay_range import Span
from turnstate.streams.kafka.replaying import divided

GRAPH = default_graph()


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12), st.integers(1, 6))
def test_each_partition_is_in_one_share_and_none_has_far_more(
    sizes: list[int], count: int
) -> None:
    plan = Plan(b"log", {at: Span(0, 0, size) for at, size in enumerate(sizes)})
    numbers = tuple(plan.spans)
    settings = ClusterSettings()
    share = Share(settings, "turns", plan, Path(), GRAPH, "log", None, None, numbers)

    parts = [part.numbers for part in divided(share, count)]

    assert sorted(each for part in parts for each in part) == list(numbers)
    assert len(parts) <= count
    loads = [sum(sizes[each] for each in part) for part in parts]
    assert max(loads) <= sum(sizes) / min(count, len(sizes)) + max(sizes)
