"""The paper's Model Zoo for CIFAR-10: the models up to 2021 whose weights RobustBench distributes as one file."""

import re
from typing import Final

from robustassay.leaderboard.published import published_table
from robustassay.studies.paper_models import PaperModel, PaperModels

LINF: Final = (
    "Andriushchenko2020Understanding",
    "Carmon2019Unlabeled",
    "Sehwag2020Hydra",
    "Wang2020Improving",
    "Hendrycks2019Using",
    "Rice2020Overfitting",
    "Zhang2019Theoretically",
    "Engstrom2019Robustness",
    "Huang2020Self",
    "Pang2020Boosting",
    "Wong2020Fast",
    "Ding2020MMA",
    "Zhang2019You",
    "Zhang2020Attacks",
    "Wu2020Adversarial_extra",
    "Wu2020Adversarial",
    "Gowal2020Uncovering_70_16",
    "Gowal2020Uncovering_70_16_extra",
    "Gowal2020Uncovering_34_20",
    "Gowal2020Uncovering_28_10_extra",
    "Sitawarin2020Improving",
    "Chen2020Efficient",
    "Cui2020Learnable_34_20",
    "Cui2020Learnable_34_10",
    "Zhang2020Geometry",
    "Rebuffi2021Fixing_28_10_cutmix_ddpm",
    "Rebuffi2021Fixing_106_16_cutmix_ddpm",
    "Rebuffi2021Fixing_70_16_cutmix_ddpm",
    "Rebuffi2021Fixing_70_16_cutmix_extra",
    "Rebuffi2021Fixing_R18_ddpm",
    "Rade2021Helper_R18_extra",
    "Rade2021Helper_R18_ddpm",
    "Rade2021Helper_extra",
    "Rade2021Helper_ddpm",
    "Huang2021Exploring",
    "Huang2021Exploring_ema",
    "Gowal2021Improving_70_16_ddpm_100m",
    "Dai2021Parameterizing",
    "Gowal2021Improving_28_10_ddpm_100m",
    "Gowal2021Improving_R18_ddpm_100m",
    "Chen2021LTD_WRN34_10",
    "Chen2021LTD_WRN34_20",
    "Standard",
)
L2: Final = (
    "Augustin2020Adversarial",
    "Engstrom2019Robustness",
    "Rice2020Overfitting",
    "Rony2019Decoupling",
    "Ding2020MMA",
    "Wu2020Adversarial",
    "Gowal2020Uncovering",
    "Gowal2020Uncovering_extra",
    "Rebuffi2021Fixing_70_16_cutmix_ddpm",
    "Rebuffi2021Fixing_28_10_cutmix_ddpm",
    "Rebuffi2021Fixing_70_16_cutmix_extra",
    "Augustin2020Adversarial_34_10",
    "Augustin2020Adversarial_34_10_extra",
    "Rebuffi2021Fixing_R18_cutmix_ddpm",
    "Rade2021Helper_R18_ddpm",
)


def _paper_models() -> tuple[PaperModel, ...]:
    table = published_table()
    own = table[table["dataset"] == "cifar10"].set_index(["threat", "model"])["architecture"].to_dict()
    return tuple(
        _paper_model(name, threat, str(own[threat, name]))
        for threat, names in (("Linf", LINF), ("L2", L2))
        for name in names
    )


def _paper_model(name: str, threat: str, architecture: str) -> PaperModel:
    """Read family and depth off the architecture, such as WideResNet-28-10."""
    family, *numbers = architecture.split("-")
    depth = int(numbers[0]) if numbers and re.fullmatch(r"\d+", numbers[0]) else None
    ending = "" if threat == "Linf" else f":{threat}"
    return PaperModel(f"{name}{' (L2)' if ending else ''}", f"robustbench:{name}{ending}", family, depth)


PAPER_MODELS: Final[PaperModels] = {"cifar10": _paper_models()}
