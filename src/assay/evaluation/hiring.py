"""Chooses who does the waves of a run."""

from assay.errors import BadRequest
from assay.evaluation.fleet import Fleet, Processes
from assay.evaluation.request import whole


def hire(workers: int, ray: str | None) -> Fleet | None:
    """Return several processes or a cluster, or None where this process works alone."""
    if whole("workers", workers) < 1 or (ray is not None and workers > 1):
        raise BadRequest("workers must be at least 1; with ray the cluster says how many there are.")
    if ray is not None:
        from assay.evaluation.cluster import Cluster

        return Cluster(ray)
    return Processes(workers) if workers > 1 else None
