"""Replay a recording, or a topic, and compare what comes of it with a store."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from turnstate.replay.divergence import differing_field
from turnstate.replay.engine import FoldedSession, fold_file, states_of
from turnstate.replay.readers import FORMATS, Format
from turnstate.replay.recording import RecordedItem, RecordedOperation
from turnstate.replay.recording_lines import replay_items
from turnstate.replay.report import ReplayReport
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.streams.cli.doors import (
    cluster_of,
    refuse_plain_copies,
    settings_of,
    store_of,
)
from turnstate.streams.embedded.store import STORE_FOLDER, graph_of
from turnstate.streams.settings import Settings


class ReplayOptions(NamedTuple):
    """The options of `replay`, as they were typed.

    Attributes:
        of_kafka: Option → value of those that only the log of Kafka has.
        against: What to compare with.
        shuffle: A seed for another order.
        processes: How many share the work.
        format_name: What lines are, where it is no binary recording.
        force: Write over a recording that is there.
    """

    of_kafka: Mapping[str, Any]
    against: str | None
    shuffle: int | None
    processes: int | None
    format_name: str
    force: bool


def report_for(
    recording: str, options: ReplayOptions, *, data: str | None, profile: str | None
) -> ReplayReport:
    """Replay a file, or a topic where an address of one is given.

    Raises:
        InvalidInputError: an option is wrong, or is for the other.
        CorruptDataError: the recording is damaged.
        UnavailableError: no broker answers, or turns of the range were deleted.
    """
    if options.against == "":
        raise InvalidInputError(
            "--against is empty", field="against", hint="name the folder of a store"
        )
    report = _topic_report if recording.startswith("kafka:") else _file_report
    return report(recording, options, data, profile)


def _file_report(
    recording: str, options: ReplayOptions, data: str | None, profile: str | None
) -> ReplayReport:
    given = {**options.of_kafka, "force": options.force or None}
    for name, value in given.items():
        if value is not None:
            raise InvalidInputError(
                f"--{name} is for the log of Kafka, {recording} is a file",
                field=name,
                hint="name kafka: or kafka://HOST:PORT/TOPIC",
            )
    if options.format_name not in FORMATS:
        raise InvalidInputError(
            f"the format {options.format_name!r} is not known",
            field="format",
            hint=f"one of {', '.join(FORMATS)}",
        )
    return replay_report(
        recording,
        settings_of(data, profile),
        against=options.against,
        shuffle=options.shuffle,
        processes=options.processes,
        format_name=options.format_name,
    )


def _topic_report(
    address: str, options: ReplayOptions, data: str | None, profile: str | None
) -> ReplayReport:
    if options.format_name != "turns":
        raise InvalidInputError(
            "--format is for lines of a file",
            field="format",
            hint="the log says itself what each record is",
        )
    cluster = cluster_of(data, profile)
    settings = settings_of(data, profile, may_cluster=True)
    refuse_plain_copies(settings, "a replay of a topic")
    from turnstate.streams.cli.topic_replay import TopicReplay
    from turnstate.streams.kafka.replay_range import RangeWords, source_of

    given = options.of_kafka
    words = RangeWords(
        from_offset=given["from-offset"],
        to_offset=given["to-offset"],
        from_time=given["from"],
        to_time=given["to"],
    )
    return TopicReplay(
        source_of(address, cluster, words),
        settings,
        against=options.against,
        record=given["record"],
        force=options.force,
        rate=given["rate"],
        group=given["group"],
        shuffle=options.shuffle,
        processes=options.processes,
    ).run()


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
