"""Measures gradients per second of many architectures on a GPU: the bare model, under autocast, and our target.

    python -m benchmarks.throughput [--only resnet18,...] [--images 256] [--out docs/throughput.json]
    python -m benchmarks.throughput --page   # writes the page from what was measured before

Weights are random: speed does not depend on them. Batch norms take their statistics from random images; without that,
activations would leave the range of half precision, as they do in no trained network. Ours are calls of the target as
attacks make them, of the same number of images, after the inspection that finds the surrogate. Times are medians of
`--repeat`, in turn. An architecture whose library is not installed is left out with the reason. The page is
docs/throughput.md.
"""

import argparse
import datetime
import importlib
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from benchmarks import networks
from robustassay.models.architectures.layers import Normalise
from robustassay.target import LocalModel, SurrogateModel
from robustassay.target.precision import full_precision
from robustassay.target.surrogate import find_surrogate
from robustassay.threat import Untargeted
from robustassay.threat.losses import logit_margin

STATISTICS: Final = 64
"""Images that the statistics of batch norms come from."""

SLOWEST: Final = 0.95
"""Ours must reach this part of the better of the other two."""


@dataclass(frozen=True)
class Architecture:
    """A network by its library and its name there, and the side of its images."""

    library: str
    name: str
    side: int = 224

    def build(self) -> nn.Module:
        """Return the network with random weights, none of them zero; images are in [0, 1]."""
        torch.manual_seed(0)
        if self.library == "benchmarks":
            module = networks.build(self.name)
        else:
            library: Any = importlib.import_module(self.library)
            create = library.create_model if self.library == "timm" else getattr(library.models, self.name)
            module = nn.Sequential(Normalise(), create(self.name) if self.library == "timm" else create())
        for part in module.modules():
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, 0, part.in_features**-0.5)
        return module.eval().requires_grad_(False)


ARCHITECTURES: Final = {
    "resnet18": Architecture("torchvision", "resnet18"),
    "resnet50": Architecture("torchvision", "resnet50"),
    "wrn28-10": Architecture("benchmarks", "wrn28-10", 32),
    "wrn70-16-silu": Architecture("benchmarks", "wrn70-16-silu", 32),
    "wrn50-2": Architecture("torchvision", "wide_resnet50_2"),
    "densenet161": Architecture("torchvision", "densenet161"),
    "efficientnet-b0": Architecture("torchvision", "efficientnet_b0"),
    "convnext-b": Architecture("torchvision", "convnext_base"),
    "vit-b16": Architecture("torchvision", "vit_b_16"),
    "vit-b16-timm": Architecture("timm", "vit_base_patch16_224"),
    "deit-s": Architecture("timm", "deit_small_patch16_224"),
    "swin-b": Architecture("torchvision", "swin_b"),
    "xcit-s": Architecture("timm", "xcit_small_12_p16_224"),
    "tiny": Architecture("benchmarks", "tiny", 32),  # for tests
}


def main() -> None:
    """Measure the architectures, merge them into the file, and write the page."""
    options = argparse.ArgumentParser()
    options.add_argument("--only", default=",".join(name for name in ARCHITECTURES if name != "tiny"))
    options.add_argument("--images", type=int, default=256)
    options.add_argument("--repeat", type=int, default=5)
    options.add_argument("--device", default="cuda")
    options.add_argument("--out", type=Path, default=Path("docs/throughput.json"))
    options.add_argument("--page", action="store_true")
    chosen = options.parse_args()
    if chosen.page:
        chosen.out.with_suffix(".md").write_text(page(json.loads(chosen.out.read_text())))
        return
    device, names = torch.device(chosen.device), chosen.only.split(",")
    if unknown := [name for name in names if name not in ARCHITECTURES]:
        raise SystemExit(f"{unknown[0]} is no architecture here: choose among {', '.join(ARCHITECTURES)}.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("There is no GPU here: use --device cpu.")
    known = json.loads(chosen.out.read_text()) if chosen.out.exists() else {"rows": {}}
    known["machine"] = machine(device)
    for name in names:
        known["rows"][name] = measure(ARCHITECTURES[name], chosen.images, chosen.repeat, device)
        print(name, known["rows"][name], flush=True)
        chosen.out.write_text(json.dumps(known, indent=1) + "\n")
        chosen.out.with_suffix(".md").write_text(page(known))


def machine(device: torch.device) -> str:
    """Return the machine and the date."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
    return f"{name}, torch {torch.__version__.split('+')[0]}, {datetime.date.today().isoformat()}"


def measure(architecture: Architecture, images: int, repeat: int, device: torch.device) -> dict[str, Any]:
    """Return gradients per second in three ways, and the surrogate."""
    try:
        module = architecture.build().to(device)
    except (ImportError, RuntimeError) as error:  # a library may not fit the installed torch
        return {"left out": f"{architecture.library} cannot be imported ({str(error).splitlines()[0]})"}
    x = torch.rand(images, 3, architecture.side, architecture.side, generator=torch.Generator().manual_seed(0)).to(
        device
    )
    take_statistics(module, x[:STATISTICS])
    with torch.no_grad():
        labels = module(x[:1]).argmax(1).expand(images)
    started = time.perf_counter()
    surrogate = find_surrogate(module, x[:8])
    found_after = time.perf_counter() - started
    classes = int(module(x[:1]).shape[1])
    local = LocalModel(module, classes, device, checks_late=device.type == "cuda")
    target = local if surrogate is None else SurrogateModel(local, surrogate)
    goal = Untargeted(labels)

    def ours() -> Any:
        with full_precision(device):
            return target.gradient(x, logit_margin, goal)

    def bare() -> Tensor:
        with full_precision(device):
            return gradient(module, x, goal)

    def autocast() -> Tensor:
        with torch.autocast(device.type, torch.float16 if device.type == "cuda" else torch.bfloat16):
            return gradient(module, x, goal)

    ways: dict[str, Callable[[], Any]] = {"bare": bare, "ours": ours}
    if device.type == "cuda":
        ways["autocast"] = autocast
    seconds = timed_in_turn(ways, repeat, device)
    rates = {way: images / taken for way, taken in seconds.items()}
    return {
        **rates,
        "images": images,
        "side": architecture.side,
        "search": "the model itself" if surrogate is None else surrogate.name,
        "seconds to find it": found_after,
    }


@torch.no_grad()
def take_statistics(module: nn.Module, x: Tensor) -> None:
    """Give every batch norm the statistics of its input for these images."""
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d | nn.BatchNorm1d)]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    if norms:
        module(x)
    module.eval()


def gradient(module: nn.Module, x: Tensor, goal: Untargeted) -> Tensor:
    """Return the gradient of the margin, as plain code computes it."""
    images = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(logit_margin(module(images).float(), goal).sum(), images)
    return found


def timed_in_turn(ways: dict[str, Callable[[], Any]], repeat: int, device: torch.device) -> dict[str, float]:
    """Return the median seconds of each way, after five calls that load kernels and record graphs."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(5 + repeat):
        for way, work in ways.items():
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            started = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if number >= 5:
                times[way].append(time.perf_counter() - started)
    return {way: statistics.median(taken) for way, taken in times.items()}


def page(known: dict[str, Any]) -> str:
    """Return the page."""
    lines = [
        f"# Gradients per second on {known['machine']}\n",
        "Made by `python -m benchmarks.throughput`. Ours are calls of the target as attacks make them, the others "
        f"plain code. A row holds if ours reach {SLOWEST:.0%} of the better of the bare model in float32 and autocast "
        "in float16.\n",
        "Weights are random, and a copy of the model in half precision is used only if its logits and gradients agree "
        "with the model's. Deep networks with random weights are chaotic: on those that do not hold, no copy agreed, "
        "so the model itself was called, at its own speed. [Speed](speed.md) names the copies of trained networks.\n",
        "| architecture | images | side | bare | autocast | ours | of the better | holds | search |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in known["rows"].items():
        if "left out" in row:
            lines.append(f"| {name} | left out: {row['left out']} |||||||||")
            continue
        better = max(row["bare"], row.get("autocast", 0.0))
        part = row["ours"] / better
        autocast = f"{row['autocast']:,.0f}" if "autocast" in row else "–"
        cells = [name, f"{row['images']:,}", str(row["side"]), f"{row['bare']:,.0f}", autocast, f"{row['ours']:,.0f}"]
        lines.append(f"| {' | '.join([*cells, f'{part:.2f}', 'yes' if part >= SLOWEST else 'no', row['search']])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
