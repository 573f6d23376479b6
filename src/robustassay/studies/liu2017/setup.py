"""How the study was run here, and what differs from the paper."""

from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.tables import top_of
from robustassay.studies.page import Setup, comma_list


def setup(experiment: LiuExperiment) -> Setup:
    """Describe the scale and the deviations."""
    settings, images, classes = experiment.settings, len(experiment.images), len(experiment.dataset.classes)
    top = top_of(experiment)
    top_text = "" if top == 5 else f"; top-{top} replaces its top-5, as there are {classes} classes"
    lines = [
        f"Models: {comma_list(experiment.models)}. Scale: {settings.description}.",
        f"Images: the first {images} of {experiment.dataset.name} that all models classify correctly, so that both "
        "denominators (all examples; those that both models classify correctly before the attack) agree.",
        f"Optimisation: Adam, {settings.steps} steps, learning rate {settings.rate:g} (0 to 255 scale), the paper's. "
        "The models of an ensemble share that rate and their updates are summed, instead of the paper's 8 for each, "
        "which moves small images by an RMSD above 80: ensembles' examples lie closer than the paper's.",
        "FG and FGS have the average RMSD that optimisation reached on the same source.",
        f"Targets are drawn at random (the paper's were chosen by hand){top_text}.",
        "Not here: Tables 6 and 34 and Figure 2, which show images sent to an online service; see "
        "`assay study service`.",
        "In tables, brackets hold 95 % Wilson intervals, and a row `-name` is the ensemble of all models but that one.",
    ]
    return Setup(notes=tuple(f"- {line}" for line in lines))
