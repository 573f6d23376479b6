"""Samples of torch.utils.data as data: every form gives the same images, ids and labels."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from robustassay.data.torch_data import from_torch
from robustassay.errors import BadData
from robustassay.evaluation.arguments import as_dataset

X = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3


class Samples(Dataset[Any]):
    """Map-style samples, in a form given by a function."""

    def __init__(self, form=lambda x, y: (x, int(y)), transform=None):
        self.form, self.transform = form, transform

    def __len__(self):
        return len(X)

    def __getitem__(self, row):
        if row >= len(X):
            raise IndexError
        return self.form(X[row] if self.transform is None else self.transform(X[row]), Y[row])


class Stream(IterableDataset[Any]):
    def __iter__(self):
        yield from ((X[row], Y[row]) for row in range(len(X)))


class Normalize:
    mean, std = [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]

    def __call__(self, x):
        return (x - 0.5) / 0.25


class Compose:
    transforms = (abs, Normalize())

    def __call__(self, x):
        for one in self.transforms:
            x = one(x)
        return x


FORMS = {
    "map-style": lambda: Samples(),
    "dict": lambda: Samples(lambda x, y: {"pixel_values": x, "label": y}),
    "numpy, channels last": lambda: Samples(lambda x, y: (x.permute(1, 2, 0).numpy(), np.int64(y))),
    "more than a pair": lambda: Samples(lambda x, y: (x, y, "extra")),
    "tensors": lambda: TensorDataset(X, Y),
    "subset": lambda: Subset(Subset(Samples(), range(12)), range(12)),
    "loader": lambda: DataLoader(Samples(), batch_size=5),
    "shuffled loader": lambda: DataLoader(Samples(), batch_size=5, shuffle=True),
    "loader with a collate function": lambda: DataLoader(
        Samples(), 4, collate_fn=lambda batch: {"x": torch.stack([x for x, _ in batch]), "y": [y for _, y in batch]}
    ),
    "loader without batches": lambda: DataLoader(Samples(), batch_size=None),
    "stream": lambda: Stream(),
    "loader of a stream": lambda: DataLoader(Stream(), batch_size=5),
    "generator": lambda: (sample for sample in Stream()),
    "list of samples": lambda: [(x, int(y)) for x, y in zip(X, Y, strict=True)],
    "lists of tensors and labels": lambda: ([*X], Y.tolist()),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_data(form):
    found = as_dataset(FORMS[form]())
    assert found.ids == tuple(map(str, range(12)))
    assert torch.equal(found.labels, Y)
    assert torch.allclose(found.images([3, 1]), X[[3, 1]])
    assert found.take(5).sha256 == as_dataset(FORMS[form]()).sha256


def test_ids_of_a_subset_are_those_of_the_dataset_below():
    found = from_torch(Subset(Samples(), [7, 2]))
    assert found.ids == ("7", "2")
    assert torch.equal(found.images([0]), X[[7]])
    assert from_torch(DataLoader(Samples(), sampler=torch.utils.data.SubsetRandomSampler([7, 2]))).ids == ("2", "7")


def test_pixels_of_pil_images_and_bytes_are_scaled():
    from PIL import Image

    pixels = (X[0].permute(1, 2, 0).numpy() * 255).astype(np.uint8)
    one, other = as_dataset([(Image.fromarray(pixels), 0), (pixels, 1)]).images([0, 1])
    assert torch.equal(one, other)
    assert one.shape == (3, 8, 8)
    assert one.max() <= 1


def test_a_stream_is_read_as_far_as_the_limit():
    def endless():
        while True:
            yield X[0], 1

    assert len(as_dataset(endless(), 4)) == 4


def test_a_large_set_is_read_as_far_as_the_limit(monkeypatch):
    monkeypatch.setattr("robustassay.data.torch_data.LARGE", 10)
    read = []

    def noted(x, y):
        read.append(1)
        return x, y

    assert len(from_torch(Samples(noted), 4)) == 4
    assert len(read) == 4


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda: Samples(transform=Compose()), r"nn\.Sequential\(Normalize\(\[0\.5, 0\.5, 0\.5\]"),
        (lambda: Samples(transform=lambda x: 2 * x), "divide by 255"),
        (lambda: Samples(lambda x, y: x), r"pair \(image, label\)"),
        (lambda: Samples(lambda x, y: (x, torch.eye(3)[y])), "class number"),
        (lambda: Samples(lambda x, y: {"picture": x, "label": y}), "keys picture, label"),
        (lambda: Samples(lambda x, y: ("file.png", y)), r"ToTensor\(\)"),
        (lambda: Subset(Samples(), []), "is empty"),
    ],
)
def test_other_samples_get_one_sentence(data, said):
    with pytest.raises(BadData, match=said):
        from_torch(data())


def test_random_transforms_and_shapes_are_refused_when_read():
    with pytest.raises(BadData, match="without random changes"):
        from_torch(Samples(transform=lambda x: torch.rand_like(x))).images([0])
    with pytest.raises(BadData, match="different shapes"):
        from_torch([(X[0], 0), (X[1, :, :4], 1)]).images([0, 1])
