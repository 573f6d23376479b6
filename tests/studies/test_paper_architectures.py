"""`--models paper`: the hubs' architectures under the papers' names have the parameters and the depth that we state."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import robustassay as ra
from robustassay.models.sources import imagenet, timm, torchvision
from robustassay.models.sources.extras import need
from robustassay.studies import dong2020, liu2017, su2018
from robustassay.studies.measures.depth import layers_between
from robustassay.studies.paper_models import PaperModel, resolve
from robustassay.studies.runs import Workspace
from robustassay.studies.scope import Scope
from robustassay.studies.su2018.models import choose
from robustassay.studies.su2018.settings import IMAGENET
from robustassay.studies.su2018.tasks import SuExperiment

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


@pytest.fixture
def random_weights(tmp_path, monkeypatch):
    """Stand in for the weights of every network of Su et al.: hubs are not asked."""
    zoo: Any = need("torchvision.models", "torchvision")
    names = [one.model.partition(":")[2] for one in on_hubs() if one.model.startswith("torchvision:")]
    by_url = {zoo.get_model_weights(name).DEFAULT.url: f"torchvision:{name}" for name in names}

    def saved(network: nn.Module, name: str) -> Path:
        path: Path = tmp_path / f"{name.replace(':', '-')}.safetensors"
        save_file({key: values.contiguous() for key, values in network.state_dict().items()}, path)
        return path

    monkeypatch.setattr(torchvision, "fetch_weights", lambda url: saved(build(by_url[url])[0], by_url[url]))
    monkeypatch.setattr(timm, "_fetch", lambda settings, name: saved(build(f"timm:{name}")[0], name))
    monkeypatch.setattr(imagenet, "_promised", lambda entry: saved(entry.build(entry.side, entry.outputs), entry.name))


@pytest.mark.long
def test_su_et_al_run_on_their_own_networks(random_weights, tmp_path):
    """Examples crafted on the first network are shown to all, each at its own input size."""
    (tmp_path / "images").mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)).save(tmp_path / "images/0.png")
    (tmp_path / "labels.csv").write_text("file,true_label,target_label\n0.png,3,4\n")
    asked = Scope(tmp_path / "out", "imagenet", data=f"nips2017:{tmp_path}", models=("paper",), device="cpu")
    scope, left_out = resolve(su2018.STUDY.paper_models, asked)
    assert [line.partition(";")[0] for line in left_out] == ["Left out: Inception-v2"]
    models = choose(scope.models)
    assert {model.label for model in models} >= {"alexnet", "vgg16", "mobilenet-v1-1.0-224", "nasnetalarge.tf_in1k"}
    experiment = SuExperiment(models, IMAGENET, Workspace(scope.images(None), scope.out, 0, "cpu"))
    fgsm = IMAGENET.transferred()[0]
    found = experiment.transfer("untargeted", fgsm, models[0], {})
    assert found["target"].tolist() == [model.name for model in models]
    assert len(models) == 17
    assert set(experiment.input_sizes.values()) == {(side, side) for side in (128, 160, 224, 299, 331)}
