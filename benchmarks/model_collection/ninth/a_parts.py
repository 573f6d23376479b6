"""What the honest models of the ninth part share."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.networks import Objective, plain, trained
from benchmarks.model_collection.ninth import a_images
from benchmarks.model_collection.seventh import honest_networks

Make = Callable[[], nn.Module]
FACTS: Final = {
    **honest_networks.FACTS,
    a_images.hands.__name__: (40, (1, 24, 24)),
    a_images.soils.__name__: (6, (4, 12, 20)),
    a_images.lamps.__name__: (7, (1, 14, 40)),
}


def one(
    family: str, images: str, eps: float, make: Make, objective: Objective = plain, against: float = 0.0,
    steps: int = 200, **facts: Any,
) -> Entry:  # fmt: skip
    """Return one small trained network; radii are in 255ths, and `against` is that of adversarial training."""
    classes, shape = FACTS[images]
    name = f"{family}, {images}{', robust' if against else ''}"
    made = f"trained for {steps} steps on {images}" + (f" against {against:g}/255" if against else "")
    build = partial(trained, f"ninth {name}", make, images, steps, against / 255, objective)
    known: dict[str, Any] = {"images": images, "classes": classes, "shape": shape, **facts}
    return Entry(name, family, "honest", made, build, eps=eps / 255, **known)


class Applied(nn.Module):
    """A function as a layer."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.change = change

    def forward(self, h: Tensor) -> Tensor:
        """Return the changed values."""
        return self.change(h)
