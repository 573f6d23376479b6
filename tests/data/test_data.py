import hashlib
import importlib.util
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from robustassay import data
from robustassay.data import Dataset, describe, embedded, from_arrays, load, names
from robustassay.data.readers import cifar10, folder, npz
from robustassay.data.readers.cifar10_pickle import parse_batch
from robustassay.errors import AssayError, BadData, BadRequest, UnknownName

SAMPLE_SHA256 = "f0ad24493804eb8ba1762135b9d94cd4c18e27ea5bc752f7c77d3bd54ec6dee2"


# ---------------------------------------------------------------- files of the same content in every format


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (6, 3, 32, 32), np.uint8)


@pytest.fixture
def labels():
    return np.array([3, 0, 9, 0, 3, 1])


def python2_batch(pixels, labels) -> bytes:
    """The opcodes of the official test_batch, which Python 2 wrote: all strings are byte strings."""

    def string(value: bytes) -> bytes:
        return b"T" + struct.pack("<I", len(value)) + value

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n(" + string(b"u1") + integer(0) + integer(1) + b"tR"
    dtype += b"(" + integer(3) + string(b"|") + b"NNN" + integer(-1) * 2 + integer(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + integer(0) + b"\x85" + string(b"b") + b"tR"
    shape = integer(len(pixels)) + integer(3072) + b"\x86"
    array += b"(" + integer(1) + shape + dtype + b"\x89" + string(pixels.tobytes()) + b"tb"
    listed = b"](" + b"".join(map(integer, labels)) + b"e"
    return b"\x80\x02}(" + string(b"data") + array + string(b"labels") + listed + b"u."


def python3_batch(pixels, labels, protocol: int = 4) -> bytes:
    return pickle.dumps({"data": pixels.reshape(-1, 3072), "labels": [int(y) for y in labels]}, protocol)


def binary_batch(pixels, labels) -> bytes:
    return np.hstack([labels[:, None].astype(np.uint8), pixels.reshape(-1, 3072)]).tobytes()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def save_npz(path: Path, **arrays) -> Path:
    np.savez(path, **arrays)
    return path


def save_image(path: Path, array, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return path


def image_folder(root: Path, pixels, labels, suffix: str = ".png") -> Path:
    for index, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        name = root / cifar10.CLASSES[label] / f"{index}{suffix}"
        save_image(name, image.transpose(1, 2, 0), **({"lossless": True} if suffix == ".webp" else {}))
    return root


# ---------------------------------------------------------------- readers agree


def test_array_readers_agree_to_the_bit(tmp_path, pixels, labels):
    nhwc = pixels.transpose(0, 2, 3, 1)
    floats = pixels.astype(np.float32) / 255
    datasets = [
        from_arrays(pixels, labels),
        from_arrays(torch.tensor(pixels), torch.tensor(labels)),
        from_arrays(torch.tensor(pixels) / 255, labels.tolist()),
        from_arrays(torch.tensor(floats).double().requires_grad_(), labels),
        load(str(save_npz(tmp_path / "last.npz", x=nhwc, y=labels))),
        load(f"npz:{save_npz(tmp_path / 'first.npz', x=pixels, y=labels.astype(np.uint8))}"),
        load(save_npz(tmp_path / "floats.npz", x=floats, y=labels)),
        load(save_npz(tmp_path / "big_endian.npz", x=floats.astype(">f8"), y=labels.astype(">i2"))),
        load(f"cifar10:{write(tmp_path / 'py2' / 'test_batch', python2_batch(pixels, labels))}"),
        load(f"cifar10:{write(tmp_path / 'py3' / 'test_batch', python3_batch(pixels, labels)).parent}"),
        load(f"cifar10:{write(tmp_path / 'bin' / 'test_batch.bin', binary_batch(pixels, labels))}"),
    ]
    for dataset in datasets:
        images = dataset.images(slice(None))
        assert images.dtype == torch.float32
        assert images.is_contiguous()
        assert not images.requires_grad
        assert torch.equal(images, torch.from_numpy(floats))
        assert dataset.labels.dtype == torch.int64
        assert dataset.labels.tolist() == labels.tolist()
        assert dataset.ids == ("0", "1", "2", "3", "4", "5")
    assert {dataset.sha256 for dataset in datasets} == {datasets[0].sha256}


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".webp"])
def test_a_folder_has_the_same_pixels(tmp_path, pixels, labels, suffix):
    dataset = load(f"folder:{image_folder(tmp_path / 'set', pixels, labels, suffix)}")
    assert dataset.name == "set"
    assert dataset.classes == ("airplane", "automobile", "cat", "truck")
    # Round the classes: the first image of each, then the second of those that have one.
    order = [1, 5, 0, 2, 3, 4]
    assert dataset.ids == tuple(f"{cifar10.CLASSES[labels[i]]}/{i}{suffix}" for i in order)
    assert dataset.labels.tolist() == [0, 1, 2, 3, 0, 2]
    assert torch.equal(dataset.images(slice(None)), from_arrays(pixels, labels).images(order))
    assert load(tmp_path / "set").sha256 == dataset.sha256


def test_jpeg_is_read_as_pillow_reads_it(tmp_path, pixels):
    file = save_image(tmp_path / "a" / "x.JPG", pixels[0].transpose(1, 2, 0), format="JPEG")
    expected = torch.tensor(np.asarray(Image.open(file))).permute(2, 0, 1) / 255
    assert torch.equal(load(tmp_path).images([0])[0], expected)


def test_every_byte_value_is_divided_exactly():
    values = np.arange(256, dtype=np.uint8)
    dataset = from_arrays(values[:, None], [0] * 256)
    assert np.array_equal(dataset.images(slice(None)).numpy()[:, 0], values.astype(np.float32) / np.float32(255))


def test_cifar_files_are_found_in_the_unpacked_archive(tmp_path, pixels, labels):
    write(tmp_path / "cifar-10-batches-py" / "test_batch", python2_batch(pixels, labels))
    dataset = load(f"cifar10:{tmp_path}")
    assert dataset.name == "cifar10"
    assert dataset.classes[3] == "cat"


def test_npz_may_name_its_classes(tmp_path, pixels, labels):
    path = save_npz(tmp_path / "a.npz", x=pixels, y=labels, classes=np.array(cifar10.CLASSES))
    assert load(path).classes == cifar10.CLASSES


# ---------------------------------------------------------------- Dataset


def test_images_loads_the_rows_asked_for(pixels, labels):
    dataset = from_arrays(pixels, labels)
    whole = dataset.images(slice(None))
    assert torch.equal(dataset.images([4, 0, 4]), whole[[4, 0, 4]])
    assert torch.equal(dataset.images(slice(-2, None)), whole[-2:])
    assert torch.equal(dataset.images(np.array([1])), whole[1:2])  # type: ignore[arg-type]
    assert dataset.images([]).shape == (0, 3, 32, 32)


def test_parts_keep_the_identity_of_the_whole(pixels, labels):
    dataset = from_arrays(pixels, labels, ids=list("abcdef"))
    part = dataset.select([5, 2, 3]).take(2)
    assert (part.name, part.sha256, part.ids, len(part)) == (dataset.name, dataset.sha256, ("f", "c"), 2)
    assert part.labels.tolist() == [1, 9]
    assert torch.equal(part.images(slice(None)), dataset.images([5, 2]))
    assert dataset.take(None) is dataset
    assert dataset.take(6).ids == dataset.ids


@pytest.mark.parametrize("limit", [0, -1, 7])
def test_take_says_how_many_there_are(pixels, labels, limit):
    with pytest.raises(BadRequest, match=r"has 6 samples.*a limit from 1 to 6"):
        from_arrays(pixels, labels).take(limit)


@pytest.mark.parametrize(
    ("rows", "remedy"),
    [
        ([], "at least one"),
        ([1, 1], "each row once"),
        ([6], "rows 0 to 5"),
        ([-1], "rows 0 to 5"),
        ([True, False], "flatnonzero"),
        ([0.5], "integers"),
    ],
)
def test_select_refuses_bad_rows(pixels, labels, rows, remedy):
    with pytest.raises(BadRequest, match=remedy):
        from_arrays(pixels, labels).select(rows)


def test_neither_the_given_nor_the_handed_out_arrays_can_change_the_dataset(labels):
    x = torch.rand(6, 3, 4, 4)
    dataset = from_arrays(x, labels)
    before = x.clone()
    x.zero_()
    dataset.images(slice(None)).zero_()
    assert torch.equal(dataset.images(slice(None)), before)


def test_datasets_travel_to_other_processes(tmp_path, pixels, labels):
    for dataset in (from_arrays(pixels, labels), load(image_folder(tmp_path, pixels, labels))):
        part = dataset.select([2, 1])
        copy = pickle.loads(pickle.dumps(part))
        assert (copy.ids, copy.sha256) == (part.ids, part.sha256)
        assert torch.equal(copy.images([0, 1]), part.images([0, 1]))


def test_identity_is_pinned():
    # A change here breaks the resuming of every stored run: raise IDENTITY_VERSION on purpose or not at all.
    dataset = from_arrays(np.array([[0.0, 0.25], [0.5, 1.0]]), [0, 1], ids=["a", "b"])
    head = b'{"content":"float32 2x2","ids":["a","b"],"labels":[0,1],"version":"assay-dataset-1"}\n'
    assert dataset.sha256 == hashlib.sha256(head + struct.pack("<4f", 0, 0.25, 0.5, 1)).hexdigest()
    assert dataset.sha256 == "adef9fdb5c57f48fc103e02fbd74d28063444695495a66e245b497fc5db52913"


def test_identity_covers_ids_labels_and_pixels(pixels, labels):
    changed = pixels.copy()
    changed[5, 2, 31, 31] ^= 1
    variants = [
        from_arrays(pixels, labels),
        from_arrays(changed, labels),
        from_arrays(pixels, labels + 1),
        from_arrays(pixels, labels, ids=list("abcdef")),
        from_arrays(pixels.reshape(6, -1), labels),
    ]
    assert len({dataset.sha256 for dataset in variants}) == len(variants)


# ---------------------------------------------------------------- bad arrays

X, Y = torch.full((2, 3, 8, 8), 0.5), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("x", "y", "remedy"),
    [
        (X * 255 * 2, Y, "divide by 255"),
        (X * 1e6, Y, "largest possible value"),
        (X - 1, Y, "undo the normalisation"),
        (X * float("nan"), Y, "NaN or infinity, first in row 0.*remove"),
        (torch.cat([X[:1], X[:1] / 0]), Y, "first in row 1"),
        (np.full((2, 3, 8, 8), 1e300), Y, "infinity"),
        (X.long(), Y, "int64: give .* uint8"),
        (X > 0, Y, "bool: give"),
        (np.array([["a"], ["b"]]), Y, "give a tensor or numpy array"),
        ([[0.1], [0.2]], Y, "list: give a tensor"),
        (X[:, 0], Y, r"\[N, C, H, W\].*x\[:, None\]"),
        (X[:, 0, 0, 0], Y, r"\[N, C, H, W\]"),
        (X[None], Y, r"\[N, C, H, W\]"),
        (X.permute(0, 2, 3, 1), Y, "permute"),
        (X[:0], Y[:0], "empty.*at least one"),
        (torch.ones(2, 0), Y, "empty"),
        (X, Y.float(), "integers.*long"),
        (X, Y > 0, "integers"),
        (X, torch.eye(2).long(), "argmax"),
        (X, [[0], [1, 2]], "give N integers"),
        (X, Y - 1, "count from 0"),
        (X, Y * 10**15, "not a class number"),
        (X, np.array([0, 2**64 - 1], np.uint64), "not a class number"),
        (X, Y[:1], "2 images but 1 labels"),
    ],
)
def test_bad_arrays_are_refused_with_a_remedy(x, y, remedy):
    with pytest.raises(BadData, match=remedy):
        from_arrays(x, y)


@pytest.mark.parametrize(
    ("ids", "remedy"), [(["a", "a"], "'a'.*its own id"), (["1", 1], "its own"), (["a"], "2 images but 1 ids")]
)
def test_bad_ids_are_refused(ids, remedy):
    with pytest.raises(BadData, match=remedy):
        from_arrays(X, Y, ids=ids)


def test_labels_must_have_a_class():
    with pytest.raises(BadData, match="label 1 but only 1 classes"):
        from_arrays(X, Y, classes=["only"])


def test_vectors_and_small_feature_maps_are_welcome():
    assert from_arrays(torch.rand(2, 5), Y).images([1]).shape == (1, 5)
    assert from_arrays(torch.rand(2, 8, 1, 1), Y).images([1]).shape == (1, 8, 1, 1)


# ---------------------------------------------------------------- bad .npz


@pytest.mark.parametrize(
    ("arrays", "remedy"),
    [
        ({"images": X, "y": Y}, "holds y.*numpy.savez"),
        ({"x": X.numpy().astype(object), "y": Y}, "numeric arrays"),
        ({"x": X[:, 0], "y": Y}, r"x\[:, None\]"),
        ({"x": torch.rand(2, 5, 8, 8), "y": Y}, "the channels are ambiguous"),
        ({"x": torch.rand(2, 3, 8, 3), "y": Y}, "the channels are ambiguous"),
        ({"x": X * 200, "y": Y}, "divide by 255"),
    ],
)
def test_bad_npz_is_refused_with_a_remedy(tmp_path, arrays, remedy):
    with pytest.raises(BadData, match=remedy):
        load(save_npz(tmp_path / "a.npz", **arrays))


def test_a_single_array_is_no_npz(tmp_path):
    np.save(tmp_path / "a.npy", X.numpy())
    with pytest.raises(BadData, match=r"cannot be read as \.npz"):
        load(f"npz:{tmp_path / 'a.npy'}")


# ---------------------------------------------------------------- bad CIFAR-10 files


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


class Shell(Bomb):
    def __reduce__(self):
        return (os.system, (f"touch '{self.path}'",))


class Eval(Bomb):
    def __reduce__(self):
        return (eval, (f"open({str(self.path)!r}, 'w').close()",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("bomb", [Bomb, Shell, Eval])
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path, bomb, protocol):
    trace = tmp_path / "trace"
    content = pickle.dumps({"data": bomb(trace), "labels": [0]}, protocol)
    pickle.loads(content)
    assert trace.exists(), "the bomb must work, or refusing it proves nothing"
    trace.unlink()
    with pytest.raises(BadData, match=r"names .* no code in it was run"):
        load(f"cifar10:{write(tmp_path / 'test_batch', content)}")
    assert not trace.exists()


def test_object_arrays_and_their_content_are_refused(tmp_path):
    trace = tmp_path / "trace"
    with pytest.raises(BadData):
        parse_batch(pickle.dumps({"data": np.array([Shell(trace)]), "labels": [0]}, 4), "f")
    with pytest.raises(BadData, match="not uint8"):
        parse_batch(pickle.dumps({"data": np.array([None]), "labels": [0]}, 4), "f")
    np.savez(tmp_path / "a.npz", x=np.array([Shell(trace)], dtype=object), y=[0])
    with pytest.raises(BadData):
        load(tmp_path / "a.npz")
    assert not trace.exists()


def test_a_pickle_cannot_ask_for_all_the_memory():
    with pytest.raises(BadData, match="memo is larger"):
        parse_batch(b"\x80\x02]r\xff\xff\xff\x7f.", "f")


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        ([], "not a CIFAR-10"),
        ({"data": 1, "labels": [0]}, "not an array"),
        ({"data": np.zeros((1, 3072)), "labels": [0]}, "not uint8"),
        ({"data": np.zeros((1, 3), np.uint8), "labels": [0]}, "shape"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": ["cat"]}, "integers"),
        ({"data": np.zeros((1, 3072), np.uint8), "fine_labels": [0]}, "labels"),
    ],
)
def test_pickles_of_other_things_are_refused(batch, why):
    with pytest.raises(BadData, match=why):
        parse_batch(pickle.dumps(batch, 4), "f")


def test_bad_binary_files_are_refused(tmp_path, pixels, labels):
    for content in (b"", binary_batch(pixels, labels)[:-1]):
        with pytest.raises(BadData, match=r"multiple of 3073.*unpack"):
            load(f"cifar10:{write(tmp_path / 'test_batch.bin', content)}")
    with pytest.raises(BadData, match="label 10 but only 10 classes"):
        load(f"cifar10:{write(tmp_path / 'test_batch.bin', binary_batch(pixels, labels + 1))}")


def test_a_folder_without_a_test_batch_is_refused(tmp_path):
    with pytest.raises(BadData, match=r"test_batch\.bin.*unpacks to"):
        load(f"cifar10:{tmp_path}")


# ---------------------------------------------------------------- folders


def test_a_folder_decodes_only_what_is_asked_for(tmp_path, pixels, labels, monkeypatch):
    decoded: list[str] = []
    decode = folder._decode

    def spy(content, path, mode):
        decoded.append(path.name)
        return decode(content, path, mode)

    monkeypatch.setattr(folder, "_decode", spy)
    # Headers are read on loading: a decoder that raises shows that no pixels are.
    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "convert", lambda *_: pytest.fail("decoded on loading"))
        dataset = load(image_folder(tmp_path, pixels, labels))
    assert decoded == []
    dataset.select([0, 3, 4]).images([1])
    assert decoded == ["2.png"]


def test_grey_folders_have_one_channel_and_mixed_ones_three(tmp_path, pixels):
    save_image(tmp_path / "a" / "grey.png", pixels[0, 0])
    assert torch.equal(load(tmp_path).images([0])[0, 0], torch.tensor(pixels[0, 0]) / 255)
    save_image(tmp_path / "b" / "colour.png", pixels[0].transpose(1, 2, 0))
    assert load(tmp_path).images([0, 1]).shape == (2, 3, 32, 32)


def test_transparency_is_dropped(tmp_path, pixels):
    colour = Image.fromarray(pixels[0].transpose(1, 2, 0))
    (tmp_path / "a").mkdir()
    colour.quantize(16).save(tmp_path / "a" / "palette.png", transparency=bytes([0, 128, 255]))
    rgba = colour.copy()
    rgba.putalpha(7)
    rgba.save(tmp_path / "a" / "rgba.png")
    palette, opaque = load(tmp_path).images([0, 1])
    assert torch.equal(opaque, torch.tensor(pixels[0]) / 255)
    assert torch.equal(palette, torch.tensor(np.asarray(colour.quantize(16).convert("RGB"))).permute(2, 0, 1) / 255)


def test_other_files_hidden_files_and_empty_classes_do_no_harm(tmp_path, pixels, labels):
    write(image_folder(tmp_path, pixels, labels) / "cat" / "notes.txt", b"")
    write(tmp_path / "cat" / "._0.png", b"not an image")
    write(tmp_path / ".cache" / "x.png", b"not an image")
    (tmp_path / "bird").mkdir()
    save_image(tmp_path / "cat" / "deep" / "er.png", pixels[0].transpose(1, 2, 0))
    dataset = load(tmp_path)
    assert len(dataset) == 7
    assert dataset.classes == ("airplane", "automobile", "bird", "cat", "truck")
    assert dataset.labels[dataset.ids.index("cat/deep/er.png")] == 3


def test_two_sizes_are_refused_and_both_files_named(tmp_path, pixels):
    save_image(tmp_path / "a" / "one.png", pixels[0, 0])
    save_image(tmp_path / "b" / "two.png", pixels[0, 0, :8])
    with pytest.raises(BadData, match=r"one\.png is 32x32 but .*two\.png is 32x8: resize"):
        load(tmp_path)


def test_unreadable_images_are_named(tmp_path, pixels):
    write(tmp_path / "a" / "bad.png", b"not an image")
    with pytest.raises(BadData, match=r"bad\.png cannot be read as an image.*repair or remove"):
        load(tmp_path)
    buffer = io.BytesIO()
    Image.fromarray(pixels[0, 0]).save(buffer, "PNG")
    write(tmp_path / "a" / "bad.png", buffer.getvalue()[:200])
    with pytest.raises(BadData, match=r"bad\.png cannot be read as an image"):
        load(tmp_path).images([0])


def test_only_known_decoders_are_tried(tmp_path, pixels):
    save_image(tmp_path / "a" / "tiff.png", pixels[0, 0], format="TIFF")
    with pytest.raises(BadData, match="cannot be read as an image"):
        load(tmp_path)


def test_sixteen_bits_are_refused(tmp_path):
    save_image(tmp_path / "a" / "deep.png", np.full((8, 8), 40_000, np.uint16))
    with pytest.raises(BadData, match="8 bits per channel"):
        load(tmp_path)


@pytest.mark.parametrize("limit", [500, 1000])  # above twice its limit pillow raises, above it it only warns
def test_decompression_bombs_are_refused(tmp_path, pixels, monkeypatch, limit):
    save_image(tmp_path / "a" / "bomb.png", pixels[0, 0])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(BadData, match=r"bomb\.png would decode to too many pixels"):
        load(tmp_path)


def test_a_file_that_changes_later_is_noticed(tmp_path, pixels):
    file = save_image(tmp_path / "a" / "x.png", pixels[0, 0])
    dataset = load(tmp_path)
    save_image(file, pixels[1, 0])
    with pytest.raises(BadData, match=r"x\.png changed"):
        dataset.images([0])
    file.unlink()
    with pytest.raises(BadData, match=r"x\.png is not a regular file"):
        dataset.images([0])


def test_links_do_not_lead_out(tmp_path, pixels):
    outside = save_image(tmp_path / "outside" / "secret.png", pixels[0, 0])
    inside = save_image(tmp_path / "set" / "a" / "x.png", pixels[0, 0])
    link = tmp_path / "set" / "a" / "link.png"
    link.symlink_to(inside)
    assert load(tmp_path / "set").ids == ("a/link.png", "a/x.png")
    link.unlink()
    link.symlink_to(outside)
    with pytest.raises(BadData, match=r"link\.png is a link.*replace it by a copy"):
        load(tmp_path / "set")
    link.unlink()
    for target in (outside.parent, tmp_path / "set"):
        loop = tmp_path / "set" / "b"
        loop.symlink_to(target)
        with pytest.raises(BadData, match="b is a link to a folder"):
            load(tmp_path / "set")
        loop.unlink()


def test_stray_images_and_empty_folders_are_refused(tmp_path, pixels):
    with pytest.raises(BadData, match="no images: make one sub-folder per class"):
        load(tmp_path)
    save_image(tmp_path / "x.png", pixels[0, 0])
    with pytest.raises(BadData, match="in no class folder: move it"):
        load(tmp_path)
    with pytest.raises(BadData, match="Not a directory"):
        load(f"folder:{tmp_path / 'x.png'}")


def test_pipes_are_not_waited_for(tmp_path):
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "pipe.png")
    with pytest.raises(BadData, match="not a regular file"):
        load(tmp_path)


# ---------------------------------------------------------------- the embedded sample


def test_the_sample_is_what_its_readme_says():
    sample = load("cifar10-1k")
    assert isinstance(sample, Dataset)
    assert sample.sha256 == SAMPLE_SHA256
    assert torch.equal(sample.labels.bincount(), torch.full((10,), 100))
    assert len(set(sample.ids)) == len(sample) == 1000
    assert list(sample.ids) == sorted(sample.ids, key=int)
    assert sample.images([0, 999]).shape == (2, 3, 32, 32)
    readme = Path(embedded.__file__).with_name("README.md").read_text()
    sheet = Path(embedded.__file__).with_name(embedded.SHEET_FILE)
    assert SAMPLE_SHA256 in readme
    assert f"{sheet.stat().st_size:,} bytes" in readme


def test_a_damaged_sample_is_refused():
    here = Path(embedded.__file__).parent
    sheet, record = (here / embedded.SHEET_FILE).read_bytes(), (here / embedded.RECORD_FILE).read_bytes()
    facts = json.loads(record)
    facts["labels"][0], facts["labels"][1] = facts["labels"][1], facts["labels"][0]
    with pytest.raises(BadData, match="differs from the published one: install assay again"):
        embedded.decode(sheet, json.dumps(facts).encode())
    for broken in ((sheet[:1000], record), (b"", record), (sheet, record[:-9]), (sheet, b"{}")):
        with pytest.raises(BadData, match="install assay again"):
            embedded.decode(*broken)


def full_test_set() -> Path:
    path = Path(os.environ.get("ASSAY_SHARED", "")) / "cifar10" / "test.npz"
    if "ASSAY_SHARED" not in os.environ or not path.exists():
        pytest.skip("the full CIFAR-10 test set is not here")
    return path


@pytest.mark.shared
def test_the_sample_is_the_first_hundred_of_each_class():
    sample, full = load("cifar10-1k"), load(full_test_set())
    chosen = sorted(i for c in range(10) for i in (full.labels == c).nonzero()[:100, 0].tolist())
    assert sample.ids == tuple(map(str, chosen))
    assert torch.equal(sample.labels, full.labels[chosen])
    assert torch.equal(sample.images(slice(None)), full.images(chosen))


@pytest.mark.shared
def test_the_tool_makes_the_same_sample_again(tmp_path, monkeypatch, capsys):
    source = full_test_set()
    script = Path(__file__).parents[2] / "tools" / "make_cifar10_sample.py"
    spec = importlib.util.spec_from_file_location("make_cifar10_sample", script)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "TARGET", tmp_path)
    monkeypatch.setattr(sys, "argv", ["make_cifar10_sample.py", str(source)])
    tool.main()
    made = [(tmp_path / name).read_bytes() for name in (embedded.SHEET_FILE, embedded.RECORD_FILE)]
    assert embedded.decode(made[0], made[1]).sha256 == SAMPLE_SHA256
    assert SAMPLE_SHA256 in capsys.readouterr().out


# ---------------------------------------------------------------- names


def test_names_and_descriptions_need_no_torch():
    code = (
        "import sys, robustassay.data as d; print([d.describe(n) for n in d.names()]); "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert "cifar10-1k" in names()
    assert all(describe(name) and "\n" not in describe(name) for name in names())


def test_unknown_names_are_answered_with_known_ones():
    with pytest.raises(UnknownName, match="did you mean cifar10"):
        load("cifar-10-1k")
    with pytest.raises(UnknownName, match="dataset"):
        describe("imagenette")
    with pytest.raises(AttributeError, match="nonsense"):
        _ = data.nonsense


@pytest.mark.parametrize("spec", ["no/such/folder", "nowhere.npz", "cifar10:nowhere", "folder:nowhere", "npz:x\0y"])
def test_missing_paths_are_named(spec):
    with pytest.raises(BadData, match=r"no file or folder .* check the path"):
        load(spec)


def test_paths_that_say_nothing_are_refused(tmp_path):
    with pytest.raises(BadRequest, match="after the colon"):
        load("folder:")
    with pytest.raises(BadRequest, match="give its kind with one of"):
        load(write(tmp_path / "images.tar", b""))


# ---------------------------------------------------------------- no bytes can break a reader

READERS = ["a.npz", "test_batch", "test_batch.bin", "c/a.png", "c/a.jpg", "c/a.bmp", "c/a.webp"]


def valid_file(name: str) -> bytes:
    pixels = np.random.default_rng(1).integers(0, 256, (2, 3, 32, 32), np.uint8)
    labels = np.array([1, 2])
    buffer = io.BytesIO()
    if name == "a.npz":
        np.savez_compressed(buffer, x=pixels[:, :, :4, :4], y=labels)
    elif name == "test_batch":
        return python2_batch(pixels, labels)
    elif name == "test_batch.bin":
        return binary_batch(pixels, labels)
    else:
        Image.fromarray(pixels[0].transpose(1, 2, 0)).save(buffer, Image.registered_extensions()[name[3:]])
    return buffer.getvalue()


@st.composite
def damaged(draw, valid: bytes) -> bytes:
    content = bytearray(valid)
    # Headers are where damage is interesting, so most of it goes to the first bytes.
    places = st.integers(0, min(len(valid), 200) - 1) | st.integers(0, len(valid) - 1)
    for place, value in draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=8)):
        content[place] = value
    return bytes(content[: draw(st.just(len(valid)) | st.integers(0, len(valid)))])


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_load_or_raise_an_assay_error(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    readers = {"a.npz": npz.read, "c/": folder.read}
    read = readers.get(name[:2], readers.get(name, cifar10.read))

    @settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=300) | damaged(valid_file(name)))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                images = read(tmp_path if name.startswith("c/") else path).images(slice(None))
            except AssayError:
                return
        assert images.min() >= 0
        assert images.max() <= 1

    check()
