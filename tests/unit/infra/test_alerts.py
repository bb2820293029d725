"""Alerts and the operations page name metrics that there are, and each other."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.source import ROOT

pytest.importorskip(
    "prometheus_client", reason="the cluster extra is not installed"
)

RULES = ROOT / "infra" / "observability" / "alerts.yaml"
TESTS = ROOT / "infra" / "observability" / "alerts_test.yaml"
PAGE = ROOT / "docs" / "operations.md"

_NAME = re.compile(r"\bturnstate_[a-z_]+\b")
_ALERT = re.compile(r"\bTurnstate[A-Z][A-Za-z]+\b")


def families() -> Iterator[set[str]]:
    """Yield the names under which each metric can be asked for."""
    from turnstate.streams.kafka.metrics import WorkerMetrics

    for family in WorkerMetrics().registry.collect():
        # A counter with labels has no sample yet, so names come by type.
        if family.type == "counter":
            yield {f"{family.name}_total"}
        elif family.type == "histogram":
            ends = ("bucket", "count", "sum")
            yield {family.name, *(f"{family.name}_{end}" for end in ends)}
        else:
            yield {family.name}


@pytest.mark.parametrize("path", [RULES, TESTS, PAGE], ids=lambda path: path.name)
def test_every_metric_that_is_named_is_exported(path: Path) -> None:
    named = set(_NAME.findall(path.read_text(encoding="utf-8")))

    assert named
    assert named <= set().union(*families())


def test_every_metric_is_explained() -> None:
    page = set(_NAME.findall(PAGE.read_text(encoding="utf-8")))

    assert [names for names in families() if not names & page] == []


def test_every_alert_is_explained_and_tested_and_nothing_else_is() -> None:
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text(encoding="utf-8")))
    tested = re.findall(r"alertname: (\w+)", TESTS.read_text(encoding="utf-8"))

    assert alerts
    assert set(tested) == alerts
    assert set(_ALERT.findall(PAGE.read_text(encoding="utf-8"))) == alerts


def test_every_setting_of_the_cluster_is_explained() -> None:
    from turnstate.streams.kafka.cluster_settings import ClusterSettings

    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `\[", page, re.MULTILINE)

    assert rows
    assert set(rows) == {row["name"] for row in ClusterSettings().rows()}
