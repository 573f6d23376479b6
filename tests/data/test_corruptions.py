"""Common corruptions: each against a formula or a second program, and the same images whatever the batch."""

import io
import json
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import rgb_to_hsv
from PIL import Image
from scipy import ndimage, stats
from torch import nn

from robustassay import data
from robustassay.analysis import corruptions as analysis
from robustassay.cli import main
from robustassay.data import Dataset
from robustassay.data.corruptions import (
    KINDS,
    SEVERITIES,
    CorruptionSpec,
    corrupt,
    corruption_grid,
    create,
    read_corrupted,
)
from robustassay.data.corruptions.digital import _affine
from robustassay.data.corruptions.filters import zoom
from robustassay.data.corruptions.weather import plasma
from robustassay.errors import BadData, BadRequest, UnknownName
from robustassay.evaluation.corruption_accuracy import CorruptionEvaluation
from robustassay.evaluation.model_ref import ModelRef
from robustassay.registry import registered
from robustassay.rng import Streams

RANDOM = set(KINDS) - {"defocus-blur", "zoom-blur", "brightness", "contrast", "pixelate", "jpeg-compression"}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def photos() -> Dataset:
    return data.load("cifar10-1k")


def corrupted(kind: str, severity: int, x: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return create(CorruptionSpec(kind, severity))(x, [f"image-{row}" for row in range(len(x))], seed)


def flat(value: float, rows: int = 40, channels: int = 3, side: int = 32) -> torch.Tensor:
    return torch.full((rows, channels, side, side), value)


class TestAll:
    def test_there_are_fifteen_and_no_more(self):
        assert set(registered("corruption")) == set(KINDS)
        assert len(KINDS) == 15
        assert len(corruption_grid()) == 75

    @pytest.mark.parametrize("kind", KINDS)
    def test_an_image_comes_out_the_same_whatever_its_batch(self, kind, photos):
        corrupted_photos = corrupt(photos, CorruptionSpec(kind, 4), seed=3)
        together = corrupted_photos.images(range(8))
        alone = torch.cat([corrupted_photos.images([row]) for row in range(8)])
        shuffled = corrupted_photos.select([5, 700, 2, 7]).images([2, 0])
        assert torch.equal(together, alone)
        assert torch.equal(shuffled, together[[2, 5]])
        assert torch.equal(corrupt(photos.take(20), CorruptionSpec(kind, 4), seed=3).images(range(8)), together)
        other_seed = corrupt(photos, CorruptionSpec(kind, 4), seed=4).images(range(8))
        assert torch.equal(other_seed, together) == (kind not in RANDOM)

    @pytest.mark.parametrize("kind", sorted(RANDOM))
    def test_two_copies_of_an_image_are_spoilt_differently(self, kind, photos):
        one, two = corrupted(kind, 3, photos.images([0, 0]))
        assert not torch.equal(one, two)

    def test_severity_takes_images_further_away_for_at_least_13_of_15(self, photos):
        """Not glass and elastic, whose published severities trade one part for another.

        Those of motion blur at 3 and 4 differ in the part of a Gaussian beyond six deviations, hence the hair.
        """
        x = photos.images(range(100))
        far = {
            kind: [float((corrupted(kind, s, x) - x).flatten(1).norm(dim=1).mean()) for s in SEVERITIES]
            for kind in KINDS
        }
        grows = [kind for kind in KINDS if all(b > a * 0.9999 for a, b in zip(far[kind], far[kind][1:], strict=False))]
        assert len(grows) >= 13, far
        assert all(found[4] > 1.2 * found[0] for kind, found in far.items() if kind in grows)

    @pytest.mark.parametrize("channels", [1, 3])
    @pytest.mark.parametrize("kind", KINDS)
    def test_images_of_any_shape_stay_images(self, kind, channels):
        x = torch.rand(2, channels, 70, 90, generator=torch.Generator().manual_seed(0))
        images = corrupted(kind, 5, x)
        assert images.shape == x.shape
        assert images.dtype == torch.float32
        assert torch.equal(images, (images * 255).round() / 255)
        assert images.min() >= 0
        assert images.max() <= 1
        assert (images - x).abs().mean() > 0.01

    @pytest.mark.parametrize(
        "kind", ["defocus-blur", "glass-blur", "motion-blur", "zoom-blur", "elastic-transform", "pixelate", "contrast"]
    )
    @pytest.mark.parametrize("severity", [1, 5])
    def test_what_only_moves_light_leaves_an_even_image_alone(self, kind, severity):
        for side in (32, 80):
            x = flat(100 / 255, rows=2, side=side)
            torch.testing.assert_close(corrupted(kind, severity, x), x, atol=1e-6, rtol=0)

    def test_refuses_what_it_cannot_spoil(self):
        with pytest.raises(BadRequest, match="from 1 to 5"):
            create("fog:severity=6")
        with pytest.raises(UnknownName, match="frost"):
            create("frosty")
        with pytest.raises(BadData, match="grey and RGB"):
            corrupted("fog", 1, torch.zeros(1, 4, 8, 8))


class TestNoise:
    def test_gaussian(self):
        for severity, sigma in enumerate((0.04, 0.06, 0.08, 0.09, 0.10), 1):
            noise = corrupted("gaussian-noise", severity, flat(128 / 255)) - flat(128 / 255)
            assert float(noise.std()) == pytest.approx(sigma, rel=0.01)
            assert abs(float(noise.mean())) < 0.001

    @pytest.mark.parametrize("level", [0, 3, 90])
    def test_shot_noise_counts_photons_as_poisson_says(self, level):
        photons = 50  # of white, at severity 5
        found = corrupted("shot-noise", 5, flat(level / 255)).numpy() * photons
        counts = np.bincount(np.rint(found).astype(int).ravel(), minlength=60)[:60]
        expected = stats.poisson.pmf(np.arange(60), level / 255 * photons) * counts.sum()
        common = expected > 50
        assert counts[common].sum() > 0.99 * counts.sum()
        chi2 = ((counts - expected)[common] ** 2 / expected[common]).sum()
        assert stats.chi2.sf(chi2, max(1, common.sum() - 1)) > 1e-3

    def test_impulses(self):
        found = corrupted("impulse-noise", 5, flat(0.4))
        assert float((found == 0).float().mean()) == pytest.approx(0.035, rel=0.05)
        assert float((found == 1).float().mean()) == pytest.approx(0.035, rel=0.05)


class TestBlur:
    def test_defocus_is_a_disk(self):
        """A single point becomes the lens: the count of pixels within the radius, softened by a Gaussian."""
        point = torch.zeros(1, 1, 96, 96)
        point[..., 48, 48] = 1
        found = create(CorruptionSpec("defocus-blur", 3)).corrupt(point.numpy(), (6, 0.5), Streams.of(0, ["a"]))[0, 0]
        y, x = np.mgrid[:96, :96] - 48
        disk = (np.hypot(y, x) <= 6) / (np.hypot(y, x) <= 6).sum()
        expected = ndimage.gaussian_filter(disk, 0.5, truncate=2)  # two deviations are one pixel
        np.testing.assert_allclose(found, expected, atol=1e-6)

    def test_glass_shows_at_each_pixel_one_that_is_near(self, photos):
        x = photos.images(range(4))
        found = corrupted("glass-blur", 1, x)
        near = torch.stack([x.roll((dy, dx), (2, 3)) for dy in (0, 1) for dx in (0, 1)])
        assert ((near - found).abs().amax(2) < 1e-6).any(0).all()
        assert (found[:, :, 2:, 2:] != x[:, :, 2:, 2:]).any(1).float().mean() > 0.5

    def test_motion_keeps_the_light_and_moves_it_along_one_line(self):
        point = np.zeros((30, 1, 64, 64), np.float32)
        point[:, :, 32, 32] = 1
        streams = Streams.of(0, [str(row) for row in range(30)])
        found = create(CorruptionSpec("motion-blur", 5)).corrupt(point, (9, 2.5), streams)[:, 0]
        np.testing.assert_allclose(found.sum((1, 2)), 1, rtol=1e-5)
        for image in found:
            rows, columns = np.nonzero(image > 1e-3)
            assert np.ptp(columns) >= 4
            assert np.ptp(rows) <= np.ptp(columns) + 1  # never steeper than 45 degrees
            line = np.polyfit(columns, rows, 1)
            assert np.abs(np.polyval(line, columns) - rows).max() < 1.01

    def test_a_zoom_is_scipys(self, photos):
        x = photos.images([0]).numpy()
        kept = int(np.ceil(32 / 1.21))
        first = (32 - kept) // 2
        centre = x[..., first : first + kept, first : first + kept]
        larger = ndimage.zoom(centre, (1, 1, 1.21, 1.21), order=1)
        cut = (larger.shape[-1] - 32) // 2
        np.testing.assert_allclose(zoom(x, 1.21), larger[..., cut : cut + 32, cut : cut + 32], atol=1e-5)


class TestWeather:
    def test_brightness_raises_the_value_and_nothing_else(self, photos):
        x = photos.images(range(4))
        before, after = (rgb_to_hsv(y.permute(0, 2, 3, 1).numpy()) for y in (x, corrupted("brightness", 3, x)))
        np.testing.assert_allclose(after[..., 2], np.minimum(before[..., 2] + 0.15, 1), atol=1 / 255)
        lit = before[..., 2] > 0.4
        np.testing.assert_allclose(after[..., 1][lit], before[..., 1][lit], atol=0.02)

    def test_fog_follows_its_formula(self, photos):
        x = (photos.images(range(3)) * 255).round() / 255
        surface = plasma(Streams.of(0, [f"image-{row}/Fog" for row in range(3)]), 32, 32, 2)[:, None]
        top = x.amax((1, 2, 3), keepdim=True).numpy()
        expected = (x.numpy() + surface) * top / (top + 1)
        np.testing.assert_allclose(corrupted("fog", 4, x), expected, atol=0.51 / 255)

    @pytest.mark.parametrize("shape", [(32, 32), (20, 50)])
    def test_a_plasma_surface_is_rough_at_every_scale(self, shape):
        gentle, wild = (plasma(Streams.of(0, ["a", "b"]), shape[0], shape[1], decay) for decay in (3.0, 1.4))
        for surface in (gentle, wild):
            assert surface.shape == (2, *shape)
            assert surface.min() >= 0
            assert surface.max() <= 1
            assert surface.std() > 0.1
        step = [np.abs(np.diff(surface, axis=2)).mean() for surface in (gentle, wild)]
        assert step[1] > 2 * step[0]

    @pytest.mark.parametrize("kind", ["snow", "frost"])
    def test_snow_and_ice_are_white(self, kind):
        dark = flat(0.1)
        assert (corrupted(kind, 4, dark) - dark).mean() > 0.05


class TestDigital:
    def test_contrast_shrinks_around_the_mean(self, photos):
        x = photos.images(range(4))
        found = corrupted("contrast", 2, x)
        torch.testing.assert_close(found.mean((2, 3)), x.mean((2, 3)), atol=1e-3, rtol=0)
        torch.testing.assert_close(found.std((2, 3)), x.std((2, 3)) * 0.5, atol=2e-3, rtol=0)

    def test_jpeg_and_pixelate_are_pils(self, photos):
        x = photos.images([1])
        picture = Image.fromarray((x[0].permute(1, 2, 0) * 255).round().byte().numpy())
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=58)
        with Image.open(file) as read:
            expected = np.asarray(read)
        np.testing.assert_array_equal((corrupted("jpeg-compression", 3, x)[0] * 255).permute(1, 2, 0), expected)
        small = picture.resize((20, 20), Image.Resampling.BOX).resize((32, 32), Image.Resampling.BOX)
        np.testing.assert_array_equal((corrupted("pixelate", 5, x)[0] * 255).permute(1, 2, 0), np.asarray(small))

    def test_three_moved_points_go_back_where_they_were(self):
        moves = np.random.default_rng(0).uniform(-1, 1, (2, 3, 2))
        back = _affine(np.zeros((2, 3, 32, 32), np.float32), moves, 2.5)
        before = np.array([[26, 26], [26, 6], [6, 6]])
        for image in range(2):
            moved = np.concatenate((before + 2.5 * moves[image], np.ones((3, 1))), 1)
            np.testing.assert_allclose(moved @ back[image].T, before, atol=1e-9)


class TestDatasets:
    def test_a_corruption_stands_before_a_name(self, photos):
        corrupted_photos = data.load("fog:severity=2|cifar10-1k")
        assert torch.equal(corrupted_photos.images([3]), corrupt(photos, "fog:severity=2").images([3]))
        assert corrupted_photos.ids == photos.ids
        assert data.load(corrupted_photos.name).sha256 == corrupted_photos.sha256

    def test_identity_follows_kind_severity_seed_and_images(self, photos):
        made = [corrupt(photos, cell, seed) for cell in ("fog:severity=2", "fog:severity=3", "snow") for seed in (0, 1)]
        assert len({one.sha256 for one in [*made, photos]}) == 7
        assert corrupt(photos.take(5), "snow").sha256 == corrupt(photos, "snow").sha256
        assert corrupt(photos.take(5), "snow").whole.sha256 == corrupt(photos, "snow").sha256
        assert torch.equal(pickle.loads(pickle.dumps(made[0])).images([0]), made[0].images([0]))

    def test_cifar10_c_files(self, tmp_path):
        draw = np.random.default_rng(0)
        images, labels = draw.integers(0, 256, (20, 32, 32, 3), np.uint8), np.tile([3, 1, 4, 1], 5)
        np.save(tmp_path / "gaussian_noise.npy", images)
        np.save(tmp_path / "labels.npy", labels.astype(np.uint8))
        found = read_corrupted(tmp_path, CorruptionSpec("gaussian-noise", 2))
        np.testing.assert_array_equal(found.images([1])[0].permute(1, 2, 0) * 255, images[5])
        assert found.labels.tolist() == [3, 1, 4, 1]
        with pytest.raises(BadData, match=r"neither snow\.npy"):
            read_corrupted(tmp_path, CorruptionSpec("snow", 1))
        np.save(tmp_path / "labels.npy", labels[:3])
        with pytest.raises(BadData, match="3 labels"):
            read_corrupted(tmp_path, CorruptionSpec("gaussian-noise", 2))
        np.save(tmp_path / "fog.npy", np.array([{"a": 1}]), allow_pickle=True)
        with pytest.raises(BadData, match="numpy array"):
            read_corrupted(tmp_path, CorruptionSpec("fog", 2))

    def test_imagenet_c_folders(self, tmp_path):
        for kind in ("cat", "dog"):
            place = tmp_path / "snow" / "4" / kind
            place.mkdir(parents=True)
            Image.new("RGB", (40, 40), (200, 10, 30) if kind == "cat" else "blue").save(place / "one.png")
        found = read_corrupted(tmp_path, CorruptionSpec("snow", 4))
        assert found.labels.tolist() == [0, 1]
        assert found.images([0])[0, :, 0, 0].mul(255).tolist() == [200, 10, 30]


class Stripes(nn.Module):
    """A model for ten classes that is often right on nothing: enough to count answers."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 32 * 32, 10)
        self.asked = 0
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.asked += len(x)
        out: torch.Tensor = self.head(x.flatten(1))
        return out


def bench(model: nn.Module, photos: Dataset, limit: int, folder, kinds=("fog", "snow"), seed=0) -> CorruptionEvaluation:
    part = photos.take(limit)
    return CorruptionEvaluation(
        [ModelRef.of(model, "stripes")], corruption_grid(kinds), lambda cell: corrupt(part, cell, seed), folder, CPU
    )


class TestBench:
    def test_answers_are_the_models_own_and_are_asked_for_once(self, photos, tmp_path):
        torch.manual_seed(0)
        model = Stripes()
        answers = bench(model, photos, 10, tmp_path).run()
        with torch.no_grad():
            right = model(corrupt(photos, "snow:severity=5").images(range(10))).argmax(1) == photos.labels[:10]
        own = answers[(answers["kind"] == "snow") & (answers["severity"] == 5)]
        assert own["correct"].tolist() == right.tolist()
        assert own["sample_id"].tolist() == list(photos.ids[:10])
        model.asked = 0
        pd.testing.assert_frame_equal(bench(model, photos, 10, tmp_path).run(), answers)
        assert model.asked == 0
        more = bench(model, photos, 12, tmp_path).run()
        asked, model.asked = model.asked, 0
        assert len(more) == 120
        fresh = bench(model, photos, 12, tmp_path / "other").run()
        assert 0 < asked < model.asked, "only the new images"
        pd.testing.assert_frame_equal(more, fresh)

    def test_other_images_or_weights_never_share_answers(self, photos, tmp_path):
        torch.manual_seed(0)
        model = Stripes()
        bench(model, photos, 10, tmp_path).run()
        for other, seed in ((model, 1), (Stripes(), 0)):
            other.asked = 0
            found = bench(other, photos, 10, tmp_path, seed=seed).run()
            assert other.asked >= 100
            pd.testing.assert_frame_equal(found, bench(other, photos, 10, tmp_path / "fresh", seed=seed).run())

    def test_a_stop_loses_the_cell_in_flight_only(self, photos, tmp_path):
        model = Stripes()
        whole = bench(model, photos, 6, tmp_path / "whole").run()
        stopped = bench(model, photos, 6, tmp_path / "stopped")
        passes = 0

        def read(cell: CorruptionSpec) -> Dataset:
            nonlocal passes
            passes += 1
            if passes == 5:
                raise KeyboardInterrupt
            return stopped.read(cell)

        with pytest.raises(KeyboardInterrupt):
            CorruptionEvaluation(stopped.model_refs, stopped.corruptions, read, stopped.folder, CPU).run()
        assert len(list((tmp_path / "stopped").rglob("*.parquet"))) == 3
        pd.testing.assert_frame_equal(stopped.run(), whole)


def answers_of(rates: dict[str, dict[str, list[float]]], images: int = 10) -> pd.DataFrame:
    """Answers in which a model is right on the first so many images of each cell."""
    rows = [
        (model, kind, severity, str(sample), sample < round(rate * images))
        for model, kinds in rates.items()
        for kind, severities in kinds.items()
        for severity, rate in enumerate(severities, 0 if kind == "clean" else 1)
        for sample in range(images)
    ]
    return pd.DataFrame(rows, columns=["model", "kind", "severity", "sample_id", "correct"])


RATES = {
    "good": {"clean": [1.0], "fog": [0.9, 0.7], "snow": [0.8, 0.6]},
    "base": {"clean": [0.9], "fog": [0.6, 0.2], "snow": [0.6, 0.4]},
}


class TestAnalysis:
    def test_means_and_errors(self):
        answers = answers_of(RATES)
        np.testing.assert_allclose(analysis.by_kind(answers).to_numpy(), [[1.0, 0.8, 0.7], [0.9, 0.4, 0.5]])
        np.testing.assert_allclose(analysis.by_severity(answers).loc["base"].to_numpy(), [[0.6, 0.6], [0.2, 0.4]])
        np.testing.assert_allclose(analysis.mean_accuracy(answers)["accuracy"].to_numpy(), [0.75, 0.45])
        # Errors of good: fog .2, snow .3; of base: fog .6, snow .5.
        np.testing.assert_allclose(analysis.corruption_errors(answers, "base").to_numpy(), [[1 / 3, 3 / 5], [1.0, 1.0]])
        np.testing.assert_allclose(
            analysis.mean_corruption_error(answers, "base").to_numpy(), [(1 / 3 + 3 / 5) / 2, 1.0]
        )

    def test_the_interval_is_that_of_the_samples_own_means(self):
        answers = answers_of(RATES)
        corrupted_rows = answers[(answers["kind"] != "clean") & (answers["model"] == "good")]
        own = corrupted_rows.groupby("sample_id")["correct"].mean()
        low, high = stats.norm.interval(0.95, own.mean(), stats.sem(own))
        found = analysis.mean_accuracy(answers).loc["good"]
        assert (found["low"], found["high"]) == pytest.approx((low, min(high, 1)))

    def test_a_baseline_must_be_measured_and_err(self):
        answers = answers_of(RATES)
        with pytest.raises(UnknownName, match="base"):
            analysis.mean_corruption_error(answers, "bass")
        perfect = answers_of({**RATES, "base": {"fog": [0.5, 1.0], "snow": [1.0, 1.0]}})
        with pytest.raises(BadRequest, match="no error under snow"):
            analysis.mean_corruption_error(perfect, "base")


class TestCommand:
    @pytest.mark.long
    def test_prints_what_it_measured(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        request = ["corruptions", "alexnet-natural", "--baseline", "resnet20-natural", "--limit", "8"]
        request += ["--kind", "fog", "contrast", "--map", "map.png", "--csv", "cells.csv", "--quiet"]
        assert main(request) == 0
        printed = capsys.readouterr().out
        table = pd.read_csv("cells.csv")
        assert len(table) == 2 * 11
        assert set(table["images"]) == {8}
        corrupted_rows = table[table["kind"] != "clean"]
        mean = corrupted_rows[corrupted_rows["model"] == "alexnet-natural"]["accuracy"].mean()
        line = next(line for line in printed.splitlines() if "alexnet-natural" in line)
        assert f"{mean:.1%}" in line
        with Image.open("map.png") as picture:
            assert min(picture.size) > 200
        assert main(["corruptions", "alexnet-natural", "--limit", "8", "--kind", "fog", "--map", "one.svg"]) == 0

    def test_one_sentence_for_what_cannot_be_done(self, capsys):
        assert main(["corruptions", "alexnet-natural", "--kind", "frog"]) == 2
        assert "did you mean fog" in capsys.readouterr().err.replace("\n", " ")
        assert main(["corruptions", "alexnet-natural", "--map", "map.txt"]) == 2
        assert main(["corruptions", "alexnet-natural", "--files", "nowhere"]) == 2
        assert json.dumps(capsys.readouterr().out) == '""'
