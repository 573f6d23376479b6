"""From an address, an adapter file or a module to a service: the functions that other packages use."""

import torch

from robustassay.data import Dataset
from robustassay.errors import BadRequest
from robustassay.remote.adapter import Adapter, is_service
from robustassay.remote.remote_model import RemoteModel
from robustassay.remote.service import Service
from robustassay.target import TargetModel


def open_service(place: str, max_queries: int | None = None) -> Service:
    """Open the service at an address or of an adapter file; `max_queries` caps all queries together."""
    if not is_service(place):
        raise BadRequest(
            f"{place} is not a service (an address or a .toml file): for a model, --query-budget limits each sample."
        )
    return Service(Adapter.of(place).capped(max_queries))


def as_service(model: object) -> Service | None:
    """Return the model as a service, or None where it is a module of this process."""
    return model if isinstance(model, Service) else None


def open_remote(service: Service, dataset: Dataset, device: torch.device) -> tuple[TargetModel, bool]:
    """Open a service as a target; also say whether it gave two answers to one image."""
    return RemoteModel.open(service, dataset, device)
