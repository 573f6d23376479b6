"""The models room: architectures, weights files, and the zoo."""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from robustassay import models
from robustassay.errors import BadRequest, BadWeights, UnknownName
from robustassay.models import zoo
from robustassay.models.architectures.architecture import create, describe, from_description, import_families
from robustassay.models.architectures.nasnet import CellNetwork
from robustassay.models.architectures.resnet import Block, ResNet
from robustassay.models.card import ModelCard
from robustassay.models.weights import hash_state, read_weights, sha256_of
from robustassay.registry import registered


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return ResNet(depth=8).build(10).eval()


@pytest.fixture
def stocked(tmp_path: Path, network: nn.Module) -> Path:
    """A zoo folder with one model in it, `tiny`."""
    save_half(network, tmp_path / "tiny.safetensors")
    write_card(tmp_path, sha256_of(tmp_path / "tiny.safetensors"))
    return tmp_path


def save_half(network: nn.Module, path: Path) -> None:
    state = network.state_dict()
    save_file({name: t.half() if t.is_floating_point() else t for name, t in state.items()}, path)


def write_card(folder: Path, sha256: str, **changes) -> None:
    card = ModelCard(
        name="tiny",
        title="ResNet-8, untrained",
        architecture={"name": "resnet", "depth": 8, "width": 1},
        dataset="cifar10",
        classes=10,
        recipe="natural",
        recipe_fields={},
        command="assay train natural",
        seed=0,
        epochs=0,
        seconds=0.0,
        hardware="x86_64 CPU",
        training_data="none",
        clean_accuracy=0.1,
        clean_images=10_000,
        robust_accuracy=0.0,
        robust_images=1_000,
        robust_attack="PGD-20",
        parameters=78_042,
        sha256=sha256,
        licence="Apache-2.0",
    )
    (folder / "tiny.json").write_text(replace(card, **changes).to_json())


class TestResNet:
    @pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)])
    def test_has_as_many_parameters_as_the_paper_says(self, depth, millions):
        with torch.device("meta"):
            network = ResNet(depth).build(10)
        count = sum(p.numel() for p in network.parameters()) / 1e6
        assert count == pytest.approx(millions, abs=0.03 if depth == 110 else 0.005)

    def test_has_as_many_weighted_layers_as_its_depth(self):
        for depth in (8, 20, 56):
            layers = [m for m in ResNet(depth).build(10).modules() if isinstance(m, nn.Conv2d | nn.Linear)]
            assert len(layers) == depth

    def test_width_multiplies_every_channel_count(self):
        widths = [m.out_channels for m in ResNet(8, width=3).build(10).modules() if isinstance(m, nn.Conv2d)]
        assert widths == [48, 48, 48, 96, 96, 192, 192]

    @pytest.mark.parametrize("shape", [{"depth": 21}, {"depth": 2}, {"width": 0}])
    def test_refuses_shapes_that_do_not_exist(self, shape):
        with pytest.raises(BadRequest, match="6n"):
            ResNet(**shape)

    def test_normalises_inside(self, network):
        x = torch.rand(2, 3, 32, 32)
        undone = ResNet(8).build(10).eval()
        undone.load_state_dict(network.state_dict())
        undone.get_buffer("mean").zero_()
        undone.get_buffer("deviation").fill_(1)
        normalised = (x - network.mean) / network.deviation
        torch.testing.assert_close(undone(normalised), network(x), atol=1e-5, rtol=1e-5)

    def test_shortcut_adds_no_parameters_and_passes_the_input_through(self):
        block = Block(4, 8).eval()
        nn.init.zeros_(block.norm2.weight)
        x = torch.rand(2, 4, 6, 6)
        out = block(x)
        torch.testing.assert_close(out[:, :4], x[:, :, ::2, ::2])
        assert (out[:, 4:] == 0).all()

    def test_channels_last_gives_the_same_logits_and_stays_channels_last(self, network):
        x = torch.rand(4, 3, 32, 32)
        expected = network(x)
        network.to(memory_format=torch.channels_last)
        seen = []
        network.stage3.register_forward_hook(lambda module, args, out: seen.append(out))
        torch.testing.assert_close(network(x.to(memory_format=torch.channels_last)), expected)
        assert seen[0].is_contiguous(memory_format=torch.channels_last)

    def test_input_is_never_changed(self, network):
        x = torch.rand(2, 3, 32, 32)
        before = x.clone()
        network(x)
        assert torch.equal(x, before)

    def test_card_form_rebuilds_it(self):
        description = describe(ResNet(20, 2))
        assert description == {"name": "resnet", "depth": 20, "width": 2}
        assert from_description(description) == ResNet(20, 2)

    def test_card_form_with_an_unknown_field_is_refused(self):
        with pytest.raises(BadWeights, match="hight"):
            from_description({"name": "resnet", "hight": 3})
        with pytest.raises(UnknownName, match="resnet"):
            from_description({"name": "resnat"})


# Every architecture as the zoo uses it, and how many parameters that is.
SHAPES = {
    "alexnet": 749_370,
    "convnet": 611_946,
    "densenet": 176_122,
    "densenet:depth=58": 314_470,
    "inception": 715_434,
    "mobilenet": 823_722,
    "mobilenet:width=0.25": 215_642,
    "nasnet": 463_138,
    "resnet": 269_722,
    "resnet-ensemble": 809_166,
    "rse": 923_130,
    "vgg:width=20": 903_870,
    "vgg:depth=16": 923_130,
}


class TestArchitectures:
    @pytest.mark.parametrize(("spec", "parameters"), SHAPES.items())
    def test_is_built_forwards_and_survives_its_file(self, tmp_path, spec, parameters):
        torch.manual_seed(0)
        architecture = create(spec)
        network = architecture.build(10)
        assert sum(p.numel() for p in network.parameters()) == parameters
        x = torch.rand(2, 3, 32, 32)
        assert all(g is not None and g.isfinite().all() and g.any() for g in gradients(network, x))
        network.eval()
        save_half(network, tmp_path / "w.safetensors")
        assert from_description(json.loads(json.dumps(describe(architecture)))) == architecture
        loaded = zoo.assemble(architecture, 10, read_weights(tmp_path / "w.safetensors"))
        before = x.clone()
        torch.manual_seed(1)
        logits = loaded(x)
        assert logits.shape == (2, 10)
        assert torch.equal(x, before)
        for name, tensor in network.state_dict().items():
            rounded = tensor.half().float() if tensor.is_floating_point() else tensor
            assert torch.equal(loaded.state_dict()[name], rounded)
        torch.manual_seed(1)
        loaded.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        laid_out = loaded(x.to(memory_format=torch.channels_last))
        scale = logits.detach().abs().max().item()
        torch.testing.assert_close(laid_out, logits, atol=1e-3 * scale if spec != "rse" else scale, rtol=0)

    def test_every_family_is_in_the_table(self):
        import_families()
        assert {spec.partition(":")[0] for spec in SHAPES} == {*registered("architecture")}

    @pytest.mark.parametrize(
        "spec",
        [
            "alexnet:width=0",
            "convnet:hidden=0",
            "densenet:depth=41",
            "inception:width=6",
            "mobilenet:width=0.01",
            "nasnet:cells=0",
            "resnet-ensemble:members=1",
            "resnet-ensemble:depth=21",
            "rse:passes=0",
            "rse:depth=12",
            "vgg:depth=12",
        ],
    )
    def test_refuses_shapes_that_do_not_exist(self, spec):
        with pytest.raises(BadRequest):
            create(spec)

    @pytest.mark.parametrize(("depth", "growth", "millions"), [(40, 12, 0.18), (100, 12, 0.77), (190, 40, 25.6)])
    def test_densenets_have_as_many_parameters_as_the_paper_says(self, depth, growth, millions):
        with torch.device("meta"):
            network = create(f"densenet:depth={depth},growth={growth}").build(10)
        assert sum(p.numel() for p in network.parameters()) / 1e6 == pytest.approx(millions, rel=0.03)

    @pytest.mark.parametrize(("width", "millions"), [(1.0, 4.2), (0.5, 1.3), (0.25, 0.5)])
    def test_mobilenets_have_as_many_parameters_as_the_paper_says(self, width, millions):
        with torch.device("meta"):
            network = create(f"mobilenet:width={width}").build(1000)
        assert sum(p.numel() for p in network.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)

    @pytest.mark.parametrize("depth", [11, 13, 16, 19])
    def test_vggs_have_three_weighted_layers_fewer_but_one(self, depth):
        """One dense layer instead of three."""
        layers = [m for m in create(f"vgg:depth={depth}").build(10).modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        assert len(layers) == depth - 2

    def test_cells_see_the_two_before_them_and_halve_twice(self):
        network = create("nasnet:cells=2,filters=4").build(10).eval()
        assert isinstance(network, CellNetwork)
        sizes: list[tuple[int, ...]] = []
        for cell in network.cells:
            cell.register_forward_hook(lambda module, args, out: sizes.append((*args[1].shape[1:3], *out.shape[1:3])))
        network(torch.rand(1, 3, 32, 32))
        assert sizes == [
            (12, 32, 24, 32),
            (12, 32, 24, 32),
            (24, 32, 32, 16),
            (24, 32, 48, 16),
            (32, 16, 48, 16),
            (48, 16, 64, 8),
            (48, 16, 96, 8),
            (64, 8, 96, 8),
        ]


def gradients(network: nn.Module, x: torch.Tensor) -> list[torch.Tensor | None]:
    """Differentiate something that every weight of a network in training takes part in."""
    (network(x) * torch.randn(2, 10)).sum().backward()
    return [parameter.grad for parameter in network.parameters()]


class Bomb:
    """Unpickling this leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class TestReadWeights:
    @pytest.mark.parametrize("suffix", ["pt", "pth", "safetensors"])
    def test_reads_what_was_saved(self, tmp_path, network, suffix):
        path = tmp_path / f"w.{suffix}"
        save_file(network.state_dict(), path) if suffix == "safetensors" else torch.save(network.state_dict(), path)
        read = read_weights(path)
        assert read.keys() == network.state_dict().keys()
        assert all(torch.equal(read[name], t) for name, t in network.state_dict().items())

    def test_reads_a_state_dict_inside_a_training_checkpoint(self, tmp_path, network):
        torch.save({"epoch": 3, "state_dict": network.state_dict()}, tmp_path / "w.pt")
        assert read_weights(tmp_path / "w.pt").keys() == network.state_dict().keys()

    @pytest.mark.parametrize("protocol", [0, 2, 4])
    @pytest.mark.parametrize("by_torch", [True, False])
    def test_never_runs_a_malicious_pickle(self, tmp_path, protocol, by_torch):
        proof, path = tmp_path / "ran", tmp_path / "w.pt"
        content = {"head.weight": torch.zeros(2), "x": Bomb(proof)}
        if by_torch:
            torch.save(content, path, pickle_protocol=protocol)
        else:
            path.write_bytes(pickle.dumps(content["x"], protocol=protocol))
        with pytest.raises(BadWeights, match="safetensors"):
            read_weights(path)
        assert not proof.exists()
        # The bomb is real: an unsafe reader would have set it off.
        if not by_torch:
            pickle.loads(path.read_bytes())
            assert proof.exists()

    @pytest.mark.parametrize("suffix", ["pt", "safetensors"])
    @pytest.mark.parametrize("kept", [0, 1, 100, 0.5, 0.99])
    def test_refuses_a_truncated_file(self, tmp_path, network, suffix, kept):
        path = tmp_path / f"w.{suffix}"
        save_file(network.state_dict(), path) if suffix == "safetensors" else torch.save(network.state_dict(), path)
        whole = path.read_bytes()
        path.write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
        with pytest.raises(BadWeights, match="fetch it again"):
            read_weights(path)

    @pytest.mark.parametrize("suffix", ["pt", "pth", "safetensors"])
    def test_refuses_a_web_page(self, tmp_path, suffix):
        path = tmp_path / f"w.{suffix}"
        path.write_text("<!DOCTYPE html><html><body>Sign in to download</body></html>")
        with pytest.raises(BadWeights, match="fetch it again"):
            read_weights(path)

    @pytest.mark.parametrize("content", [[torch.zeros(2)], {}, {"a": 1}, {3: torch.zeros(2)}, torch.zeros(3)])
    def test_refuses_what_is_no_state_dict(self, tmp_path, content):
        torch.save(content, tmp_path / "w.pt")
        with pytest.raises(BadWeights, match="save the"):
            read_weights(tmp_path / "w.pt")

    def test_refuses_a_whole_pickled_network(self, tmp_path, network):
        torch.save(network, tmp_path / "w.pt")
        with pytest.raises(BadWeights, match="save the"):
            read_weights(tmp_path / "w.pt")

    def test_refuses_other_suffixes_and_missing_files(self, tmp_path):
        (tmp_path / "w.pkl").write_bytes(b"")
        with pytest.raises(BadWeights, match=r"\.pth"):
            read_weights(tmp_path / "w.pkl")
        with pytest.raises(BadWeights, match="no weights file"):
            read_weights(tmp_path / "w.pt")


class TestHashState:
    def test_is_golden(self):
        """A run's identity rests on this value: changing it orphans every stored result."""
        layer = nn.Linear(2, 1)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([[1.0, -2.0]]))
            layer.bias.fill_(0.5)
        assert hash_state(layer) == "71b4dfa8462e8c71e76ff58ccef86a2d7ebd8e0e16f896193675c4fa7edf3909"

    def test_does_not_depend_on_memory_layout(self, network):
        before = hash_state(network)
        assert hash_state(network.to(memory_format=torch.channels_last)) == before

    @pytest.mark.parametrize("change", ["value", "dtype", "shape", "name", "buffer"])
    def test_sees_every_kind_of_change(self, change):
        def build(name="a", value=1.0, dtype=torch.float32, shape=(2, 3), buffer=0.0):
            module = nn.Module()
            module.register_parameter(name, nn.Parameter(torch.full(shape, value, dtype=dtype)))
            module.register_buffer("b", torch.tensor(buffer))
            return module

        changed: dict[str, dict[str, Any]] = {
            "value": {"value": 1.0 + 2**-23},
            "dtype": {"dtype": torch.float64},
            "shape": {"shape": (3, 2)},
            "name": {"name": "c"},
            "buffer": {"buffer": 1.0},
        }
        assert hash_state(build()) == hash_state(build())
        assert hash_state(build()) != hash_state(build(**changed[change]))


class TestZoo:
    def test_loads_single_precision_frozen_in_eval_mode(self, stocked, network):
        loaded = zoo.load("tiny", folder=stocked)
        assert not loaded.training
        assert not any(p.requires_grad for p in loaded.parameters())
        assert {p.dtype for p in loaded.parameters()} == {torch.float32}
        for name, tensor in network.state_dict().items():
            rounded = tensor.half().float() if tensor.is_floating_point() else tensor
            assert torch.equal(loaded.state_dict()[name], rounded)

    def test_unknown_name_says_which_come_near(self, stocked):
        with pytest.raises(UnknownName, match="did you mean tiny"):
            zoo.load("tinny", folder=stocked)
        with pytest.raises(UnknownName, match="model"):
            models.card("nothing-like-it")

    def test_refuses_weights_that_are_not_the_cards(self, stocked):
        write_card(stocked, "0" * 64)
        with pytest.raises(BadWeights, match="expected 000000000000") as caught:
            zoo.load("tiny", folder=stocked)
        assert sha256_of(stocked / "tiny.safetensors")[:12] in str(caught.value)
        assert "reinstall" in str(caught.value)

    def test_refuses_one_flipped_bit(self, stocked):
        path = stocked / "tiny.safetensors"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        with pytest.raises(BadWeights, match="not those of its card"):
            zoo.load("tiny", folder=stocked)

    def test_refuses_weights_of_another_shape(self, stocked):
        write_card(stocked, sha256_of(stocked / "tiny.safetensors"), classes=11)
        with pytest.raises(BadWeights, match="do not fit"):
            zoo.load("tiny", folder=stocked)

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"name": "tiny"}', "null"])
    def test_refuses_a_damaged_card(self, stocked, text):
        (stocked / "tiny.json").write_text(text)
        with pytest.raises(BadWeights, match="card"):
            zoo.card("tiny", folder=stocked)

    def test_card_survives_its_file(self, stocked):
        card = zoo.card("tiny", folder=stocked)
        assert ModelCard.from_json(card.to_json()) == card

    def test_cards_without_the_newer_fields_stay_readable(self, stocked):
        content = json.loads((stocked / "tiny.json").read_text())
        del content["measurements"], content["notes"]
        old = ModelCard.from_json(json.dumps(content))
        assert (old.measurements, old.notes) == ({}, "")
        with pytest.raises(BadWeights, match="seed"):
            ModelCard.from_json(json.dumps({key: value for key, value in content.items() if key != "seed"}))
        with pytest.raises(BadWeights, match="colour"):
            ModelCard.from_json(json.dumps({**content, "colour": "red"}))

    def test_listing_does_not_import_torch(self):
        read = "import sys, robustassay.models as m\n[m.card(name) for name in m.names()]"
        code = f"{read}\nsys.exit('torch' in sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class TestEmbedded:
    def test_the_zoo_is_stocked(self):
        assert {"resnet20-natural", "resnet56-natural", "resnet20-pgd", "resnet20x2-pgd"} <= {*models.names()}

    @pytest.mark.parametrize("name", models.names())
    def test_loads_and_agrees_with_its_card(self, name):
        card = models.card(name)
        network = models.load(name)
        assert card.name == name
        assert sum(p.numel() for p in network.parameters()) == card.parameters
        logits = network(torch.rand(2, 3, 32, 32))
        assert logits.shape == (2, card.classes)
        assert logits.isfinite().all()
        assert card.clean_images == 10_000
        assert card.robust_images >= 1_000
        assert card.robust_accuracy < card.clean_accuracy
