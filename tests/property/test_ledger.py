"""What may be committed never passes what is not done, whatever order things take."""

from collections import deque

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from turnstate.streams.kafka.ledger import Ledger

PARTITIONS = ("turns-0", "turns-1")


class Accounts(RuleBasedStateMachine):
    """Fetch, do and forget chunks of two partitions; look after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger: Ledger[str] = Ledger()
        self.clear_all()

    def clear_all(self) -> None:
        self.flying: dict[str, deque[tuple[int, int]]] = {}
        self.done: dict[str, set[int]] = {}
        self.next: dict[str, int] = dict.fromkeys(PARTITIONS, 0)
        self.begins: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        for name in PARTITIONS:
            self._clear(name)

    def _clear(self, name: str) -> None:
        self.flying[name] = deque()
        self.done[name] = set()
        self.begins[name] = self.next[name]
        self.seen.pop(name, None)

    @rule(name=st.sampled_from(PARTITIONS), count=st.integers(1, 50))
    def fetch(self, name: str, count: int) -> None:
        first, last = self.next[name], self.next[name] + count - 1
        self.ledger.fetched(name, last)
        self.flying[name].append((first, last))
        self.next[name] = last + 1

    @rule(name=st.sampled_from(PARTITIONS), at=st.integers(0, 9))
    def finish_one(self, name: str, at: int) -> None:
        """Any of those in flight, one that is done already as well."""
        if self.flying[name]:
            _, last = self.flying[name][at % len(self.flying[name])]
            self.ledger.done(name, last)
            self.done[name].add(last)

    @rule(name=st.sampled_from(PARTITIONS), offset=st.integers(0, 2_000))
    def finish_what_nobody_knows(self, name: str, offset: int) -> None:
        """As a chunk that was fetched before its partition was forgotten."""
        if offset not in {last for _, last in self.flying[name]}:
            self.ledger.done(name, offset)

    @precondition(lambda self: any(self.next.values()))
    @rule(name=st.sampled_from(PARTITIONS), back=st.integers(0, 80))
    def forget(self, name: str, back: int) -> None:
        """As at a rebalance or a seek: it is read again from somewhere before."""
        self.ledger.forget(name)
        self.next[name] = max(0, self.next[name] - back)
        self._clear(name)

    @rule(name=st.sampled_from(PARTITIONS))
    def fetch_out_of_order(self, name: str) -> None:
        waiting = [last for _, last in self.flying[name] if last not in self.done[name]]
        if waiting:
            with pytest.raises(ValueError, match="after the one to"):
                self.ledger.fetched(name, waiting[0])

    @invariant()
    def nothing_that_is_not_done_is_passed(self) -> None:
        for name in PARTITIONS:
            undone = [
                first
                for first, last in self.flying[name]
                if last not in self.done[name]
            ]
            offset = self.ledger.committable(name)
            if offset is None:
                first = self.flying[name][0][1] if self.flying[name] else None
                assert first is None or first not in self.done[name]
                continue
            least = min(undone, default=self.next[name])
            assert offset == least
            assert offset >= self.begins[name]
            assert offset >= self.seen.get(name, 0), "it went back"
            self.seen[name] = offset

    @invariant()
    def what_flies_is_counted(self) -> None:
        for name in PARTITIONS:
            lasts = [last for _, last in self.flying[name]]
            passed = self.ledger.committable(name) or 0
            assert self.ledger.in_flight(name) == sum(last >= passed for last in lasts)


TestLedger = Accounts.TestCase
TestLedger.is_hypothesis_test = True  # type: ignore[attr-defined]
