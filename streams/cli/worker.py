"""The command `worker`: fold turns of Kafka until told to end."""

import os
from typing import Annotated

import typer

from turnstate.streams.cli.options import Data, Json, Profile
from turnstate.streams.cli.render import Pairs, answer

Instance = Annotated[
    str,
    typer.Option(
        "--instance",
        metavar="NAME",
        help="Its name in the group and of its folder; each worker has its own.",
    ),
]


Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="NAME",
        help="Of a group beside the cluster's own, with a state, deltas and dead"
        " letters of its own; its topics are created.",
        show_default=False,
    ),
]


def worker(
    instance: Instance = "worker-0",
    group: Group = None,
    data: Data = None,
    profile: Profile = "cluster",
    as_json: Json = False,
) -> None:
    """Run a worker of the cluster: it takes its share of the partitions.

    Start as many as you like, each with a name of its own; they share the
    partitions by themselves. SIGTERM ends one in order; after kill -9 another
    one, or the same started again, goes on without a loss.
    """
    from turnstate.schemas.errors import InvalidInputError
    from turnstate.schemas.ids import checked_id
    from turnstate.streams.cli.doors import log_to_stderr, settings_of
    from turnstate.streams.cli.progress import restore_progress
    from turnstate.streams.kafka.cluster_settings import ClusterSettings
    from turnstate.streams.kafka.instance_lock import instance_lock

    checked_id(instance, "instance")
    log_to_stderr()
    if profile != "cluster":
        raise InvalidInputError(
            "a worker runs in a cluster", field="profile", hint="leave --profile out"
        )
    settings = settings_of(data, profile, may_cluster=True)
    cluster = ClusterSettings.load(settings.data, os.environ)
    if group is not None:
        from turnstate.streams.kafka.replay_group import beside

        settings, cluster = beside(settings, cluster, group)
    with instance_lock(settings.data, instance), restore_progress() as told:
        # Faust takes a second to load: one that may not run is told before.
        from turnstate.streams.kafka.worker import run_worker

        turns = run_worker(settings, cluster, instance, told=told)
    document = {"instance": instance, "turns": turns}
    answer(document, as_json, [Pairs("worker", document.items())])
