"""The command `worker`: fold turns of Kafka until told to end."""

import os
from typing import Annotated

import typer

from turnstate.streams.cli.options import Data

Instance = Annotated[
    str,
    typer.Option(
        "--instance",
        metavar="NAME",
        help="Its name in the group and of its folder; each worker has its own.",
    ),
]


def worker(instance: Instance = "worker-0", data: Data = None) -> None:
    """Run a worker of the cluster: it takes its share of the partitions.

    Start as many as you like, each with a name of its own; they share the
    partitions by themselves. SIGTERM ends one in order; after kill -9 another
    one, or the same started again, goes on without a loss.
    """
    from turnstate.schemas.ids import checked_id
    from turnstate.streams.cli.doors import log_to_stderr, settings_of
    from turnstate.streams.kafka.cluster_settings import ClusterSettings
    from turnstate.streams.kafka.worker import run_worker

    checked_id(instance, "instance")
    log_to_stderr()
    settings = settings_of(data, "cluster", may_cluster=True)
    cluster = ClusterSettings.load(settings.data, os.environ)
    run_worker(settings, cluster, instance)
