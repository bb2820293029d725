"""The plan of the topics: names, equal partitions, policies of design §7."""

from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.topics import MESSAGE_BYTES_MAX, Topics, plans


def test_names_have_the_prefix_and_the_changelog_the_group() -> None:
    topics = Topics("eu.", "support")
    assert (
        topics.turns,
        topics.deltas,
        topics.changelog,
        topics.anchors,
        topics.entities,
        topics.residency,
        topics.dead_letters,
    ) == (
        "eu.turns",
        "eu.deltas",
        "support-state-changelog",
        "eu.anchors",
        "eu.entities",
        "eu.residency",
        "eu.dead-letters",
    )


def test_a_group_beside_shares_the_turns_and_nothing_else() -> None:
    settings = ClusterSettings(prefix="eu.")
    live = {plan.name for plan in plans(settings)}
    other = {plan.name for plan in plans(settings.beside("next"))}

    assert live & other == {"eu.turns"}
    assert "next-state-changelog" in other
    assert "eu.next.dead-letters" in other
    assert settings.beside(settings.group) is settings


def test_every_topic_has_as_many_partitions() -> None:
    assert {5} == {plan.partitions for plan in plans(ClusterSettings(partitions=5))}


def test_what_carries_turns_takes_large_messages() -> None:
    topics = Topics()
    of = {plan.name: plan.configs for plan in plans(ClusterSettings())}
    for name in (topics.turns, topics.deltas, topics.changelog, topics.dead_letters):
        assert str(MESSAGE_BYTES_MAX) == of[name]["max.message.bytes"]
    assert of[topics.changelog]["cleanup.policy"] == "compact"
    assert of[topics.turns]["cleanup.policy"] == "delete"
    assert of[topics.turns]["retention.ms"] == "-1"


def test_with_three_copies_a_write_is_on_two_before_it_counts() -> None:
    for replication, in_sync in ((1, "1"), (2, "1"), (3, "2")):
        found = plans(ClusterSettings(replication=replication))
        assert {in_sync} == {plan.configs["min.insync.replicas"] for plan in found}
