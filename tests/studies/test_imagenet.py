"""Studies on photographs: every network at its own size, distances comparable, finished work kept."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import robustassay as ra
from robustassay import data, models
from robustassay.cli import main
from robustassay.data.frame import Frame
from robustassay.data.photo_frames import target_labels_of
from robustassay.errors import BadRequest
from robustassay.evaluation.progress import NoProgress
from robustassay.models.architectures.imagenet.catalogue import BY_NAME
from robustassay.models.sources import imagenet
from robustassay.models.weights import sha256_of
from robustassay.store import Store
from robustassay.studies import photographs, timing
from robustassay.studies.crafting import LoadedModel
from robustassay.studies.dong2020 import defenses
from robustassay.studies.dong2020.defenses import substitute_for
from robustassay.studies.dong2020.plan import attack_runs
from robustassay.studies.dong2020.settings import IMAGENET
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.settings import LiuSettings
from robustassay.studies.runs import Workspace
from robustassay.studies.su2018 import STUDY as SU2018
from robustassay.studies.su2018.measurements import CLEVER, LINF, LTWO, RMSD
from robustassay.studies.su2018.models import choose
from robustassay.studies.su2018.plan import plan_of
from robustassay.studies.su2018.settings import SuSettings
from robustassay.studies.su2018.tables import distortions
from robustassay.studies.su2018.tasks import SuExperiment
from robustassay.studies.writer import write
from robustassay.threat import LabelList, LInf, ThreatModel, Untargeted

SIDES = {"small": 32, "large": 48}

TINY = SuSettings(
    eps=(16,),
    fixed=16,
    start=4,
    iterations=(2,),
    smallest_iterations=2,
    transfer_eps=(16,),
    kappas=(0,),
    searches=1,
    steps=5,
    goals=("untargeted", "random"),
    transfer_goals=("untargeted",),
    images=6,
    minimum_images=3,
    clever_images=2,
    clever_batches=2,
    clever_samples=2,
    clever_radius=5.0,
    photographs=True,
    description="a test",
)


def linear(side, outputs):
    return nn.Sequential(nn.AvgPool2d(side // 4), nn.Flatten(), nn.Linear(48, outputs))


@pytest.fixture
def networks(tmp_path, monkeypatch):
    """Two networks of different input sizes, with weights made here."""
    entries = {}
    for at, (name, side) in enumerate(SIDES.items()):
        torch.manual_seed(at)
        made = linear(side, 1001)
        nn.init.normal_(made[-1].weight)
        torch.save(made.state_dict(), tmp_path / f"{name}.pt")
        entries[name] = replace(
            BY_NAME["mobilenet-v1-0.25-128"],
            name=name,
            build=linear,
            side=side,
            file=f"{name}.pt",
            sha256=sha256_of(tmp_path / f"{name}.pt"),
            top1=0.5 + at / 10,
        )
    for where in (imagenet, photographs):
        monkeypatch.setattr(where, "BY_NAME", entries)
    monkeypatch.setattr(imagenet, "ENTRIES", tuple(entries.values()))
    monkeypatch.setenv("ASSAY_WEIGHTS", str(tmp_path))
    for memory in (photographs._frame, timing.load_once, timing.pass_times):
        memory.cache_clear()
    return entries


@pytest.fixture
def photos(tmp_path, networks):
    """Photographs whose labels are what the small network says, so that there is something to attack."""
    folder = tmp_path / "photos"
    (folder / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    names = [f"{at}.png" for at in range(6)]
    for name in names:
        small = rng.integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(small).resize((60, 60), Image.Resampling.BICUBIC).save(folder / "images" / name)

    def write(labels):
        with (folder / "labels.csv").open("w", newline="") as file:
            rows = [(name, label, (label + 1) % 1000) for name, label in zip(names, labels, strict=True)]
            csv.writer(file).writerows([("file", "true_label", "target_label"), *rows])

    write([0] * 6)
    seen = photographs.as_seen_by("imagenet:small", data.load(f"nips2017:{folder}"))
    with torch.no_grad():
        write(models.load("imagenet:small")(seen.images(slice(None))).argmax(1).tolist())
    return folder


def test_an_attack_lives_at_the_size_of_the_network(photos):
    for name, side in SIDES.items():
        result = ra.evaluate(f"imagenet:{name}", f"nips2017:{photos}", LInf(8 / 255), "fgsm", limit=3)
        assert result.x_adv is not None
        assert result.x_adv.shape == (3, 3, side, side)
    assert result.manifest["spec"]["data"]["name"] == "nips2017 at 48x48"


def test_targets_can_be_those_of_the_file(photos):
    plain = data.load(f"nips2017:{photos}")
    threat = ThreatModel(LInf(8 / 255), LabelList(target_labels_of(plain) or {}))
    result = ra.evaluate("imagenet:small", plain, threat, "fgsm", limit=4)
    assert result.records["target"].tolist() == [(label + 1) % 1000 for label in plain.labels[:4].tolist()]


def test_a_defended_network_is_shown_photographs_at_its_size(photos):
    for defense in ("jpeg", "bit-depth", "resize-pad", "randmix"):
        seen = photographs.as_seen_by(f"{defense}|imagenet:large", data.load(f"nips2017:{photos}"))
        assert seen.images([0]).shape == (1, 3, 48, 48)


def test_su2018_on_photographs_of_two_sizes(photos, tmp_path, monkeypatch):
    dataset = data.load(f"nips2017:{photos}")
    named = choose(photographs.networks(None))
    assert [(model.label, model.accuracy) for model in named] == [("small", 0.5), ("large", 0.6)]
    measured = plan_of(named, TINY, Workspace(dataset, tmp_path / "out", 0, "cpu")).run(NoProgress())
    small, large = named
    assert measured.pixels == {small.name: 32 * 32, large.name: 48 * 48}
    distances = measured.distances(small, "untargeted", "C&W κ=0")
    assert len(distances) == 3
    values = measured.values(small, LTWO, "untargeted")
    assert np.allclose(values, distances / 1024)
    assert np.allclose(measured.values(small, RMSD, "untargeted"), distances / math.sqrt(3 * 1024))
    assert measured.metrics == (LINF, LTWO, RMSD, CLEVER)
    table = distortions(measured).frame.set_index(["model", "goal", "measure"])
    told = table.loc[("small", "untargeted", "RMSD of C&W, x 255"), "mean"]
    assert told == pytest.approx(255 * distances.mean() / math.sqrt(3 * 1024))
    outcomes = measured.outcomes["untargeted", "I-FGSM 2"]
    assert set(zip(outcomes["source"], outcomes["target"], strict=True)) == {
        (one.name, two.name) for one in named for two in named
    }
    report = write(SU2018, measured, tmp_path / "out", lambda figure, path: None)
    page = (tmp_path / "out" / "study.md").read_text()
    assert "below 3 % for all settings" in page
    assert {finding.verdict for finding in report.findings if "VGG" in finding.claim} == {"cannot be said"}

    def refuse(*_, **__):
        raise AssertionError("finished work was done again")

    monkeypatch.setattr(Store, "append", refuse)
    again = plan_of(named, TINY, Workspace(dataset, tmp_path / "out", 0, "cpu"))
    assert again.seconds() == 0
    assert again.run(NoProgress()).pixels == measured.pixels


def test_examples_are_cut_or_padded_for_networks_of_another_size(photos, tmp_path):
    """What the large network is shown of a small image is that image on black, and the other way round its centre."""
    dataset = data.load(f"nips2017:{photos}")
    chosen = choose(photographs.networks(None))
    experiment = SuExperiment(chosen, TINY, Workspace(dataset, tmp_path / "out", 0, "cpu"))
    assert experiment.input_sizes == {"imagenet:small": (32, 32), "imagenet:large": (48, 48)}
    attack = next(attack for attack in TINY.transferred() if attack.name == "I-FGSM 2")
    shown = experiment.transfer("untargeted", attack, chosen[0], {})
    to_large = shown[shown["target"] == "imagenet:large"].sort_values("sample")
    x = photographs.as_seen_by("imagenet:small", dataset).images(slice(None))
    with torch.no_grad():
        clean = models.load("imagenet:large")(torch.nn.functional.pad(x, (8, 8, 8, 8))).argmax(1)
    assert to_large["target_ok"].tolist() == (clean == dataset.labels).tolist()


def test_photographs_are_framed_once_and_a_second_frame_is_refused(photos, tmp_path):
    """Liu 2017 shows all networks one image; a network of another size resizes the whole of it, border included."""
    frame = Frame((40, 40), 46)
    plain = data.load(f"nips2017:{photos}")
    seen = photographs.framed(plain, frame)
    with pytest.raises(BadRequest, match="already has a frame"):
        photographs.framed(seen, frame)
    with pytest.raises(BadRequest, match="already has a frame"):
        photographs.framed(data.load(f"frame:size=40|nips2017:{photos}"), frame)
    x = seen.images([0])
    once = LoadedModel.of("imagenet:large", "large", 1000, torch.device("cpu"), frame)
    again = LoadedModel.of("imagenet:large", "large", 1000, torch.device("cpu"))
    assert once.identity != again.identity
    with torch.no_grad():
        whole = torch.nn.functional.interpolate(x, (48, 48), mode="bicubic", antialias=True).clamp(0, 1)
        assert torch.allclose(once.target.call(x), once.target.call(whole), atol=1e-5)
    gradients = [
        model.target.gradient(x, lambda logits, goal: logits[:, 0], Untargeted(torch.tensor([0])))[0]
        for model in (once, again)
    ]
    border = [gradient[0, :, 0].abs().max() for gradient in gradients]
    assert border[0] > 0
    assert border[1] == 0, "without it, the border is cut off"
    small = LoadedModel.of("imagenet:small", "small", 1000, torch.device("cpu"), frame)
    for models_, message in (({"small": small, "large": again}, "see 87% of each side"), ({"a": small, "b": once}, "")):
        experiment = LiuExperiment(models_, seen, LiuSettings(), tmp_path / "o", 0)
        if message:
            with pytest.raises(BadRequest, match=message):
                experiment.clean  # noqa: B018
        else:
            assert len(experiment.clean) == 2 * len(seen)


def test_networks_are_those_at_hand(networks, monkeypatch, tmp_path):
    assert photographs.networks(["small", "timm:resnet18"]) == ["imagenet:small", "timm:resnet18"]
    assert photographs.available_networks(["large"]) == ["imagenet:large"]
    assert photographs.available_networks(["large", "small"]) == ["imagenet:large", "imagenet:small"]
    assert photographs.available_networks(["unknown"]) == ["imagenet:small", "imagenet:large"]
    monkeypatch.setenv("ASSAY_WEIGHTS", str(tmp_path / "nowhere"))
    with pytest.raises(BadRequest, match="--weights"):
        photographs.networks(None)


def test_dong2020_has_the_four_defenses_that_need_no_training(networks):
    rows = defenses.defended_by_input("imagenet:large")
    assert [row.label for row in rows] == ["Natural", "JPEG", "Bit-Red", "R&P", "RandMix"]
    assert defenses.imagenet_defenses()[0].model == "imagenet:small"  # the first whose weights are here
    assert substitute_for(rows[1].model, photographs=True) == "imagenet:small"
    cells = attack_runs(rows, IMAGENET, {row.label: math.sqrt(3 * 224**2) for row in rows})
    assert {cell.threat.norm.name: cell.threat.norm.eps for cell in cells} == {
        "Linf": 16 / 255,
        "L2": pytest.approx(math.sqrt(0.001 * 3 * 224**2)),
    }
    assert {cell.source for cell in cells} == {None, "imagenet:small"}
    chosen, missing = defenses.choose(["R&P"], rows)
    assert [row.model for row in chosen] == ["resize-pad|imagenet:large"]
    assert not missing


def test_the_command_says_what_is_missing(networks, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ASSAY_IMAGENET", str(tmp_path / "no photographs"))
    assert main(["study", "su2018", "--dataset", "imagenet", "--quick", "--out", str(tmp_path / "o")]) == 2
    assert "ASSAY_IMAGENET" in capsys.readouterr().err
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main(["study", "su2018", "--dataset", "imagenet", "--weights", str(empty)]) == 2
    assert "--weights" in capsys.readouterr().err
