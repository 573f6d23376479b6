"""The settings of a service."""

from dataclasses import dataclass, field
from typing import Final, final

from robustassay.errors import BadRequest
from robustassay.serve.fault_injector import Faults

MAX_BYTES: Final = 4 << 20


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
    per_second: float | None = None  # requests per second and client; unlimited by default
    max_bytes: int = MAX_BYTES  # per request
    max_batch: int = 64  # images per forward pass
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
            raise BadRequest(f"A rate limit must be above 0 requests per second, not {self.per_second}.")
        if self.max_batch < 1 or self.max_bytes < 1:
            raise BadRequest("max_batch and max_bytes must be 1 or more.")

    @property
    def shows_logits(self) -> bool:
        """Whether clients see all logits."""
        return not self.label_only and self.top_k is None and self.decimals is None
