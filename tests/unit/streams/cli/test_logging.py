"""Where log lines go once a command has chosen stderr."""

import io
import json

import pytest
import structlog

from turnstate.streams.cli.doors import log_to_stderr


def test_a_line_goes_to_the_stderr_of_when_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stderr", first)
    log_to_stderr()
    try:
        logger = structlog.get_logger("test")
        first.close()
        monkeypatch.setattr("sys.stderr", second)
        logger.warning("still.heard", number=7)
    finally:
        structlog.reset_defaults()
    told = json.loads(second.getvalue())
    assert (told["event"], told["number"]) == ("still.heard", 7)
