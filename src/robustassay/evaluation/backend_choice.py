"""Chooses who does the waves of a run."""

from robustassay.evaluation.backends import Backend, ProcessBackend


def choose_backend(workers: int, ray: str | None) -> Backend | None:
    """Return several processes or a cluster, or None where this process works alone."""
    if ray is not None:
        from robustassay.evaluation.ray_backend import RayBackend

        return RayBackend(ray)
    return ProcessBackend(workers) if workers > 1 else None
