"""How every test is run: short or long counts, seeds, no silent skips."""

import gc
import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

import hypothesis
import pytest

from support.shared_services import shared, shared_root
from support.soak import SoakSeeds, seeds_for
from turnstate.infra.services.kafka import start_kafka
from turnstate.infra.services.redis import start_redis
from turnstate.infra.services.redis_cluster import start_redis_cluster
from turnstate.infra.services.s3 import start_s3

SIM_SEEDS: Final = (1, 2)
"""What the simulation runs where no SIM_SEED is given."""

FOLDERS_THAT_WAIT: Final = ("integration", "hostile", "crash")
"""What begins first: most of its time goes into waiting for other processes."""

# Short: the same examples each time, so that the code alone decides. Long: new
# ones each time; a failure prints the line that reproduces it.
hypothesis.settings.register_profile(
    "short", max_examples=50, derandomize=True, deadline=None, database=None
)
hypothesis.settings.register_profile(
    "soak", max_examples=1_000, deadline=None, print_blob=True
)
hypothesis.settings.register_profile(
    "slice", hypothesis.settings.get_profile("soak"), max_examples=250
)


def _place_in_line(item: pytest.Item) -> int:
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return [*FOLDERS_THAT_WAIT, folder].index(folder)


def _soaks(config: pytest.Config) -> bool:
    return bool(config.getoption("markexpr") == "soak")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the counts of the property tests."""
    profile = "short"
    if _soaks(config):
        profile = "slice" if os.environ.get("SOAK_SECONDS") else "soak"
    hypothesis.settings.load_profile(profile)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Count every property test as a soak test while soaking; order the files.

    Files come whole to one process (`--dist loadfile`), as many share workers of
    a cluster that take long to start. Those that wait come first,
    and what only computes fills the time up.
    """
    if _soaks(config):
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker(pytest.mark.soak)
    items.sort(key=_place_in_line)


def _freeze() -> None:
    """Leave what was made by now out of garbage collections.

    Each store that is closed makes one, and to walk all modules, tests and what
    pytest keeps of them for that took a third of the processor time of a run.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """Freeze the modules, and the tests."""
    _freeze()


@pytest.fixture(autouse=True, scope="module")
def fixture_freeze() -> None:
    """Freeze what the files of tests before this one left."""
    _freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `sim_seed` to tests that ask for it: SIM_SEED, else a few."""
    if "sim_seed" in metafunc.fixturenames:
        given = os.environ.get("SIM_SEED")
        metafunc.parametrize("sim_seed", [int(given)] if given else SIM_SEEDS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test where services are required, as CI does."""
    report = yield
    required = os.environ.get("TURNSTATE_REQUIRE_SERVICES") == "1"
    if required and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} may not be skipped here: {report.longrepr}"
    return report


@pytest.fixture
def soak_seeds(request: pytest.FixtureRequest) -> SoakSeeds:
    """Return the seeds of this test: `for seed in soak_seeds.take(200): …`."""
    return seeds_for(len(request.session.items))


@pytest.fixture(name="kafka", scope="session")
def fixture_kafka(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a broker that all tests share: take topics of your own."""
    with shared(shared_root(tmp_path_factory), "kafka", start_kafka) as server:
        yield server.bootstrap


@pytest.fixture(name="redis_server", scope="session")
def fixture_redis_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The URL of a Redis that all tests share: take keys of your own."""
    with shared(shared_root(tmp_path_factory), "redis", start_redis) as server:
        yield server.url


@pytest.fixture(name="redis_cluster", scope="session")
def fixture_redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The URL of a Redis Cluster that all tests share: take keys of your own."""
    root = shared_root(tmp_path_factory)
    with shared(root, "redis-cluster", start_redis_cluster) as cluster:
        yield cluster.url


@pytest.fixture(name="s3_server", scope="session")
def fixture_s3_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[dict[str, str]]:
    """Endpoint, keys and bucket of an S3 server that all tests share."""
    with shared(shared_root(tmp_path_factory), "s3", start_s3) as server:
        yield server.connection
