"""The request handlers: each answers the requests of one route."""

import asyncio
import contextlib
import functools
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, final

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from torch import Tensor, from_numpy

from robustassay.serve import open_inference
from robustassay.serve.authentication import check_key, key_of
from robustassay.serve.batcher import Batcher
from robustassay.serve.bodies import SMALL_BODY, BodyReader
from robustassay.serve.clients import client_of
from robustassay.serve.config import ServiceConfig
from robustassay.serve.fair_lock import FairLock
from robustassay.serve.fault_injector import FaultInjector
from robustassay.serve.http_error import HttpError
from robustassay.serve.images import decode
from robustassay.serve.metrics import Metrics
from robustassay.serve.parser_process import ParserProcess
from robustassay.serve.rate_limiter import RateLimiter
from robustassay.serve.tensor_request import parse
from robustassay.target import TargetModel

FILE_OVERHEAD: Final = 1024
"""Files larger than their pixels by more than this are decoded in a thread, so that other requests go on."""


@final
class Handlers:
    """Handles requests as the service config says."""

    def __init__(self, model: TargetModel, config: ServiceConfig) -> None:
        self.counts = Metrics()
        self._config = config
        self._rate_limiter = RateLimiter(config.per_second)
        self._fault_injector = FaultInjector(config.faults)
        self._batcher = Batcher(model, config.max_batch)
        self._bodies = BodyReader(config.limits, config.max_bytes)
        self._parser, self._parsing = ParserProcess(config.shape, config.max_images), FairLock()

    @contextlib.asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Run the batcher while the service runs."""
        batching = asyncio.create_task(self._batcher.run())
        yield
        batching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await batching
        self._parser.stop()

    async def classify(self, request: Request) -> Response:
        """Classify the PNG or JPEG file in the body of the request."""
        return await self._handle(request, self._classify)

    async def infer(self, name: str, request: Request) -> Response:
        """Answer an inference request of the Open Inference Protocol."""
        return await self._handle(request, functools.partial(self._infer, name))

    async def describe(self, name: str) -> Response:
        """Describe the model."""
        if name != self._config.name:
            return _error_response(self._unknown_model(name))
        return JSONResponse(open_inference.metadata(self._config))

    async def ready(self, name: str) -> Response:
        """Say whether the model is ready."""
        if name != self._config.name:
            return _error_response(self._unknown_model(name))
        return JSONResponse({"name": name, "ready": True})

    async def about(self) -> Response:
        """Describe the server; the list of models lets `assay eval` find the endpoint."""
        return JSONResponse({"name": "assay", "version": "1", "extensions": [], "models": [self._config.name]})

    async def health(self) -> Response:
        """Say that the server runs; it accepts connections only after the model is loaded."""
        return JSONResponse({"live": True, "ready": True})

    async def metrics(self, request: Request) -> Response:
        """Return the metrics in Prometheus's text format."""
        try:
            check_key(self._config.api_key, key_of(request))
        except HttpError as error:
            return _error_response(error)
        return PlainTextResponse(self.counts.text(self._batcher), media_type="text/plain; version=0.0.4")

    async def _handle(self, request: Request, answer: Callable[[bytes, str], Awaitable[Any]]) -> Response:
        client = client_of(request.client.host if request.client else None)
        try:
            check_key(self._config.api_key, key_of(request))
            self._rate_limiter.check(client)
            async with self._bodies.read(request, client) as body:
                await self._fault_injector.before_answer()
                content = await answer(body, client)
            await self._fault_injector.after_answer()
        except HttpError as error:
            return _error_response(error)
        return JSONResponse(content)

    async def _classify(self, body: bytes, client: str) -> Any:
        shape = self._config.shape
        inline = len(body) <= min(SMALL_BODY, math.prod(shape) + FILE_OVERHEAD)
        image = decode(body, shape) if inline else await asyncio.to_thread(decode, body, shape)
        (predictions,) = self._predictions(await self._batcher.logits(image[None], client))
        if self._config.label_only:
            return {"predictions": [{"label": label} for label, _ in predictions]}
        return {"predictions": [{"label": label, "confidence": confidence} for label, confidence in predictions]}

    async def _infer(self, name: str, body: bytes, client: str) -> Any:
        if name != self._config.name:
            raise self._unknown_model(name)
        images, request_id = await self._parse(body, client)
        self._rate_limiter.check_batch(client, len(images))
        logits = await self._batcher.logits(images, client)
        return open_inference.write_response(self._config, request_id, logits, self._predictions(logits))

    async def _parse(self, body: bytes, client: str) -> tuple[Tensor, str | None]:
        if len(body) <= SMALL_BODY:
            images, request_id = parse(body, self._config.shape, self._config.max_images)
        else:
            async with self._parsing.turn(client):
                loop = asyncio.get_running_loop()
                images, request_id = await loop.run_in_executor(self._parser.thread, self._parser.parse, body)
        return from_numpy(images), request_id

    def _predictions(self, logits: Tensor) -> list[list[tuple[str, float]]]:
        """Return the labels and confidences to show per image, best first; ties go to the lower class index."""
        config = self._config
        k = 1 if config.label_only else config.top_k or len(config.labels)
        top = logits.sort(dim=1, descending=True, stable=True).indices[:, :k]
        confidences = logits.double().softmax(1).gather(1, top).tolist()
        decimals = config.decimals
        return [
            [
                (config.labels[index], value if decimals is None else round(value, decimals))
                for index, value in zip(row, values, strict=True)
            ]
            for row, values in zip(top.tolist(), confidences, strict=True)
        ]

    def _unknown_model(self, name: str) -> HttpError:
        return HttpError(404, f"There is no model {name[:80]!r} here: ask for {self._config.name!r}.")


def _error_response(error: HttpError) -> Response:
    headers = {} if error.retry_after is None else {"Retry-After": str(math.ceil(error.retry_after))}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": error.message}, error.status, headers)
