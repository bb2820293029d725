"""Partitions of a cluster are backed up, and begin with the backup on an empty disk."""

import json
import sys
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from support import held_worker
from support.both_ways import Running, both_ways
from support.cluster import PARTITIONS, WorkerProcess
from support.cluster_backups import (
    check_equal,
    counts,
    ends,
    file_of,
    fresh,
    more_turns,
    place_of,
    said,
)
from support.cluster_checks import restored_digests
from support.cold_cluster import assigned, restart
from support.told import turn
from turnstate.schemas.ids import SessionName
from turnstate.storage.backup.manifest import FILES, numbers, read_manifest
from turnstate.storage.backup.snapshot import check_backup
from turnstate.streams.documents import Document
from turnstate.streams.kafka.cluster_backups import back_up, replace_backups

TAKEN = "turnstate_restores_from_backup_total"


@pytest.fixture(name="running", scope="module")
def fixture_running(
    kafka: str, s3_server: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Generator[Running]:
    """Two workers with a folder for backups, and an S3 server to name instead."""
    folder = tmp_path_factory.mktemp(f"backups-{uuid4().hex[:8]}")
    told = {
        "TURNSTATE_BACKUPS": str(folder / "backups"),
        "TURNSTATE_S3": s3_server["endpoint"],
        "TURNSTATE_S3_ACCESS_KEY": s3_server["access_key"],
        "TURNSTATE_S3_SECRET_KEY": s3_server["secret_key"],
        "TURNSTATE_S3_BUCKET": s3_server["bucket"],
    }
    with both_ways(kafka, folder, **told) as running:
        running.quiet()
        yield running


def _held(worker: WorkerProcess, job: "Future[Document]") -> Callable[[], bool]:
    """Tell whether a job has come to a held worker, or ended at another."""
    return lambda: "held" in worker.last_words() or job.done()


def _begin_anew(running: Running) -> None:
    """Take the disks of all workers away, and start them."""
    for worker in running.cluster.workers.values():
        if worker.process is not None:
            worker.stop()
        worker.wipe()
    restart(running)
    fresh(running)


def test_a_second_backup_uploads_only_what_is_new(running: Running) -> None:
    code, first = said(running, "backup")
    assert (code, first["made"], first["failed"]) == (0, PARTITIONS, 0), first
    assert [row["partition"] for row in first["partitions"]] == list(range(PARTITIONS))
    assert {row["number"] for row in first["partitions"]} == {1}
    log = running.thread.run(running.cluster.ends())
    assert {row["partition"]: row["position"] for row in first["partitions"]} == log
    more_turns(running, "second")
    code, again = said(running, "backup", "--keep", "5")
    assert (code, again["made"]) == (0, PARTITIONS)
    for before, after in zip(first["partitions"], again["partitions"], strict=True):
        assert after["number"] == 2
        assert after["offset"] >= before["offset"]
        assert after["bytes_new"] < after["bytes"]
        assert after["files_new"] < after["files"]
        _, faults = check_backup(place_of(running, after["partition"]))
        assert faults == []
    code, listed = said(running, "backup", "--list", "--partition", "3")
    assert [(row["partition"], row["number"]) for row in listed["backups"]] == [
        (3, 1),
        (3, 2),
    ]
    made = counts(running, "turnstate_backups_total")
    assert made['{result="made"}'] > 0
    assert not list((running.cluster.folder / "data").glob("*/*/store.checkpoint"))


def test_an_empty_disk_begins_with_the_backup_and_reads_only_the_tail(
    running: Running, tmp_path: Path
) -> None:
    code, made = said(running, "backup")
    assert code == 0
    at = {row["partition"]: row["offset"] for row in made["partitions"]}
    more_turns(running, "tail")
    for worker in running.cluster.workers.values():
        worker.stop()
    whole = ends(running)
    _begin_anew(running)
    mine = running.cluster.workers["one"].partitions()
    # A worker that starts alone takes all partitions, until the other one comes.
    met = counts(running, TAKEN)
    assert list(met) == ['{result="taken"}']
    assert met['{result="taken"}'] >= len(mine)
    # Of the tail, and of the claims that the workers made meanwhile.
    tail = sum(whole[number] - at[number] - 1 for number in range(PARTITIONS))
    read = counts(running, "turnstate_restored_records_total")[""]
    assert 0 < read <= tail + 4 * PARTITIONS
    assert tail + 4 * PARTITIONS < sum(whole[number] for number in mine)
    assert counts(running, "turnstate_restored_backup_bytes_total")[""] > 0
    check_equal(running)
    alone = running.thread.run(restored_digests(running.settings, tmp_path))
    assert alone == {
        SessionName(row["tenant"], row["session"]).key(): bytes.fromhex(row["digest"])
        for row in running.embedded.sessions()
    }


def test_what_was_erased_since_the_backup_stays_erased(running: Running) -> None:
    names = [f"gone-{at}" for at in range(6)]
    for name in names:
        running.publish(turn(1, name, "own", time=1_700_000_000_000))
    running.quiet()
    assert said(running, "backup")[0] == 0
    for name in names:
        erase = {"tenant": "own", "session": name, "op": "erase", "role": "system"}
        running.publish(json.dumps(erase).encode())
    running.quiet()
    _begin_anew(running)
    assert counts(running, TAKEN)['{result="taken"}'] > 0
    check_equal(running)


def test_a_damaged_or_missing_object_costs_the_whole_changelog(
    running: Running,
) -> None:
    assert said(running, "backup")[0] == 0
    for worker in running.cluster.workers.values():
        worker.stop()
    kept: dict[Path, bytes] = {}
    for number in range(PARTITIONS):
        path = file_of(running, number)
        kept[path] = path.read_bytes()
        if number % 2:
            path.unlink()
        else:
            path.write_bytes(bytes([kept[path][0] ^ 1]) + kept[path][1:])
    code, checked = said(running, "restore", "--verify")
    assert (code, checked["bad"]) == (5, PARTITIONS)
    assert all(len(row["bad"]) == 1 for row in checked["backups"])
    _begin_anew(running)
    assert list(counts(running, TAKEN)) == ['{result="damaged"}']
    why = [
        line["why"]
        for worker in running.cluster.workers.values()
        for line in worker.said()
        if line.get("event") == "restore.no_backup"
    ]
    assert sum("is missing" in each for each in why) >= PARTITIONS // 2
    assert sum("is damaged" in each for each in why) >= PARTITIONS // 2
    check_equal(running)
    left = list((running.cluster.folder / "data").glob("*/*/backup.restoring"))
    assert left == []
    for path, data in kept.items():
        path.unlink(missing_ok=True)
        path.write_bytes(data)
    assert said(running, "restore", "--verify")[0] == 0


def test_a_worker_killed_while_it_backs_up_leaves_the_latest_as_it_was(
    running: Running,
) -> None:
    assert said(running, "backup")[0] == 0
    more_turns(running, "killed")
    for worker in running.cluster.workers.values():
        worker.stop()
    one, two = running.cluster.workers["one"], running.cluster.workers["two"]
    one.start(command=[sys.executable, "-P", held_worker.__file__, "backup"])
    two.start()
    assigned(running)
    fresh(running)
    with running.reader() as reader, ThreadPoolExecutor(1) as pool:
        # A partition may yet go to the other worker, who is not held.
        while True:
            number = min(one.partitions())
            objects = place_of(running, number)
            folder = running.cluster.folder / "data" / "one" / str(number)
            latest = read_manifest(objects).number
            before = {info.name for info in objects.list(FILES)}
            job = pool.submit(back_up, reader, [number])
            running.thread.run(running.cluster.until(_held(one, job), "it is held"))
            if not job.done():
                break
            assert job.result()["failed"] == 0, job.result()
        code, second = said(running, "backup", "--partition", str(number))
        assert (code, second["error"]["code"]) == (6, "backup_under_way")
        one.kill()
        assert read_manifest(objects).number == latest
        assert check_backup(objects)[1] == []
        assert (folder / "store.checkpoint").is_dir()
        orphans = {info.name for info in objects.list(FILES)} - before
        assert orphans
        # The partition goes to the other worker, and the job with it.
        made = job.result(60)
    assert made["partitions"][0]["number"] == latest + 1, made
    assert orphans <= {info.name for info in objects.list(FILES)}
    one.start()
    assigned(running)
    fresh(running)
    left = folder / "store.checkpoint"
    running.thread.run(running.cluster.until(lambda: not left.exists(), "it is gone"))
    # Younger files than an hour may belong to somebody; who replaces takes all.
    code, made = said(running, "backup", "--partition", str(number), "--keep", "1")
    assert (code, made["partitions"][0]["number"]) == (0, latest + 2)
    with running.reader() as reader:
        done = replace_backups(reader, [number])
    assert done["partitions"][0]["removed"] == [latest + 2]
    assert numbers(objects) == [latest + 3]
    needed = {each.object_name for each in read_manifest(objects).contents}
    assert {info.name for info in objects.list(FILES)} == needed
    assert check_backup(objects)[1] == []


def test_a_bucket_is_a_place_and_replacing_makes_none_where_there_was_none(
    running: Running, s3_server: dict[str, str]
) -> None:
    place = f"s3://{s3_server['bucket']}/backups-{uuid4().hex[:8]}"
    with running.reader() as reader:
        done = replace_backups(reader, [0, 2], where=place)
    assert [row["status"] for row in done["partitions"]] == ["none", "none"]
    code, made = said(running, "backup", "--to", place, "--partition", "2")
    assert (code, made["made"]) == (0, 1), made
    code, made = said(running, "backup", place, "--partition", "2", "--keep", "1")
    assert (code, made["partitions"][0]["removed"]) == (0, [1]), made
    code, checked = said(running, "restore", place, "--verify")
    assert (code, len(checked["backups"]), checked["bad"]) == (0, 1, 0)
    with running.reader() as reader:
        done = replace_backups(reader, [0, 2], where=place)
    assert [row["status"] for row in done["partitions"]] == ["none", "made"]


def test_a_backup_is_put_into_the_folder_of_a_worker_that_is_down(
    running: Running,
) -> None:
    assert said(running, "backup")[0] == 0
    more_turns(running, "down")
    one = running.cluster.workers["one"]
    mine = sorted(one.partitions())
    told = ("restore", "--instance", "one", "--data", str(one.data))
    code, refused = said(running, *told, "--partition", str(mine[0]))
    assert (code, refused["error"]["code"]) == (6, "owned")
    for worker in running.cluster.workers.values():
        worker.stop()
    code, refused = said(running, *told, "--partition", str(mine[0]))
    assert (code, refused["error"]["code"]) == (4, "not_empty")
    one.wipe()
    for number in mine:
        code, back = said(running, *told, "--partition", str(number))
        assert code == 0, back
        assert back["behind"] > 0
    for arguments in (
        ("restore", "--instance", "one"),
        ("restore", "--partition", "0"),
        ("restore", "--instance", "one", "--partition", "77"),
    ):
        assert said(running, *arguments)[0] == 2, arguments
    missing = ("--partition", "0", "--number", "99")
    assert said(running, "restore", "--instance", "new", *missing)[0] == 3
    restart(running)
    fresh(running)
    check_equal(running)
