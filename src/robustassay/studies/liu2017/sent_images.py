"""The examples that section 7 sends to a service, as the 8-bit files that are sent, in small tables.

The folders of examples hold every value of every image. Where a study was measured on another machine, these tables
travel in their place.
"""

import io
from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor

from robustassay.studies.cache import CachedTable
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.settings import ExampleSet

AT_ONCE: Final = 16
"""Images per table: of photographs, about 2 MiB."""

NAME: Final = "sent"
"""Names of the tables' files begin so."""


def groups(experiment: LiuExperiment, left_out: str | None = None) -> list[tuple[ExampleSet, str]]:
    """List sets and sources: the reference source, and the ensemble without a model, by default the reference target.

    Each untargeted and targeted (Tables 1 to 4).
    """
    source, target = experiment.reference
    sources = ((source, False), (f"-{left_out or target}", True))
    return [(ExampleSet("opt", targeted, ensemble), name) for targeted in (False, True) for name, ensemble in sources]


def keep(experiment: LiuExperiment, images: int) -> None:
    """Write the tables of the first images of every group, from the folders of examples."""
    for example_set, source in groups(experiment):
        x_adv = experiment.examples(example_set, source).x_adv[:images].cpu()
        ids = experiment.images.ids[: len(x_adv)]
        for number, (rows, names) in enumerate(zip(torch.split(x_adv, AT_ONCE), _parts(ids), strict=True)):
            frame = pd.DataFrame({"sample_id": names, "png": [_file(row) for row in rows]})
            _table(experiment, example_set, source, number).get(frame.copy)


def kept(experiment: LiuExperiment, example_set: ExampleSet, source: str) -> Tensor:
    """Return the first images of a source that tables hold, as many as there are without a gap."""
    found = [experiment.x[:0].cpu()]
    for number in range(-(-len(experiment.images) // AT_ONCE)):
        table = _table(experiment, example_set, source, number)
        if not table.exists():
            break
        frame = table.get(pd.DataFrame)
        first = number * AT_ONCE
        if tuple(frame["sample_id"]) != tuple(experiment.images.ids[first : first + len(frame)]):
            break
        found.append(torch.stack([_image(content) for content in frame["png"]]))
        if len(frame) < AT_ONCE:
            break
    return torch.cat(found)


def _parts(ids: tuple[str, ...]) -> Iterator[list[str]]:
    for start in range(0, len(ids), AT_ONCE):
        yield list(ids[start : start + AT_ONCE])


def _table(experiment: LiuExperiment, example_set: ExampleSet, source: str, number: int) -> CachedTable:
    return experiment.table(f"{NAME}{number:02d}", [experiment.depends_on(example_set), source])


def _file(image: Tensor) -> bytes:
    values = (image.clamp(0, 1) * 255).round().to(torch.uint8)  # as a request rounds them
    buffer = io.BytesIO()
    Image.fromarray(values.permute(1, 2, 0).numpy()).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _image(content: bytes) -> Tensor:
    pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1) / 255
