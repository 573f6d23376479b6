"""A service in the place of a model: searched through a cache, verified afresh."""

import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from robustassay.data import Dataset
from robustassay.errors import StoreFailed
from robustassay.names import slug
from robustassay.remote.adapter import Adapter
from robustassay.remote.answers import Answer
from robustassay.remote.budget import Purse
from robustassay.remote.cache import Cache
from robustassay.remote.client import Line
from robustassay.remote.encoding import Picture, round_to_8_bits
from robustassay.remote.labels import LabelMap
from robustassay.remote.transcript import Transcript
from robustassay.target import LocalModel

LOOKS: Final = 4
LOOKS_AT_LABELS: Final = 16
"""How many images tell two models apart: scores differ on any, labels only on some."""


@final
class Service(nn.Module):
    """A classifier behind HTTP.

    Called as a module, as verification does, it asks the service afresh; `search` may answer from the cache. One
    image is asked about once in a row of such calls, however often it stands in them.
    """

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapter = adapter
        self.purse = Purse(adapter.limits, _tell)
        folder = _make_folder(adapter)
        self._line = Line(adapter, self.purse, lambda secrets: Transcript(folder / "transcript.jsonl", secrets))
        self._cache = Cache(folder / "answers.sqlite", adapter.asked_as)
        self._labels: LabelMap | None = None
        self._fresh: dict[str, Answer] = {}
        self.close = weakref.finalize(self, _close, self._line, self._cache)
        self.eval()

    def learn(self, classes: Sequence[str], seen: Sequence[str] = ()) -> LabelMap:
        """Learn what the labels mean in terms of the classes of the data."""
        self._labels = LabelMap.of(self.adapter, classes, seen)
        return self._labels

    def recognise(self, shape: Sequence[int], looks: int) -> None:
        """Show fixed images afresh; where it answers otherwise than before, another model is there: forget all."""
        fresh: dict[str, Answer] = {}
        self._answers(_patterns(shape, looks), "first look", fresh)
        known = self._cache.find(fresh)
        if not all(answer.is_like(fresh[image]) for image, answer in known.items()):
            _tell(f"{self.adapter.url} answers differently than it did: answers kept from before are dropped.")
            self._cache.forget()
        for image, answer in fresh.items():
            self._cache.put(image, answer)

    def forward(self, x: Tensor) -> Tensor:
        """Ask about images afresh and return logits; the cache learns nothing and is not asked."""
        return self._logits(x, "verification", self._fresh)

    def search(self, x: Tensor) -> Tensor:
        """Return logits of images, of those asked about before without asking again."""
        self._fresh = {}
        return self._logits(x, "search", None)

    def ask_afresh(self, x: Tensor) -> Answer:
        """Ask about one image, whatever is known."""
        (answer,) = self._answers(x, "first look", {})
        return answer

    def answers(self, x: Tensor, purpose: str = "search") -> list[Answer]:
        """Return what the service says about images, in its own labels, from the cache where it knows."""
        return self._answers(x, purpose, None)

    def _logits(self, x: Tensor, purpose: str, known: dict[str, Answer] | None) -> Tensor:
        assert self._labels is not None, "learn the classes first"
        return self._labels.logits(self._answers(x, purpose, known)).to(x.device)

    def _answers(self, x: Tensor, purpose: str, known: dict[str, Answer] | None) -> list[Answer]:
        pictures = [Picture.of(image, self.adapter.eight_bits) for image in x]
        distinct = {picture.sha256: picture for picture in pictures}
        found = self._cache.find(distinct) if known is None else known
        missing = [picture for name, picture in distinct.items() if name not in found]
        self.purse.saved += len(distinct) - len(missing)

        def arrived(picture: Picture, answer: Answer) -> None:
            if known is None:
                self._cache.put(picture.sha256, answer)
            found[picture.sha256] = answer

        if missing:
            self._line.ask(missing, purpose, arrived)
        return [found[picture.sha256] for picture in pictures]

    def extra_repr(self) -> str:
        """Name the service."""
        return self.adapter.url


@final
class RemoteModel(LocalModel):
    """A service as the engine calls it: scores or labels, and no gradient."""

    def __init__(self, service: Service, classes: int, device: torch.device, shows_scores: bool) -> None:
        super().__init__(service, classes, device, batch_size=1)
        self.service, self.shows_scores = service, shows_scores

    @classmethod
    def open(cls, service: Service, dataset: Dataset, device: torch.device) -> "tuple[RemoteModel, bool]":
        """Look at the first image twice; return the network, and whether the service contradicted itself."""
        x = dataset.images(slice(0, 1))
        first, again = (service.ask_afresh(x) for _ in range(2))
        meaning = service.learn(dataset.classes, first.labels)
        meaning.logits([first, again])  # raises where a label means nothing
        shows_scores = first.scores is not None
        service.recognise(x.shape[1:], LOOKS if shows_scores else LOOKS_AT_LABELS)
        return cls(service, meaning.count, device, shows_scores), not first.is_like(again)

    def logits(self, x: Tensor) -> Tensor:
        """Ask about images; a failed request raises and is never a label."""
        return self.service.search(x)

    def as_sent(self, x: Tensor) -> Tensor:
        """Return images as the service is shown them."""
        return round_to_8_bits(x) if self.service.adapter.eight_bits else x


def _make_folder(adapter: Adapter) -> Path:
    """Return where cache and transcript of a service lie."""
    import os

    host = slug(urlsplit(adapter.url).netloc.rpartition("@")[2])
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "assay" / "services" / host if adapter.folder is None else Path(adapter.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreFailed(f"{folder} cannot be made a folder ({error}): name another in the adapter file.") from error
    return folder


def _patterns(shape: Sequence[int], count: int) -> Tensor:
    """Return images of coloured clouds, always the same ones, on which no two models agree for long."""
    channels, height, width = shape
    seeds = torch.Generator().manual_seed(0)
    coarse = torch.rand((count, channels, 4, 4), generator=seeds)
    return nn.functional.interpolate(coarse, (height, width), mode="bilinear")


def _tell(sentence: str) -> None:
    """Speak to whoever watches; where nobody does, the transcript is enough."""
    if sys.stderr.isatty():
        print(sentence, file=sys.stderr)


def _close(line: Line, cache: Cache) -> None:
    line.close()
    cache.close()
