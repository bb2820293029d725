"""What a reader is shown cannot steer the terminal, and a program gets JSON."""

import pytest

from turnstate.schemas.errors import ConflictError
from turnstate.streams.cli.render import (
    Pairs,
    Table,
    answer,
    clean,
    error_lines,
    shown,
)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain", "plain"),
        ("北京, naïve", "北京, naïve"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("two\nlines\tand a tab", "two\\nlines\\tand a tab"),
        ("right\u202eleft", "right\\u202eleft"),
        ("family \U0001f468\u200d\U0001f469", "family \U0001f468\u200d\U0001f469"),
        ("sep\u2028arator", "sep\\u2028arator"),
    ],
)
def test_text_of_others_cannot_steer_a_terminal(text: str, seen: str) -> None:
    assert clean(text) == seen


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, "-"),
        (True, "true"),
        (7, "7"),
        ("text", "text"),
        ([1, "a"], '[1,"a"]'),
        (10**30, str(10**30)),
    ],
)
def test_json_values_are_shown_bare_where_they_are_text(
    value: object, seen: str
) -> None:
    assert shown(value) == seen


def test_a_pipe_gets_tabs_and_no_colours(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    answer({}, False, [Pairs("p", [("a", 1)]), Table("t", ("x", "y"), [("1", "[b]")])])

    assert capfdbinary.readouterr().out == b"a\t1\n\nx\ty\n1\t[b]\n"


def test_json_is_one_document_on_one_line(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    answer({"a": "你"}, True, [])

    assert capfdbinary.readouterr().out == '{"a":"你"}\n'.encode()


def test_an_error_is_one_sentence_with_its_hint() -> None:
    assert error_lines(ConflictError("it is there", hint="rename it")) == (
        "error: it is there (rename it)"
    )
