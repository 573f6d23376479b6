"""Measures the RMSD that learning rates of Liu et al.'s attack lead to, so that the study can use the paper's RMSDs.

python -m benchmarks.liu2017_rates cifar10-1k resnet32-natural vgg11-natural mobilenet-natural alexnet-natural
python -m benchmarks.liu2017_rates nips2017:FOLDER imagenet:squeezenet-1.1 imagenet:mobilenet-v1-1.0-224 ...

The images are the last ones of the dataset that all models classify correctly; the study takes the first ones.
"""

import argparse
from collections.abc import Iterator

import torch

from robustassay import data as datasets
from robustassay import models
from robustassay.attacks.gradient.liu import Liu
from robustassay.data import Dataset
from robustassay.data.photo_frames import photo_reader_of
from robustassay.rng import Streams
from robustassay.studies.photographs import COMMON, frame_once, framed
from robustassay.target import GradientAccess, Ledger, LocalModel
from robustassay.threat import Ball, Goal, LInf, RandomTarget, ThreatModel
from robustassay.threat.rmsd import rmsd


def main() -> None:
    """Print one line per goal, number of models and rate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    parser.add_argument("--goals", nargs="+", default=["untargeted", "targeted"])
    asked = parser.parse_args()
    dataset = datasets.load(asked.data)
    photographs = photo_reader_of(dataset) is not None
    dataset = framed(dataset) if photographs else dataset
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    modules = [models.load(name) for name in asked.models]
    targets = [
        LocalModel(frame_once(module, COMMON) if photographs else module, len(dataset.classes), device)
        for module in modules
    ]
    chosen = _last_known(dataset, targets, asked.images)
    for goal in asked.goals:
        threat = ThreatModel(LInf(1.0), RandomTarget() if goal == "targeted" else None)
        for members in (targets[:1], targets):
            for rate in asked.rates:
                far = _mean_rmsd(chosen, members, threat, rate)
                print(f"{goal}, {len(members)} models, rate {rate:g} each: RMSD {far:.1f}", flush=True)


def _last_known(dataset: Dataset, targets: list[LocalModel], images: int) -> Dataset:
    def known() -> Iterator[int]:
        for row in reversed(range(len(dataset))):
            x = dataset.images([row]).to(targets[0].device)
            if all(int(target.logits(x).argmax()) == int(dataset.labels[row]) for target in targets):
                yield row

    return dataset.select([row for _, row in zip(range(images), known(), strict=False)])


def _mean_rmsd(dataset: Dataset, members: list[LocalModel], threat: ThreatModel, rate: float) -> float:
    device = members[0].device
    x0, labels = dataset.images(slice(None)).to(device), dataset.labels.to(device)
    goal: Goal = threat.goal(dataset.ids, labels, members[0].logits(x0), 0)
    ball = Ball(threat.norm, x0, torch.ones(len(x0), device=device))
    rows = torch.arange(len(x0), device=device)
    accesses = [
        GradientAccess(target, Ledger.never_done(ball, goal), Streams.of(0, dataset.ids, device), rows, lambda _: None)
        for target in members
    ]
    return float(rmsd(Liu(rate=rate / 255).ascend(accesses, x0), x0).mean())


if __name__ == "__main__":
    main()
