"""How the benchmark was run here, what differs from the paper, and the flags of runs."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from robustassay.analysis.compare import mcnemar
from robustassay.eps import round_eps
from robustassay.evaluation.verify import REDRAWS
from robustassay.studies.dong2020.attacks import QUERY_GROUPS, RunKind
from robustassay.studies.dong2020.comparisons import LEVEL
from robustassay.studies.dong2020.defenses import ADDED
from robustassay.studies.dong2020.figures import BANDS_FROM, absent
from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.page import Scale, Setup, comma_list, either
from robustassay.studies.provenance import other_devices
from robustassay.studies.task import Key
from robustassay.threat import L2

CARLINI_WAGNER: Final = "white-box-C&W"

MANY_TESTS: Final = 1_000
"""More comparisons than any finding here makes, but the first."""

SMALL_IMAGES: Final = (
    "The networks are those of the zoo, smaller than the paper's and trained here: its own were not at hand.",
)
OTHER_NETWORK: Final = (
    "Inc-v3 is replaced by the network in the first row, and JPEG, Bit-Red, R&P and RandMix stand before that one: "
    "its weights are at hand. Ens-AT, ALP and FD need `--models paper` or a file.",
)
PHOTOGRAPHS: Final = (
    "The photographs are those named by --data, not 1,000 of the validation set; they may have been selected among "
    "those that some network classifies correctly.",
)

ROUNDED: Final = (
    "JPEG rounds images to 8 bits first, so that it does not see changes below 0.5/255: its curves over eps have steps."
)


def setup(measured: DongMeasurements) -> Setup:
    """Describe the scale, the deviations, and the flags of runs."""
    notes = (
        "Differences are in percentage points, on the same samples, with 95 % intervals; p-values are exact and, "
        f"within a finding, Holm-corrected unless marked. {_least(measured)}Bands in figures are pointwise 95 % Wilson "
        f"intervals; panels of fewer than {BANDS_FROM} images have none, as they would cover each other. The command "
        "above measures what is missing; with `--publish FOLDER` it only writes this page, from kept records.",
        *(ROUNDED,) * ("JPEG" in measured.labels and _has(measured, ("white-box",), "eps")),
    )
    dataset = "ImageNet" if measured.photographs else "CIFAR-10"
    return Setup(tuple(scale(measured)), tuple(deviations(measured)), notes, tuple(flags(measured)), dataset)


def _least(measured: DongMeasurements) -> str:
    """Say which number of comparisons leaves nothing significant, where images are that few."""
    images = max((len(result.records) for result in measured.results.values()), default=0)
    smallest = mcnemar(images, 0)
    most = math.floor(LEVEL / smallest)
    if most >= MANY_TESTS:
        return ""
    return (
        f"The smallest p-value that {images} images allow is {smallest:.2g}: among more than {most} comparisons no "
        "difference can be significant. "
    )


def scale(measured: DongMeasurements) -> list[Scale]:
    """List the numbers of images, queries and steps beside the paper's."""
    images = "1,000 of the validation set" if measured.photographs else "10,000"
    kinds = {
        "images, white-box attacks": (
            lambda key: key[2].startswith("white-box") and key[2] != CARLINI_WAGNER and key[3] != "eps"
        ),
        "images, C&W": lambda key: key[2] == CARLINI_WAGNER,
        "images, searches of the smallest eps by white-box attacks": (
            lambda key: key[2].startswith("white-box") and key[3] == "eps"
        ),
        "images, transfer-based attacks": lambda key: key[2].startswith("transfer") and key[3] != "eps",
        "images, searches of the smallest eps by transfer-based attacks": (
            lambda key: key[2].startswith("transfer") and key[3] == "eps"
        ),
        "images, score- and decision-based attacks": lambda key: key[2].startswith(QUERY_GROUPS) and key[3] != "eps",
        "images, searches of the smallest eps by score-based attacks": (
            lambda key: key[2].startswith(QUERY_GROUPS) and key[3] == "eps"
        ),
    }
    rows = [Scale(what, _sizes(measured, chosen), images) for what, chosen in kinds.items()]
    rows = [row for row in rows if row.here]
    goals = comma_list(
        goal for goal in ("untargeted", "targeted")
        if any(key[1].endswith("-targeted") == (goal == "targeted") for key in measured.results)
    )  # fmt: skip
    names = sorted(
        {str(result.manifest["spec"].get("data", {}).get("name", "")) for result in measured.results.values()}
    )
    return [
        Scale("data", f"{comma_list(names)}, the first images", "ImageNet" if measured.photographs else "CIFAR-10"),
        *rows,
        Scale("defenses", f"{len(measured.defenses)}", "8"),
        Scale("goals", goals, "untargeted and targeted"),
        Scale("fixed eps", *_radii(measured)),
        *(Scale(what, here, paper) for part, what, here, paper in _efforts(measured) if _has(measured, part)),
    ]


def _radii(measured: DongMeasurements) -> tuple[str, str]:
    """Return the fixed radii here and in the paper."""
    units = ["normalised " * (measured.photographs and isinstance(norm, L2)) for norm in measured.norms]
    radii = [f"{norm.name.replace('inf', '∞')} {round_eps(norm.eps)}" for norm in measured.norms]
    paper = "L∞ 16/255 and normalised L2 √0.001" if measured.photographs else "L∞ 8/255 and L2 1"
    return comma_list(unit + radius for unit, radius in zip(units, radii, strict=True)), paper


def _efforts(measured: DongMeasurements) -> tuple[tuple[tuple[str, ...], str, str, str], ...]:
    """List steps, draws and queries beside the paper's, with the attacks that take them."""
    settings, scripts = measured.settings, "(released scripts)"
    return (
        (("white-box-BIM", "white-box-MIM"), "steps of BIM and MIM at the fixed eps", f"{settings.fixed_steps}",
         f"100 {scripts}"),
        ((CARLINI_WAGNER,), "steps of C&W", f"{settings.searches} x {settings.cw_steps}", f"12 x 100 {scripts}"),
        (("white-box",), "draws per gradient of random models", f"{settings.eot}", "not stated"),
        (QUERY_GROUPS, "queries of score- and decision-based attacks", f"{settings.queries:,}", "20,000"),
        (("score",), "queries per step of NES, SPSA and NAttack", f"{settings.samples}", f"500 {scripts}"),
    )  # fmt: skip


def _has(measured: DongMeasurements, attacks: tuple[str, ...], *kinds: RunKind) -> bool:
    """Say whether there is a run of one of these attacks or groups."""
    return any(key[2].startswith(attacks) and key[3].startswith(kinds or ("",)) for key in measured.results)


def _sizes(measured: DongMeasurements, chosen: Callable[[Key], bool]) -> str:
    """Write the number of images of most rows, and in parentheses those of rows with others."""
    rows = defaultdict[tuple[int, ...], list[str]](list)
    for label in measured.labels:
        sizes = {len(result.records) for key, result in measured.results.items() if key[0] == label and chosen(key)}
        if sizes:
            rows[tuple(sorted(sizes))].append(label)
    if not rows:
        return ""
    usual = max(rows, key=lambda sizes: len(rows[sizes]))
    others = [f"{comma_list(labels)}: {either(sizes)}" for sizes, labels in rows.items() if sizes != usual]
    return either(usual) + f" ({'; '.join(others)})" * bool(others)


def deviations(measured: DongMeasurements) -> list[str]:
    """List what of the paper is left out or done differently, each with its reason."""
    transfer = sorted({result.manifest["spec"]["attack"].get("source", "") for key, result in measured.results.items()
                       if key[2].startswith("transfer")} - {""})  # fmt: skip
    lines = [
        *(f"{row.label}: its model {row.model} is not in the zoo." for row in measured.missing),
        *unfinished(measured),
        *([f"Left out: {measured.settings.left_out}."] * bool(measured.settings.left_out)),
        *_without_counterpart(measured),
        *_fewer_images(measured),
        *_half_precision(measured),
        *other_devices(measured.results, lambda keys: _grouped(measured, keys)),
        *OTHER_NETWORK * (measured.photographs and "Natural" in measured.labels),
        *PHOTOGRAPHS * measured.photographs,
        *(f"{row.label}, {row.model}: {row.note}." for row in measured.defenses if row.note),
        *(f"{row.label} is no row of the paper: `--models` added {row.model}. It counts among the other defenses in "
          "findings." for row in measured.defenses
          if row.category == ADDED),
        *SMALL_IMAGES * (not measured.photographs),
    ]  # fmt: skip
    if transfer:
        paper = "ResNet-152" if measured.photographs else "TRADES, and PGD-AT against TRADES"
        lines.append(f"Substitute models of transfer attacks: {comma_list(transfer)} (the paper: {paper}).")
    if _has(measured, ("",), "eps"):
        lines.append(
            "Curves over eps show the smallest radius at which an attempt, or a point between it and the clean image, "
            "succeeded; at the fixed eps they can lie below the tables, whose rates come from one plain attack there."
        )
    if measured.of_role("randomized"):
        lines.append(
            f"A success on a random model counts if most of {REDRAWS} fresh draws confirm it; otherwise that sample is "
            "attacked again within its budget, so that its curve over iterations can be longer than one attack, and of "
            "an attack that seeks the nearest point, farther points with larger margins are tried. The paper states no "
            "such rule."
        )
    if _has(measured, ("transfer",), "steps"):
        lines.append(
            "Transfer attacks over attack strength are one run per number of iterations, with the step size of "
            "white-box attacks, as the paper's main text gives none."
        )
    return lines


def _without_counterpart(measured: DongMeasurements) -> list[str]:
    """Name the paper's figures that cannot be drawn here."""
    numbers = [str(number) for number in absent(measured)]
    words = ("Figure", "has") if len(numbers) == 1 else ("Figures", "have")
    return [
        f"{words[0]} {comma_list(numbers)} of the paper {words[1]} no counterpart here, without these runs."
    ] * bool(numbers)


def _fewer_images(measured: DongMeasurements) -> list[str]:
    """Say why random rows have fewer images than others, where they have."""
    random = measured.of_role("randomized")
    sizes = {(key[0] in random, *key[1:]): len(result.records) for key, result in measured.results.items()}
    fewer = any(size < sizes.get((False, *key), 0) for (is_random, *key), size in sizes.items() if is_random)
    return [
        f"{comma_list(random)} meet{'s' * (len(random) == 1)} fewer images than other rows, for the time: a gradient "
        f"takes {measured.settings.eot} passes there, and a success {REDRAWS} more."
    ] * fewer


def _half_precision(measured: DongMeasurements) -> list[str]:
    """Say which part of the runs searched on a copy of the model in half precision."""
    halved = [
        key for key, result in measured.results.items()
        if str(result.manifest["spec"].get("model", {}).get("search", "")).startswith("float16")
    ]  # fmt: skip
    one_step = {key: _after_first_step(measured, key) for key in halved if key[2:] == ("white-box-FGSM", "fixed")}
    most = max(one_step, key=lambda key: one_step[key], default=None)
    further = (
        f", and FGSM breaks up to {one_step[most]} of {len(measured.results[most].records):,} images more than by its "
        f"one step ({most[0]}, {most[1].replace('inf', '∞')})"
        if most is not None and one_step[most]
        else ""
    )
    return [
        f"{len(halved)} of {len(measured.results)} runs searched on a copy of the model in float16, where a GPU is "
        "faster with it. Every success is verified in float32, and samples near the decision take a few more steps in "
        f"float32, so that curves over iterations can end a few steps later{further}."
    ] * bool(halved)


def _after_first_step(measured: DongMeasurements, key: Key) -> int:
    """Count the images that a run broke after its first step."""
    records = measured.results[key].records
    later = records["claimed_at_iteration"].astype("Float64") > 1
    return int((records["success"] & later).fillna(False).sum())


def unfinished(measured: DongMeasurements) -> list[str]:
    """Name the attacks that some row has no finished run of: no row of them is shown, if not only random rows lack."""
    left = len(measured.unfinished)
    shown = {key[1:] for key in measured.results}
    alone, parts = (
        _attack_names([key for key in measured.unfinished if (key[1:] in shown) == known]) for known in (True, False)
    )
    total = left + len(measured.results)
    text = f"{left} of {total} runs are missing, as the time for them ended before every row had one"
    random = comma_list(dict.fromkeys(key[0] for key in measured.unfinished if key[1:] in shown))
    parts += [f"of {random} alone, {', '.join(alone)}"] * bool(alone)
    return [f"{text}: {'; '.join(parts)}."] if parts else []


def _attack_names(keys: list[Key]) -> list[str]:
    """Name the attacks of runs, those of one group and threat together."""
    names = defaultdict[tuple[str, str, str], dict[str, None]](dict)
    for _, threat, attack, kind in keys:
        group, _, name = attack.rpartition("-")
        what = {"eps": "the smallest eps by ", "steps": "by steps, "}.get(kind.partition("-")[0], "")
        names[what, group, threat.replace("Linf", "L∞").replace("-", ", ")][name] = None
    return [f"{what}{group} {comma_list(found)} ({threat})" for (what, group, threat), found in names.items()]


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
        some = f"{len(own)} run{'s' * (len(own) > 1)} of {label} ({', '.join(own)})"
        parts.append(f"all runs of {label}" if whole else some)
    return "; ".join(parts)
