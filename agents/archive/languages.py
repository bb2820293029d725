"""Which language a text is in, as far as its script shows."""

import unicodedata
from collections import Counter
from typing import Final

_LETTERS_MAX: Final = 400
"""Letters that are looked at: a language shows in its first sentence."""

_SCRIPTS: Final = {
    "CJK": "zh",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "HANGUL": "ko",
    "LATIN": "latin",
    "CYRILLIC": "cyrillic",
    "ARABIC": "arabic",
    "DEVANAGARI": "devanagari",
    "GREEK": "greek",
    "HEBREW": "hebrew",
    "THAI": "thai",
}


def language_of(text: str) -> str:
    """Return zh, ja, ko, or the script that most letters are of.

    Languages that share a script are not told apart. A Chinese sign says as
    much as a Latin word, so one is counted for three letters.

    Example:
        >>> language_of("一张去北京的票 please"), language_of("hi"), language_of("42")
        ('zh', 'latin', 'none')
    """
    counts: Counter[str] = Counter()
    for char in text[:_LETTERS_MAX]:
        if char.isalpha():
            word = unicodedata.name(char, "OTHER").split(" ", 1)[0]
            script = _SCRIPTS.get(word, "other")
            counts[script] += 3 if script == "zh" else 1
    if not counts:
        return "none"
    if counts["ja"]:
        return "ja"
    return max(sorted(counts), key=lambda script: counts[script])
