"""The counts of a job reach Prometheus whole."""

from pathlib import Path

import pytest

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.tiers.textfile import write_metrics

REPORT = {
    "moved": {"warm>cold": 7, "hot>warm": 2},
    "bytes": 4096,
    "skipped": 1,
    "skipped_why": {"it has changed": 1},
    "swept": 0,
    "seconds": 1.5,
    "fenced": False,
}


def test_each_count_is_a_sample(tmp_path: Path) -> None:
    """Read back by Prometheus' own parser."""
    parser = pytest.importorskip("prometheus_client.parser")
    path = tmp_path / "tiers.prom"
    write_metrics(path, "run", REPORT, 1_700_000_000)
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }
    job = ("job", "run")
    assert samples == {
        ("turnstate_job_moved_sessions", job, ("path", "warm>cold")): 7,
        ("turnstate_job_moved_sessions", job, ("path", "hot>warm")): 2,
        ("turnstate_job_bytes", job): 4096,
        ("turnstate_job_skipped", job): 1,
        ("turnstate_job_swept", job): 0,
        ("turnstate_job_seconds", job): 1.5,
        ("turnstate_job_ended_timestamp_seconds", job): 1_700_000_000,
    }
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_replaces_the_one_before(tmp_path: Path) -> None:
    """The exporter sees the last run, and never half of one."""
    path = tmp_path / "tiers.prom"
    write_metrics(path, "run", REPORT, 1)
    write_metrics(path, "gc", {"packs": 3, "bytes": 9, "kept": {"young": 1}}, 2)
    text = path.read_text()
    assert 'turnstate_job_packs{job="gc"} 3' in text
    assert "run" not in text


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """It says which file, and what to do."""
    with pytest.raises(UnavailableError, match="nowhere") as raised:
        write_metrics(tmp_path / "nowhere" / "x.prom", "run", REPORT, 1)
    assert raised.value.field == "metrics"
