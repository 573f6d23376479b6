"""Records of many attacks on a few models, to compare two versions of the code bit by bit.

python -m benchmarks.record_fingerprints write OUT.json       # about ten minutes on one core; resumes
python -m benchmarks.record_fingerprints compare OLD.json NEW.json

Run `write` in a checkout of each version. Every column except `seconds`, and every adversarial image, is compared.
"""

import hashlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any, Final

import pandas as pd
import torch

import robustassay as ra
from robustassay.errors import AssayError
from robustassay.files import write_atomically

IMAGES: Final = 6
MODELS: Final = ("resnet20-pgd", "resnet20-natural", "noise:sigma=0.1|resnet20-pgd")
LINF: Final = (
    "fgsm",
    "bim:steps=10",
    "pgd:steps=10,restarts=2",
    "mim:steps=10",
    "dim:steps=6",
    "tim:steps=6",
    "apgd:steps=20",
    "apgd-t:steps=10,targets=3",
    "pma:steps=10",
    "nearest:steps=10",
    "fab:steps=10",
    "fmn:steps=30",
    "deepfool",
    "square:steps=200",
    "nes:steps=6,samples=50",
    "spsa:steps=4,samples=50",
    "nattack:steps=4,samples=50",
    "rgf:steps=6",
    "bandits:steps=40",
    "rays:queries=150",
    "hopskipjump:queries=300",
    "minimum-radius:attack=pgd,rounds=5",
    "uniform-noise",
    "autoattack:steps=10,queries=50",
    "express",
    "liu:steps=10",
    "simba:steps=100",
    "geoda:queries=250",
)
L2: Final = (
    "fg",
    "sign-opt:queries=250",
    "zoo:steps=5,samples=16",
    "ddn:steps=30",
    "boundary:queries=250",
    "evolutionary:queries=250",
    "opt:queries=250",
    "gaussian-noise",
    "cw:steps=20,search_steps=3",
    "ead:steps=20,search_steps=3",
)


def write(out: Path) -> None:
    """Run every attack on every model and write the hashes of all columns and images."""
    torch.set_num_threads(1)
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    for model in MODELS:
        for attack in LINF + L2:
            name = f"{model} {attack}"
            if name not in found:
                found[name] = fingerprint(model, attack)
                print(name, found[name].get("refused", "done"), flush=True)
                write_atomically(out, json.dumps(found))


def fingerprint(model: str, attack: str) -> dict[str, Any]:
    """Return the hashes of one run, or the message with which it was refused."""
    norm = ra.LInf(8 / 255) if attack in LINF else ra.L2(0.5)
    search, execution = ra.Search(eot=2), ra.Execution(wave_size=4)
    try:
        result = ra.evaluate(model, "cifar10-1k", norm, attack, limit=IMAGES, search=search, execution=execution)
    except AssayError as error:
        return {"refused": str(error)}
    assert result.x_adv is not None, "evaluate() keeps images by default"
    records: pd.DataFrame = result.records.drop(columns=["seconds"])
    columns = {column: short_hash(repr(records[column].tolist()).encode()) for column in records.columns}
    return {"x_adv": short_hash(result.x_adv.contiguous().numpy().tobytes()), "exact": columns}


def short_hash(content: bytes) -> str:
    """Return the first 16 digits of a SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def compare(old: Path, new: Path) -> bool:
    """Print every difference between two files; return whether there is none."""
    before, after = json.loads(old.read_text()), json.loads(new.read_text())
    differences = {run: text for run in before if (text := difference(before[run], after.get(run)))}
    for run, text in differences.items():
        print(f"{run}: {text}")
    print(f"{len(before)} runs, {len(before) - len(differences)} equal in every column and image")
    return not differences


def difference(before: dict[str, Any], after: dict[str, Any] | None) -> str:
    """Describe the difference between two fingerprints; an empty string if there is none."""
    if after is None:
        return "is missing"
    if "refused" in before or "refused" in after:
        return "" if ("refused" in before) == ("refused" in after) else "is refused in one version"
    columns = [
        name for name in before["exact"] if after["exact"].get(name, before["exact"][name]) != before["exact"][name]
    ]
    only_one = sorted(before["exact"].keys() ^ after["exact"].keys())
    images = [] if before["x_adv"] == after["x_adv"] else ["the images"]
    parts = [*columns, *images, *(f"{name}, which only one version has" for name in only_one)]
    return f"differs in {', '.join(parts)}" if parts else ""


def main(arguments: list[str]) -> int:
    """Run `write OUT` or `compare OLD NEW`."""
    warnings.simplefilter("ignore")
    match arguments:
        case ["write", out]:
            write(Path(out))
            return 0
        case ["compare", old, new]:
            return 0 if compare(Path(old), Path(new)) else 1
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
