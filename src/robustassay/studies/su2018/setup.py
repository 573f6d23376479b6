"""How the study was run here, and what differs from the paper."""

from typing import Final

from robustassay.eps import format_eps
from robustassay.studies.page import Setup
from robustassay.studies.su2018.measurements import SuMeasurements

SMALL_IMAGES: Final = (
    "- The models are small ones for CIFAR-10, trained here; accuracies lie closer together than on ImageNet.",
    "- Matching rates of targets are top-1: with ten classes, nearly every target would be among the top 5.",
)
PHOTOGRAPHS: Final = (
    "- The networks are those whose weights are here, three of them among the paper's 18; there is no VGG.",
    "- The photographs may have been selected among those that some network classifies correctly; accuracies in the "
    "law are the publishers', on the validation set.",
    "- Each network is attacked at its own input size; for another network a larger image is cropped at the centre, "
    "and a smaller one padded with black, as in the authors' program.",
)


def setup(measured: SuMeasurements) -> Setup:
    """Describe the scale, the deviations, and the flags of runs."""
    sizes = [len(result.records) for result in measured.results.values()]
    flags = {name: text for result in measured.results.values() for name, text in result.flags.items()}
    eps, twice = (format_eps(n * measured.settings.fixed / 255) for n in (1, 2))
    lines = [
        f"Measured on {min(sizes)} to {max(sizes)} images, {len(measured.models)} models: "
        f"{measured.settings.description}. Deviations from the paper:",
        "",
        *(PHOTOGRAPHS if measured.settings.photographs else SMALL_IMAGES),
        "- EAD-L1 is run at kappa 0 only; transfer of C&W is shown for its smallest and largest kappa.",
        "- L2 is divided by the number of pixels, height times width, as in the paper. At the same change per pixel it "
        "falls as images grow, so where sizes differ the verdicts use RMSD too.",
        f"- Transfer of I-FGSM and FGSM is measured with examples after all steps at {eps} (FGSM also at {twice}).",
        "",
    ]
    return Setup(notes=tuple(lines), flags=tuple(f"{name}: {text}" for name, text in flags.items()))
