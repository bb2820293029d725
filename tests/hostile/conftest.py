"""What doors share that lead into services."""

from collections.abc import Generator
from uuid import uuid4

import pytest
from hostile.shared_cluster import SharedCluster, shared_cluster


@pytest.fixture(name="cluster", scope="module")
def fixture_cluster(
    kafka: str, redis_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[SharedCluster]:
    """A worker for all cases of this process: take tenants of your own."""
    folder = tmp_path_factory.mktemp(f"hostile-{uuid4().hex[:8]}")
    with shared_cluster(kafka, redis_server, folder) as shared:
        yield shared
