"""How the benchmark was run here, what differs from the paper, and the flags of runs."""

from collections import defaultdict

from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.page import Setup, comma_list
from robustassay.studies.task import Key


def setup(measured: DongMeasurements) -> Setup:
    """Describe the scale, the deviations, and the flags of runs."""
    sizes = sorted({len(result.records) for result in measured.results.values()}, reverse=True)
    fewer = f" ({comma_list(map(str, sizes[1:]))} in some runs)" if sizes[1:] else ""
    notes = (
        f"Measured on {sizes[0]} images{fewer}: {measured.description}.",
        "",
        "Differences are in percentage points, on the same samples, with 95 % intervals; p-values are exact and, "
        "within a finding, Holm-corrected unless marked.",
    )
    return Setup((), tuple(deviations(measured)), notes, tuple(flags(measured)))


def deviations(measured: DongMeasurements) -> list[str]:
    """List what of the paper is left out or done differently."""
    other = (
        "Figures 1 to 6 are of CIFAR-10: see --dataset cifar10."
        if measured.photographs
        else ("Figures 7 to 12 are of ImageNet: see --dataset imagenet.")
    )
    return [
        *(f"{row.label}: its model {row.model} is not in the zoo." for row in measured.missing),
        other,
        "Transfer attacks have no curve over strength: the attacked model receives one query per sample.",
        "Curves over eps show the smallest radius at which an attempt, or a point between it and the clean image, "
        "succeeded; at the fixed eps they can lie below the tables, whose rates come from one plain attack there.",
    ]


def flags(measured: DongMeasurements) -> list[str]:
    """List every flag with the runs that have it."""
    texts, keys = {}, defaultdict[str, list[Key]](list)
    for key, result in measured.results.items():
        found = dict(result.flags)
        if result.invalid_claims:
            found["invalid-claims"] = "Claimed successes did not verify; these samples count as robust."
        for name, text in found.items():
            texts[name] = text
            keys[name].append(key)
    return [f"{name}: {texts[name]} In {_grouped(measured, found)}." for name, found in keys.items()]


def _grouped(measured: DongMeasurements, keys: list[Key]) -> str:
    """List runs by defense; a defense all of whose runs are meant is named alone."""
    parts = []
    for label in dict.fromkeys(key[0] for key in keys):
        own = [" ".join(key[1:]) for key in keys if key[0] == label]
        whole = len(own) == sum(key[0] == label for key in measured.results)
        parts.append(f"all runs of {label}" if whole else f"{len(own)} of {label} ({', '.join(own)})")
    return "; ".join(parts)
