"""A node is formatted under an id that Kafka's tool takes."""

import os
import re

import pytest

from turnstate.infra.services import kafka


def test_an_id_is_url_safe_and_no_option() -> None:
    made = {kafka.new_cluster_id() for _ in range(300)}

    assert len(made) == 300
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", each) for each in made)


def test_a_dash_in_front_is_thrown_again(monkeypatch: pytest.MonkeyPatch) -> None:
    thrown = iter([b"\xf8" + bytes(15), bytes(16)])

    def thrown_by_hand(size: int) -> bytes:
        assert size == 16
        return next(thrown)

    monkeypatch.setattr(os, "urandom", thrown_by_hand)

    assert kafka.new_cluster_id() == "A" * 22
