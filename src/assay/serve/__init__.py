"""A model behind HTTP, as a real black-box target: only images go in, only labels and confidences come out.

It needs the extra `serve` (FastAPI and uvicorn), which is imported where it is used and nowhere else.
"""

from assay.serve.faults import Faults
from assay.serve.offer import Offer

__all__ = ["Faults", "Offer"]
