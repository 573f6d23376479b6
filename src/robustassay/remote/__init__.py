"""An HTTP service as a target: only attack services you own or are authorised to test.

It needs the extra `http` (httpx2), which is imported where it is used and nowhere else.
"""

from robustassay.remote.adapter import Adapter, is_service
from robustassay.remote.opening import as_service, open_remote, open_service
from robustassay.remote.remote_model import RemoteModel
from robustassay.remote.service import Service
from robustassay.remote.transfer import ServiceTransfer, Submitted, submit

__all__ = [
    "Adapter",
    "RemoteModel",
    "Service",
    "ServiceTransfer",
    "Submitted",
    "as_service",
    "is_service",
    "open_remote",
    "open_service",
    "submit",
]
