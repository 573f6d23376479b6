"""Serves a network that an ensemble left out, under other label names, and sends it the study's examples.

    assay study liu2017 --out runs/liu2017
    python -m benchmarks.liu2017_service resnet20-natural resnet20 --examples runs/liu2017 --out runs/service
    python -m benchmarks.liu2017_service ... --publish docs/studies/liu2017-service

All further options are those of `assay study service`, and the same as those of the study (`--limit`, `--models`, ...).
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from robustassay import models
from robustassay.cli import main as assay
from robustassay.data.readers.cifar10 import CLASSES
from robustassay.data.readers.imagenet import class_names
from robustassay.serve import ServiceConfig
from robustassay.serve.server import running
from robustassay.studies.photographs import COMMON, frame_once

OTHER_NAMES: Final = {
    "airplane": "jet",
    "automobile": "sedan",
    "bird": "fowl",
    "cat": "kitty",
    "deer": "stag",
    "dog": "hound",
    "frog": "croaker",
    "horse": "steed",
    "ship": "vessel",
    "truck": "lorry",
}
SHOWN: Final = {10: 3, 1000: 10}
"""Labels per answer: Clarifai.com shows some of many; of ten classes, three."""

PORT: Final = 8747
"""Always the same: the address is part of what stored answers belong to."""


def other_names(classes: Sequence[str]) -> tuple[str, ...]:
    """Return the service's label of every class; of classes that share a name, such as two cranes, each has its own."""
    counts = Counter(classes)
    return tuple(
        OTHER_NAMES.get(name, f"photo of {name}" if counts[name] == 1 else f"photo of {name} ({index})")
        for index, name in enumerate(classes)
    )


def main() -> int:
    """Serve, send, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="what is served")
    parser.add_argument("held_out", help="its name in the study")
    asked, rest = parser.parse_known_args()
    module = models.load(asked.model)
    photographs = asked.model.startswith("imagenet:")
    classes = class_names() if photographs else CLASSES
    labels = other_names(classes)
    side = COMMON.size[0] if photographs else 32
    config = ServiceConfig(labels=labels, shape=(3, side, side), top_k=SHOWN[len(classes)])
    with tempfile.TemporaryDirectory() as folder, running(frame_once(module), config, PORT) as address:
        names = Path(folder) / "names.json"
        names.write_text(json.dumps({label: index for index, label in enumerate(labels)}))
        described = Path(folder) / "service.toml"
        described.write_text(
            f'url = "{address}/classify"\nfolder = "{folder}/answers"\n[response]\nlabels = "predictions.*.label"\n'
            f'scores = "predictions.*.confidence"\n[labels]\nfile = "{names}"\n'
        )
        return int(assay(["study", "service", str(described), "--held-out", asked.held_out, *rest]))


if __name__ == "__main__":
    sys.exit(main())
