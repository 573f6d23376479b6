"""The train room: recipes, the loop, and what it leaves behind."""

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file

from robustassay.errors import BadData, BadRequest, BadWeights, ModelFailed, WrongFolder
from robustassay.models import zoo
from robustassay.models.architectures.resnet import ResNet
from robustassay.models.weights import sha256_of
from robustassay.registry import lookup
from robustassay.train import EpochDone, Natural, PGDTraining, TrainingData, train
from robustassay.train.augment import CropsAndFlips
from robustassay.train.average import MovingAverage
from robustassay.train.checkpoint import Checkpoint
from robustassay.train.cifar10_sheets import TRAIN_SHEETS, read
from robustassay.train.measure import clean_accuracy, robust_accuracy
from robustassay.train.pgd import frozen, linf_pgd
from robustassay.train.pgd_l2 import l2_pgd
from robustassay.train.publish import TrainingRun, command_of
from robustassay.train.recipe import Recipe
from robustassay.train.trainer import stream_seed

SMALL = ResNet(depth=8)


def learnable(train_images: int, test_images: int = 100, side: int = 8) -> TrainingData:
    """Four classes, told apart by the colour of the image under noise."""
    rng = torch.Generator().manual_seed(1)
    n = train_images + test_images
    y = torch.arange(n) % 4
    colours = torch.tensor([[180.0, 90, 90], [90, 180, 90], [90, 90, 180], [130, 130, 130]])
    noise = 30 * torch.randn(n, 3, side, side, generator=rng)
    x = (colours[y][:, :, None, None] + noise).clamp(0, 255).to(torch.uint8)
    return TrainingData(x[:train_images], y[:train_images], x[train_images:], y[train_images:], "colours", "made up")


@pytest.fixture(scope="module")
def data() -> TrainingData:
    return learnable(2_000)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small only lose by sharing their work, most of all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class StoppedError(Exception):
    """Stands for a kill between two epochs."""


class TestTrain:
    @pytest.mark.parametrize("recipe", [Natural(batch=50), PGDTraining(batch=50, steps=3)])
    def test_one_epoch_learns_and_leaves_a_loadable_model(self, tmp_path, data, recipe):
        card = train(recipe, SMALL, data, tmp_path, "tiny", seed=3, epochs=1)
        assert card.clean_accuracy > 0.9  # chance is 0.25
        assert sorted(p.name for p in tmp_path.iterdir()) == ["tiny.json", "tiny.safetensors"]
        assert zoo.card("tiny", folder=tmp_path) == card
        shipped = zoo.load("tiny", folder=tmp_path)
        assert clean_accuracy(shipped, data.x_test, data.y_test) == card.clean_accuracy
        assert robust_accuracy(shipped, data.x_test, data.y_test) == card.robust_accuracy
        on_disk = load_file(tmp_path / "tiny.safetensors")
        assert {t.dtype for t in on_disk.values()} == {torch.float16, torch.int64}

    def test_card_tells_how_to_make_it_again(self, tmp_path, data):
        recipe = PGDTraining(batch=100, steps=1, weight_decay=2e-4)
        card = train(recipe, SMALL, data, tmp_path, "tiny", seed=3, epochs=1)
        assert card.command == (
            "assay train pgd:batch=100,weight_decay=0.0002,steps=1 --arch resnet:depth=8 "
            "--epochs 1 --seed 3 --device cpu --data FOLDER --name tiny --out DIR"
        )
        assert lookup("recipe", card.recipe)(**card.recipe_fields) == recipe
        assert (card.seed, card.epochs, card.dataset, card.classes) == (3, 1, "colours", 4)
        assert card.sha256 == sha256_of(tmp_path / "tiny.safetensors")
        assert (card.clean_images, card.robust_images) == (100, 100)

    def test_command_says_when_the_network_was_compiled(self):
        run = TrainingRun(Natural(), ResNet(), 0, 9, 1.0, torch.device("cuda"), compiled=True)
        assert command_of(run, "tiny").endswith("--device cuda --data FOLDER --name tiny --out DIR --compiled")

    @pytest.mark.parametrize("recipe", [Natural(batch=64), PGDTraining(batch=64, steps=1)])
    def test_resumed_equals_uninterrupted(self, tmp_path, recipe):
        small = learnable(300)

        def stop_after(epoch):
            def progress(done):
                if done.epoch == epoch:
                    raise StoppedError

            return progress

        train(recipe, SMALL, small, tmp_path / "whole", "tiny", epochs=3)
        for epoch in (1, 2):
            with pytest.raises(StoppedError):
                train(recipe, SMALL, small, tmp_path / "cut", "tiny", epochs=3, on_epoch=stop_after(epoch))
        seen: list[EpochDone] = []
        train(recipe, SMALL, small, tmp_path / "cut", "tiny", epochs=3, on_epoch=seen.append)
        assert [done.epoch for done in seen] == [3]
        assert sha256_of(tmp_path / "cut/tiny.safetensors") == sha256_of(tmp_path / "whole/tiny.safetensors")

    def test_seed_decides_the_weights(self, tmp_path):
        small = learnable(100)
        hashes = [
            train(Natural(batch=50), SMALL, small, tmp_path / str(i), "tiny", seed=seed, epochs=1).sha256
            for i, seed in enumerate((0, 0, 1))
        ]
        assert hashes[0] == hashes[1] != hashes[2]

    def test_global_random_state_is_left_alone(self, tmp_path):
        torch.manual_seed(5)
        expected = torch.rand(1)
        torch.manual_seed(5)
        train(Natural(batch=50), SMALL, learnable(100), tmp_path, "tiny", epochs=1)
        assert torch.rand(1) == expected

    def test_checkpoint_of_other_settings_is_refused(self, tmp_path):
        def stop(done):
            raise StoppedError

        small, recipe = learnable(100), Natural(batch=50)
        with pytest.raises(StoppedError):
            train(recipe, SMALL, small, tmp_path, "tiny", epochs=2, on_epoch=stop)
        with pytest.raises(WrongFolder, match="other settings"):
            train(replace(recipe, rate=0.2), SMALL, small, tmp_path, "tiny", epochs=2)

    def test_diverged_training_says_so(self, tmp_path):
        with pytest.raises(ModelFailed, match="diverged"):
            train(Natural(batch=10, rate=1e30, warmup=0), SMALL, learnable(100), tmp_path, "tiny", epochs=1)
        assert not list(tmp_path.iterdir())

    def test_no_epochs_are_refused(self, tmp_path, data):
        with pytest.raises(BadRequest, match="1 or more"):
            train(Natural(), SMALL, data, tmp_path, "tiny", epochs=0)


class TestCheckpoint:
    def test_damaged_file_is_named(self, tmp_path):
        path = tmp_path / "c.safetensors"
        Checkpoint({"seed": 1}, 1, 0.0, {"a": torch.zeros(3)}).write(path)
        path.write_bytes(path.read_bytes()[:-4])
        with pytest.raises(BadWeights, match="delete it"):
            Checkpoint.read(path, {"seed": 1})

    @pytest.mark.parametrize("failing", ["os.fsync", "os.replace"])
    def test_failed_write_keeps_the_old_file(self, tmp_path, monkeypatch, failing):
        path = tmp_path / "c.safetensors"
        old = Checkpoint({"seed": 1}, 1, 0.0, {"a": torch.zeros(3)})
        old.write(path)

        def fail(*args):
            raise OSError("disk full")

        monkeypatch.setattr(failing, fail)
        with pytest.raises(OSError, match="disk full"):
            replace(old, epochs_done=2).write(path)
        found = Checkpoint.read(path, {"seed": 1})
        assert found is not None
        assert found.epochs_done == 1
        assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


class TestPGD:
    def test_attack_raises_the_loss_more_than_chance_does(self, tmp_path, data):
        network = self.trained(tmp_path, data)
        x0, y = data.x_test.float() / 255, data.y_test
        eps, rng = 8 / 255, torch.Generator().manual_seed(0)
        x_adv = linf_pgd(network, x0, y, eps, 2 / 255, 10, rng)
        random = (x0 + eps * torch.randn(x0.shape, generator=rng).sign()).clamp(0, 1)
        clean, by_chance, attacked = (F.cross_entropy(network(x), y) for x in (x0, random, x_adv))
        assert attacked > clean + 5 * abs(by_chance - clean)
        assert (x_adv - x0).abs().max() <= eps + 1e-6
        assert 0 <= x_adv.min() <= x_adv.max() <= 1

    def test_attack_finds_the_corner_of_a_linear_model(self):
        torch.manual_seed(0)
        linear = torch.nn.Linear(12, 2).double()
        network = torch.nn.Sequential(torch.nn.Flatten(), linear)
        x0 = torch.full((1, 3, 2, 2), 0.5, dtype=torch.float64)
        x_adv = linf_pgd(network, x0, torch.tensor([0]), 0.1, 0.05, 5, torch.Generator().manual_seed(0))
        uphill = (linear.weight[1] - linear.weight[0]).sign().view(1, 3, 2, 2)
        torch.testing.assert_close(x_adv, x0 + 0.1 * uphill)

    def test_under_l2_it_finds_the_nearest_side_of_a_linear_model(self):
        torch.manual_seed(0)
        linear = torch.nn.Linear(12, 2).double()
        network = torch.nn.Sequential(torch.nn.Flatten(), linear)
        x0 = torch.full((1, 3, 2, 2), 0.5, dtype=torch.float64)
        x_adv = l2_pgd(network, x0, torch.tensor([0]), 0.1, 0.05, 40, torch.Generator().manual_seed(0))
        uphill = (linear.weight[1] - linear.weight[0]).view(1, 3, 2, 2)
        torch.testing.assert_close(x_adv, x0 + 0.1 * uphill / uphill.norm(), rtol=1e-6, atol=1e-6)

    def test_loss_of_the_recipe_is_that_of_attacked_images(self, tmp_path, data):
        network = self.trained(tmp_path, data)
        x, y = data.x_train[:100].float() / 255, data.y_train[:100]
        losses = [
            recipe.loss(network, x, y, torch.Generator().manual_seed(0), torch.tensor(0.5))
            for recipe in (Natural(), PGDTraining(steps=1), PGDTraining(steps=10))
        ]
        assert losses[0] < losses[1] < losses[2]

    def test_frozen_network_is_attacked_at_rest_and_trains_on(self):
        network = SMALL.build(4).train()
        at_rest = network.get_buffer("norm.running_mean")
        before = at_rest.clone()
        with frozen(network):
            assert not network.training
            network(torch.rand(2, 3, 8, 8))
        assert network.training
        assert all(p.requires_grad for p in network.parameters())
        assert torch.equal(at_rest, before)

    @staticmethod
    def trained(tmp_path, data):
        train(Natural(batch=100), SMALL, data, tmp_path, "tiny", epochs=1)
        return zoo.load("tiny", folder=tmp_path)


class TestMeasure:
    def test_an_image_wrong_before_the_attack_is_not_robust(self):
        class SaysWhetherBlack(torch.nn.Module):
            def forward(self, x):
                light = (x.amax((1, 2, 3)) > 0).float() + 0 * x.sum((1, 2, 3))
                return torch.stack([1 - light, light], 1)

        x, y = torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 0, 0, 1])
        assert clean_accuracy(SaysWhetherBlack(), x, y) == 0.75
        assert robust_accuracy(SaysWhetherBlack(), x, y) == 0


class TestRecipe:
    def test_rate_rises_to_the_peak_and_falls_to_zero(self):
        recipe: Recipe = Natural(rate=0.4, warmup=0.25)
        assert recipe.rate_at(0) == 0
        assert recipe.rate_at(0.125) == pytest.approx(0.2)
        assert recipe.rate_at(0.25) == pytest.approx(0.4)
        assert recipe.rate_at(0.625) == pytest.approx(0.2)
        assert recipe.rate_at(1) == pytest.approx(0)

    def test_average_forgets_the_first_weights(self):
        recipe = Natural(average=0.9)
        assert recipe.average_at(0) == 0.1
        assert recipe.average_at(10_000) == 0.9

    def test_every_epoch_and_seed_has_its_own_stream(self):
        assert len({stream_seed(seed, epoch) for seed in range(20) for epoch in range(20)}) == 400


class TestMovingAverage:
    def test_is_the_weighted_mean_of_what_it_saw(self):
        network = torch.nn.BatchNorm1d(2)
        average = MovingAverage(network)
        with torch.no_grad():
            network.weight.fill_(5.0)
            network.get_buffer("running_mean").fill_(8.0)
        average.update(torch.tensor(0.25))
        other = torch.nn.BatchNorm1d(2)
        average.write_to(other)
        assert other.weight.tolist() == [2.0, 2.0]
        assert other.get_buffer("running_mean").tolist() == [2.0, 2.0]
        assert network.weight.tolist() == [5.0, 5.0]


class TestCropsAndFlips:
    def test_every_draw_is_a_crop_of_the_padded_image_or_its_mirror(self):
        images = torch.randint(1, 256, (3, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        padded = F.pad(images, (4, 4, 4, 4))
        index = torch.arange(3).repeat(200)
        drawn = (CropsAndFlips.of(images).draw(index, torch.Generator().manual_seed(1)) * 255).round().byte()
        kinds = set()
        for i, crop in zip(index.tolist(), drawn, strict=True):
            found = {
                (top, left, mirrored)
                for top in range(9)
                for left in range(9)
                for mirrored in (False, True)
                if torch.equal(crop.flip(2) if mirrored else crop, padded[i, :, top : top + 8, left : left + 8])
            }
            assert found
            kinds |= found
        assert len(kinds) > 150  # of 9 * 9 * 2 = 162

    def test_draws_are_channels_last_floats(self):
        images = torch.full((4, 3, 8, 8), 255, dtype=torch.uint8)
        x = CropsAndFlips.of(images).draw(torch.tensor([0, 3]), torch.Generator().manual_seed(1))
        assert x.shape == (2, 3, 8, 8)
        assert x.is_contiguous(memory_format=torch.channels_last)
        assert x.max() == 1


class TestReaders:
    def test_sheets_hold_one_image_a_row(self, tmp_path):
        x = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
        for number, name in enumerate((*TRAIN_SHEETS, "test_batch.png")):
            rows = x[2 * number : 2 * number + 2].reshape(2, 1024, 3)
            Image.fromarray(rows).save(tmp_path / name)
        (tmp_path / "train_lables.json").write_text(json.dumps([0, 1] * 5))
        (tmp_path / "test_lables.json").write_text("[1, 0]")
        data = read(tmp_path)
        assert np.array_equal(data.x_train.permute(0, 2, 3, 1), x[:10])
        assert np.array_equal(data.x_test.permute(0, 2, 3, 1), x[10:])
        assert data.y_test.tolist() == [1, 0]

    def test_missing_sheets_are_named(self, tmp_path):
        with pytest.raises(BadData, match=r"test_batch\.png"):
            read(tmp_path)

    @pytest.mark.parametrize("shape", [(4, 8, 8, 3), (4, 3, 8, 8)])
    def test_npz_may_be_nhwc_or_nchw(self, tmp_path, shape):
        x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        y = np.array([0, 1, 2, 3], dtype=np.uint8)
        np.savez(tmp_path / "d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        data = read(tmp_path / "d.npz")
        expected = x if shape[1] == 3 else x.transpose(0, 3, 1, 2)
        assert np.array_equal(data.x_train, expected)
        assert data.classes == 4

    def test_npz_without_the_arrays_is_refused(self, tmp_path):
        np.savez(tmp_path / "d.npz", x=np.zeros(3))
        with pytest.raises(BadData, match="x_train"):
            read(tmp_path / "d.npz")

    @pytest.mark.parametrize(
        "change",
        [
            {"x_train": torch.zeros(4, 3, 8, 8)},
            {"x_train": torch.zeros(4, 8, 8, 3, dtype=torch.uint8)},
            {"y_train": torch.zeros(3, dtype=torch.int64)},
            {"y_test": torch.full((2,), 9)},
            {"y_test": torch.full((2,), -1)},
        ],
    )
    def test_data_that_would_spoil_training_is_refused(self, change):
        sound = learnable(4, 2)
        with pytest.raises(BadData):
            replace(sound, **change)
