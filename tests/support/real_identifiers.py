"""Real identifiers in the corpora, found by what the corpora say around them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple


class Marked(NamedTuple):
    """A text and where an identifier stands in it, by another rule than ours.

    Attributes:
        group: Corpus and kind.
        text: The text.
        start: Of the identifier's first character.
        end: Behind its last.
    """

    group: str
    text: str
    start: int
    end: int


_RULES: Final = {
    ("sgd", "phone"): r"(?<!\d)(\d{3}-\d{3}-\d{4})(?!\d)",
    ("sgd", "address"): r"(?:address is|located (?:at|on)) (\d+ [A-Z]\w+ [A-Z]\w+)",
    ("multiwoz21", "phone"): r"(?<!\d)(01\d{8,9})(?!\d)",
    ("crosswoz", "phone"): r"电话\D{0,6}([\d-]{7,13})",
    ("kdconv", "phone"): r"电话\D{0,6}([\d-]{7,13})",
    ("crosswoz", "address"): r"地址(?:在|是|为|\uff1a|:)+([^\uff0c\u3002,;!?]*号)",
    ("kdconv", "address"): r"地址(?:在|是|为|\uff1a|:)+([^\uff0c\u3002,;!?]*号)",
    ("taubench_airline", "email"): r"([\w.]+@[\w.]+\w)",
    ("taubench_airline", "user id"): r"\b([a-z]+_[a-z]+_\d{4})\b",
    ("taubench_airline", "name in JSON"): r'(?:first|last)_name\\*": ?\\*"(\w+)',
    ("taubench_airline", "address"): r'address1\\*": ?\\*"([^"\\]+)',
}

_NAME_SLOTS: Final = ("receiver", "contact_name")
"""Slots of SGD whose values are given names of people."""


def marked(corpus: str, line: Mapping[str, Any]) -> Iterator[Marked]:
    """Yield the identifiers of one line of a corpus."""
    text: str = line["text"]
    for (name, kind), pattern in _RULES.items():
        if name == corpus:
            for match in re.finditer(pattern, text):
                yield Marked(f"{corpus} {kind}", text, match.start(1), match.end(1))
    if corpus == "sgd":
        slots: dict[str, str | list[str]] = line["slots"] or {}
        for slot, value in slots.items():
            if slot.split(".")[-1] not in _NAME_SLOTS:
                continue
            for word in [value] if isinstance(value, str) else value:
                at = text.find(word)
                if at >= 0:
                    yield Marked("sgd given name", text, at, at + len(word))
