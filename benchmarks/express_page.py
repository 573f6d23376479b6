"""Writes docs/express.md from the runs of `benchmarks/express_agreement.py`.

    python -m benchmarks.express_page DIR... --fit preresnet14,wrn16-2 [--attack express-wide] [--write]

`--fit` names the architectures on which doubt was fitted and express was chosen: they are shown apart. Doubt is that
of the package as it is now. `--attack express-wide` shows the candidate instead of express.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from benchmarks.express_agreement import EQUAL, POINTS, THREATS, Threat, compare
from benchmarks.express_table import markdown, summary, table
from robustassay.analysis import doubt, trust
from robustassay.evaluation import Result

PAGE: Final = Path("docs/express.md")
KEPT: Final = "\n## Older rows\n"

TEXT: Final = """# Express and AutoAttack, sample by sample

Both attacks on CIFAR-10's test set, images 5,000 and following, on networks trained for this comparison
(`benchmarks/train_networks.py`; "e4" at the end of a name: for 4 epochs only, so weakly; on 24,000 images, preresnet8
on 8,000). Measured on {dates} ({hardware}). Made by `python -m benchmarks.express_page`.

No stage of express and no number of the fit was chosen on these images, or on the networks of the first table; one
feature of the [fit](doubt.md) was thought of after a look at PGD's records on them. These networks are small and weakly
trained. Wider and better trained ones are among the older rows only.

A **miss** is a sample that only AutoAttack broke; "not in doubt" counts the misses that express did not name as
samples in doubt, and "in doubt" all samples that it named. A row **holds** if express is
at most {points:.1f} points above AutoAttack, at least {equal:.1%} of the verdicts are equal, and misses are in doubt.
Cost is in passes per sample, a gradient as three.

## Held-out networks

{report}

## Networks of the choice

On these, among others, the probability behind "in doubt" was [fitted](doubt.md), and express was compared with a
candidate that attacks more samples of middle margins (`benchmarks/express_wide.py`): the candidate was to replace
express if it missed less here with at most 1.2 times the gradients.
{choice}
On a GPU express and AutoAttack search in float16, and the candidate in float32.

{fit}
"""

MISS_COLUMNS: Final = ("network", "threat", "sample", "margin left", "probability", "in doubt", "broken by")


def standard_doubt(result: Result, norm: str) -> pd.Series:
    """Return the fall probability of each sample, as of an attack that counts as express."""
    records = result.records
    found = trust.fall_probability(records, result.flags, doubt.AttackTraits(norm, standard=True))
    return pd.Series(found.to_numpy(), index=records["sample_id"])


def rows_of(folders: Sequence[Path], attack: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield the row of every pair of network and threat, and its misses."""
    for network in sorted(network for folder in folders for network in (folder / "runs").iterdir()):
        for text in THREATS.split(","):
            for place in network.glob(f"{Threat(text).folder}-*"):
                if (place / attack).exists() and (place / "autoattack").exists():
                    yield row_of(network.name, text, place, attack)


def row_of(network: str, threat: str, place: Path, attack: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Compare one pair of runs."""
    reference, ours = (Result.load(place / name) for name in ("autoattack", attack))
    probability = standard_doubt(ours, Threat(threat).norm.name)
    row = compare(reference.records, ours.records, list(probability.index[probability > doubt.LIMIT]))
    row |= {"network": network, "threat": threat, "date": str(ours.manifest.get("started", ""))[:10]}
    row |= {"gradients": float(ours.records["backwards"].mean()), "hardware": hardware(ours)}
    broken, stands = reference.records.set_index("sample_id"), ours.records.set_index("sample_id")
    missed = stands.index[(stands["clean_ok"] & ~stands["success"]).to_numpy(bool)]
    misses = [
        {
            "network": network,
            "threat": threat,
            "sample": one,
            "margin left": f"{stands['margin'][one] / stands['clean_margin'][one]:.2f}",
            "probability": f"{probability[one]:.1%}",
            "in doubt": "yes" if probability[one] > doubt.LIMIT else "no",
            "broken by": broken["claimed_by"][one],
        }
        for one in missed
        if broken["success"][one]
    ]
    return row, misses


def hardware(result: Result) -> str:
    """Name the device of a run."""
    device = str(result.manifest["hardware"]["device"])
    return "a CPU" if device == "cpu" else device


def part(found: Sequence[tuple[dict[str, Any], list[dict[str, Any]]]]) -> str:
    """Write summary, table and misses of some rows."""
    rows, misses = [row for row, _ in found], [miss for _, several in found for miss in several]
    lines = [summary(rows), "", table(rows)]
    if misses:
        lines += ["", 'Its misses; "broken by" is the stage of AutoAttack:', "", markdown(misses, MISS_COLUMNS)]
    return "\n".join(lines)


def is_of(name: str, architectures: Sequence[str]) -> bool:
    """Say whether a network is of one of these architectures."""
    return any(name.startswith(f"{one}-") for one in architectures)


def choice(folders: Sequence[Path], architectures: Sequence[str]) -> str:
    """Say what the choice between express and its candidate rests on."""
    counts = {}
    for attack in ("express", "express-wide"):
        rows = [row for row, _ in rows_of(folders, attack) if is_of(row["network"], architectures)]
        counts[attack] = [sum(row[key] for row in rows) for key in ("misses", "not in doubt", "gradients")]
    if not counts["express-wide"][2]:
        return ""
    (old, silent_old, cost_old), (new, silent_new, cost_new) = counts["express"], counts["express-wide"]
    return (
        f"Express missed {old}, {silent_old} of them not in doubt; the candidate {new}, {silent_new} not in doubt, "
        f"with {cost_new / cost_old:.2f} times the gradients: it stays a candidate."
    )


def page(folders: Sequence[Path], attack: str, architectures: Sequence[str]) -> str:
    """Write the page, without the sections of other measurements."""
    found = list(rows_of(folders, attack))
    return TEXT.format(
        dates=", ".join(sorted({row["date"] for row, _ in found})),
        hardware=", ".join(sorted({row["hardware"] for row, _ in found})),
        points=100 * POINTS,
        equal=EQUAL,
        report=part([one for one in found if not is_of(one[0]["network"], architectures)]),
        choice=choice(folders, architectures),
        fit=part([one for one in found if is_of(one[0]["network"], architectures)]),
    )


def main(words: Sequence[str] | None = None) -> None:
    """Print the page, or write it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folders", nargs="+", type=Path, help="--out of express_agreement")
    options.add_argument("--fit", required=True, help="architectures of the choice, separated by commas")
    options.add_argument("--attack", default="express", help="express, or express-wide where that became express")
    options.add_argument("--write", action="store_true", help=f"write {PAGE}")
    chosen = options.parse_args(words)
    text = page(chosen.folders, chosen.attack, chosen.fit.split(","))
    print(text)
    if chosen.write:
        kept = PAGE.read_text().partition(KEPT)
        PAGE.write_text(f"{text.rstrip()}\n{kept[1]}{kept[2]}")


if __name__ == "__main__":
    main()
