"""Identifiers are found by form and check digit, in English and in Chinese."""

import time
from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from support.corpora import corpus_lines, corpus_paths
from support.planted import KINDS, planted
from turnstate.agents.archive.deidentify import (
    Deidentifier,
    Finding,
    PatternDeidentifier,
    clean,
)
from turnstate.agents.archive.phones import default_deidentifier

DEIDENTIFIER = default_deidentifier()

PATTERNS = PatternDeidentifier(lambda _: ())

LEAST = {"name": 0.95, "address": 0.95, "bare": 0.0}
"""Recall that a change must not fall below; of all other kinds it is 1. Names
with nothing about them are not found: docs/bench.md says how many."""


def _carriers(language: str) -> list[str]:
    chinese = {"crosswoz", "kdconv"}
    return [
        line["text"]
        for path in corpus_paths()
        if (path.name.split(".")[0] in chinese) == (language == "zh")
        for line in corpus_lines(path)[:400]
        if line["role"] == "user" and 5 < len(line["text"]) < 200
    ] or ["hello there", "你好"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_planted_identifiers_are_found(language: str) -> None:
    found: Counter[str] = Counter()
    count = 40
    for each in planted(_carriers(language), language, count, seed=3):
        begin = each.text.index(each.secret)
        covered: set[int] = set()
        for start, end, _ in DEIDENTIFIER.find(each.text):
            covered.update(range(start, end))
        found[each.kind] += covered >= set(range(begin, begin + len(each.secret)))
    for kind in KINDS:
        assert found[kind] >= LEAST.get(kind, 1.0) * count, (kind, found[kind])


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("mail a.b@example.com now", "mail [email] now"),
        ("see https://x.org/u?id=9 there", "see [url] there"),
        ("from 192.168.0.1 or so", "from [ip] or so"),
        ("4111 1111 1111 1111", "[card]"),
        ("at 5 4111 1111 1111 1111", "at [id]"),
        ("ring 415-555-2671 please", "ring [phone] please"),
        ("电话是010-85007421", "电话是[phone]"),
        ("打13812345678找我", "打[phone]找我"),
        ("身份证11010519491231002X", "身份证[id]"),
        ("123-45-6789 is it", "[id] is it"),
        ("GB82 WEST 1234 5698 7654 32", "[id]"),
        ("user mia_li_3668 asks", "user [id] asks"),
        ("my name is alice", "my name is alice"),  # no capital: missed
        ("my name is Alice", "my name is [name]"),
        ('{"first_name": "Mia", "x": 1}', '{"first_name": "[name]", "x": 1}'),
        ("I met Dr. Strange Love", "I met Dr. [name]"),
        ("我叫王小明。", "我叫[name]。"),
        ("王伟", "[name]"),
        ("张先生来了", "[name]先生来了"),
        ("at 12 Maple Street, Apt 4", "at [address]"),
        ("住在北京市海淀区中关村大街27号", "[address]"),
        ("a table for two at 7", "a table for two at 7"),
        ("我想找一家人均消费100元的餐馆", "我想找一家人均消费100元的餐馆"),
        ("", ""),
    ],
)
def test_each_kind_is_replaced_by_its_name(text: str, cleaned: str) -> None:
    assert clean(text, DEIDENTIFIER).text == cleaned


def test_what_overlaps_goes_as_one() -> None:
    found = DEIDENTIFIER.find("AB12 4111111111111111@example.com")
    assert all(before.end <= after.start for before, after in pairwise(found))
    assert found == sorted(found)
    assert all(isinstance(each, Finding) for each in found)


@pytest.mark.parametrize(
    "alphabet", ["a_", "1-", "A ", "路1号", "北京市区", "@.", "a1", "1 -"]
)
def test_a_hostile_text_takes_no_time(alphabet: str) -> None:
    """No pattern goes back over what it has read, in whatever length.

    A text eight times as long takes about eight times as long; a pattern that
    goes back would take sixty-four times.
    """
    chance = Random(1)
    # The library that finds telephone numbers takes longest by far, and would
    # hide a pattern that goes back.
    for finder, length in ((PATTERNS, 4_000), (DEIDENTIFIER, 1_000)):
        mixed = "".join(chance.choices(alphabet, k=length))
        for short in (mixed, alphabet * (length // len(alphabet))):
            long_s = _processor_s(finder, 8 * short)
            assert long_s < 30 * _processor_s(finder, short), finder


def _processor_s(finder: Deidentifier, text: str) -> float:
    """Return the processor time of the quickest of three looks at a text."""
    spent: list[float] = []
    for _ in range(3):
        start = time.process_time()
        finder.find(text)
        spent.append(time.process_time() - start)
    return min(spent)


def test_the_samples_keep_most_of_their_turns() -> None:
    """It cleans; it does not blank: nine turns of ten stay as they are."""
    texts = [text for language in ("en", "zh") for text in _carriers(language)]
    touched = sum(bool(DEIDENTIFIER.find(text)) for text in texts)
    assert touched < 0.2 * len(texts)
