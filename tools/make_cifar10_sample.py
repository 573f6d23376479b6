"""Make the embedded CIFAR-10 sample: python tools/make_cifar10_sample.py TEST.npz

TEST.npz is the full CIFAR-10 test set in official order: x uint8 [10000, 32, 32, 3] and y [10000].
"""

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

from robustassay.data.arrays import from_arrays
from robustassay.data.embedded import NAME, RECORD_FILE, SHEET_FILE, SIDE, read
from robustassay.data.readers.cifar10 import CLASSES

PER_CLASS = 100
COLUMNS = 40
TARGET = Path(__file__).resolve().parents[1] / "src" / "assay" / "data"


def main() -> None:
    """Select the first 100 images per class, write sheet and record, and read them back."""
    parser = argparse.ArgumentParser(description="Make the embedded CIFAR-10 sample.")
    parser.add_argument("test_npz", type=Path, help="the full test set: x uint8 [10000, 32, 32, 3] and y")
    with np.load(parser.parse_args().test_npz, allow_pickle=False) as archive:
        x, y = archive["x"], archive["y"]
    firsts = [np.flatnonzero(y == label)[:PER_CLASS] for label in range(len(CLASSES))]
    indices = np.sort(np.concatenate(firsts))
    images, labels, ids = x[indices], y[indices], [str(index) for index in indices]

    sheet = images.reshape(-1, COLUMNS, SIDE, SIDE, 3).swapaxes(1, 2).reshape(-1, COLUMNS * SIDE, 3)
    sheet_file = TARGET / SHEET_FILE
    Image.fromarray(sheet).save(sheet_file, "WEBP", lossless=True, quality=100, method=5)

    sha256 = from_arrays(images.transpose(0, 3, 1, 2), labels, NAME, ids, CLASSES).sha256
    record = {"sha256": sha256, "indices": indices.tolist(), "labels": labels.tolist()}
    (TARGET / RECORD_FILE).write_text(json.dumps(record, separators=(",", ":")) + "\n")

    print(f"{len(read())} images, {sheet_file.stat().st_size:,} bytes, sha256 {sha256}")


if __name__ == "__main__":
    main()
