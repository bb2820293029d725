"""The turns by which an erase begins: published, and waited for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from turnstate.schemas.clocks import Dot
from turnstate.schemas.ids import SessionName
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import turn_to_json
from turnstate.schemas.wire.turn_bytes import draft_from_bytes
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.fold_watch import STALL_S, FoldWatch
from turnstate.streams.kafka.producer import TurnProducer
from turnstate.streams.kafka.topic_reader import topic_reader


def erases(lives: Iterable[tuple[bytes, int]]) -> Iterator[Turn]:
    """Yield a turn that ends each life; one that has ended it leaves alone.

    Example:
        >>> key = SessionName("acme", "chat-17").key()
        >>> [(turn.op, turn.incarnation) for turn in erases([(key, 2)])]
        [('erase', 2)]
    """
    for key, life in lives:
        name = SessionName.from_key(key)
        yield Turn(
            tenant=name.tenant,
            session=name.session,
            role="system",
            op="erase",
            incarnation=life,
        )


def redactions(spoken: Mapping[bytes, Sequence[Dot]]) -> Iterator[Turn]:
    """Yield a turn that hides each of some turns.

    Example:
        >>> key = SessionName("acme", "chat-17").key()
        >>> [turn.target for turn in redactions({key: [Dot("log", 3)]})]
        ['@log:3']
    """
    for key, dots in spoken.items():
        name = SessionName.from_key(key)
        for dot in dots:
            yield Turn(
                tenant=name.tenant,
                session=name.session,
                role="system",
                op="redact",
                target=dot.address(),
            )


async def publish_and_wait(
    cluster: ClusterSettings, turns: Sequence[Turn], *, stall_s: float = STALL_S
) -> int:
    """Publish turns; return how many were refused, once all are folded.

    Args:
        cluster: Where the brokers are, and the names.
        turns: They.
        stall_s: How long nothing may move meanwhile.

    Raises:
        UnavailableError: no broker answers, or no worker moves. What was
            published is safe in Kafka.
    """
    async with topic_reader(cluster) as reader:
        watch = FoldWatch(cluster, reader)
        await watch.begin()
        async with TurnProducer(cluster, acknowledged=watch.acknowledged) as producer:
            receipts = []
            for turn in turns:
                raw = turn_to_json(turn)
                watch.expect(draft_from_bytes(raw))
                receipts.append(await producer.publish(raw))
            for receipt in receipts:
                await receipt
        await watch.wait(stall_s=stall_s)
    return watch.refused + watch.conflicts
