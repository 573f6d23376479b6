"""Chooses who does the waves of a run."""

from robustassay.errors import BadRequest
from robustassay.evaluation.arguments import whole
from robustassay.evaluation.backends import Backend, ProcessBackend


def choose_backend(workers: int, ray: str | None) -> Backend | None:
    """Return several processes or a cluster, or None where this process works alone."""
    if whole("workers", workers) < 1 or (ray is not None and workers > 1):
        raise BadRequest("workers must be at least 1; with ray the cluster says how many there are.")
    if ray is not None:
        from robustassay.evaluation.ray_backend import RayBackend

        return RayBackend(ray)
    return ProcessBackend(workers) if workers > 1 else None
