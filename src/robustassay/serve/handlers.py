"""The request handlers: each answers the requests of one route."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, final

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from torch import Tensor

from robustassay.serve import open_inference
from robustassay.serve.authentication import check_key, key_of
from robustassay.serve.batcher import Batcher
from robustassay.serve.config import ServiceConfig
from robustassay.serve.fault_injector import FaultInjector
from robustassay.serve.http_error import HttpError
from robustassay.serve.images import decode
from robustassay.serve.metrics import Metrics
from robustassay.serve.rate_limiter import RateLimiter
from robustassay.target import TargetModel

INLINE_DECODE_BYTES: Final = 64 << 10
"""Files up to this size are decoded in the event loop; larger ones in a thread, so that other requests go on."""


@final
class Handlers:
    """Handles requests as the service config says."""

    def __init__(self, model: TargetModel, config: ServiceConfig) -> None:
        self.counts = Metrics()
        self._config = config
        self._rate_limiter = RateLimiter(config.per_second)
        self._fault_injector = FaultInjector(config.faults)
        self._batcher = Batcher(model, config.max_batch)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Run the batcher while the service runs."""
        batching = asyncio.create_task(self._batcher.run())
        yield
        batching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await batching

    async def classify(self, request: Request) -> Response:
        """Classify the PNG or JPEG file in the body of the request."""
        return await self._handle(request, self._classify)

    async def infer(self, name: str, request: Request) -> Response:
        """Answer an inference request of the Open Inference Protocol."""
        return await self._handle(request, lambda body: self._infer(name, body))

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
        """Describe the server."""
        return JSONResponse({"name": "assay", "version": "1", "extensions": []})

    async def health(self) -> Response:
        """Say that the server runs; it accepts connections only after the model is loaded."""
        return JSONResponse({"live": True, "ready": True})

    async def metrics(self) -> Response:
        """Return the metrics in Prometheus's text format."""
        return PlainTextResponse(self.counts.text(self._batcher), media_type="text/plain; version=0.0.4")

    async def _handle(self, request: Request, answer: Callable[[bytes], Awaitable[Any]]) -> Response:
        try:
            check_key(self._config.api_key, key_of(request))
            self._rate_limiter.check(request.client.host if request.client else "unknown")
            body = await _read_body(request, self._config.max_bytes)
            await self._fault_injector.before_answer()
            content = await answer(body)
            await self._fault_injector.after_answer()
        except HttpError as error:
            return _error_response(error)
        return JSONResponse(content)

    async def _classify(self, body: bytes) -> Any:
        shape = self._config.shape
        inline = len(body) <= INLINE_DECODE_BYTES
        image = decode(body, shape) if inline else await asyncio.to_thread(decode, body, shape)
        (predictions,) = self._predictions(await self._batcher.logits(image[None]))
        if self._config.label_only:
            return {"predictions": [{"label": label} for label, _ in predictions]}
        return {"predictions": [{"label": label, "confidence": confidence} for label, confidence in predictions]}

    async def _infer(self, name: str, body: bytes) -> Any:
        if name != self._config.name:
            raise self._unknown_model(name)
        images, request_id = await asyncio.to_thread(open_inference.read_request, body, self._config)
        logits = await self._batcher.logits(images)
        return open_inference.write_response(self._config, request_id, logits, self._predictions(logits))

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


async def _read_body(request: Request, max_bytes: int) -> bytes:
    """Read a body; stop at the limit, whatever the header Content-Length says."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "multipart/form-data" or "inference-header-content-length" in request.headers:
        raise HttpError(415, "Forms and binary tensors are not supported: send the file itself, or JSON, as the body.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise HttpError(413, f"The request exceeds {max_bytes} bytes: send a smaller image, or fewer at once.")
    return bytes(body)


def _error_response(error: HttpError) -> Response:
    headers = {} if error.retry_after is None else {"Retry-After": str(math.ceil(error.retry_after))}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": error.message}, error.status, headers)
