"""Send requests to S3 by boto3: bounded connections, time, attempts; counted."""

import random
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from threading import BoundedSemaphore, Lock
from typing import Any, Final, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.s3_failures import TORN, no_s3, translated
from turnstate.storage.cold.s3_settings import S3Settings

Answer = Mapping[str, Any]

_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 2.0


class S3Requests:
    """Ask one bucket. Thread-safe: requests above the limit wait for another's end.

    Boto tries again after what passes (5xx, 429, a lost connection), with
    growing, random pauses, as often as the settings say; it knows nothing of
    an answer whose body breaks off, which is asked for again here.

    Args:
        settings: Where the bucket is, who asks, and the limits.

    Raises:
        UnavailableError: boto3 cannot be set up with these settings.
    """

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        self._free = BoundedSemaphore(settings.connections_max)
        self._sent: Counter[str] = Counter()
        self._counting = Lock()
        try:
            self._client = _client(settings)
        except (BotoCoreError, ValueError) as error:
            raise translated(error, settings) from error
        self._client.meta.events.register("before-send.s3", self._count)

    def send(self, operation: str, **parameters: Any) -> Answer:
        """Make a request of an operation, as boto3 names it, with its parameters.

        Raises:
            ClientError: S3 refused it.
            BotoCoreError: it got no answer.
            UnavailableError: what answers is no S3 server, or every connection
                stays in use.
        """
        with self._connection():
            return self._answer(operation, parameters)

    def ask(self, operation: str, **parameters: Any) -> Answer:
        """Make a request, where there is only one thing to do about a failure.

        Raises:
            UnavailableError: S3 is out of reach or refuses.
        """
        try:
            return self.send(operation, **parameters)
        except (ClientError, BotoCoreError) as error:
            raise translated(error, self.settings) from error

    def get(self, key: str, **parameters: Any) -> tuple[Answer, bytes]:
        """Get an object or a range of it: what S3 says of it, and its bytes.

        Raises:
            ClientError: S3 refused it.
            BotoCoreError: it got no answer, or none to the end.
            UnavailableError: as `send` has it.
        """
        attempt = 1
        while True:
            try:
                with self._connection():
                    answer = self._answer("get_object", {"Key": key, **parameters})
                    if not answer.get("ETag"):
                        raise no_s3(self.settings, "has an object without an ETag")
                    with closing(answer["Body"]) as body:
                        return answer, body.read()
            except TORN:
                if attempt >= self.settings.attempts_max:
                    raise
            pause(attempt)
            attempt += 1

    def counts(self) -> dict[str, int]:
        """Return how many requests went out, every attempt, by S3's operation."""
        with self._counting:
            return dict(self._sent)

    def close(self) -> None:
        """Let the connections go."""
        self._client.close()

    def _answer(self, operation: str, parameters: Mapping[str, Any]) -> Answer:
        call = getattr(self._client, operation)
        try:
            answer: Answer = call(Bucket=self.settings.bucket, **parameters)
        except ResponseParserError as error:
            raise no_s3(self.settings, "answers what is no XML") from error
        return answer

    @contextmanager
    def _connection(self) -> Generator[None]:
        # Each of those that hold one gives it back within this time.
        longest_s = self.settings.attempts_max * self.settings.timeout_ms / 1_000
        if not self._free.acquire(timeout=longest_s):
            raise UnavailableError(
                f"all {self.settings.connections_max} connections to S3 are in use",
                hint="raise connections_max of S3, or ask from fewer threads",
            )
        try:
            yield
        finally:
            self._free.release()

    def _count(self, event_name: str = "", **_: Any) -> None:
        with self._counting:
            self._sent[event_name.rpartition(".")[2]] += 1


def pause(attempt: int) -> None:
    """Wait before the next attempt: longer each time, and never all at once."""
    time.sleep(random.uniform(0.0, min(_PAUSE_S * 2.0**attempt, _PAUSE_S_MAX)))


def _client(settings: S3Settings) -> Any:
    # A session of its own: the one that boto3 shares is not thread-safe.
    session = cast("Any", boto3).session.Session(
        aws_access_key_id=settings.access_key or None,
        aws_secret_access_key=settings.secret_key or None,
        region_name=settings.region,
    )
    return session.client(
        "s3",
        endpoint_url=settings.endpoint or None,
        config=Config(
            signature_version="s3v4",
            connect_timeout=settings.timeout_ms / 1_000,
            read_timeout=settings.timeout_ms / 1_000,
            max_pool_connections=settings.connections_max,
            retries={"mode": "standard", "total_max_attempts": settings.attempts_max},
            # Names of buckets are no host names where a server is one's own.
            s3={"addressing_style": "path" if settings.endpoint else "auto"},
            # Of a range, servers answer with the checksum of the whole.
            response_checksum_validation="when_required",
        ),
    )
