"""An HTTP service as a target: only attack services you own or are authorised to test.

It needs the extra `http` (httpx2), which is imported where it is used and nowhere else.
"""

from robustassay.remote.adapter import Adapter, is_service
from robustassay.remote.quantised_access import as_sent, over_the_wire
from robustassay.remote.service import RemoteModel, Service
from robustassay.remote.transfer import Transfer, submit

__all__ = ["Adapter", "RemoteModel", "Service", "Transfer", "as_sent", "is_service", "over_the_wire", "submit"]
