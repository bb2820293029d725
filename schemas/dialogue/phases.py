"""Dialogue graphs: phases as nodes, actions as edges, a transition one look-up."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple, NoReturn

import msgspec

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import checked_id
from turnstate.schemas.limits import RECORD_BYTES_MAX


class Edge(NamedTuple):
    """One action out of one phase, with what the domain asks of it.

    Attributes:
        source: The phase that it leaves.
        action: What is done; unique among the edges of `source`.
        target: The phase that it leads to.
        requires: Slots that must have a value.
        forbids: Slots that must have none.
    """

    source: str
    action: str
    target: str
    requires: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()

    def allows(self, slots: Mapping[str, object]) -> bool:
        """Say whether the slots that are set meet the constraints.

        Example:
            >>> Edge("a", "book", "b", requires=("city",)).allows({"city": "Oslo"})
            True
            >>> Edge("a", "book", "b", requires=("city",)).allows({})
            False
        """
        return all(name in slots for name in self.requires) and not any(
            name in slots for name in self.forbids
        )


@dataclass(frozen=True, slots=True)
class DialogueGraph:
    """Say which action leads from which phase to which.

    Valid by construction where it comes from `load_graph`, and never changed:
    equal graphs have equal hashes, so that one may be a key of a cache.

    Attributes:
        name: What settings and reports call it.
        start: The phase of a dialogue before its first action.
        phases: All phases, in the order in which they were given.
        edges: All edges, in the order in which they were given.

    Example:
        >>> graph = default_graph()
        >>> graph.transition(graph.start, "inform")
        'collecting'
        >>> graph.transition(graph.start, "sing") is None
        True
    """

    name: str
    start: str
    phases: tuple[str, ...]
    edges: tuple[Edge, ...]
    _table: dict[tuple[str, str], Edge] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        table = {(edge.source, edge.action): edge for edge in self.edges}
        assert len(table) == len(self.edges), "load_graph refuses doubled edges"
        object.__setattr__(self, "_table", table)

    def transition(
        self, phase: str, action: str, slots: Mapping[str, object] | None = None
    ) -> str | None:
        """Return the phase that an action leads to, or None where it leads nowhere.

        One look-up, whatever the size of the graph. None is the whole error:
        whoever holds the state keeps it as it was (design §3, `phase_error`).

        Args:
            phase: Where the dialogue is; a phase that an older graph knew and
                this one does not has no way out.
            action: What was done.
            slots: The names that have a value here. None = the caller cannot
                know them, so that constraints are not checked; an empty
                mapping = nothing is set.

        Returns:
            The next phase; None if the action is unknown in this phase or a
            constraint does not hold.
        """
        edge = self._table.get((phase, action))
        if edge is None or (slots is not None and not edge.allows(slots)):
            return None
        return edge.target

    def actions(self, phase: str) -> tuple[str, ...]:
        """Return what can be done in a phase, sorted; for messages and drawings."""
        return tuple(sorted(edge.action for edge in self.edges if edge.source == phase))

    def to_mermaid(self) -> str:
        """Draw the graph as a Mermaid state diagram.

        Phases get ids of their own (`p0`, `p1`, …), so that any name can be
        drawn; letters that Mermaid reads as syntax are written as entities.
        """
        ids = {phase: f"p{at}" for at, phase in enumerate(self.phases)}
        lines = ["stateDiagram-v2"]
        lines += [f'    state "{_drawn(phase)}" as {ids[phase]}' for phase in ids]
        lines.append(f"    [*] --> {ids[self.start]}")
        for edge in self.edges:
            label = _drawn(edge.action)
            asked = [*edge.requires, *(f"no {name}" for name in edge.forbids)]
            if asked:
                label += f" ({_drawn(', '.join(asked))})"
            lines.append(f"    {ids[edge.source]} --> {ids[edge.target]} : {label}")
        return "\n".join(lines) + "\n"


class _EdgeRow(msgspec.Struct, forbid_unknown_fields=True, rename={"source": "from"}):
    """One row of `edges` as it stands in a file; `from` may list phases."""

    source: str | list[str]
    action: str
    to: str
    requires: list[str] = []
    forbids: list[str] = []


class _GraphFile(msgspec.Struct, forbid_unknown_fields=True):
    """A graph as it stands in a file, TOML or JSON."""

    name: str
    start: str
    phases: list[str]
    edges: list[_EdgeRow]


@lru_cache(maxsize=64)
def load_graph(data: bytes) -> DialogueGraph:
    r"""Read a graph from the bytes of a TOML or JSON file, and check it.

    JSON is known by its first letter, `{`; a TOML file cannot start with it.
    Equal bytes give the same object.

    Args:
        data: The file's bytes, UTF-8, with or without a byte order mark.

    Raises:
        InvalidInputError: It cannot be read; a name is no id; a phase, an edge
            or a key is there twice; `start` or an end of an edge is no phase;
            phases cannot be reached from `start`. The field is named.

    Example:
        >>> graph = load_graph(
        ...     b'name = "lamp"\nstart = "off"\nphases = ["off", "on"]\n'
        ...     b'edges = [{from = "off", action = "press", to = "on"}]'
        ... )
        >>> graph.transition("off", "press"), graph.transition("on", "press")
        ('on', None)
    """
    try:
        file = msgspec.convert(_parsed(data), _GraphFile)
    except msgspec.ValidationError as error:
        raise _located(error) from error
    phases = _distinct(file.phases, "phases")
    known = frozenset(phases)
    if file.start not in known:
        _refuse("start", f"{file.start!r} is no phase", "name it in phases")
    edges: dict[tuple[str, str], Edge] = {}
    for at, row in enumerate(file.edges):
        for edge in _edges_of(row, f"edges[{at}]", known):
            if edges.setdefault((edge.source, edge.action), edge) is not edge:
                _refuse(
                    f"edges[{at}].action",
                    f"{edge.action!r} leaves {edge.source!r} twice",
                    "an action leads from a phase to one phase",
                )
    graph = DialogueGraph(
        checked_id(file.name, "name"), file.start, phases, tuple(edges.values())
    )
    reached = _reached(graph)
    if unreached := [phase for phase in phases if phase not in reached]:
        _refuse(
            "phases",
            f"no way leads from {graph.start!r} to {', '.join(map(repr, unreached))}",
            "add an edge or leave the phase out",
        )
    return graph


@cache
def default_graph() -> DialogueGraph:
    """Return the graph that is used where none is given (graphs/default.toml)."""
    place = resources.files("turnstate.schemas.dialogue.graphs")
    return load_graph(place.joinpath("default.toml").read_bytes())


def _parsed(data: bytes) -> dict[str, Any]:
    if len(data) > RECORD_BYTES_MAX:
        _refuse("graph", f"{len(data)} bytes are more than {RECORD_BYTES_MAX}")
    try:
        text = data.decode("utf-8-sig")
        if text.lstrip()[:1] == "{":
            value: dict[str, Any] = json.loads(text, object_pairs_hook=_no_key_twice)
            return value
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"this is no dialogue graph: {error}",
            field="graph",
            hint="write TOML or JSON, as schemas/dialogue/graphs/default.toml",
        ) from error


def _located(error: msgspec.ValidationError) -> InvalidInputError:
    message, _, place = str(error).partition(" - at `$")
    place = place.strip(".`")
    if "field `" in message:  # missing or unknown: the field is the one it names
        place = f"{place}.{message.split('`')[1]}".lstrip(".")
    return InvalidInputError(f"dialogue graph: {message}", field=place or "graph")


def _no_key_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        _refuse(twice, f"the key {twice!r} is there twice", "keep one of them")
    return result


def _edges_of(row: _EdgeRow, place: str, known: frozenset[str]) -> list[Edge]:
    sources = row.source if isinstance(row.source, list) else [row.source]
    if not sources:
        _refuse(f"{place}.from", "no phase is named", "name one, or leave the edge out")
    for end, names in (("from", sources), ("to", [row.to])):
        for name in names:
            if name not in known:
                _refuse(f"{place}.{end}", f"{name!r} is no phase", "name it in phases")
    action = checked_id(row.action, f"{place}.action")
    requires = _distinct(row.requires, f"{place}.requires")
    forbids = _distinct(row.forbids, f"{place}.forbids")
    for name in sorted({*requires} & {*forbids}):
        _refuse(f"{place}.forbids", f"{name!r} is required and forbidden", "choose one")
    return [
        Edge(source, action, row.to, requires, forbids)
        for source in _distinct(sources, f"{place}.from")
    ]


def _distinct(names: list[str], place: str) -> tuple[str, ...]:
    seen: dict[str, None] = {}
    for at, name in enumerate(names):
        if checked_id(name, f"{place}[{at}]") in seen:
            _refuse(f"{place}[{at}]", f"{name!r} is there twice", "keep one of them")
        seen[name] = None
    return tuple(seen)


def _reached(graph: DialogueGraph) -> set[str]:
    ways: dict[str, list[str]] = {}
    for edge in graph.edges:
        ways.setdefault(edge.source, []).append(edge.target)
    found, left = {graph.start}, [graph.start]
    while left:
        for target in ways.get(left.pop(), ()):
            if target not in found:
                found.add(target)
                left.append(target)
    return found


def _drawn(name: str) -> str:
    return "".join(
        letter if letter.isalnum() or letter in " _-.," else f"#{ord(letter)};"
        for letter in name
    )


def _refuse(place: str, why: str, hint: str | None = None) -> NoReturn:
    raise InvalidInputError(f"dialogue graph: {why}", field=place, hint=hint)
