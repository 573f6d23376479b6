"""A classifier behind HTTP in the place of a module: searched through a cache, verified without it."""

import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import final
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from robustassay.cache_folder import cache_folder
from robustassay.errors import BadModel, StoreFailed
from robustassay.names import slug
from robustassay.remote.adapter import Adapter
from robustassay.remote.budget import QueryBudget
from robustassay.remote.cache import AnswerCache
from robustassay.remote.client import Client
from robustassay.remote.encoding import SentImage
from robustassay.remote.labels import LabelMap
from robustassay.remote.public_form import public_address
from robustassay.remote.response_formats import Answer


@final
class Service(nn.Module):
    """A classifier behind HTTP.

    Called as a module, as verification does, it asks the service again; `search` may answer from the cache. In a
    sequence of such calls each image is sent once.
    """

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapter = adapter
        self.budget = QueryBudget(adapter.limits, _print_to_terminal)
        folder = _make_folder(adapter)
        self._client = Client(adapter, self.budget, folder / "transcript.jsonl")
        self._cache = AnswerCache(folder / "answers.sqlite", adapter.request_key)
        self._labels: LabelMap | None = None
        self._fresh: dict[str, Answer] = {}
        self.close = weakref.finalize(self, _close, self._client, self._cache)
        self.eval()

    def learn_classes(self, classes: Sequence[str], seen: Sequence[str] = ()) -> LabelMap:
        """Map the labels of the service to the classes of the data; `seen` are labels that it has answered with."""
        self._labels = LabelMap.of(self.adapter, classes, seen)
        return self._labels

    def recognise(self, shape: Sequence[int], patterns: int) -> None:
        """Ask about fixed images again; where the answers differ from the cached ones, empty the cache."""
        fresh: dict[str, Answer] = {}
        self._answers(_patterns(shape, patterns), "first look", fresh)
        known = self._cache.find(fresh)
        if not all(answer.is_like(fresh[image]) for image, answer in known.items()):
            _print_to_terminal(f"{self.adapter.public_url} has changed its answers: the cached ones are deleted.")
            self._cache.clear()
        for image, answer in fresh.items():
            self._cache.put(image, answer)

    def forward(self, x: Tensor) -> Tensor:
        """Ask about images and return logits, without reading or writing the cache."""
        return self._logits(x, "verification", self._fresh)

    def search(self, x: Tensor) -> Tensor:
        """Return logits, from the cache where it holds the image."""
        self._fresh = {}
        return self._logits(x, "search", None)

    def ask_again(self, x: Tensor) -> Answer:
        """Ask about one image without the cache."""
        (answer,) = self._answers(x, "first look", {})
        return answer

    def answers(self, x: Tensor, purpose: str = "search") -> list[Answer]:
        """Return the answers in the service's own labels, from the cache where it holds the image."""
        return self._answers(x, purpose, None)

    def _logits(self, x: Tensor, purpose: str, known: dict[str, Answer] | None) -> Tensor:
        if self._labels is None:
            raise BadModel("A service cannot be called as a module before its classes are known: name it alone.")
        return self._labels.logits(self._answers(x, purpose, known)).to(x.device)

    def _answers(self, x: Tensor, purpose: str, known: dict[str, Answer] | None) -> list[Answer]:
        """Return answers from `known`, or from the cache where that is None, and ask for the missing ones."""
        images = [SentImage.of(image, self.adapter.eight_bits) for image in x]
        distinct = {image.sha256: image for image in images}
        found = self._cache.find(distinct) if known is None else known
        missing = [image for sha256, image in distinct.items() if sha256 not in found]
        self.budget.saved += len(distinct) - len(missing)

        def on_answer(image: SentImage, answer: Answer) -> None:
            if known is None:
                self._cache.put(image.sha256, answer)
            found[image.sha256] = answer

        if missing:
            self._client.ask(missing, purpose, on_answer)
        return [found[image.sha256] for image in images]

    def extra_repr(self) -> str:
        """Name the service."""
        return self.adapter.public_url

    def name_in_results(self, name: str | None) -> str:
        """Return the name of this service in manifests, folders and tables: an address without its secrets."""
        if name is None:
            return self.adapter.public_url
        return public_address(name) if name.startswith(("http://", "https://")) else name


def _make_folder(adapter: Adapter) -> Path:
    """Make the folder of the cache and the transcript of a service."""
    host = slug(urlsplit(adapter.url).netloc.rpartition("@")[2])
    folder = cache_folder() / "services" / host if adapter.folder is None else Path(adapter.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreFailed(
            f"The folder {folder} cannot be made ({error}): name another one in the adapter file."
        ) from error
    return folder


def _patterns(shape: Sequence[int], count: int) -> Tensor:
    """Return fixed images of smooth coloured noise, on which two models soon disagree."""
    channels, height, width = shape
    seeds = torch.Generator().manual_seed(0)
    coarse = torch.rand((count, channels, 4, 4), generator=seeds)
    return nn.functional.interpolate(coarse, (height, width), mode="bilinear")


def _print_to_terminal(sentence: str) -> None:
    """Print to a terminal only: elsewhere the transcript is enough."""
    if sys.stderr.isatty():
        print(sentence, file=sys.stderr)


def _close(client: Client, cache: AnswerCache) -> None:
    client.close()
    cache.close()
