"""The order in which residents are let go: LRU-K, with a part for the young."""

from collections.abc import Iterable

from turnstate.storage.access import NO_ACCESSES, Accesses
from turnstate.storage.hot.replacement import FOREVER_MS, LruK, Resident

BUDGET = 1_000


def order_of(uses: Iterable[tuple[bytes, int]]) -> tuple[LruK, dict[bytes, Resident]]:
    """Return the order after (key, time) of some uses, each resident of 10 bytes."""
    order = LruK()
    residents: dict[bytes, Resident] = {}
    for key, now_ms in uses:
        if key in residents:
            order.touch(residents[key], now_ms)
        else:
            residents[key] = Resident(key, 10)
            order.add(residents[key], now_ms, NO_ACCESSES)
    return order, residents


def let_go(order: LruK, now_ms: int = 0, budget: int = BUDGET) -> list[bytes]:
    """Return the keys in the order in which they go."""
    found: list[bytes] = []
    while (victim := order.victim(budget, now_ms)) is not None:
        found.append(victim.key)
        order.remove(victim)
    return found


def test_those_with_fewer_uses_go_first_the_least_recent_of_them_first() -> None:
    """Of those with three the one whose third last use is the oldest."""
    order, _ = order_of(
        [
            *((b"often early", at) for at in (1, 2, 3)),
            *((b"often late", at) for at in (2, 5, 6)),
            (b"once", 7),
            *((b"twice", at) for at in (4, 8)),
            (b"often early", 9),
            (b"often early", 10),
        ]
    )

    assert let_go(order, budget=0) == [b"once", b"twice", b"often late", b"often early"]


def test_the_young_keep_their_part() -> None:
    """While they take less than an eighth, the oldest of the others goes."""
    uses = [(b"old %d" % number, at) for number in range(3) for at in (1, 2, 3)]
    order, _ = order_of([*uses, (b"new", 9)])

    victim = order.victim(BUDGET, 9)

    assert victim is not None
    assert victim.key.startswith(b"old")


def test_a_use_moves_a_resident_back_in_the_order() -> None:
    order, residents = order_of([(key, at) for at in (1, 2, 3) for key in (b"a", b"b")])
    order.touch(residents[b"a"], 4)
    order.touch(residents[b"a"], 5)

    assert let_go(order) == [b"b", b"a"]


def test_what_is_remembered_of_one_that_comes_back_counts() -> None:
    order = LruK()
    back, new = Resident(b"back", 10), Resident(b"new", 10)
    order.add(back, 30, Accesses((20, 10), 20))
    order.add(new, 31, NO_ACCESSES)

    assert let_go(order, budget=0) == [b"new", b"back"]


def test_what_is_kept_goes_only_after_its_time() -> None:
    order, residents = order_of([(b"a", 1), (b"b", 2)])
    order.keep(residents[b"a"], 100)

    assert let_go(order, now_ms=99) == [b"b"]
    assert order.victim(BUDGET, 99) is None
    assert let_go(order, now_ms=100) == [b"a"]


def test_keeping_longer_replaces_the_earlier_word() -> None:
    order, residents = order_of([(b"a", 1)])
    order.keep(residents[b"a"], 100)
    order.keep(residents[b"a"], 200)

    assert let_go(order, now_ms=150) == []
    order.free(residents[b"a"])
    order.free(residents[b"a"])
    assert let_go(order, now_ms=150) == [b"a"]


def test_bytes_add_up() -> None:
    order, residents = order_of([(b"a", at) for at in (1, 2, 3)] + [(b"b", 4)])
    order.resize(residents[b"a"], 70)
    order.resize(residents[b"b"], 5)
    order.keep(residents[b"a"], FOREVER_MS)

    assert order.bytes == 75
    order.remove(residents[b"a"])
    assert order.bytes == 5
    assert let_go(order) == [b"b"]
    assert order.bytes == 0


def test_dead_entries_do_not_pile_up() -> None:
    """Memory follows what is held, however often things come and go."""
    order, residents = order_of([(b"a", at) for at in (1, 2, 3)])
    for number in range(1_000):
        order.keep(residents[b"a"], FOREVER_MS)
        order.free(residents[b"a"])
        passing = Resident(b"%d" % number, 1)
        order.add(passing, 10, Accesses((3, 2, 1), 3))
        order.remove(passing)

    assert len(order._heap) < 100
    assert len(order._kept) < 100
