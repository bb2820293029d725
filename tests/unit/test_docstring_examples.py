"""The examples in docstrings run, each module imported once under its own name.

(`pytest --doctest-modules` imports by path: a module comes a second time, as
`schemas.errors`, and its classes are not those that the others raise.)
"""

import doctest
import importlib

import pytest

from support.source import module_names


@pytest.mark.parametrize("name", module_names())
def test_examples_hold(name: str) -> None:
    failed, _ = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.ELLIPSIS
    )

    assert failed == 0
