"""The scale of the study beside the paper's, and every deviation with its reason."""

from typing import Final

import pandas as pd

from robustassay.studies.analyses.model_measurements import MEMBERS, OOD, SHIFT, TEST, key
from robustassay.studies.page import Scale, Setup, comma_list
from robustassay.studies.robustbench2021.measurements import FIGURES, RobustBenchMeasurements
from robustassay.studies.robustbench2021.missing import not_measured

REQUIREMENTS: Final = {
    "privacy": "it needs images the models were trained on (--members)",
    "fairness": "it needs several images per class",
}
"""Why an analysis may be missing."""


def setup(study: RobustBenchMeasurements) -> Setup:
    """Describe the scale and the deviations."""
    notes = [
        "Measured numbers, published numbers: findings 1 to 6 and the first figures are about the entries that "
        "RobustBench published; all others are measured here.",
        "",
        "All entries with costs and flags: [leaderboard/board.md](leaderboard/board.md).",
    ]
    return Setup(tuple(_scale(study)), tuple(_deviations(study)), tuple(notes))


def _scale(study: RobustBenchMeasurements) -> list[Scale]:
    measured, settings = study.measured, study.settings
    attacked = sorted({len(measured.records(model)) for model in measured.models}, reverse=True)
    shifts = [name for name in study.setup.datasets if name.startswith(SHIFT)]
    few = min(settings.shift_images, len(study.setup.datasets[TEST]))
    return [
        Scale("models", f"{len(measured.models)} of {len(study.setup.models)}, {settings.description}",
              "39 for L∞, 17 for L2, 7 for corruptions"),
        Scale("attack", settings.attack, "autoattack"),
        Scale("images under attack", _images(attacked), "10,000"),
        Scale("images for calibration and out-of-distribution detection", f"{len(study.setup.datasets[TEST]):,}",
              "not stated in its main text"),
        Scale("shifts", f"{len(shifts)} datasets; {few} images for each corruption",
              "CIFAR-10-C, CIFAR-10.1, CINIC-10"),
        *_further_scale(study),
        Scale("out-of-distribution sets", comma_list(_names(study, OOD)), "CIFAR-100, SVHN, Describable Textures"),
    ]  # fmt: skip


def _further_scale(study: RobustBenchMeasurements) -> list[Scale]:
    """Return the sizes of single analyses that are part of the page."""
    settings, unknown, most = study.settings, "not stated in its main text", len(study.setup.datasets[TEST])
    rows = (
        ("robust-shift", "images under attack and shift", settings.attacked_shift_images, " of each dataset"),
        ("transfer", "images for transfer and adversarial privacy leakage", settings.crafting_images, ""),
        ("smoothness", "images for smoothness", settings.lipschitz_images, ""),
    )
    scales = [
        Scale(what, f"{min(images, most):,}{more}", unknown)
        for name, what, images, more in rows
        if name in study.analyses
    ]
    seeded, restarted = (
        [model for model in chosen if model in study.setup.models and images]
        for chosen, images in (
            (settings.seed_models, settings.seed_images),
            (settings.restart_models, settings.restart_images),
        )
    )
    if seeded:
        seeds = f"{len(settings.seeds) + 1} on {comma_list(seeded)}; {min(settings.seed_images, most)} images"
        scales.append(Scale("seeds", seeds, unknown))
    if restarted:
        square = f"{min(settings.restart_images, most)} images of {comma_list(restarted)}"
        scales.append(Scale("Square with 30 restarts", square, "the model of Xiao et al."))
    return scales


def _images(counts: list[int]) -> str:
    if len(counts) == 1:
        return f"{counts[0]:,}"
    return f"{counts[0]:,} ({comma_list(str(count) for count in counts[1:])} for models that do not fall at once)"


def _deviations(study: RobustBenchMeasurements) -> list[str]:
    data, models = study.setup.datasets, study.setup.models
    lines = [
        "The networks are the small ones of this zoo: the paper's need weights that are not embedded.",
        *_about_the_attack(study),
        "Models with a random forward pass are left out, as the paper does not admit them.",
        "Years and venues are those of the methods' papers; the weights are newer.",
        *_about_the_data(study),
        "Limits of words such as 'highly', 'noticeable' and 'little' are ours; that of 50 images per class was set "
        "after a first look at finding 13, the tests of findings 11 and 14 after a first look at theirs.",
        "Temperatures are fitted on other images than they are evaluated on, as fitting on the same images flatters; "
        "the paper's variant is shown too.",
    ]
    if "robust-shift" in study.analyses:
        lines.append(
            "Robust accuracy under shift uses one corruption per image: an attack on each of the 75 combinations would "
            "take 75 times as long."
        )
    if not any(_trained_for_l2(model) for model in models):
        lines.append("None of these models was trained against L2 attacks.")
    lines += [
        f"Left out, {FIGURES[name]}: {why}."
        for name, why in REQUIREMENTS.items()
        if name not in study.analyses and (name != "privacy" or MEMBERS not in data)
    ]
    return lines + not_measured(study)


def _about_the_data(study: RobustBenchMeasurements) -> list[str]:
    """Say which datasets stand for the paper's."""
    lines, names = [], [name for name in study.setup.datasets if name.startswith(SHIFT)]
    made = {f"{SHIFT}{spec}" for spec in study.settings.shifts}
    if made & set(names):
        lines.append("Corrupted images are made here, by the definitions of CIFAR-10-C with other random numbers.")
    if others := [name.removeprefix(SHIFT) for name in names if name not in made]:
        lines.append(f"CIFAR-10.1 and CINIC-10 are not at hand; in their place: {comma_list(others)}.")
    if own := _names(study, OOD):
        lines.append(f"CIFAR-100 and SVHN are not at hand; the out-of-distribution images are {comma_list(own)}.")
    return lines


def _about_the_attack(study: RobustBenchMeasurements) -> list[str]:
    """Say what replaces AutoAttack, or how the second attack agrees with it."""
    attack, other = study.settings.attack, study.settings.compared_attack
    if attack == "express":
        return [
            "`express` replaces AutoAttack, which takes many times as long; their agreement is measured in the page on "
            "express."
        ]
    both = [model for model in study.measured.models if other and key("run", model, other) in study.results]
    if not other or not both:
        return []
    pairs = [(study.measured.records(model), study.results[key("run", model, other)].records) for model in both]
    merged = pd.concat([one.merge(two, on="sample_id", suffixes=("", "_other")) for one, two in pairs])
    only, only_other = (
        int((merged[a] & ~merged[b]).sum()) for a, b in (("success", "success_other"), ("success_other", "success"))
    )
    return [
        f"`{other}` ran beside `{attack}` on the same images of {len(both)} models: of {len(merged):,} verdicts "
        f"{len(merged) - only - only_other:,} are equal, {only} samples fall to `{attack}` only and {only_other} to "
        f"`{other}` only."
    ]


def _trained_for_l2(model: str) -> bool:
    from robustassay.studies.analyses.analysis import L2_TRAINED, group

    return group(model) == L2_TRAINED


def _names(study: RobustBenchMeasurements, prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in study.setup.datasets if name.startswith(prefix)]
