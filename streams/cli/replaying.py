"""Replay a recording and compare what comes of it with a store."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from turnstate.replay.divergence import differing_field
from turnstate.replay.engine import FoldedSession, fold_file, states_of
from turnstate.replay.readers import Format
from turnstate.replay.recording import RecordedItem, RecordedOperation
from turnstate.replay.recording_lines import replay_items
from turnstate.replay.report import ReplayReport
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.streams.cli.doors import store_of
from turnstate.streams.embedded.store import STORE_FOLDER, graph_of
from turnstate.streams.settings import Settings


def replay_report(
    recording: str,
    settings: Settings,
    *,
    against: str | None = None,
    shuffle: int | None = None,
    processes: int | None = None,
    format_name: Format = "turns",
) -> ReplayReport:
    """Fold a recording and compare it with a store, else with its own order.

    Args:
        recording: A path, or `-`.
        settings: For the dialogue graph and the log's name.
        against: The folder of a store, which is only read.
        shuffle: A seed for another order.
        processes: How many share the work.
        format_name: What lines are, where it is no binary recording.

    Raises:
        CorruptDataError: the recording is damaged.
        InvalidInputError: it cannot be read, or `against` holds no store.
    """
    if against is not None and not (Path(against) / STORE_FOLDER).is_dir():
        raise InvalidInputError(
            f"{against} holds no store",
            field="against",
            hint="name the folder that publish wrote to",
        )
    graph = graph_of(settings)
    start = time.monotonic()

    def fold(seed: int | None) -> Any:
        return fold_file(
            recording,
            graph,
            settings.log_name,
            format_name=format_name,
            shuffle=seed,
            processes=processes,
        )

    folded = fold(shuffle)
    report = ReplayReport(turns=folded.operations)
    report.seconds = time.monotonic() - start
    if against is not None:
        other = replace(settings, data=Path(against))
        _compare(report, recording, folded.sessions, other, format_name)
    elif shuffle is not None and recording != "-":
        ordered = fold(None).sessions
        for key, session in folded.sessions.items():
            same = session.digest == ordered[key].digest
            report.add(SessionName.from_key(key), None if same else "digest")
    else:
        report.sessions = len(folded.sessions)
    return report


def _compare(
    report: ReplayReport,
    recording: str,
    folded: dict[bytes, FoldedSession],
    settings: Settings,
    format_name: Format,
) -> None:
    with store_of(settings) as store:
        stored = {
            SessionName(row["tenant"], row["session"]): row["digest"]
            for row in store.sessions()
        }
        different: dict[SessionName, tuple[str, str]] = {}
        for key, session in folded.items():
            name = SessionName.from_key(key)
            digest = stored.pop(name, None)
            if digest is None:
                report.add_missing(name, "against")
            elif digest == session.digest.hex():
                report.add(name, None)
            else:
                different[name] = (session.digest.hex(), digest)
        for name in stored:
            report.add_missing(name, "replay")
        if different:
            fields = _fields(store, recording, settings, different, format_name)
            for name in different:
                report.add(name, fields[name])


def _fields(
    store: Any,
    recording: str,
    settings: Settings,
    different: dict[SessionName, tuple[str, str]],
    format_name: Format,
) -> dict[SessionName, str]:
    """Return the first field in which each of these sessions differs."""
    graph = graph_of(settings)
    fields = dict.fromkeys(different, "digest")
    if recording == "-":  # gone by: it cannot be read twice
        return fields
    items = replay_items(recording, format_name)
    replayed = states_of(items, set(different), graph, settings.log_name)
    for name, state in _stored_states(store, different, graph):
        field = differing_field(
            digests=different[name],
            states=(replayed[name].folded(), state.folded()),
        )
        fields[name] = field or "digest"
    return fields


def _stored_states(
    store: Any, names: dict[SessionName, tuple[str, str]], graph: Any
) -> Iterator[tuple[SessionName, DialogueState]]:
    for tenant in sorted({name.tenant for name in names}):
        items: Iterator[RecordedItem] = store.export_items(tenant)
        for name, group in groupby(items, key=lambda item: item.name):
            if name in names:
                ops = [
                    item.op() for item in group if isinstance(item, RecordedOperation)
                ]
                life = max((op.incarnation for op in ops), default=1)
                yield name, DialogueState.empty(graph, life).apply(ops)
