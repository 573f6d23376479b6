"""How the study was run here, what differs from the paper, and the conclusion."""

from collections import Counter
from typing import Final

from robustassay.studies.page import Finding, Scale, Setup, comma_list
from robustassay.studies.provenance import other_devices
from robustassay.studies.su2018.distortion_findings import CLAIMS as LAWS
from robustassay.studies.su2018.findings import findings
from robustassay.studies.su2018.measurements import LINF, SuMeasurements
from robustassay.studies.su2018.settings import GOAL_TEXTS, SMALLEST
from robustassay.studies.su2018.success_findings import attacked
from robustassay.studies.su2018.tasks import CLEVER_TASK, TRANSFER_TASK
from robustassay.studies.task import Key

SMALL_IMAGES: Final = (
    "Images are those of CIFAR-10, and the models are small networks of the paper's families, trained here; of the "
    "paper's 18 networks there are no weights here. Their accuracies lie closer together than on ImageNet.",
    "The VGGs have batch norm and one dense layer, the paper's have three dense layers and no batch norm. The "
    "Inception networks differ in width, too.",
    "Targets are matched by the top 1, in the paper by the top 5: of ten classes, half would be among five.",
    "Of ten classes, an image that is destroyed still has its label about one time in ten, and its target as often: at "
    "eps 0.3 the rates of FGSM are near chance.",
)
PHOTOGRAPHS: Final = (
    "The networks are those whose weights are here.",
    "The photographs may have been selected among those that some network classifies correctly; accuracies in the law "
    "are the publishers', on the validation set.",
    "An image that is too large for another network is cropped at the centre, as in the paper; one that is too small "
    "gets a black border (white in the paper's text).",
    "L2 is divided by the number of pixels, as in the paper; where inputs differ in size, verdicts use RMSD instead.",
)
EVERYWHERE: Final = (
    "C&W and EAD-L1 are `cw-fast` and `ead-fast`: the same losses, minimised with fewer gradients. Their distances are "
    "upper bounds, and some of their failures would succeed with more.",
    "Transfer rates count the examples whose clean image both models classify correctly. The paper counts all of the "
    "source's, so that errors of the target without an attack count as transfer: the table of transfer has both.",
    "Where C&W or EAD-L1 fails on the source there is no example, which counts as one that does not transfer.",
    "Depth is the number of convolutions and dense layers on the longest path, counted by one rule for all models. The "
    "paper's table gives 128, 160 and 224 layers for the MobileNets: these are the sides of their images.",
    "The law is judged over all models. The paper fits the models on the Pareto frontier alone, where the slope cannot "
    "be negative.",
)
APART: Final = (
    "Examples of C&W and EAD-L1 for other models are crafted apart from the runs that success and distances come from, "
    "on fewer images."
)
HALF: Final = "A GPU computes gradients in float16 here, and every success is verified in float32."
HALF_STEP: Final = (
    "The one step of FGSM takes the signs of such a gradient: with float32 its success differs on some images."
)
MOST: Final = 10
"""Lines of the conclusion."""


def setup(measured: SuMeasurements) -> Setup:
    """Describe the scale, the deviations, the scale of distances, the conclusion, and the flags of runs."""
    flags = {name: text for result in measured.results.values() for name, text in result.flags.items()}
    of_images = PHOTOGRAPHS if measured.settings.photographs else SMALL_IMAGES
    apart = (APART,) if measured.settings.shown_images else ()
    deviations = (*of_images, *EVERYWHERE, *apart, *_precision(measured), *_device(measured), *_left(measured))
    return Setup(
        scale=tuple(_scale(measured)),
        deviations=deviations,
        notes=(*conclusion(findings(measured)), "", *_distances(measured)),
        flags=tuple(f"{name}: {text}" for name, text in flags.items()),
        dataset="ImageNet" if measured.settings.photographs else "",
    )


def _scale(measured: SuMeasurements) -> list[Scale]:
    settings, models = measured.settings, measured.models
    families = len({model.family for model in models})
    runs = {attack: _images(measured, attack) for attack in ("FGSM", SMALLEST, "C&W")}
    clever = max((len(frame) // max(1, frame["aim"].nunique()) for frame in measured.clever.values()), default=0)
    clever_text = f"{clever} images at most, {settings.clever_batches} x {settings.clever_samples} points"
    steps = ", ".join(map(str, settings.iterations))
    return [
        Scale("models", f"{len(models)} of {families} families", "18 of 7 families"),
        Scale("images of FGSM and I-FGSM", f"{runs['FGSM']}", "1,000"),
        Scale("images of I-FGSM's smallest eps", f"{runs[SMALLEST]}", "1,000"),
        Scale("images of C&W and EAD-L1", f"{runs['C&W']}{_on(measured)}", "1,000"),
        Scale("images of transfer by FGSM and I-FGSM", _shown(measured), "1,000"),
        Scale("images of transfer by C&W and EAD-L1", _shown_at_any_distance(measured), "1,000"),
        Scale("images that all models classify correctly", f"{len(measured.common)}", "327"),
        Scale("iterations of I-FGSM", f"{steps}; smallest eps {settings.smallest_iterations}", "10, 30, 50"),
        Scale(
            "searches and steps",
            f"{settings.searches} x {settings.steps} at most, by cw-fast and ead-fast",
            "9 x 1,000 (the authors' program)",
        ),
        Scale("kappa", _kappas(measured), "0, 10, 20, 30, 40"),
        Scale("CLEVER", clever_text if clever else "not run", "100 images, points as in Weng et al. (2018)"),
        Scale("targets", _goals(measured), "untargeted, random, least likely"),
    ]


def _precision(measured: SuMeasurements) -> list[str]:
    """Say where gradients were not those of float32."""
    halved = [
        attack
        for (_, _, attack), result in measured.results.items()
        if "float16" in result.manifest["spec"].get("model", {}).get("search", "")
    ]
    of_one_step = any(attack.startswith("FGSM") for attack in halved)
    return [f"{HALF} {HALF_STEP}" if of_one_step else HALF] if halved else []


def _device(measured: SuMeasurements) -> list[str]:
    """Name the runs of another device than that of most, by attack and goal."""

    def named(keys: list[Key]) -> str:
        met = Counter((attack, goal) for _, goal, attack in keys)
        whole = Counter((attack, goal) for _, goal, attack in measured.results)
        return comma_list(
            f"{attack}, {GOAL_TEXTS[goal]}, on {count} of the {whole[attack, goal]} models that it met"
            for (attack, goal), count in sorted(met.items())
        )

    return other_devices(measured.results, named)


def _left(measured: SuMeasurements) -> list[str]:
    """Count what is not finished, by its kind."""
    kinds = Counter(_kind(key) for key in measured.left)
    counts = comma_list(f"{count} {kind}" for kind, count in kinds.items())
    whole = len(measured.left) + measured.finished
    if not kinds:
        return []
    return [
        f"{len(measured.left)} of {whole:,} tasks are not finished and left out, for want of time or memory: {counts}."
    ]


def _kind(key: Key) -> str:
    """Name the kind of a task."""
    if key[0] == CLEVER_TASK:
        return "of CLEVER"
    if key[0] == TRANSFER_TASK:
        return f"of transfer of {_attack_of(key[-1])}"
    return "with the least likely target" if key[1] == "least-likely" else f"of {_attack_of(key[-1])}"


def _attack_of(name: str) -> str:
    return "C&W and EAD-L1" if "κ" in name else "FGSM and I-FGSM"


def _kappas(measured: SuMeasurements) -> str:
    met = {name for *_, name in measured.results}
    known = [
        kappa
        for kappa in measured.settings.kappas
        if any(attack.name in met for attack in measured.settings.minimum_attacks((kappa,)))
    ]
    return ", ".join(map(str, known)) or "none"


def _goals(measured: SuMeasurements) -> str:
    met = {goal for _, goal, _ in measured.results}
    return ", ".join(goal.replace("-", " ") for goal in measured.settings.goals if goal in met)


def _images(measured: SuMeasurements, attack: str) -> int:
    return max((len(result.records) for (_, _, name), result in measured.results.items() if name.startswith(attack)),
               default=0)  # fmt: skip


def _on(measured: SuMeasurements) -> str:
    """Count the models of C&W and EAD-L1 by goal where these are not all."""
    whole, texts = len(measured.models), []
    for goal in measured.settings.goals:
        attacks = measured.settings.minimum_attacks(measured.settings.kappas)
        counts = {attack.name: len(attacked(measured, goal, attack)) for attack in attacks}
        met = comma_list(f"{name} on {count}" for name, count in counts.items() if count)
        texts += [f"{GOAL_TEXTS[goal]}: {met}"] if met and set(counts.values()) != {whole} else []
    return f"; of {whole} models, {'; '.join(texts)}" if texts else ""


def _shown(measured: SuMeasurements) -> str:
    """Say how many examples of FGSM and I-FGSM each source has, by goal."""
    fast = {attack.name for attack in measured.settings.transferred() if not attack.keeps_images}
    counts: dict[str, int] = {}
    for (goal, name), found in measured.outcomes.items():
        if name in fast:
            counts[GOAL_TEXTS[goal]] = max(counts.get(GOAL_TEXTS[goal], 0), int(found["sample"].max()) + 1)
    if len(set(counts.values())) < 2:
        return f"{max(counts.values(), default=0)}"
    return ", ".join(f"{count} {goal}" for goal, count in counts.items())


def _shown_at_any_distance(measured: SuMeasurements) -> str:
    """Say how many examples of C&W and EAD-L1 each source has, by attack."""
    attacks = [attack.name for attack in measured.settings.transferred() if attack.keeps_images]
    known = [
        (f"{attack} ({GOAL_TEXTS[goal]})", measured.outcomes[goal, attack])
        for goal in measured.settings.transfer_goals
        for attack in attacks
        if (goal, attack) in measured.outcomes
    ]
    if not known:
        return "not run"
    most = max(int(found["sample"].max()) + 1 for _, found in known)
    if len(known) == len(measured.settings.transfer_goals) * len(attacks):
        return f"{most}"
    return f"{most}; {comma_list(name for name, _ in known)} only"


def _distances(measured: SuMeasurements) -> list[str]:
    """Say what the paper's distances are in our units."""
    points = measured.models_by(LINF)
    if not len(points):
        return []
    low, high = 255 * points["value"].min(), 255 * points["value"].max()
    return [
        "**The scale of distances.** Pixels are in [0, 1] here, in the authors' program in [-0.5, 0.5]: the same unit. "
        f"Mean L∞ distortions with a random target are {low:.2g}/255 to {high:.2g}/255 here; the paper's text implies "
        "about 8.5/255 for AlexNet, the most robust of its models. Here the radius is searched per image until two "
        "that differ by 5 % fail and succeed; the authors' program makes up to nine attempts, from 0.02 on."
        + _share(measured)
    ]


def _share(measured: SuMeasurements) -> str:
    """Put the slope in the unit of the paper's only number: the distortion of the most robust model."""
    points, fitted = measured.models_by(LINF), measured.scatter(LINF).of_all
    if fitted is None or fitted.b_interval[0] <= 0:
        return ""
    most = points.iloc[int(points["value"].to_numpy(float).argmax())]
    return (
        f" Per halving of the error, the law over all models loses {fitted.halving() / most['value']:.0%} of the "
        f"distortion of {most['model']}, the most robust here; the paper's law, on its frontier, 60 % of AlexNet's."
    )


def conclusion(found: list[Finding]) -> list[str]:
    """Sum the findings up in ten lines at most, those that agree with the paper first."""
    held, failed, open_ones = (
        [one for one in found if one.verdict == verdict] for verdict in ("holds", "does not hold", "cannot be said")
    )
    room = MOST - min(len(failed), MOST // 2) - bool(open_ones)
    lines = _lines("Holds here too", held, room)
    lines += _lines("Does not hold here", failed, MOST - len(lines) - bool(open_ones))
    if open_ones:
        lines.append(f"- Cannot be said at this scale: findings {', '.join(str(one.number) for one in open_ones)}.")
    return ["**Conclusion.**", "", *lines]


def _lines(start: str, found: list[Finding], room: int) -> list[str]:
    """Write one line per finding; those without room are numbers in the last line."""
    alone = found if len(found) <= room else found[: room - 1]
    lines = [
        f"- {start}: {one.claim}" + f" ({one.because})" * (one.verdict == "holds" and one.claim in LAWS.values()) + "."
        for one in alone
    ]
    rest = ", ".join(str(one.number) for one in found[len(alone) :])
    return [*lines, f"- {start}: findings {rest}."] if rest else lines
