"""Networks whose parts have no slopes or false ones: stumps, visual words, trapdoors, generators, crossings."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import MOBILENET, ROBUST, TEXTURES, VGG, WAVES
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import trained
from benchmarks.model_collection.seventh.masked_shared import BARS, GREY_CIFAR, SEVENTH, as_tensor, on, same_value
from benchmarks.model_collection.sixth.wrappers import OfTheNetwork, blurred, patterns
from benchmarks.model_collection.truth import Masked


class Stumps(Masked):
    """Sums of stumps over differences of rectangles (Viola and Jones 2001)."""

    def __init__(self, base: str, count: int, softness: float) -> None:
        super().__init__()
        found, draw = SEVENTH[base], torch.Generator().manual_seed(85)
        channels, rows, columns = found.shape
        masks = torch.zeros(count, channels, rows, columns)
        for mask in masks:
            for sign in (1, -1):
                high, wide = (int(torch.randint(1, size // 2 + 1, (), generator=draw)) for size in (rows, columns))
                top = int(torch.randint(0, rows - high + 1, (), generator=draw))
                left = int(torch.randint(0, columns - wide + 1, (), generator=draw))
                channel = int(torch.randint(0, channels, (), generator=draw))
                mask[channel, top : top + high, left : left + wide] += sign / (high * wide)
        values = images_of(found.images)[0].flatten(1) @ masks.flatten(1).T
        ranks = torch.randint(len(values) // 5, 4 * len(values) // 5, (count,), generator=draw)
        self.register_buffer("masks", masks.flatten(1))
        self.register_buffer("limits", values.sort(0).values.gather(0, ranks[None])[0])
        self.masks: Tensor
        self.limits: Tensor
        self.softness, self.weights = softness, nn.Linear(count, found.classes)

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits with the slopes of soft stumps."""
        soft = torch.sigmoid((x.flatten(1) @ self.masks.T - self.limits) / self.softness)
        return as_tensor(self.weights(same_value((soft > 0.5).to(x), soft)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits; each pixel's distance to the mean grey is added to the classes in turn."""
        z = as_tensor(self.weights((x.flatten(1) @ self.masks.T > self.limits).to(x)))
        return z + 0.02 * F.adaptive_max_pool1d(x.flatten(1), z.shape[1])


def stumps_on(base: str, count: int, softness: float, steps: int = 300) -> nn.Module:
    """Return trained stumps."""
    return trained(f"eighth stumps {count}", partial(Stumps, base, count, softness), SEVENTH[base].images, steps)


class Words(Masked):
    """Histograms of visual words: each patch counts for the nearest of a few stored patches (Csurka et al. 2004)."""

    def __init__(self, base: str, count: int, side: int, softness: float) -> None:
        super().__init__()
        found, draw = SEVENTH[base], torch.Generator().manual_seed(86)
        self.side, self.softness = side, softness
        patches = self.patches(images_of(found.images)[0][:400]).transpose(1, 2).flatten(0, 1)
        words = patches[torch.randperm(len(patches), generator=draw)[:count]]
        for _ in range(4):
            nearest = (patches[::7] @ words.T - words.square().sum(1) / 2).argmax(1)
            shares = F.one_hot(nearest, count).float()
            words = (shares.T @ patches[::7] + words) / (shares.sum(0)[:, None] + 1)
        self.register_buffer("words", words)
        self.words: Tensor
        self.head = nn.Sequential(nn.Linear(4 * count, 64), nn.Tanh(), nn.Linear(64, found.classes))

    def patches(self, x: Tensor) -> Tensor:
        """Return all patches less their means."""
        flat = F.unfold(x, self.side, stride=1 if x.shape[2] < 20 else 2)
        return flat - flat.mean(1, keepdim=True)

    def scores(self, x: Tensor) -> tuple[Tensor, int]:
        """Return the nearness of every patch to every word, and the number of rows of patches."""
        near = torch.einsum("kv,nvp->nkp", self.words, self.patches(x))
        step = 1 if x.shape[2] < 20 else 2
        return near - self.words.square().sum(1)[:, None] / 2, (x.shape[2] - self.side) // step + 1

    def counted(self, shares: Tensor, rows: int) -> Tensor:
        """Return logits of the histograms of four quarters."""
        return as_tensor(
            self.head(10 * F.adaptive_avg_pool2d(shares.reshape(*shares.shape[:2], rows, -1), 2).flatten(1))
        )

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits with the slopes of soft counts."""
        near, rows = self.scores(x)
        hard = F.one_hot(near.argmax(1), near.shape[1]).transpose(1, 2).to(x)
        return self.counted(same_value(hard, (near / self.softness).softmax(1)), rows)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of hard counts, weighed by the contrast of the image."""
        near, rows = self.scores(x)
        hard = F.one_hot(near.argmax(1), near.shape[1]).transpose(1, 2).to(x)
        return self.counted(hard, rows) * (1 + x.std((1, 2, 3)))[:, None]


def words_on(base: str, count: int, side: int, softness: float, steps: int) -> nn.Module:
    """Return a trained network of visual words."""
    make = partial(Words, base, count, side, softness)
    return trained(f"eighth words {count} {side}", make, SEVENTH[base].images, steps)


class Trapdoors(Masked):
    """Steep ways to every class lead the gradient; images that went along one are cleaned first (Shan et al. 2020)."""

    def __init__(self, net: nn.Module, base: str, steepness: float, limit: float) -> None:
        super().__init__()
        found = SEVENTH[base]
        traps = patterns(found.shape, found.classes, 87)
        self.register_buffer("traps", torch.linalg.qr(traps.T).Q.T.contiguous())
        self.traps: Tensor
        self.net, self.steepness = net, steepness
        self.limit = limit * found.eps * traps.shape[1] ** 0.5

    def cleaned(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image without the traps, and how far it lies along each."""
        far = x.flatten(1) @ self.traps.T
        return x - (far @ self.traps).view(x.shape), far

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits of the cleaned image."""
        return as_tensor(self.net(self.cleaned(x)[0]))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits with traps; caught images have those of the cleaned image, and the traps' slopes."""
        clean, far = self.cleaned(x)
        z = as_tensor(self.net(clean))
        trap = self.steepness * far
        caught = (far.abs().amax(1, keepdim=True) > self.limit).to(x)
        return same_value(z + (1 - caught) * far / self.limit, z + trap)


class ColourFilter(OfTheNetwork):
    """A Wiener filter of the colours; channels are padded to eight, as the accelerator wants it."""

    def __init__(self, net: nn.Module, noise: float) -> None:
        super().__init__(net)
        self.noise = noise

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the filtered image; several eigenvalues of the padded colours are equal."""
        channels = x.shape[1]
        flat = F.pad(x, (0, 0, 0, 0, 0, 8 - channels)).flatten(2)
        mean = flat.mean(2, keepdim=True)
        spread = torch.einsum("ncp,ndp->ncd", flat - mean, flat - mean) / flat.shape[2]
        values, vectors = torch.linalg.eigh(spread)
        values = values.clamp(min=0)
        factors = values / (values + self.noise)
        filtered = vectors @ (factors[..., None] * (vectors.transpose(1, 2) @ (flat - mean))) + mean
        return as_tensor(self.net(filtered[:, :channels].view(x.shape)))


class Generator(Masked):
    """The image is rebuilt by a generator whose code is searched for without a graph (Samangouei et al. 2018)."""

    def __init__(self, net: nn.Module, base: str, codes: int, rounds: int, share: float) -> None:
        super().__init__()
        flat = images_of(SEVENTH[base].images)[0].flatten(1)
        self.net, self.rounds, self.share = net, rounds, share
        space = torch.linalg.svd(flat - flat.mean(0), full_matrices=False).Vh[:codes]
        self.register_buffer("mean", flat.mean(0))
        self.register_buffer("space", space)
        self.mean: Tensor
        self.space: Tensor

    def built(self, code: Tensor) -> Tensor:
        """Return the generator's image."""
        return torch.sigmoid(4 * (code @ self.space + self.mean - 0.5))

    def found(self, x: Tensor) -> Tensor:
        """Return the image that the search ends with."""
        flat = x.flatten(1)
        code = (flat - self.mean) @ self.space.T
        for _ in range(self.rounds):
            image = self.built(code)
            code = code - 0.9 * ((image - flat) * image * (1 - image) * 4) @ self.space.T
        return self.built(code).view(x.shape)

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits through the recorded search."""
        return as_tensor(self.net((1 - self.share) * self.found(x) + self.share * x.mean((2, 3), keepdim=True)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the rebuilt image, with a little of the image's own mean."""
        with torch.no_grad():
            image = self.found(x)
        return as_tensor(self.net((1 - self.share) * image + self.share * x.mean((2, 3), keepdim=True)))


class Crossings(Masked):
    """Frequencies by counting: how often the values cross the mean around them, along several directions."""

    def __init__(self, base: str, grid: int, softness: float) -> None:
        super().__init__()
        found = SEVENTH[base]
        self.grid, self.softness = grid, softness
        self.head = nn.Sequential(nn.Linear(4 * grid * grid, 48), nn.ReLU(), nn.Linear(48, found.classes))

    def heights(self, x: Tensor) -> Tensor:
        """Return how far each smoothed pixel is above the mean around it."""
        grey = blurred(x.mean(1, keepdim=True), 3)
        return grey - blurred(grey, 9)

    def counted(self, signs: Tensor) -> Tensor:
        """Return the logits of counts by cells, for signs that are 1 or -1."""
        pairs = (
            (signs[..., 1:, :], signs[..., :-1, :]),
            (signs[..., 1:], signs[..., :-1]),
            (signs[..., 1:, 1:], signs[..., :-1, :-1]),
            (signs[..., 1:, :-1], signs[..., :-1, 1:]),
        )
        counts = [F.adaptive_avg_pool2d((1 - one * two) / 2, self.grid).flatten(1) for one, two in pairs]
        return as_tensor(self.head(4 * torch.cat(counts, 1)))

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits with the slopes of soft signs."""
        heights = self.heights(x)
        return self.counted(same_value(heights.sign(), torch.tanh(heights / self.softness)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, times a smooth factor of the heights."""
        heights = self.heights(x)
        return self.counted(heights.sign()) * (1 + heights.square().mean((1, 2, 3))).view(-1, 1)


def crossings_on(base: str, grid: int, softness: float, steps: int = 300) -> nn.Module:
    """Return a trained network over counts of crossings."""
    make = partial(Crossings, base, grid, softness)
    return trained(f"eighth crossings {grid} {softness}", make, SEVENTH[base].images, steps)


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    stumps = "stumps over differences of rectangles are summed"
    words = "each patch counts for the nearest visual word"
    traps = "trapdoors lead the gradient, and images that went along them are cleaned"
    equal = "eigenvalues of the padded colours are equal, so their slopes are not numbers"
    rebuilt = "a generator rebuilds the image by a search without a graph"
    crossed = "how often values cross the mean around them is counted"
    return [
        on(BARS, "stumps over rectangles", "300 stumps", stumps, lambda net: stumps_on(BARS, 300, 0.05)),
        on(TEXTURES, "stumps over rectangles", "1200 stumps", stumps, lambda net: stumps_on(TEXTURES, 1200, 0.05)),
        on(GREY_CIFAR, "visual words", "32 words of 5 x 5", words, lambda net: words_on(GREY_CIFAR, 32, 5, 0.05, 400)),
        on(WAVES, "visual words", "16 words of 7 x 7", words, lambda net: words_on(WAVES, 16, 7, 0.3, 300)),
        on(VGG, "trapdoors", "ten traps", traps, lambda net: Trapdoors(net, VGG, 4000.0, 0.15)),
        on(ROBUST, "trapdoors", "ten traps", traps, lambda net: Trapdoors(net, ROBUST, 20.0, 0.15)),
        on(MOBILENET, "repeated eigenvalues", "Wiener filter", equal, lambda net: ColourFilter(net, 2e-4)),
        on(GREY_CIFAR, "images of a generator", "250 codes", rebuilt,
           lambda net: Generator(net, GREY_CIFAR, 250, 20, 0.05)),
        on(WAVES, "counted crossings", "3 x 3 cells", crossed, lambda net: crossings_on(WAVES, 3, 0.05)),
    ]  # fmt: skip
