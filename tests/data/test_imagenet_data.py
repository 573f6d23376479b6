"""Photographs in the layouts people keep ImageNet in, seen in the frame a network wants."""

import csv
import importlib.util
import os
import pickle
import tracemalloc

import numpy as np
import pytest
import torch
from PIL import Image

from robustassay import data
from robustassay.data import photos
from robustassay.data.corruptions import corrupt
from robustassay.data.frame import Frame
from robustassay.data.photo_frames import apply_frame, credits_of, target_labels_of
from robustassay.data.photos import Credit
from robustassay.data.readers.imagenet import class_names, synsets
from robustassay.errors import BadData, BadRequest
from robustassay.models.sources.extras import need


def paint(path, size=(40, 30), seed=0):
    """Write a smooth picture, so that JPEG and resizing change little of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    small = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), np.uint8)
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(path, quality=95)
    return path


@pytest.fixture
def by_synset(tmp_path):
    wanted = ["n01440764", "n02127052", "n15075141"]
    for at, synset in enumerate(wanted):
        for turn in range(2):
            paint(tmp_path / "val" / synset / f"{turn}.JPEG", (40 + 3 * at, 30 + turn), seed=10 * at + turn)
    return tmp_path / "val"


def nips(folder, heading, rows):
    for name, *_ in rows:
        stem = name if name.endswith(".png") else f"{name}.png"
        paint(folder / "images" / stem, (29, 29), seed=len(name))
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([heading, *rows])
    return folder


def test_there_are_a_thousand_classes_in_the_order_of_their_synsets():
    assert len(synsets()) == len(class_names()) == 1000
    assert list(synsets()) == sorted(synsets())
    assert synsets()["n02127052"] == "lynx"
    assert class_names()[0] == "tench"


def test_some_folders_of_synsets_keep_the_numbers_of_all_thousand(by_synset):
    found = data.load(f"imagenet:{by_synset}")
    assert len(found.classes) == 1000
    assert found.labels.tolist() == [0, 287, 999] * 2  # the first of each class, then the second
    assert found.ids[1] == "n02127052/0.JPEG"
    # The folder above works as well, as archives unpack to it.
    assert data.load(f"imagenet:{by_synset.parent}").sha256 == found.sha256
    (by_synset / "n00000000").mkdir()
    with pytest.raises(BadData, match="no synset"):
        data.load(f"imagenet:{by_synset}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("val.txt", "b.JPEG 287\na.JPEG 0\n"),
        ("val.txt", "val/b.JPEG n02127052\nval/a.JPEG n01440764\n"),
        ("labels.txt", "n01440764\nn02127052\n"),
        ("LOC_val_solution.csv", "ImageId,PredictionString\nb,n02127052 1 2 3 4\na,n01440764 5 6 7 8\n"),
    ],
)
def test_a_flat_folder_has_its_labels_in_a_file(tmp_path, name, text):
    for at, file in enumerate(("a.JPEG", "b.JPEG")):
        paint(tmp_path / file, seed=at)
    (tmp_path / name).write_text(text)
    found = data.load(f"imagenet:{tmp_path}")
    assert dict(zip(found.ids, found.labels.tolist(), strict=True)) == {"a.JPEG": 0, "b.JPEG": 287}
    assert data.load(f"imagenet:{tmp_path / name}").sha256 == found.sha256


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("490\n361\n", "a list of numbers"),  # ILSVRC's development kit, which has an order of its own
        ("n01440764\n", "1 lines for 2"),
        ("a.JPEG 1000\nb.JPEG 0\n", "0 to 999"),
        ("a.JPEG n00000001\nb.JPEG 0\n", "n00000001"),
        ("c.JPEG 1\nd.JPEG 2\n", "none of the photographs"),
        ("a.JPEG 1\nb.JPEG\n", "has no class"),
    ],
)
def test_labels_that_would_be_read_wrongly_are_refused(tmp_path, text, said):
    for file in ("a.JPEG", "b.JPEG"):
        paint(tmp_path / file)
    (tmp_path / "labels.txt").write_text(text)
    with pytest.raises(BadData, match=said):
        data.load(f"imagenet:{tmp_path}")


def test_a_folder_without_labels_says_what_is_missing(tmp_path):
    paint(tmp_path / "a.JPEG")
    with pytest.raises(BadData, match="label file"):
        data.load(f"imagenet:{tmp_path}")
    with pytest.raises(BadData, match="no CSV"):
        data.load(f"nips2017:{tmp_path}")


def test_authors_of_photographs_are_read_if_a_file_names_them(tmp_path):
    heading = ["file", "true_label", "target_label", "license", "author", "landing_url"]
    named = data.load(f"nips2017:{nips(tmp_path / 'a', heading, [['x.png', 3, 4, 'CC BY', 'Ann', 'there']])}")
    assert credits_of(apply_frame(named, Frame((8, 8), 8)).select([0])) == {"x.png": Credit("Ann", "CC BY", "there")}
    plain = data.load(f"nips2017:{nips(tmp_path / 'b', heading[:3], [['x.png', 3, 4]])}")
    assert credits_of(plain) == {}
    assert named.sha256 == plain.sha256, "they are no part of the data's identity"


def test_the_competitions_file_counts_from_one_and_others_from_zero(tmp_path):
    official = nips(tmp_path / "a", ["ImageId", "URL", "TrueLabel", "TargetClass"], [["x", "u", 306, 779]])
    plain = nips(tmp_path / "b", ["file", "true_label", "target_label"], [["x.png", 305, 778], ["y.png", 0, 999]])
    first, second = data.load(f"nips2017:{official}"), data.load(f"imagenet:{plain}")
    assert first.labels.tolist() == [305]
    assert target_labels_of(first) == {"x.png": 778}
    assert second.labels.tolist() == [305, 0]
    assert target_labels_of(second.select([1])) == {"x.png": 778, "y.png": 999}
    assert second.images([0]).shape == (1, 3, 29, 29)  # as they are, where no network asks for more
    wrong = nips(tmp_path / "c", ["ImageId", "TrueLabel", "TargetClass"], [["x", 0, 5]])
    with pytest.raises(BadData, match="1 to 1000"):
        data.load(f"nips2017:{wrong}")


def test_imagenet_by_name_is_where_the_environment_says(by_synset, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_IMAGENET", str(by_synset))
    assert len(data.load("imagenet")) == 6
    monkeypatch.setenv("ASSAY_IMAGENET", str(tmp_path / "nowhere"))
    with pytest.raises(BadData, match="ASSAY_IMAGENET"):
        data.load("imagenet")


# ---------------------------------------------------------------- frames


def test_a_frame_is_what_torchvision_makes(by_synset):
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    transforms = need("torchvision.transforms", "torchvision")
    frame = Frame((16, 16), 20, "bicubic")
    found = apply_frame(data.load(f"imagenet:{by_synset}"), frame)
    pipeline = transforms.Compose(
        [
            transforms.Resize(20, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(16),
            transforms.ToTensor(),
        ]
    )
    for row, file in enumerate(found.ids):
        with Image.open(by_synset / file) as image:
            assert torch.equal(found.images([row])[0], pipeline(image))


def test_photographs_that_are_cut_already_are_seen_whole(tmp_path):
    plain = data.load(f"nips2017:{nips(tmp_path, ['file', 'true_label', 'target_label'], [['x.png', 3, 4]])}")
    frame = Frame((16, 16), 20)
    seen = apply_frame(plain, frame).images([0])[0]
    with Image.open(tmp_path / "images" / "x.png") as image:
        whole = np.asarray(image.resize((16, 16), Image.Resampling.BICUBIC), np.float32) / 255
    assert torch.allclose(seen, torch.from_numpy(whole).permute(2, 0, 1))


def test_a_frame_makes_another_dataset_of_the_same_samples(by_synset):
    plain = data.load(f"imagenet:{by_synset}")
    small, large = apply_frame(plain, Frame((16, 16), 20)), apply_frame(plain, Frame((24, 24), 30))
    assert small.ids == large.ids == plain.ids
    assert len({plain.sha256, small.sha256, large.sha256}) == 3
    assert small.images([0]).shape == (1, 3, 16, 16)
    assert plain.images([0]).shape == (1, 3, 224, 224)  # what most networks want, as sizes differ
    assert apply_frame(small, Frame((24, 24), 30)) is small  # once is enough
    # The part of a framed dataset is the framed part, whichever came first.
    part = apply_frame(plain.select([4, 1]), Frame((16, 16), 20))
    assert part.sha256 == small.sha256
    assert part.whole.ids == plain.ids
    assert torch.equal(part.images([0, 1]), small.images([4, 1]))
    spelled = data.load(f"frame:size=16,resize=20|imagenet:{by_synset}")
    assert spelled.sha256 == small.sha256
    other = data.load("cifar10-1k")
    assert apply_frame(other, Frame((16, 16), 20)) is other


def test_photographs_are_spoilt_at_the_size_a_network_sees(by_synset):
    plain = data.load(f"imagenet:{by_synset}").take(2)
    frame = Frame((16, 16), 20)
    first, second = (
        apply_frame(corrupt(plain, "fog:severity=2"), frame),
        corrupt(apply_frame(plain, frame), "fog:severity=2"),
    )
    assert torch.equal(first.images([0, 1]), second.images([0, 1]))
    assert not torch.equal(first.images([0, 1]), apply_frame(plain, frame).images([0, 1]))


@pytest.mark.parametrize("spec", ["frame:", "frame:size=0", "frame:size=224,resize=100", "frame:size=8,by=magic"])
def test_a_frame_that_makes_no_sense_is_refused(by_synset, spec):
    with pytest.raises(BadRequest, match="frame"):
        data.load(f"{spec}|imagenet:{by_synset}")


# ---------------------------------------------------------------- reading


def test_rows_are_the_same_in_whatever_company_they_are_read(by_synset):
    found = apply_frame(data.load(f"imagenet:{by_synset}"), Frame((16, 16), 20))
    together = found.images(slice(None))
    assert torch.equal(together, torch.cat([found.images([row]) for row in range(6)]))
    assert torch.equal(pickle.loads(pickle.dumps(found)).images([3]), together[3:4])
    assert float(together.std()) > 0.05
    together.zero_()
    assert float(found.images([0]).sum()) > 0


def test_several_files_are_decoded_at_a_time(by_synset, monkeypatch):
    import threading

    meeting, decode = threading.Barrier(2, timeout=60), photos.PhotoReader._decode

    def both(self, row, frame):
        meeting.wait()  # raises unless two decode at the same time
        return decode(self, row, frame)

    found = apply_frame(data.load(f"imagenet:{by_synset}"), Frame((16, 16), 20))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(photos.PhotoReader, "_decode", both)
    assert found.images(range(6)).shape == (6, 3, 16, 16)


def test_memory_holds_the_rows_of_a_call_only(tmp_path):
    for at in range(24):
        paint(tmp_path / "n01440764" / f"{at}.JPEG", (200, 200), seed=at)
    found = apply_frame(data.load(f"imagenet:{tmp_path}"), Frame((100, 100), 112))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for start in range(0, 24, 4):
        found.images(range(start, start + 4))
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert held < 200 * 200 * 3  # not even one photograph is kept


def test_a_file_that_changed_or_is_no_image_is_named(by_synset):
    found = data.load(f"imagenet:{by_synset}")
    paint(by_synset / "n01440764" / "0.JPEG", seed=77)
    with pytest.raises(BadData, match="changed"):
        found.images([0])
    (by_synset / "n01440764" / "0.JPEG").write_bytes(b"no picture")
    with pytest.raises(BadData, match=r"0\.JPEG cannot be read as an image"):
        data.load(f"imagenet:{by_synset}")
