"""The doctor finds what is wrong, and says what to do."""

from pathlib import Path

import pytest

from turnstate.infra.services import programs
from turnstate.streams.cli.checks import _library, all_checks, holds
from turnstate.streams.settings import Settings


def test_a_good_machine_has_nothing_to_mend(tmp_path: Path) -> None:
    rows = all_checks(Settings(data=tmp_path / "new"))

    assert {row["check"] for row in rows} >= {"python", "rocksdict", "data folder"}
    wrong = [row for row in rows if not (row["ok"] or row["optional"])]
    wrong = [row for row in wrong if row["check"] != "fsync"]
    assert wrong == []
    assert all((row["hint"] is None) == row["ok"] for row in rows)
    assert not (tmp_path / "new").exists()


def test_a_missing_library_comes_with_how_to_get_it() -> None:
    row = _library("no-such-thing", "no_such_thing")

    assert not row["ok"]
    assert row["hint"] == "pip install no-such-thing"


def test_a_file_in_the_folders_place_and_a_bad_graph_are_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    settings = Settings(data=tmp_path / "file", graph=str(tmp_path / "missing.toml"))

    wrong = {row["check"] for row in all_checks(settings) if not row["ok"]}

    assert {"data folder", "dialogue graph"} <= wrong


def test_what_only_a_cluster_needs_counts_only_for_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(programs, "_java_homes", list[Path])
    embedded = [
        row
        for row in all_checks(Settings(data=tmp_path))
        if row["check"] != "fsync"  # the disk may be slow
    ]
    cluster = all_checks(Settings(data=tmp_path, profile="cluster"))

    (java,) = [row for row in embedded if row["check"] == "java"]
    assert (java["ok"], java["optional"]) == (False, True)
    assert "apt-get install" in java["hint"]
    assert holds(embedded)
    assert not holds(cluster)
