"""Liu et al.'s findings, in the order of the paper."""

from collections.abc import Callable
from typing import Final

from robustassay.studies.liu2017 import ensemble_findings as ensembles
from robustassay.studies.liu2017 import geometry_findings as geometry
from robustassay.studies.liu2017 import other_findings as other
from robustassay.studies.liu2017 import transfer_findings as between
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.judgement import Judgement
from robustassay.studies.page import Finding

CLAIMS: Final[tuple[tuple[str, Callable[[LiuExperiment], Judgement]], ...]] = (
    ("Examples of a small learning rate fool their source and transfer badly", other.small),
    ("With a small learning rate, examples are close with any lambda", other.any_lambda),
    ("Untargeted examples transfer between models, far better than noise of the same size", between.untargeted),
    ("A source of the same family is not always the better one", between.same_family),
    (
        "Untargeted FG transfers about as well as optimisation, and does not always fool its source",
        between.fg_as_optimisation,
    ),
    ("Untargeted FG transfers better than FGS at the same distortion", between.fg_over_fgs),
    ("Targeted examples made on one model almost never transfer with their target label", between.targeted),
    ("A larger distortion does not make targeted examples of one model transfer better", between.larger),
    ("Targeted FG cannot even make its source predict the target", between.fast_targeted),
    ("Gaussian noise never makes a model predict the target", other.noise_matches),
    (
        "Targeted examples made on all models but one transfer better than those of the best single source",
        ensembles.ensemble_targeted,
    ),
    ("Not all of them reach the target on the models that they were made on", ensembles.members),
    (
        "Untargeted examples made on all models but one transfer better, too, at a smaller distortion",
        ensembles.ensemble_untargeted,
    ),
    ("Untargeted FG on an ensemble transfers worse than optimisation on it", ensembles.fast_untargeted),
    ("Targeted FG on an ensemble transfers no better than on one model", ensembles.fast_ensembles),
    ("The gradients of different models are almost orthogonal", geometry.orthogonal),
    ("There are few labels on a plane around an image", geometry.few_labels),
    ("The decision boundaries of different models align", geometry.aligned),
    ("A region is narrower along the gradient than along a random direction", geometry.diameters),
    ("Against the gradient, too, the boundary is nearer than along a random direction", geometry.against_gradient),
    (
        "The model left out has a region of the target label, smaller than those of the ensemble",
        geometry.target_regions,
    ),
    ("The alternative objective (tau) leads to similar transferability", other.alternative),
    ("Models make the same mistakes", other.same_mistakes),
    ("Along a gradient, adversarial images may come in several intervals", other.several_intervals),
)


def findings(experiment: LiuExperiment) -> list[Finding]:
    """Test all claims."""
    return [test(experiment).finding(number, claim) for number, (claim, test) in enumerate(CLAIMS, 1)]
