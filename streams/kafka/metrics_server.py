"""The HTTP endpoint of a worker for operators: /metrics and /health."""

from collections.abc import Callable

from aiohttp import web

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.documents import to_json
from turnstate.streams.kafka.progress import WorkerProgress

_TEXT = "text/plain; version=0.0.4"


class MetricsServer:
    """Answer GET /metrics in Prometheus' text form and GET /health as JSON.

    Health is progress: 200 while every partition that has something to fold
    moves, else 503. Nothing that a session holds can be read here.

    Args:
        text: Gives the metrics.
        progress: Knows when each partition moved.
    """

    def __init__(self, text: Callable[[], str], progress: WorkerProgress) -> None:
        self._text = text
        self._progress = progress
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            UnavailableError: the address cannot be had.
        """
        app = web.Application(client_max_size=1024)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=1.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await self.close()
            raise UnavailableError(
                f"{host}:{port} cannot be listened at: {error.strerror or error}",
                field="metrics_port",
                hint="set metrics_port to a free one; each worker has its own",
                code="address_taken",
            ) from error

    async def close(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _metrics(self, _: web.Request) -> web.Response:
        body = self._text().encode()
        return web.Response(body=body, headers={"Content-Type": _TEXT})

    async def _health(self, _: web.Request) -> web.Response:
        document = self._progress.document()
        return web.Response(
            body=to_json(document),
            status=200 if document["ok"] else 503,
            content_type="application/json",
        )
