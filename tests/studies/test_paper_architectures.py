"""`--models paper`: the hubs' architectures under the papers' names have the parameters and the depth that we state."""

from typing import Any, Final

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import robustassay as ra
from robustassay.models.sources.extras import need
from robustassay.studies import dong2020, liu2017, su2018
from robustassay.studies.measures.depth import layers_between
from robustassay.studies.paper_models import PaperModel

STUDIES: Final = (su2018.STUDY, liu2017.STUDY, dong2020.STUDY)
HUBS: Final = ("torchvision:", "timm:")
SMALL: Final = 30_000_000


def on_hubs() -> list[PaperModel]:
    """The ImageNet networks that torchvision or timm has, under each of the facts that a study states of them."""
    every = (model for study in STUDIES for model in study.paper_models["imagenet"] if "|" not in model.model)
    stated = {(one.model, one.depth, one.parameters): one for one in every if one.model.startswith(HUBS)}
    return list(stated.values())


def build(hub_name: str) -> tuple[nn.Module, int]:
    """Return the architecture with random weights, and the side of its images."""
    source, _, name = hub_name.partition(":")
    if source == "timm":
        made: Any = need("timm", "timm").create_model(name)
        return made.eval(), made.pretrained_cfg["input_size"][1]
    own = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
    return need("torchvision.models", "torchvision").get_model(name, weights=None, **own).eval(), 224


@pytest.mark.parametrize("paper", on_hubs(), ids=lambda paper: paper.model)
def test_depth_and_parameters_are_those_of_the_architecture(paper):
    """Without memory for the weights: shapes are enough to count."""
    with torch.device("meta"):
        network, side = build(paper.model)
        x = torch.empty(1, 3, side, side, requires_grad=True)
        assert layers_between(x, network(x)) == paper.depth
    assert sum(values.numel() for values in network.parameters()) == paper.parameters


def small() -> list[str]:
    return sorted({one.model for one in on_hubs() if one.parameters and one.parameters < SMALL})


@pytest.mark.long
@pytest.mark.parametrize("name", small())
def test_the_architecture_loads_from_a_file_and_answers(name, tmp_path):
    network, side = build(name)
    file = tmp_path / "random.safetensors"
    save_file(network.state_dict(), file)
    model = ra.load_model(f"{name}:{file}")
    with torch.no_grad():
        assert model(torch.rand(2, 3, side, side)).shape == (2, 1000)
