"""A cluster with a cold tier, as tests ask it: commands, jobs, moves, restarts."""

from typing import Any

from support.both_ways import Running
from support.cluster import PARTITIONS
from turnstate.schemas.ids import SessionName
from turnstate.streams.documents import from_json
from turnstate.streams.kafka.cluster_tiers import opened_tiers
from turnstate.streams.settings import Settings


def command(running: Running, *arguments: str) -> Any:
    """Run a command on the cluster; return what it says."""
    done = running.cli(*arguments, "--json")
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    return from_json(done.stdout)


def cool(running: Running, *names: tuple[str, str]) -> None:
    """Move sessions to the cold tier."""
    with jobs(running) as opened:
        for name in names:
            report = opened.job.move(SessionName(*name).key(), "cold")
            assert report.moved["warm>cold"] == 1


def tier_of(running: Running, name: tuple[str, str]) -> str:
    """Return where a session lies, without reading it."""
    with running.reader() as reader:
        (row,) = [
            each
            for each in reader.sessions(tenant=name[0], prefix=name[1])
            if each["session"] == name[1]
        ]
        return str(row["tier"])


def jobs(running: Running) -> Any:
    """Give the cluster as a job has it."""
    return opened_tiers(Settings(data=running.cluster.folder), running.settings)


def restart(running: Running, **environment: str) -> None:
    """End all workers and start them anew; return once they have all partitions."""
    workers = list(running.cluster.workers.values())
    for worker in workers:
        if worker.process is not None:
            worker.stop()
    for worker in workers:
        worker.start(**environment)
    assigned(running)


def assigned(running: Running) -> None:
    """Wait until the workers that run now have all partitions."""

    def all_are() -> bool:
        shares = [each.partitions() for each in running.cluster.workers.values()]
        return all(shares) and sum(map(len, shares)) == PARTITIONS

    running.thread.run(running.cluster.until(all_are, "every partition has a worker"))
    running.routes()
