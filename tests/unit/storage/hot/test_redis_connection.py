"""A URL says where Redis is; what is wrong with it, or a limit, is named."""

import subprocess
import sys
from typing import Any

import pytest

from turnstate.schemas.errors import InvalidInputError
from turnstate.storage.hot.redis_connection import (
    ALONE,
    CLUSTER,
    SENTINEL,
    Address,
    Place,
    RedisSettings,
    connect,
    place_of,
)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://h", Place(ALONE, (Address("h", 6379),), "", 0, False, None, None)),
        ("redis://h:1/3", Place(ALONE, (Address("h", 1),), "", 3, False, None, None)),
        (
            "rediss://me:p%40ss@h:1",
            Place(ALONE, (Address("h", 1),), "", 0, True, "me", "p@ss"),
        ),
        (
            "redis://:p@[::1]:7",
            Place(ALONE, (Address("::1", 7),), "", 0, False, None, "p"),
        ),
        (
            "redis+sentinel://a,b:9/main/2",
            Place(
                SENTINEL,
                (Address("a", 26379), Address("b", 9)),
                "main",
                2,
                False,
                None,
                None,
            ),
        ),
        (
            "rediss+cluster://u:p@a:1,b",
            Place(
                CLUSTER, (Address("a", 1), Address("b", 6379)), "", 0, True, "u", "p"
            ),
        ),
    ],
)
def test_a_url_says_where_redis_is(url: str, place: Place) -> None:
    assert place_of(url) == place
    assert connect(RedisSettings(url)).is_cluster == (place.kind == CLUSTER)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:1",
        "http://h",
        "redis://",
        "redis://a,b",
        "redis://h/x",
        "redis://h:port",
        "redis://h:99999",
        "redis+sentinel://h",
        "redis+cluster://a,,b",
        "redis+cluster://h/1",
        "redis+kafka://h",
    ],
)
def test_a_wrong_url_is_refused_with_the_forms(url: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        RedisSettings(url)

    assert raised.value.field == "url"
    assert "redis+sentinel://host,host/service" in (raised.value.hint or "")


def test_no_error_repeats_a_password() -> None:
    with pytest.raises(InvalidInputError) as raised:
        place_of("redis://me:secret@a,b")

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("connections_max", 0),
        ("timeout_ms", 0),
        ("retries", -1),
        ("ttl_s", 0),
        ("frames_kept", 0),
        ("epoch", -1),
        ("prefix", ""),
        ("prefix", "a{b"),
        ("prefix", "a*"),
        ("prefix", "ä"),
    ],
)
def test_a_limit_out_of_range_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidInputError) as raised:
        RedisSettings("redis://h", **{field: value})

    assert raised.value.field == field


def test_a_call_ends_in_time_with_all_its_retries() -> None:
    given = RedisSettings(
        "redis://h", timeout_ms=100, connect_timeout_ms=200, retries=2
    )

    assert given.longest_s == pytest.approx(0.1 + 0.2 + 2 * (0.1 + 0.2))


@pytest.mark.parametrize(
    ("library", "message"),
    [("redis", "redis-py is not"), ("circuitbreaker", "circuitbreaker is not")],
)
def test_without_a_library_the_error_names_the_extra(
    library: str, message: str
) -> None:
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from turnstate.schemas.errors import UnavailableError\n"
        "try: import turnstate.storage.hot.redis\n"
        "except UnavailableError as error: print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    ).stdout

    assert said == f"{message} installed (pip install 'turnstate[redis]')\n"
