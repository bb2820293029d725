"""A backup that a moving partition ended is begun again, and not for ever."""

from typing import Any

import pytest

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.embedded.messages import error_parts
from turnstate.streams.kafka import cluster_backups
from turnstate.streams.kafka.cluster_backups import back_up
from turnstate.streams.kafka.cluster_settings import ClusterSettings

TRIES = 1 + len(cluster_backups._PAUSES_S)


class Reader:
    """Owners of two partitions, the first of which fails so many times."""

    def __init__(self, failures: int, code: str = "not_fresh") -> None:
        self.cluster = ClusterSettings(partitions=2, backups="/nowhere")
        self.error = UnavailableError("it is not ready", code=code)
        self.failures = [failures, 0]
        self.jobs: list[list[str]] = [[], []]

    def ask(self, number: int, method: str, arguments: dict[str, Any]) -> Any:
        if method == "backup_start":
            self.jobs[number].append(arguments["job"])
            return {"state": "running", "done": 0, "total": 1}
        assert arguments["job"] == self.jobs[number][-1]
        if self.failures[number]:
            self.failures[number] -= 1
            return {"state": "failed", "error": error_parts(self.error)}
        return {"state": "made", "number": 1, "files_new": 1, "bytes_new": 1}


def made(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], float]:
    """Back up by a clock that does not wait; return what became of it, and when."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    report = back_up(reader)  # type: ignore[arg-type]
    return [row["status"] for row in report["partitions"]], report["seconds"]


@pytest.mark.parametrize("failures", [0, 1, TRIES - 1])
def test_it_is_begun_under_a_new_name_until_it_is_made(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(failures)
    assert made(reader, monkeypatch)[0] == ["made", "made"]
    assert len(set(reader.jobs[0])) == failures + 1
    assert len(reader.jobs[1]) == 1


def test_the_pauses_grow_to_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(TRIES)
    became, seconds = made(reader, monkeypatch)
    assert became == ["failed", "made"]
    assert len(reader.jobs[0]) == TRIES
    pauses = cluster_backups._PAUSES_S
    assert list(pauses) == sorted(pauses)
    assert sum(pauses) <= seconds < sum(pauses) + 5


def test_what_no_waiting_helps_has_failed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Reader(1, code="no_room")
    assert made(reader, monkeypatch)[0] == ["failed", "made"]
    assert len(reader.jobs[0]) == 1
