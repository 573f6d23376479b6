"""The web application of one model: its routes."""

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from robustassay.serve.config import ServiceConfig
from robustassay.serve.connection_middleware import ConnectionMiddleware
from robustassay.serve.handlers import Handlers
from robustassay.serve.middleware import CLASSIFY_PATH, MetricsMiddleware
from robustassay.serve.openapi import CLASSIFY, INFER, METRICS, NAMED_MODEL, NO_PARAMETERS
from robustassay.target import TargetModel


def build_app(model: TargetModel, config: ServiceConfig) -> ASGIApp:
    """Make the application of one model."""
    handlers = Handlers(model, config)
    app = FastAPI(
        title="assay serve",
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=handlers.lifespan,
        redirect_slashes=False,
    )
    app.add_exception_handler(HTTPException, _routing_error)
    app.add_api_route(CLASSIFY_PATH, handlers.classify, methods=["POST"], response_model=None, **CLASSIFY)
    app.add_api_route("/metrics", handlers.metrics, methods=["GET"], response_model=None, **METRICS)
    app.add_api_route("/v2", handlers.about, methods=["GET"], response_model=None, **NO_PARAMETERS)
    for probe in ("live", "ready"):
        app.add_api_route(f"/v2/health/{probe}", handlers.health, methods=["GET"], response_model=None, **NO_PARAMETERS)
    app.add_api_route("/v2/models/{name}", handlers.describe, methods=["GET"], response_model=None, **NAMED_MODEL)
    app.add_api_route("/v2/models/{name}/ready", handlers.ready, methods=["GET"], response_model=None, **NAMED_MODEL)
    app.add_api_route("/v2/models/{name}/infer", handlers.infer, methods=["POST"], response_model=None, **INFER)
    return ConnectionMiddleware(MetricsMiddleware(app, handlers), config.limits)


async def _routing_error(request: Request, error: Exception) -> Response:
    """Give errors of the router (404, 405) the form of all other errors."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    return JSONResponse({"error": f"{error.detail}: see /openapi.json for the routes."}, error.status_code, headers)
