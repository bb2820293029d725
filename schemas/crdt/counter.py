"""PN-counters of usage: what was added and what was taken, kept apart."""

from collections.abc import Mapping

Counters = dict[str, list[int]]
"""name → [sum of positive amounts, sum of negative amounts, both ≥ 0]."""


def count(counters: Counters, amounts: Mapping[str, int]) -> Counters:
    """Return the counters with one turn's amounts in them.

    Example:
        >>> count({"tokens": [5, 0]}, {"tokens": -2, "calls": 1})
        {'tokens': [5, 2], 'calls': [1, 0]}
    """
    result = counters.copy()
    for name, amount in amounts.items():
        positive, negative = result.get(name, (0, 0))
        if amount >= 0:
            result[name] = [positive + amount, negative]
        else:
            result[name] = [positive, negative - amount]
    return result


def values(counters: Counters) -> dict[str, int]:
    """Return what each counter stands at, names in order."""
    return {name: counters[name][0] - counters[name][1] for name in sorted(counters)}
