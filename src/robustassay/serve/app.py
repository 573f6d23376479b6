"""The application: routes, and what every request passes on its way in and out."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, final

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from torch import Tensor

from robustassay.serve import open_inference
from robustassay.serve.batcher import Batcher
from robustassay.serve.config import Offer
from robustassay.serve.documents import CLASSIFY, INFER, NAMED, OPEN
from robustassay.serve.fault_injector import Mischief
from robustassay.serve.guard import Guard
from robustassay.serve.images import decode
from robustassay.serve.metrics import Metrics
from robustassay.serve.refusal import Refusal
from robustassay.target import TargetModel

FILES: Final = "/classify"

QUICK: Final = 64 << 10
"""A file up to this size is decoded at once; a larger one on another thread, so that nobody waits for it."""


def build(network: TargetModel, offer: Offer) -> ASGIApp:
    """Make the application of one model."""
    desk = Desk(network, offer)
    app = FastAPI(
        title="assay serve", version="1", docs_url=None, redoc_url=None, lifespan=desk.lifespan, redirect_slashes=False
    )
    app.add_exception_handler(HTTPException, _say)
    app.add_api_route(FILES, desk.classify, methods=["POST"], response_model=None, **CLASSIFY)
    app.add_api_route("/metrics", desk.metrics, methods=["GET"], response_model=None, **OPEN)
    app.add_api_route("/v2", desk.about, methods=["GET"], response_model=None, **OPEN)
    for probe in ("live", "ready"):
        app.add_api_route(f"/v2/health/{probe}", desk.healthy, methods=["GET"], response_model=None, **OPEN)
    app.add_api_route("/v2/models/{name}", desk.describe, methods=["GET"], response_model=None, **NAMED)
    app.add_api_route("/v2/models/{name}/ready", desk.ready, methods=["GET"], response_model=None, **NAMED)
    app.add_api_route("/v2/models/{name}/infer", desk.infer, methods=["POST"], response_model=None, **INFER)
    return Front(app, desk)


@final
class Desk:
    """Answers requests on the terms of an offer."""

    def __init__(self, network: TargetModel, offer: Offer) -> None:
        self.counts = Metrics()
        self._offer, self._guard, self._mischief = offer, Guard(offer), Mischief(offer.faults)
        self._batcher = Batcher(network, offer.max_batch)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Keep the batcher at work for as long as the service runs."""
        work = asyncio.create_task(self._batcher.run())
        yield
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    async def classify(self, request: Request) -> Response:
        """Label the PNG or JPEG file that is the body of the request."""
        return await self._handle(request, self._classify)

    async def infer(self, name: str, request: Request) -> Response:
        """Answer an inference request of the Open Inference Protocol."""
        return await self._handle(request, lambda body: self._infer(name, body))

    async def describe(self, name: str) -> Response:
        """Describe the model."""
        return (
            JSONResponse(open_inference.metadata(self._offer))
            if name == self._offer.name
            else _refuse(self._unknown(name))
        )

    async def ready(self, name: str) -> Response:
        """Say that the model can be asked."""
        known = name == self._offer.name
        return JSONResponse({"name": name, "ready": True}) if known else _refuse(self._unknown(name))

    async def about(self) -> Response:
        """Describe the server."""
        return JSONResponse({"name": "assay", "version": "1", "extensions": []})

    async def healthy(self) -> Response:
        """Say that the server runs; it accepts connections only once its model is loaded."""
        return JSONResponse({"live": True, "ready": True})

    async def metrics(self) -> Response:
        """Report what was done, for Prometheus."""
        return PlainTextResponse(self.counts.text(self._batcher), media_type="text/plain; version=0.0.4")

    async def _handle(self, request: Request, answer: Callable[[bytes], Awaitable[Any]]) -> Response:
        try:
            client = request.client.host if request.client else "unknown"
            self._guard.admit(client, _key_of(request))
            body = await _read(request, self._offer.max_bytes)
            await self._mischief.before()
            content = await answer(body)
            await self._mischief.after()
        except Refusal as refusal:
            return _refuse(refusal)
        return JSONResponse(content)

    async def _classify(self, body: bytes) -> Any:
        small = len(body) <= QUICK
        image = decode(body, self._offer.shape) if small else await asyncio.to_thread(decode, body, self._offer.shape)
        (shown,) = self._show(await self._batcher.logits(image[None]))
        if self._offer.label_only:
            return {"predictions": [{"label": label} for label, _ in shown]}
        return {"predictions": [{"label": label, "confidence": confidence} for label, confidence in shown]}

    async def _infer(self, name: str, body: bytes) -> Any:
        if name != self._offer.name:
            raise self._unknown(name)
        images, number = await asyncio.to_thread(open_inference.read_request, body, self._offer)
        logits = await self._batcher.logits(images)
        return open_inference.write_response(self._offer, number, logits, self._show(logits))

    def _show(self, logits: Tensor) -> list[list[tuple[str, float]]]:
        """Return what the offer shows of each image, the best label first, the lowest class among equals."""
        offer = self._offer
        most = 1 if offer.label_only else offer.top_k or len(offer.labels)
        order = logits.sort(dim=1, descending=True, stable=True).indices[:, :most]
        confidences = logits.double().softmax(1).gather(1, order).tolist()
        digits = offer.decimals
        return [
            [
                (offer.labels[index], value if digits is None else round(value, digits))
                for index, value in zip(row, values, strict=True)
            ]
            for row, values in zip(order.tolist(), confidences, strict=True)
        ]

    def _unknown(self, name: str) -> Refusal:
        return Refusal(404, f"There is no model {name[:80]!r} here: ask for {self._offer.name!r}.")


@final
class Front:
    """Counts and times every request, and hands files straight to the desk.

    The framework's way to the same method takes a third of the time of such a request, which is too much for the one
    that comes by the thousand; it stays registered there, for /openapi.json.
    """

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self._app, self._desk = app, desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and note how it ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        is_file = scope["path"] == FILES and scope["method"] == "POST"
        try:
            if is_file:
                response = await self._desk.classify(Request(scope, receive))
                await response(scope, receive, watched)
            else:
                await self._app(scope, receive, watched)
        finally:
            route = FILES if is_file else getattr(scope.get("route"), "path", "none")
            self._desk.counts.count(route, status, time.perf_counter() - started)


def _key_of(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return request.headers.get("x-api-key") or (token.strip() if scheme.lower() == "bearer" else "")


async def _read(request: Request, most: int) -> bytes:
    """Read a body, and no more of it than is allowed, whatever its length claims."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data" or "inference-header-content-length" in request.headers:
        raise Refusal(415, "Send the file itself, or JSON, as the body: forms and binary tensors are not read.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise Refusal(413, f"The request is larger than {most} bytes: send a smaller image, or fewer at once.")
    return bytes(body)


def _refuse(refusal: Refusal) -> Response:
    headers = {} if refusal.retry_after is None else {"Retry-After": str(math.ceil(refusal.retry_after))}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": refusal.sentence}, refusal.status, headers)


async def _say(request: Request, error: Exception) -> Response:
    """Answer what no route wants as everything else is answered."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    return JSONResponse({"error": f"{error.detail}: see /openapi.json for what there is."}, error.status_code, headers)
