"""Find telephone numbers in a text, by the rules that libphonenumber keeps."""

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Final

from turnstate.agents.archive.deidentify import PatternDeidentifier, Phones
from turnstate.schemas.errors import UnavailableError

REGIONS: Final = ("CN", "US", "GB")
"""Where a number without a country code may be from."""


def phone_finder(regions: tuple[str, ...] = REGIONS) -> Phones:
    """Return what finds the numbers of some regions, and of any with a `+`.

    Raises:
        UnavailableError: phonenumbers is not installed.
    """
    if find_spec("phonenumbers") is None:
        raise UnavailableError(
            "phonenumbers is not installed",
            field="archive",
            hint="pip install 'turnstate[archive]'",
        )
    return partial(_found, regions=regions)


def default_deidentifier() -> PatternDeidentifier:
    """Return the deidentifier that archives use unless they are given another.

    Raises:
        UnavailableError: phonenumbers is not installed.
    """
    return PatternDeidentifier(phone_finder())


def _found(text: str, *, regions: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    from phonenumbers import Leniency, PhoneNumberMatcher

    for region in regions:
        for match in PhoneNumberMatcher(text, region, leniency=Leniency.VALID):
            yield match.start, match.end
