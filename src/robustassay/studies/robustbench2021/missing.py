"""What a page lacks, with counts."""

from robustassay.studies.analyses.analysis import NATURAL, group
from robustassay.studies.analyses.model_measurements import key
from robustassay.studies.page import comma_list
from robustassay.studies.robustbench2021.further_runs import L2, seed_name, square_names
from robustassay.studies.robustbench2021.measurements import FIGURES, RobustBenchMeasurements
from robustassay.studies.robustbench2021.settings import L2_THREAT
from robustassay.studies.task import Key


def not_measured(study: RobustBenchMeasurements) -> list[str]:
    """Name every analysis and every further run that is missing or incomplete."""
    lines, models, settings = [], study.setup.models, study.settings
    for name, missing in study.left_out.items():
        if missing:
            some = f"{len(missing)} of {len(models)} models not measured: {_names(missing)}"
            lines.append(f"{FIGURES[name]} ({name}): {some if name in study.analyses else 'not measured yet'}.")
    l2 = [key("run", model, L2) for model in models if settings.l2_images]
    seeds = [
        key("run", model, seed_name(seed))
        for model in settings.seed_models
        for seed in settings.seeds
        if settings.seed_images and model in models
    ]
    square = [
        key("run", model, part)
        for model in settings.restart_models
        for part in square_names()
        if settings.restart_images and model in models
    ]
    lines += _runs(study, l2, f"Runs of `{settings.attack}` under {L2_THREAT}", "")
    lines += _runs(study, seeds, "Runs with other seeds (appendix E)", "")
    lines += _runs(study, square, "Square with 30 restarts", ", as it makes 150,000 queries per image")
    return lines


def _runs(study: RobustBenchMeasurements, wanted: list[Key], what: str, why: str) -> list[str]:
    missing = sum(name not in study.results for name in wanted)
    return [f"{what}: {missing} of {len(wanted)} not measured{why}."] if missing else []


def _names(models: tuple[str, ...]) -> str:
    """Name models; those with natural training are counted."""
    natural = sum(group(model) == NATURAL for model in models)
    others = [model for model in models if group(model) != NATURAL]
    counted = [f"{natural} with natural training"] if natural else []
    return comma_list([*counted, *others])
