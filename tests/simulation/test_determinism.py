"""A seed gives the same world, byte for byte, whatever order sets and dicts have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from support.fingerprint import fingerprint
for seed in sys.argv[2:]:
    print(fingerprint(int(seed)))
"""


def fingerprints(hash_seed: str, seeds: list[str]) -> list[str]:
    """Play worlds in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(TESTS), *seeds],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return done.stdout.split()


def test_a_seed_is_the_same_under_two_hash_seeds(sim_seed: int) -> None:
    seeds = [str(sim_seed + more) for more in (0, 40, 80)]
    first, second = fingerprints("1", seeds), fingerprints("77", seeds)
    assert first == second
    assert len(set(first)) == len(seeds)


@pytest.mark.soak
def test_many_seeds_are_the_same_under_two_hash_seeds() -> None:
    seeds = [str(seed) for seed in range(200, 260)]
    assert fingerprints("3", seeds) == fingerprints("4", seeds)
