"""The settings of a service."""

from dataclasses import dataclass, field
from typing import Final, final

from robustassay.errors import BadRequest
from robustassay.serve.clients import is_address
from robustassay.serve.fault_injector import Faults
from robustassay.serve.limits import Limits

MAX_BYTES: Final = 4 << 20

MAX_ANSWER_VALUES: Final = 1 << 14
"""Logits of one response; writing more would delay the answers to others."""


@final
@dataclass(frozen=True)
class ServiceConfig:
    """What a service reveals about its model, and the limits of its requests."""

    labels: tuple[str, ...]
    shape: tuple[int, int, int]
    name: str = "model"
    label_only: bool = False
    top_k: int | None = None  # labels per image; all by default
    decimals: int | None = None  # of confidences; all by default
    api_key: str | None = field(default=None, repr=False)
    per_second: float | None = None  # images per second and client; unlimited by default
    max_bytes: int = MAX_BYTES  # per request
    max_batch: int = 64  # images per forward pass
    trusted_proxy: str | None = None  # the address whose header X-Forwarded-For names the client
    limits: Limits = field(default_factory=Limits)
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or self.shape[0] not in (1, 3) or min(self.shape) < 1:
            raise BadRequest(f"Images must be grey or RGB, such as 3x32x32, not {'x'.join(map(str, self.shape))}.")
        if len(set(self.labels)) < len(self.labels):
            raise BadRequest("Two classes have the same label: give each class its own label.")
        if self.top_k is not None and not 1 <= self.top_k <= len(self.labels):
            raise BadRequest(f"top-k must be 1 to {len(self.labels)}, the number of classes, not {self.top_k}.")
        if self.decimals is not None and not 0 <= self.decimals <= 12:
            raise BadRequest(f"decimals must be 0 to 12, not {self.decimals}.")
        if self.per_second is not None and not self.per_second > 0:
            raise BadRequest(f"A rate limit must be above 0 images per second, not {self.per_second}.")
        if self.max_batch < 1 or self.max_bytes < 1:
            raise BadRequest("max_batch and max_bytes must be 1 or more.")
        if self.trusted_proxy is not None and not is_address(self.trusted_proxy):
            raise BadRequest(f"A trusted proxy is an IP address or network, not {self.trusted_proxy!r}.")

    @property
    def max_images(self) -> int:
        """Images of one request."""
        return max(1, MAX_ANSWER_VALUES // len(self.labels))

    @property
    def shows_logits(self) -> bool:
        """Whether clients see all logits."""
        return not self.label_only and self.top_k is None and self.decimals is None
