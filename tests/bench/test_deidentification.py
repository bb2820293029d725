"""How many identifiers are found and missed, planted ones and real ones."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from support.corpora import corpus_lines, corpus_paths
from support.planted import KINDS, planted
from support.real_identifiers import marked
from turnstate.agents.archive.phones import default_deidentifier

DEIDENTIFIER = default_deidentifier()
CHINESE = ("crosswoz", "kdconv")


def _lines() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in corpus_paths():
        name = path.name.split(".")[0]
        for line in corpus_lines(path):
            yield name, line


def _covered(text: str, start: int, end: int) -> bool:
    found: set[int] = set()
    for each in DEIDENTIFIER.find(text):
        found.update(range(each.start, each.end))
    return found >= set(range(start, end))


@pytest.mark.bench
def test_identifiers_found_and_missed(capsys: pytest.CaptureFixture[str]) -> None:
    """Print both; the whole corpora where TURNSTATE_DATA_CORPORA names them."""
    real: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    carriers: defaultdict[str, list[str]] = defaultdict(list)
    touched: Counter[str] = Counter()
    for corpus, line in _lines():
        language = "zh" if corpus in CHINESE else "en"
        text = line["text"]
        if line["role"] == "user" and 5 < len(text) < 200:
            carriers[language].append(text)
            touched[language] += bool(DEIDENTIFIER.find(text))
        for each in marked(corpus, line):
            real[each.group] += 1
            whole[each.group] += _covered(each.text, each.start, each.end)
    lines = [
        f"real {group}: {whole[group]} of {count} found"
        for group, count in sorted(real.items())
    ]
    for language, texts in sorted(carriers.items()):
        hits: Counter[str] = Counter()
        for made in planted(texts, language, 500, seed=7):
            at = made.text.index(made.secret)
            hits[made.kind] += _covered(made.text, at, at + len(made.secret))
        lines += [f"planted {language} {kind}: {hits[kind]} of 500" for kind in KINDS]
        lines.append(f"plain {language}: {touched[language]} of {len(texts)} touched")
        assert hits["email"] == hits["card"] == hits["id"] == 500
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert lines
