"""Serves a model over HTTP, as a black-box target: clients send images and receive labels and confidences.

Serving needs the extra `serve` (FastAPI and uvicorn). Only this package imports them, and only when it serves.
"""

from robustassay.serve.config import ServiceConfig
from robustassay.serve.fault_injector import Faults
from robustassay.serve.limits import Limits

__all__ = ["Faults", "Limits", "ServiceConfig"]
