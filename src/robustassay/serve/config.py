"""What a service shows, and to whom: the terms it is offered on."""

from dataclasses import dataclass, field
from typing import Final, final

from robustassay.errors import BadRequest
from robustassay.serve.fault_injector import Faults

MAX_BYTES: Final = 4 << 20


@final
@dataclass(frozen=True)
class Offer:
    """The terms of a service; a black box is as black as these make it."""

    labels: tuple[str, ...]
    shape: tuple[int, int, int]
    name: str = "model"
    label_only: bool = False
    top_k: int | None = None  # labels shown of each image; all by default
    decimals: int | None = None  # of a confidence; all by default
    api_key: str | None = field(default=None, repr=False)
    per_second: float | None = None  # requests a client may make
    max_bytes: int = MAX_BYTES  # of a request
    max_batch: int = 64  # images a forward pass
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or self.shape[0] not in (1, 3) or min(self.shape) < 1:
            raise BadRequest(f"Images are grey or RGB, such as 3x32x32, not {'x'.join(map(str, self.shape))}.")
        if len(set(self.labels)) < len(self.labels):
            raise BadRequest("Two classes have one label: give each class a label of its own.")
        if self.top_k is not None and not 1 <= self.top_k <= len(self.labels):
            raise BadRequest(f"top-k must be 1 to {len(self.labels)}, the number of classes, not {self.top_k}.")
        if self.decimals is not None and not 0 <= self.decimals <= 12:
            raise BadRequest(f"Confidences are rounded to 0 to 12 decimals, not {self.decimals}.")
        if self.per_second is not None and not self.per_second > 0:
            raise BadRequest(f"A rate limit must be above 0 requests a second, not {self.per_second}.")
        if self.max_batch < 1 or self.max_bytes < 1:
            raise BadRequest("A batch holds 1 image at least, and a request 1 byte.")

    @property
    def shows_logits(self) -> bool:
        """Whether nothing is hidden."""
        return not self.label_only and self.top_k is None and self.decimals is None
