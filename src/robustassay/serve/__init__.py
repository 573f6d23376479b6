"""A model behind HTTP, as a real black-box target: only images go in, only labels and confidences come out.

It needs the extra `serve` (FastAPI and uvicorn), which is imported where it is used and nowhere else.
"""

from robustassay.serve.config import Offer
from robustassay.serve.fault_injector import Faults

__all__ = ["Faults", "Offer"]
