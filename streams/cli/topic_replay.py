"""Replay a topic of Kafka: to a report, to a recording, against a live state."""

import asyncio
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from turnstate.replay.engine import fold_recording
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import ConflictError, InvalidInputError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.streams.cli.doors import store_of
from turnstate.streams.cli.exporting import export_to
from turnstate.streams.cli.progress import bar
from turnstate.streams.cli.render import note
from turnstate.streams.embedded.store import STORE_FOLDER, graph_of
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.replay_group import (
    fold_into_group,
    refused_by_reason,
    until_committed,
)
from turnstate.streams.kafka.replay_plan import Plan, ends_now, planned
from turnstate.streams.kafka.replay_range import RangeWords, Source
from turnstate.streams.kafka.replay_report import (
    Comparison,
    States,
    TopicReport,
    report_of,
)
from turnstate.streams.kafka.replay_stores import (
    PartitionStores,
    StoppedWorkers,
    scratch_stores,
)
from turnstate.streams.kafka.replaying import FoldedTopic, folded_topic
from turnstate.streams.settings import Settings

CLUSTER = "cluster"
"""`--against` the workers that run; a folder of that name is `./cluster`."""


@dataclass(frozen=True, slots=True)
class TopicReplay:
    """What a replay of a topic is to do.

    Attributes:
        source: Where the turns are.
        settings: For the dialogue graph and the log's name.
        against: A folder, or `cluster`; None = nothing is compared.
        record: The recording to write.
        force: Write over one that is there.
        rate: Turns a second at most.
        group: Fold into the state of this new group.
        shuffle: A seed: partitions and operations in another order.
        processes: How many share the partitions.
    """

    source: Source
    settings: Settings
    against: str | None = None
    record: str | None = None
    force: bool = False
    rate: float | None = None
    group: str | None = None
    shuffle: int | None = None
    processes: int | None = None

    def run(self) -> TopicReport:
        """Fold, and do it.

        With `against`, a range that has a beginning is folded from the
        beginning of the log on, since the live states are made of all that;
        what it counts and compares is the range alone. Without, a range is a
        log of its own.

        Raises:
            TurnstateError: what is wrong.
        """
        self._check()
        if self.group is not None:
            return self._into_group(self.group)
        graph = graph_of(self.settings)
        whole = self.against is not None
        plan = asyncio.run(planned(self.source, whole=whole))
        with ExitStack() as opened:
            step = opened.enter_context(bar("replay"))
            folded = opened.enter_context(
                folded_topic(
                    self.source,
                    plan,
                    graph,
                    self.settings.log_name,
                    rate=self.rate,
                    shuffle=self.shuffle,
                    processes=self.processes,
                    told=step,
                )
            )
            scratch = scratch_stores(folded.folder, plan.spans)
            mine = opened.enter_context(self._stores(scratch, plan, graph))
            return self._told(report_of(folded, self.source.topic), folded, mine)

    def _told(
        self, report: TopicReport, folded: FoldedTopic, mine: PartitionStores
    ) -> TopicReport:
        self._compare(report, folded, mine)
        if self.record is not None:
            report.recorded = export_to(self.record, mine.items(), force=self.force)
        return report

    def _into_group(self, group: str) -> TopicReport:
        """Fold all turns that there are by a worker of a group beside the live one."""
        cluster = self._group_cluster()
        plan = asyncio.run(planned(self.source, whole=True))
        ends = {number: span.end for number, span in plan.spans.items()}
        cluster = replace(cluster, partitions=len(ends))
        began = time.monotonic()
        with bar(f"group {group}") as step:
            folder = fold_into_group(self.settings, cluster, group, ends, step)
        seconds = time.monotonic() - began
        refused = asyncio.run(refused_by_reason(cluster.beside(group)))
        graph = graph_of(self.settings)
        with (
            StoppedWorkers(folder) as worker,
            self._stores(worker.folders, plan, graph) as mine,
        ):
            _check_alone(group, mine.folded(), plan)
            sessions = mine.folded_sessions()
            turns = sum(each.operations for each in sessions.values())
            folded = FoldedTopic(
                plan, folder, sessions, frozenset(), turns, refused, seconds, 0.0
            )
            report = report_of(folded, self.source.topic)
            report.group = group
            return self._told(report, folded, mine)

    def _group_cluster(self) -> ClusterSettings:
        """Return the settings of the live group.

        Raises:
            InvalidInputError: an option is given that a group cannot have, or
                the topic is no cluster's.
        """
        given = {
            "from, to": self.source.words != RangeWords(),
            "rate": self.rate is not None,
            "shuffle": self.shuffle is not None,
            "processes": self.processes is not None,
        }
        for name, is_given in given.items():
            if is_given:
                raise InvalidInputError(
                    f"--group takes all turns, as a worker does; {name} is given",
                    field="group",
                    hint="leave --group out to fold a range, or at a rate",
                )
        return self.source.of_cluster("group")

    def _check(self) -> None:
        """Refuse before a long fold what would be refused after it.

        Raises:
            TurnstateError: what is wrong.
        """
        if self.against == CLUSTER:
            self.source.of_cluster("against")
        elif self.against is not None:
            folder = Path(self.against)
            if not (folder / STORE_FOLDER).is_dir():
                with StoppedWorkers(folder):
                    pass
        if self.record is None:
            return
        if not self.record or self.record == "-":
            raise InvalidInputError(
                "--record names no file", field="record", hint="name a file"
            )
        if Path(self.record).exists() and not self.force:
            raise ConflictError(
                f"{self.record} is there",
                field="record",
                hint="give another name, or --force",
            )
        if self.against is not None and self.source.words.parsed().has_beginning:
            raise InvalidInputError(
                "--record with --against and a range that has a beginning",
                field="record",
                hint="record in a run of its own: the range is then a log of its own",
            )

    def _stores(
        self, folders: Mapping[int, Path], plan: Plan, graph: DialogueGraph
    ) -> PartitionStores:
        return PartitionStores(
            folders,
            partitions=len(plan.spans),
            log_name=self.settings.log_name,
            graph=graph,
        )

    def _compare(
        self, report: TopicReport, folded: FoldedTopic, mine: PartitionStores
    ) -> None:
        if self.against is not None:
            compared(self, self.against, report, folded, mine)
        elif self.shuffle is not None:
            graph = graph_of(self.settings)
            mixed = fold_recording(
                mine.items(), graph, self.settings.log_name, shuffle=self.shuffle
            ).sessions
            for key, session in folded.sessions.items():
                same = key in mixed and mixed[key].digest == session.digest
                report.add(SessionName.from_key(key), None if same else "digest")
        else:
            report.sessions = len(folded.sessions)


def compared(
    replay: TopicReplay,
    against: str,
    report: TopicReport,
    folded: FoldedTopic,
    mine: States,
) -> None:
    """Compare what was folded with a live state.

    Raises:
        InvalidInputError: `against` holds no store.
        UnavailableError: it cannot be read now.
    """
    plan = folded.plan
    with live_states(replay.source, replay.settings, against, plan) as live:
        now = asyncio.run(ends_now(replay.source, plan))
        has_beginning = replay.source.words.parsed().has_beginning
        Comparison(
            mine,
            live,
            partitions=len(plan.spans),
            ahead=frozenset(
                each for each, span in plan.spans.items() if now[each] > span.end
            ),
            touched=folded.touched if has_beginning else None,
        ).into(report, folded.sessions)


@contextmanager
def live_states(
    source: Source, settings: Settings, against: str, plan: Plan
) -> Generator[States]:
    """Give who knows the live states: workers, stopped workers, a store.

    Args:
        source: Names the cluster.
        settings: For the dialogue graph and the log's name.
        against: `cluster`, or a folder.
        plan: What a live state has to have folded.

    Raises:
        InvalidInputError: the folder holds no store.
        UnavailableError: no worker answers, or one has the folder.
    """
    folder = Path(against)
    if against == CLUSTER:
        # Compared with what the owners have, not with a copy of it.
        cluster = replace(
            source.of_cluster("against"), partitions=len(plan.spans), redis=""
        )
        ends = {number: span.end for number, span in plan.spans.items()}
        asyncio.run(until_committed(cluster, ends))
        with ClusterReader(cluster) as live:
            yield live
    elif (folder / STORE_FOLDER).is_dir():
        with store_of(replace(settings, data=folder, profile="embedded")) as store:
            yield store
    else:
        with (
            StoppedWorkers(folder) as workers,
            PartitionStores(
                workers.folders,
                partitions=len(plan.spans),
                log_name=settings.log_name,
                graph=graph_of(settings),
            ) as stores,
        ):
            _tell_what_is_behind(against, stores.folded(), plan)
            yield stores


def _tell_what_is_behind(
    against: str, folded: dict[int, int], plan: Plan
) -> None:
    for number, span in plan.spans.items():
        if folded.get(number, 0) < span.end:
            note(
                f"{against} has folded partition {number} up to offset"
                f" {folded.get(number, 0)}, the range goes to {span.end}"
            )


def _check_alone(group: str, folded: Mapping[int, int], plan: Plan) -> None:
    """Check that one worker has all partitions of a group.

    Raises:
        UnavailableError: another worker of the group has some.
    """
    others = [
        number
        for number, span in plan.spans.items()
        if folded.get(number, 0) < span.end
    ]
    if others:
        raise UnavailableError(
            f"another worker of the group {group!r} has folded partitions {others}",
            field="group",
            hint="stop it, then replay again; what is folded stays",
        )
