"""Dialogue graphs are checked when they are loaded and looked up in one step."""

import json
import pickle
from typing import Any

import pytest

from support.source import ROOT
from turnstate.schemas.dialogue.phases import DialogueGraph, default_graph, load_graph
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import RECORD_BYTES_MAX

LAMP: dict[str, Any] = {
    "name": "lamp",
    "start": "off",
    "phases": ["off", "on"],
    "edges": [
        {"from": "off", "action": "press", "to": "on", "requires": ["power"]},
        {"from": ["off", "on"], "action": "pull", "to": "off", "forbids": ["lock"]},
    ],
}


def lamp(**changes: Any) -> bytes:
    return json.dumps(LAMP | changes).encode()


def refused(data: bytes) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        load_graph(data)
    assert caught.value.field
    return caught.value


def test_an_action_leads_along_its_edge() -> None:
    graph = load_graph(lamp())

    assert graph.transition("off", "press") == "on"
    assert graph.transition("on", "pull") == "off"


def test_an_unknown_action_or_phase_leads_nowhere() -> None:
    graph = load_graph(lamp())

    assert graph.transition("on", "press") is None
    assert graph.transition("off", "") is None
    assert graph.transition("gone", "press") is None


def test_constraints_are_checked_where_slots_are_known() -> None:
    graph = load_graph(lamp())

    assert graph.transition("off", "press", {}) is None
    assert graph.transition("off", "press", {"power": b"1"}) == "on"
    assert graph.transition("on", "pull", {"lock": b"true"}) is None
    assert graph.transition("on", "pull", {}) == "off"


def test_toml_and_json_give_equal_graphs_with_equal_hashes() -> None:
    toml = b"""
        name = "lamp"
        start = "off"
        phases = ["off", "on"]
        [[edges]]
        from = "off"
        action = "press"
        to = "on"
        requires = ["power"]
        [[edges]]
        from = ["off", "on"]
        action = "pull"
        to = "off"
        forbids = ["lock"]
    """
    first, second = load_graph(toml), load_graph(b"\xef\xbb\xbf" + lamp())

    assert first == second
    assert hash(first) == hash(second)
    assert pickle.loads(pickle.dumps(first)) == first


def test_equal_bytes_give_the_same_object() -> None:
    assert load_graph(lamp()) is load_graph(lamp())
    assert default_graph() is default_graph()


def test_a_graph_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        default_graph().start = "done"  # type: ignore[misc]


def test_the_default_graph_runs_a_whole_task() -> None:
    graph = default_graph()
    phase = graph.start
    way = ["greet", "inform", "offer", "select", "affirm", "result", "thank", "bye"]
    for action in way:
        following = graph.transition(phase, action)
        assert following is not None, (phase, action)
        phase = following

    assert phase == "closed"
    assert graph.transition(phase, "inform") == "collecting"


def test_every_phase_of_the_default_graph_has_a_way_out() -> None:
    graph = default_graph()

    assert all(graph.actions(phase) for phase in graph.phases)
    for edge in graph.edges:
        assert graph.transition(edge.source, edge.action) == edge.target


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"start": "dim"}, "start", "'dim' is no phase"),
        ({"phases": ["off", "on", "dim", "red"]}, "phases", "'dim', 'red'"),
        ({"phases": ["off", "on", "off"]}, "phases[2]", "twice"),
        ({"phases": ["off", "on", ""]}, "phases[2]", "empty"),
        ({"phases": []}, "start", "no phase"),
        ({"name": "a\0b"}, "name", "NUL"),
        ({"name": 7}, "name", "Expected `str`"),
        ({"colour": "red"}, "colour", "unknown field"),
    ],
)
def test_a_wrong_graph_is_refused_by_field(
    changes: dict[str, Any], field: str, said: str
) -> None:
    error = refused(lamp(**changes))

    assert error.field == field
    assert said in str(error)


@pytest.mark.parametrize(
    ("edge", "field"),
    [
        ({"from": "dim", "action": "press", "to": "on"}, "edges[2].from"),
        ({"from": [], "action": "press", "to": "on"}, "edges[2].from"),
        ({"from": ["on", "on"], "action": "x", "to": "on"}, "edges[2].from[1]"),
        ({"from": "on", "action": "press", "to": "dim"}, "edges[2].to"),
        ({"from": "on", "action": "", "to": "on"}, "edges[2].action"),
        ({"from": "off", "action": "press", "to": "off"}, "edges[2].action"),
        ({"from": "on", "action": "press"}, "edges[2].to"),
        (
            {"from": "on", "action": "x", "to": "on", "requires": ["a", "a"]},
            "edges[2].requires[1]",
        ),
        (
            {
                "from": "on",
                "action": "x",
                "to": "on",
                "requires": ["a"],
                "forbids": ["a"],
            },
            "edges[2].forbids",
        ),
    ],
)
def test_a_wrong_edge_is_refused_by_field(edge: dict[str, Any], field: str) -> None:
    assert refused(lamp(edges=[*LAMP["edges"], edge])).field == field


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"name = 'a'\nname = 'b'",
        b'{"name": "\\ud800", "start": "a", "phases": ["a"], "edges": []}',
        b'{"name": "a", "name": "b", "start": "a", "phases": ["a"], "edges": []}',
        b'{"name": ' + b"[" * 100_000,
        b"name = " + b"[" * 100_000,
        b"#" * (RECORD_BYTES_MAX + 1),
    ],
)
def test_bytes_that_are_no_graph_are_refused(data: bytes) -> None:
    refused(data)


def test_a_key_given_twice_is_named() -> None:
    data = b'{"name": "a", "start": "a", "phases": ["a"], "edges": [], "start": "a"}'

    assert refused(data).field == "start"


def test_the_drawing_holds_every_phase_and_edge() -> None:
    drawing = load_graph(lamp()).to_mermaid()

    assert drawing.splitlines() == [
        "stateDiagram-v2",
        '    state "off" as p0',
        '    state "on" as p1',
        "    [*] --> p0",
        "    p0 --> p1 : press (power)",
        "    p0 --> p0 : pull (no lock)",
        "    p1 --> p0 : pull (no lock)",
    ]


def test_the_page_shows_the_default_graph_as_it_is() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

    assert f"```mermaid\n{default_graph().to_mermaid()}```" in page


def test_names_that_are_syntax_elsewhere_can_be_drawn() -> None:
    odd = 'a"; --> [*]\n#%%'
    graph = load_graph(
        lamp(phases=[odd], start=odd, edges=[{"from": odd, "action": ":", "to": odd}])
    )

    assert len(graph.to_mermaid().splitlines()) == 4
    assert graph.to_mermaid().count('"') == 2


def test_a_transition_is_one_look_up_whatever_the_size() -> None:
    names = [f"phase {number}" for number in range(2_000)]
    edges = [
        {"from": name, "action": "next", "to": names[(at + 1) % len(names)]}
        for at, name in enumerate(names)
    ]
    graph = load_graph(lamp(start=names[0], phases=names, edges=edges))
    looked_up: list[object] = []

    class Table(dict[tuple[str, str], Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            looked_up.append(key)
            return super().get(key, default)

    watched = DialogueGraph(graph.name, graph.start, graph.phases, graph.edges)
    object.__setattr__(watched, "_table", Table(watched._table))

    assert watched.transition(names[-1], "next") == names[0]
    assert looked_up == [(names[-1], "next")]
