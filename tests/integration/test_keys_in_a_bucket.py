"""The keys of a cluster's partitions in a bucket: one object each, one owner."""

import secrets

import pytest

from support.encrypting import MASTER_B, Master
from turnstate.schemas.errors import UnavailableError
from turnstate.storage.encryption.key_set import HOT_SLOT
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.partition_keys import ClusterKeys
from turnstate.streams.places import S3_SCHEME, open_place


def test_a_set_is_made_taken_over_and_destroyed_by_slot(
    s3_server: dict[str, str],
) -> None:
    cluster = ClusterSettings(
        s3=s3_server["endpoint"],
        s3_bucket=s3_server["bucket"],
        s3_access_key=s3_server["access_key"],
        s3_secret_key=s3_server["secret_key"],
        group=f"keys-{secrets.token_hex(6)}",
        partitions=2,
    )
    with ClusterKeys(cluster, Master()) as keys, ClusterKeys(cluster, Master()) as late:
        assert keys.where.startswith(S3_SCHEME)
        keys.check()
        first = late.of(0)
        made = first.take_over(None)
        second = keys.of(0)
        taken = second.take_over(made.stored.id)
        assert taken.hot_keys() == made.hot_keys()
        with pytest.raises(UnavailableError) as replaced:
            first.replace([3])
        assert replaced.value.code == "not_fresh"
        assert second.replace([3, HOT_SLOT]).stored.replaced == [3, HOT_SLOT]
        after = second.destroy_replaced([3, HOT_SLOT])
        assert after.stored.replaced == []
        assert keys.of(0).stored() == after.stored
        objects = open_place(
            keys.where,
            {
                "TURNSTATE_S3_ENDPOINT": cluster.s3,
                "AWS_ACCESS_KEY_ID": cluster.s3_access_key,
                "AWS_SECRET_ACCESS_KEY": cluster.s3_secret_key,
            },
        )
        assert [each.name[:12] for each in objects.list()] == ["partition-0/"]
        assert keys.status()["partitions"] == {Master().name: 1}
    with (
        ClusterKeys(cluster, Master(MASTER_B)) as other,
        pytest.raises(UnavailableError) as refused,
    ):
        other.check()
    assert refused.value.code == "wrong_key"


def test_without_a_place_it_is_refused_by_name() -> None:
    with pytest.raises(UnavailableError) as refused:
        ClusterKeys(ClusterSettings(), Master())
    assert (refused.value.code, refused.value.field) == ("no_keys_place", "encryption")
