"""One process at a time runs an instance; another is told before it loads Faust."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.kafka.instance_lock import instance_lock

TWIN: Final = """
import sys
from turnstate.streams.cli.main import main
try:
    main(["worker", "--instance", "one", "--data", sys.argv[1]])
except SystemExit as end:
    print(end.code, sorted({"faust", "aiokafka"} & sys.modules.keys()))
"""


def test_an_instance_runs_once(tmp_path: Path) -> None:
    with instance_lock(tmp_path, "one"), instance_lock(tmp_path, "two"):
        with (
            pytest.raises(UnavailableError, match="runs the instance 'one'") as refused,
            instance_lock(tmp_path, "one"),
        ):
            pass
        assert refused.value.code == "owned"
    with instance_lock(tmp_path, "one"):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UnavailableError, match="cannot be used") as refused,
        instance_lock(tmp_path / "file", "one"),
    ):
        pass
    assert refused.value.code != "owned"


def test_a_twin_is_told_before_it_loads_what_a_worker_runs_on(tmp_path: Path) -> None:
    with instance_lock(tmp_path, "one"):
        twin = subprocess.run(
            [sys.executable, "-c", TWIN, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        )
    assert twin.stdout == "6 []\n"
    assert "another process runs the instance 'one'" in twin.stderr
