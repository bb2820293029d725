"""A replay from Kafka folds to the digests of the live state, whatever it takes."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from support.commands import Run
from support.kafka_log import (
    REFUSED,
    KafkaLog,
    environment_of,
    folded_log,
    line,
    produced,
    row_of,
)
from turnstate.replay.engine import fold_file
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.ids import SessionName
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import admin_client
from turnstate.streams.kafka.replay_group import refused_by_reason
from turnstate.streams.kafka.topic_reader import places_of, topic_reader
from turnstate.streams.kafka.topics import Topics, create_topics

Told = Callable[..., tuple[int, Any]]


@pytest.fixture(name="log", scope="module")
def fixture_log(
    kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[KafkaLog]:
    with folded_log(kafka, tmp_path_factory.mktemp("replayed")) as log:
        yield log


@pytest.fixture(name="replay")
def fixture_replay(told: Told, log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Run `replay kafka:` on the cluster of the log."""
    for name, value in log.environment().items():
        monkeypatch.setenv(name, value)

    def replay(*options: str, address: str = "kafka:") -> tuple[int, Any]:
        return told("replay", address, *options, "--data", str(log.data))

    return replay


@pytest.fixture(name="live", scope="module")
def fixture_live(log: KafkaLog) -> dict[SessionName, str]:
    """The digests of the live state."""
    with ClusterReader(log.settings) as reader:
        return {
            SessionName(row["tenant"], row["session"]): row["digest"]
            for row in reader.sessions()
        }


def offsets(places: dict[int, int]) -> str:
    return ",".join(f"{number}:{at}" for number, at in places.items())


@pytest.mark.parametrize(
    "options",
    [
        ("--processes", "1"),
        ("--processes", "2"),
        ("--shuffle", "7", "--processes", "1"),
        ("--shuffle", "8", "--processes", "3"),
    ],
    ids=" ".join,
)
def test_every_digest_is_that_of_the_live_cluster(
    replay: Told, log: KafkaLog, live: dict[SessionName, str], options: tuple[str, ...]
) -> None:
    code, report = replay("--against", "cluster", *options)

    assert (code, report["different"], report["missing"]) == (0, [], [])
    assert report["equal"] == report["sessions"] == len(live) > 20
    assert report["partitions"] == len(log.ends)
    assert report["from"] == dict.fromkeys(report["to"], 0)
    assert report["to"] == {str(each): end for each, end in log.ends.items()}


def test_what_is_refused_is_counted_as_the_worker_counts(
    replay: Told, log: KafkaLog
) -> None:
    code, report = replay()

    assert code == 0
    assert report["refused"] == asyncio.run(refused_by_reason(log.settings))
    assert report["refused"].items() >= REFUSED.items()


def test_operations_fold_to_the_same_in_another_order(replay: Told) -> None:
    code, report = replay("--shuffle", "3")

    assert (code, report["different"]) == (0, [])
    assert report["equal"] == report["sessions"]


def test_an_address_needs_no_settings_but_the_group(
    told: Told, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNSTATE_GROUP", log.settings.group)

    code, report = told("replay", log.address, "--against", "cluster")

    assert (code, report["different"], report["missing"]) == (0, [], [])
    assert report["topic"] == Topics.of(log.settings).turns


def test_a_range_of_times_is_that_of_the_offsets(replay: Told, log: KafkaLog) -> None:
    middle = offsets(log.middle)
    at = str(log.middle_ms)
    whole = replay()[1]

    first = replay("--to", at, "--against", "cluster")
    assert first == same_but_speed(
        first, replay("--to-offset", middle, "--against", "cluster")
    )
    second = replay("--from", at, "--against", "cluster")
    assert second == same_but_speed(
        second,
        replay("--against", "cluster", address=f"kafka:?from-offset={middle}"),
    )

    for code, report in (first, second):
        assert (code, report["different"], report["missing"]) == (0, [], [])
        assert 0 < report["equal"] == report["sessions"]
    assert first[1]["turns"] + second[1]["turns"] == whole["turns"]
    refused = Counter[str](first[1]["refused"])
    refused.update(second[1]["refused"])
    assert refused == whole["refused"]


def same_but_speed(one: tuple[int, Any], other: tuple[int, Any]) -> tuple[int, Any]:
    told = {name: one[1][name] for name in ("turns_per_s", "cpu_us_a_turn")}
    return other[0], other[1] | told


def test_a_range_that_begins_late_is_a_log_of_its_own(
    replay: Told, log: KafkaLog
) -> None:
    code, report = replay("--from-offset", offsets(log.middle))

    assert code == 0
    assert report["turns"] > 0
    assert report["from"] == {str(each): at for each, at in log.middle.items()}


def test_a_rate_holds(replay: Told, log: KafkaLog) -> None:
    span = {number: max(0, end - 5) for number, end in log.ends.items()}

    code, report = replay("--from-offset", offsets(span), "--rate", "40")

    assert code == 0
    assert 0 < report["turns_per_s"] <= 44


def test_a_recording_replays_and_imports_to_the_same(
    replay: Told, told: Told, live: dict[SessionName, str], tmp_path: Path
) -> None:
    file = tmp_path / "all.tsrec"
    code, report = replay("--record", str(file), "--against", "cluster")
    assert code == 0

    folded = fold_file(file, default_graph(), "log").sessions
    digests = {SessionName.from_key(key): each for key, each in folded.items()}
    assert {name: each.digest.hex() for name, each in digests.items()} == live
    code, again = told("replay", str(file), "--shuffle", "5")
    assert (code, again["different"]) == (0, [])
    assert again["sessions"] == report["sessions"]

    assert told("import", str(file), "--data", "mine")[0] == 0
    code, report = replay("--against", "mine")
    assert (code, report["different"], report["missing"]) == (0, [], [])
    assert report["equal"] == len(live)
    assert replay("--record", str(file))[0] == 4
    assert replay("--record", str(file), "--force")[0] == 0


def test_what_differs_is_named(replay: Told, told: Told, tmp_path: Path) -> None:
    file = str(tmp_path / "all.tsrec")
    assert replay("--record", file)[0] == 0
    assert told("import", file, "--data", "mine")[0] == 0
    more = [line("ops-a", 99, content="never in the log"), line("new", 1)]
    told("publish", "-", "--data", "mine", stdin=b"\n".join(more))

    code, report = replay("--against", "mine")

    assert code == 1
    named = [(row["session"], row["field"]) for row in report["different"]]
    assert named == [("ops-a", "version")]
    assert [row["session"] for row in report["missing"]] == ["new"]


def test_stores_of_a_worker_that_runs_are_not_opened(
    replay: Told, log: KafkaLog
) -> None:
    code, answer = replay("--against", str(log.data / "one"))

    assert (code, answer["error"]["code"]) == (6, "owned")


async def ends_of(settings: ClusterSettings) -> dict[str, int]:
    """Return how many records each topic of a group has."""
    topics = Topics.of(settings)
    names = (topics.turns, topics.deltas, topics.changelog, topics.dead_letters)
    async with topic_reader(settings) as reader:
        ends = await reader.ends(places_of(settings, *names))
    found: Counter[str] = Counter()
    for place, end in ends.items():
        found[place.topic] += end
    return dict(found)


def test_a_new_group_comes_to_equal_digests_and_leaves_the_live_one_alone(
    run: Run, replay: Told, log: KafkaLog, live: dict[SessionName, str]
) -> None:
    group = f"{log.settings.group}-next"
    other = log.settings.beside(group)
    before = asyncio.run(ends_of(log.settings))
    options = ("kafka:", "--group", group, "--data", str(log.data), "--json")

    done = run("replay", *options, "--against", "cluster", **log.environment())

    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert (report["different"], report["missing"]) == ([], [])
    assert report["equal"] == report["sessions"] == len(live)
    assert report["group"] == group
    assert report["refused"] == asyncio.run(refused_by_reason(log.settings))
    after = asyncio.run(ends_of(log.settings))
    # The live worker seals sessions meanwhile, and says so in its changelog.
    sealing = Topics.of(log.settings).changelog
    assert {**after, sealing: 0} == {**before, sealing: 0}
    own = asyncio.run(ends_of(other))
    assert own.keys() & before.keys() == {Topics.of(log.settings).turns}
    assert all(own.values())

    stores = log.data / "groups" / group
    for folder in (stores, stores / "replay"):
        code, report = replay("--against", str(folder))
        assert (code, report["different"], report["missing"]) == (0, [], [])
    # Again: all is folded, and nothing is written.
    assert run("replay", *options, **log.environment()).returncode == 0
    assert asyncio.run(ends_of(other)) == own


@pytest.mark.parametrize(
    "options",
    [
        ("--group", "{live}"),
        ("--group", "a b"),
        ("--group", "next", "--rate", "5"),
        ("--from", "1", "--from-offset", "0:1"),
        ("--from-offset", "77:1"),
        ("--to-offset", "0:99999999"),
        ("--from", "yesterday"),
        ("--rate", "0"),
        ("--format", "openai"),
        ("--against", "nowhere"),
        ("--record", "-"),
        ("--record", "x", "--against", "cluster", "--from-offset", "0:1"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_refused(
    replay: Told, log: KafkaLog, options: tuple[str, ...]
) -> None:
    given = [each.format(live=log.settings.group) for each in options]

    code, answer = replay(*given)

    assert code == 2, answer
    assert answer["error"]["field"]


def test_a_topic_that_is_not_there_is_not_made(replay: Told, log: KafkaLog) -> None:
    for options in ((), ("--group", "next")):
        address = f"kafka://{log.settings.bootstrap}/none.turns"
        assert replay(*options, address=address)[0] == 3


def test_deleted_turns_are_named(
    told: Told, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"trimmed-{uuid4().hex[:8]}"
    settings = ClusterSettings(
        bootstrap=kafka, group=name, prefix=f"{name}.", partitions=3
    )
    for variable, value in environment_of(settings).items():
        monkeypatch.setenv(variable, value)
    asyncio.run(create_topics(settings))
    rows = [row_of(line("s", at)) for at in range(10)]
    number = rows[0].partition
    asyncio.run(produced(settings, rows))
    place = TopicPartition(Topics.of(settings).turns, number)

    async def trim() -> None:
        async with admin_client(settings) as admin:
            await admin.delete_records({place: RecordsToDelete(before_offset=4)})

    asyncio.run(trim())

    for options in ((), ("--from-offset", f"{number}:3"), ("--from", "0")):
        code, answer = told("replay", "kafka:", *options)
        assert (code, answer["error"]["code"]) == (6, "turns_deleted")
        assert f"partition {number} below 4" in answer["error"]["message"]
    code, report = told("replay", "kafka:", "--from-offset", f"{number}:4")
    assert (code, report["turns"]) == (0, 6)


