"""Writes the cost tables of docs/scale.md: 100 models x 20 attacks x 50,000 photographs, from what was measured.

    python -m benchmarks.cost_model measure     # passes per attack, seconds per pass, bytes per record
    python -m benchmarks.cost_model             # the page, from docs/scale.json

Passes come from the ledger, on a model of 1,000 classes on which nothing succeeds: what an image costs that stands.
Seconds of a pass on a GPU are extrapolated, by arithmetic, from the AutoAttack runs in docs/speed.json.
"""

import json
import platform
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import robustassay as ra
from robustassay import attacks
from robustassay.evaluation.model_ref import ModelRef
from robustassay.evaluation.options import WAVE_SIZE, WAVE_VALUES
from robustassay.models.architectures.imagenet.catalogue import BY_NAME

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
PAGE, FILE = DOCS / "scale.md", DOCS / "scale.json"
BEGIN, END = "<!-- cost: python -m benchmarks.cost_model -->", "<!-- /cost -->"

MODELS, IMAGES, FEW = 100, 50_000, 1_000
NETWORK: Final = "resnet34"
LINEUP: Final = (
    *("fgsm", "bim", "pgd", "mim", "dim", "tim", "apgd", "apgd-t", "pma", "autoattack", "express"),
    *("deepfool", "ddn", "fmn", "fab", "cw-fast", "square", "nes", "boundary", "hopskipjump"),
)
EXPENSIVE: Final = 10_000
"""Attacks that cost more forward-equivalents per image than this, in float16, are planned for few images only."""

SLOWER: Final = 15
"""How many times slower float32 is: the ratio of the peaks in the data sheet of that GPU. Assumed, not measured."""


class Line(nn.Module):
    """Answers by brightness alone: the last of 1,000 classes leads in images brighter than `limit`, else the first."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit
        self.weight = nn.Parameter(torch.linspace(-1, 1, 1000))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return 100 * (x.flatten(1).mean(1, keepdim=True) - self.limit) * self.weight


def measure() -> dict[str, Any]:
    """Measure everything that needs no GPU."""
    network = BY_NAME[NETWORK]
    module = network.build(network.side, network.outputs).eval()
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    torch.set_num_threads(1)
    x = torch.rand(8, 3, network.side, network.side)
    wave = min(WAVE_SIZE["cuda"], WAVE_VALUES["cuda"] // x[0].numel())
    return {
        "machine": f"one core of a {platform.machine()} CPU, torch {torch.__version__.split('+')[0]}",
        "passes": {name: passes(name) for name in LINEUP},
        "seconds": {"forward": each(lambda: forward(module, x), 8), "gradient": each(lambda: gradient(module, x), 8)},
        "side": network.side,
        "flops": {NETWORK: flops(module, x[:1]), "resnet20x4-pgd": flops(*of_zoo("resnet20x4-pgd"))},
        "wave": wave,
        "bytes": {name: bytes_a_record(name, wave) for name in ("pgd", "fmn:steps=30", "square:steps=200")},
    }


def passes(name: str) -> dict[str, float]:
    """Count the passes of an attack at its defaults for an image that never falls.

    For an attack that starts from an image of another class there must be one, so there the limit is not out of reach.
    """
    attack = attacks.create("cw-fast:abort_early=false" if name == "cw-fast" else name)
    norm = next(norm for norm in (ra.LInf(1e-4), ra.L2(1e-4)) if type(norm) in attack.norms)
    model = Line(0.55 if name in ("boundary", "hopskipjump") else -1.0).eval()
    sample = torch.full((1, 3, 8, 8), 0.9), torch.tensor([999])
    records = ra.evaluate(
        model, sample, norm, attack, device="cpu", search=ra.Search(despite_flags=True, self_test=0)
    ).records
    print(name, int(records["forwards"][0]), int(records["backwards"][0]), flush=True)
    return {"forwards": int(records["forwards"][0]), "backwards": int(records["backwards"][0])}


def forward(module: nn.Module, x: Tensor) -> None:
    """Run one forward pass."""
    with torch.no_grad():
        module(x)


def gradient(module: nn.Module, x: Tensor) -> None:
    """Compute one gradient."""
    x = x.detach().requires_grad_()
    torch.autograd.grad(module(x).sum(), x)


def each(work: Any, images: int) -> float:
    """Return the seconds per image, the best of five repetitions."""
    work()
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken) / images


def of_zoo(name: str) -> tuple[nn.Module, Tensor]:
    """Return a model of ours and an image for it."""
    return ModelRef.of(name).module.eval(), torch.rand(1, 3, 32, 32)


def flops(module: nn.Module, x: Tensor) -> int:
    """Count the floating point operations of one forward pass."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(x)
    return int(counter.get_total_flops())


def bytes_a_record(attack: str, wave: int) -> float:
    """Return the bytes per record of a real run, saved in waves of this size."""
    with tempfile.TemporaryDirectory() as folder:
        norm, place = ra.LInf(8 / 255), Path(folder) / "run"
        request: dict[str, Any] = {
            "limit": 2 * wave,
            "execution": ra.Execution(wave_size=wave),
            "keep_images": False,
            "device": "cpu",
        }
        ra.evaluate("resnet20-pgd", "cifar10-1k", norm, attack, out=place, **request)
        return sum(path.stat().st_size for path in (place / "shards").glob("*.parquet")) / (2 * wave)


# ------------------------------------------------------------------------------------------------ page


def equivalents(found: dict[str, float]) -> float:
    """Return the cost in forward passes; a backward pass counts as two."""
    return found["forwards"] + 2 * found["backwards"]


def gpu_speed(known: dict[str, Any]) -> tuple[float, str]:
    """Return the operations per second of a whole evaluation on the GPU of docs/speed.json."""
    measured = json.loads((DOCS / "speed.json").read_text())["gpu"]
    row = next(row for row in measured["rows"] if row["model"] == "resnet20x4-pgd")
    machine = f"{measured['machine']}, {row['date'][:10]}"
    lines = [line.strip("|").split("|") for line in (DOCS / "autoattack.md").read_text().splitlines() if "| " in line]
    header, *found = ([cell.strip() for cell in line] for line in lines)
    (ours,) = (dict(zip(header, cells, strict=True)) for cells in found if cells[0] == row["model"])
    spent = float(ours["cost autoattack"].replace(",", ""))
    return row["images"] * spent * known["flops"]["resnet20x4-pgd"] / row["autoattack"], machine


def tables(known: dict[str, Any]) -> str:
    """Return the text between the markers."""
    speed, gpu = gpu_speed(known)
    rows = [planned(name, known, speed) for name in known["passes"]]
    lines = [
        f"The cost of an image on which no attack succeeds; {NETWORK} at {known['side']} x {known['side']}, "
        f"one model, {IMAGES:,} images:\n",
        "| attack | forwards | backwards | search precision | GPU, h | core, h | images planned | GPU, h planned |",
        "|---|---|---|---|---|---|---|---|",
        *(row for row, _, _ in rows),
    ]
    whole, plan = sum(hours for _, hours, _ in rows), sum(hours for _, _, hours in rows)
    seconds = known["seconds"]
    lines += [
        f"| all {len(rows)} | | | | {whole:,.0f} | | | {plan:,.1f} |",
        f"| **{MODELS} models** | | | | **{MODELS * whole:,.0f}** | | | **{MODELS * plan:,.0f}** |",
        "",
        storage(known),
        f"**Sources.** Measured on {known['machine']}: {1000 * seconds['forward']:.0f} ms per forward pass, "
        f"{1000 * seconds['gradient']:.0f} ms per gradient, {known['flops'][NETWORK] / 1e9:.1f} GFLOP per forward "
        "pass. "
        f"GPU hours are extrapolated, not measured: in float16 from the {speed / 1e12:.0f} TFLOP/s that AutoAttack on "
        f"`resnet20x4-pgd` reached on one {gpu} ([speed](speed.md), with the passes of [AutoAttack](autoattack.md)); "
        f"attacks that search for the nearest point use float32, which is assumed to take {SLOWER} times as long.",
    ]
    return "\n".join(lines) + "\n"


def planned(name: str, known: dict[str, Any], speed: float) -> tuple[str, float, float]:
    """Return the line of one attack, the hours for all images, and the planned hours."""
    found, seconds = known["passes"][name], known["seconds"]
    exact = attacks.create(name).seeks_minimum
    cost = equivalents(found) * (SLOWER if exact else 1)
    hours = cost * known["flops"][NETWORK] / speed / 3600
    backward = max(seconds["gradient"] - seconds["forward"], 0.0)
    core = (found["forwards"] * seconds["forward"] + found["backwards"] * backward) / 3600
    images = FEW if cost > EXPENSIVE else IMAGES
    cells = [f"`{name}`", f"{found['forwards']:,}", f"{found['backwards']:,}", "float32" if exact else "float16"]
    cells += [f"{hours * IMAGES:.3g}", f"{core * IMAGES:,.0f}", f"{images:,}", f"{hours * images:.3g}"]
    return f"| {' | '.join(cells)} |", hours * IMAGES, hours * images


def storage(known: dict[str, Any]) -> str:
    """Return the paragraph on the size of records and images."""
    records = MODELS * len(known["passes"]) * IMAGES
    heaviest = max(known["bytes"].values())
    each_kind = ", ".join(f"{size:.0f} of `{name}`" for name, size in known["bytes"].items())
    image = 3 * known["side"] ** 2 * 4
    files = MODELS * len(known["passes"]) * -(-IMAGES // known["wave"])
    return (
        f"**Storage.** A wave of such photographs is {known['wave']} samples on a GPU, and one Parquet file. Bytes per "
        f"record, in real runs saved in waves of that size: {each_kind}. {records / 1e6:,.0f} million records are "
        f"{records * heaviest / 1e9:,.0f} GB at most, in {files / 1e6:.1f} million files. Images of float32 at "
        f"that size are {image / 1e3:,.0f} kB each, {records * image / 1e12:,.0f} TB for all: keep none (the "
        "default on the command line), or those of a few samples.\n"
    )


def renewed(text: str, known: dict[str, Any]) -> str:
    """Return the page with current tables between its markers."""
    between = re.compile(f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.DOTALL)
    if not between.search(text):
        raise SystemExit(f"{PAGE.name} lacks the markers {BEGIN} and {END}: put them where the tables belong.")
    return between.sub(lambda _: f"\n{tables(known)}\n", text, count=1)


def main() -> None:
    """Measure if the argument `measure` is given, and write the page."""
    if "measure" in sys.argv[1:]:
        FILE.write_text(json.dumps(measure(), indent=1) + "\n")
    known = json.loads(FILE.read_text())
    PAGE.write_text(renewed(PAGE.read_text(), known))


if __name__ == "__main__":
    main()
