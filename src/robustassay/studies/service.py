"""Section 7 of Liu et al. 2017 (arXiv:1611.02770): images made on models at hand, shown to a service that is not.

The service gives labels of its own choosing. The paper shows it four hundred images: made on one model and on a group
of models, with and without a target. One more group is random noise of the same size, to compare with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import pandas as pd
import torch
from torch import Tensor

from robustassay import attacks
from robustassay.analysis.intervals import wilson
from robustassay.attacks.transfer.transfer import Transfer as Substitute
from robustassay.attacks.transfer.transfer import load_substitute
from robustassay.data import Dataset
from robustassay.errors import StoreFailed
from robustassay.remote import Service, Transfer, submit
from robustassay.rng import Streams
from robustassay.threat import Ball, Norm, RandomTarget, Targeted, ThreatModel

SHOWN: Final = 5
"""Images of each group that are drawn, those that misled the service first."""


@final
@dataclass(frozen=True)
class Group:
    """Images made in one way."""

    title: str
    source: str | None  # None is noise
    targeted: bool


@final
@dataclass(frozen=True, eq=False)
class Shown:
    """A group's images and what the service said of them."""

    group: Group
    x_adv: Tensor
    said: Transfer


def groups(single: str, ensemble: Sequence[str]) -> tuple[Group, ...]:
    """List what the paper submits, and the noise."""
    several = "+".join(ensemble)
    ways = [(single, "one model"), (several, f"{len(ensemble)} models")]
    made = [
        Group(f"{word}, {'targeted' if targeted else 'untargeted'}", source, targeted)
        for targeted in (False, True)
        for source, word in ways
    ]
    return (*made, Group("random signs", None, False))


def perform(
    service: Service,
    dataset: Dataset,
    norm: Norm,
    attack: str,
    asked: Sequence[Group],
    seed: int,
    tell: Callable[[str], None],
) -> list[Shown]:
    """Make each group and submit it; what was answered before is not asked again."""
    x, names = dataset.images(slice(None)), dataset.classes
    done = []
    for group in asked:
        tell(f"{group.title}: making {len(x)} images")
        targets, x_adv = _make(group, dataset, norm, attack, seed)
        tell(f"{group.title}: asking the service")
        done.append(Shown(group, x_adv, submit(service, x_adv, dataset.labels, names, targets, x)))
    return done


def _make(group: Group, dataset: Dataset, norm: Norm, attack: str, seed: int) -> tuple[Tensor | None, Tensor]:
    x, rng = dataset.images(slice(None)), Streams.of(seed, dataset.ids)
    ball = Ball(norm, x, torch.full((len(x),), norm.eps))
    if group.source is None:
        return None, ball.step(x, rng.uniform(*x.shape[1:]) - 0.5, ball.eps)
    threat = ThreatModel(norm, RandomTarget() if group.targeted else None)
    logits = load_substitute(group.source, x.device).logits(x)
    goal = threat.goal(dataset.ids, dataset.labels, logits, seed)
    x_adv = Substitute(source=group.source, attack=attacks.create(attack)).make(ball, goal, rng)
    return goal.labels if isinstance(goal, Targeted) else None, x_adv


def answers(shown: Sequence[Shown], dataset: Dataset) -> pd.DataFrame:
    """Return one row an image: what it is, what the service says of it clean and changed, in its own words."""
    rows = [
        {
            "group": one.group.title,
            "source": one.group.source,
            "sample_id": sample,
            "truth": dataset.classes[image.truth],
            "target": None if image.target is None else dataset.classes[image.target],
            "clean_label": image.clean_label,
            "adversarial_label": image.label,
            "counts": image.counts,
            "misled": image.counts and image.wrong,
            "matches_target": image.counts and image.matches,
        }
        for one in shown
        for sample, image in zip(dataset.ids, one.said.images, strict=True)
    ]
    return pd.DataFrame(rows)


def table(shown: Sequence[Shown]) -> pd.DataFrame:
    """Return the rates of each group, with 95 % intervals, over images whose clean version the service knows."""
    rows = []
    for one in shown:
        row = {"group": one.group.title, "made on": one.group.source or "nothing", "images": one.said.counted}
        for name, rate in (("misled", one.said.error_rate), ("matches target", one.said.matching_rate)):
            if one.said.counted and rate == rate:
                low, high = wilson(round(rate * one.said.counted), one.said.counted)
                row[name] = f"{rate:.0%} ({low:.0%} to {high:.0%})"
            else:
                row[name] = ""
        rows.append(row)
    return pd.DataFrame(rows)


def examples(one: Shown) -> list[int]:
    """Choose the images of a group that are drawn."""
    told = [(not (image.counts and image.matches), not (image.counts and image.wrong)) for image in one.said.images]
    return sorted(range(len(told)), key=lambda row: told[row])[:SHOWN]


def write(
    shown: Sequence[Shown],
    dataset: Dataset,
    how: str,
    out: Path,
    draw: Callable[[Sequence[Shown], Dataset, Path], None],
) -> None:
    """Write the answers, the rates, and one page with the pictures."""
    rates = table(shown)
    lines = ["# Liu et al. (2017), section 7: transfer to a service", "", how, ""]
    lines += ["| " + " | ".join(rates.columns) + " |", "|" + "---|" * len(rates.columns)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rates.to_numpy().tolist()]
    lines += ["", "Misled: the service gives the clean image its true label and the changed one another. Intervals are"]
    lines += [
        "95 % Wilson. In the paper 57 % (one model) and 76 % (several) of targeted images misled the service, and"
    ]
    lines += ["2 % and 18 % got a label close to the target, by the authors' own judgement.", ""]
    lines += ["![examples](examples.png)", "", "Every answer is in [answers.csv](answers.csv).", ""]
    try:
        out.mkdir(parents=True, exist_ok=True)
        answers(shown, dataset).to_csv(out / "answers.csv", index=False)
        rates.to_csv(out / "rates.csv", index=False)
        draw(shown, dataset, out / "examples.png")
        (out / "study.md").write_text("\n".join(lines), encoding="utf-8")
    except OSError as error:
        raise StoreFailed(f"{out} cannot be written ({error.strerror or error}): choose another place.") from error
