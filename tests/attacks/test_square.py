"""Square: what it asks, what it keeps, and that its luck belongs to each row."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustassay import attacks, data, load_model
from robustassay.attacks.score.square import _L1_BUMPS, _L2_BUMPS, _bump, _Bumps
from robustassay.errors import BadRequest
from robustassay.target import Ledger, ScoreAccess
from robustassay.threat import L1, L2, LabelList, LInf, Norm, Untargeted
from tests.attacks.test_attacks import Case, check_conforms, make_ground
from tests.support.toys import (
    Constant,
    Linear,
    Spy,
    distances,
    images,
    names,
    open_access,
    open_ledger,
    run,
    two_classes,
)

NORMS: list[Norm] = [LInf(0.06), L2(0.4), L1(1.5)]
SHAPES = [(12,), (1, 3, 4), (3, 5, 9), (3, 11, 6), (2, 12, 1), (1, 1, 1), (2, 1, 4, 4)]
every_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)


class Edge(nn.Module):
    """Scores the pixels of one place of a plane; the other class never wins."""

    def __init__(self, place: tuple[int, int]) -> None:
        super().__init__()
        self.place = place
        self.bias = nn.Parameter(torch.tensor(100.0))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        value = x[:, :, self.place[0], self.place[1]].sum(1)
        return torch.stack((self.bias - value, 0 * value), 1)


def watch(module: nn.Module, norm: Norm, x: Tensor, steps: int, seed: int = 0) -> Tensor:
    """Run Square by itself and return every point it asked about, the last one too."""
    asked: list[list[Tensor]] = [[] for _ in x]

    class Watched(Ledger):
        def record(self, rows: Tensor, x: Tensor, logits: Tensor, sent: Tensor | None, *rest: Any, **more: Any) -> None:
            for at, row in enumerate(rows.tolist()):
                asked[row].extend(x[at] if sent is None else x[at][sent[at]])
            super().record(rows, x, logits, sent, *rest, **more)

    labels = torch.zeros(len(x), dtype=torch.int64)
    ledger = Watched(open_ledger(norm, x, Untargeted(labels)).ball, Untargeted(labels), False, None)
    last = attacks.create(f"square:steps={steps}")(open_access(ScoreAccess, module, ledger, seed=seed), x)
    assert not ledger.claimed.any(), "a row left early: make the goal harder"
    return torch.stack([torch.stack((*points, last[row])) for row, points in enumerate(asked)], 1)


@every_norm
@pytest.mark.parametrize("query_budget", [None, 90])
def test_proposals_that_are_computed_ahead_change_nothing(
    norm: Norm, query_budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = two_classes(3 * 8 * 8, seed=2, margin=5.0 if isinstance(norm, LInf) else 3.0)
    x, labels, found = images(5, (3, 8, 8)), torch.zeros(5, dtype=torch.int64), []
    for points in (1, 2, 7):
        monkeypatch.setattr(ScoreAccess, "points_per_call", points)
        found.append(run(model, attacks.create("square:steps=160"), norm, x, labels, query_budget=query_budget))
    (one, one_x), *others = found
    assert 0 < one["success"].sum() < len(x), "some fall and some stand"
    for records, x_adv in others:
        assert records.drop(columns="seconds").equals(one.drop(columns="seconds"))
        assert torch.equal(x_adv, one_x)


# ---------------------------------------------------------------- where it asks


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@every_norm
def test_every_point_is_inside_ball_and_box_whatever_the_shape(norm: Norm, shape: tuple[int, ...]) -> None:
    x = torch.cat((images(3, shape), torch.zeros(1, *shape), torch.ones(1, *shape)))
    points = watch(Constant(), norm, x, steps=70)
    assert points.shape == (70, 5, *shape)
    assert points.min() >= 0
    assert points.max() <= 1
    sizes = norm.size((points.double() - x.double()).flatten(2))
    assert (sizes <= norm.eps + norm.slack(x[0].numel())).all()
    assert (sizes > 0).any(0).all()


@every_norm
def test_the_loss_never_rises(norm: Norm) -> None:
    """Each proposal starts from the best point so far: outside its windows it is that point."""
    model = two_classes(3 * 8 * 8, seed=2, margin=30.0)
    x = images(4, (3, 8, 8))
    points = watch(model, norm, x, steps=300)
    logits = model(points.flatten(0, 1)).detach().view(300, 4, 2)
    margins = logits[..., 0] - logits[..., 1]
    lowest = margins.cummin(0).values
    assert (lowest[-1] < lowest[0] - 0.1).all(), "it must have found something to keep"
    if isinstance(norm, LInf):
        for row in range(4):
            for query in range(100, 300, 7):
                best = points[:query, row][margins[:query, row].argmin()]
                changed = (points[query, row] != best).any(0).nonzero()
                side = (changed.max(0).values - changed.min(0).values + 1).max() if len(changed) else 0
                assert side <= 4, "one window of a twentieth of the image"


@every_norm
@pytest.mark.parametrize("place", [(0, 0), (0, 8), (6, 0), (6, 8)], ids=str)
def test_windows_reach_every_corner(norm: Norm, place: tuple[int, int]) -> None:
    """The released code never draws the last valid offset, so its windows miss the last row and column."""
    x = images(6, (1, 7, 9))
    points = watch(Constant(), norm, x, steps=300)
    corner = points[:, :, 0, place[0], place[1]]
    assert ((corner[1:] != corner[:-1]).sum(0) >= 1).all()
    if isinstance(norm, LInf):
        best = watch(Edge(place), norm, x, steps=250)[:, :, 0, place[0], place[1]].amax(0)
        assert torch.allclose(best - x[:, 0, place[0], place[1]], torch.tensor(norm.eps), atol=1e-6)


def test_linf_points_are_corners_of_the_ball_and_start_as_stripes() -> None:
    x = images(5, (3, 6, 8))
    points = watch(Constant(), LInf(0.06), x, steps=40) - x
    assert torch.allclose(points.abs(), torch.tensor(0.06), atol=1e-6)
    stripes = points[0].sign()
    assert torch.equal(stripes, stripes[:, :, :1].expand_as(stripes))
    assert len({tuple(row.flatten().tolist()) for row in stripes}) == 5


def test_l2_points_use_the_whole_radius() -> None:
    """What one window loses another gains, and away from the walls nothing is lost."""
    x = images(5, (3, 10, 10), low=0.4, high=0.6)
    sizes = L2(0.3).size((watch(Constant(), L2(0.3), x, steps=60) - x).flatten(2))
    np.testing.assert_allclose(sizes, 0.3, rtol=1e-5)


def reference_bump(side: int, kind: _Bumps) -> Tensor:
    """The same pattern drawn square upon square, as the paper tells it."""

    def peak(height: int, width: int) -> Tensor:
        plane = torch.zeros(height, width, dtype=torch.float64)
        middle = height // 2, width // 2
        for radius in range(max(middle) + 1):
            rows = slice(max(middle[0] - radius, 0), middle[0] + radius + 1)
            columns = slice(max(middle[1] - radius, 0), middle[1] + radius + 1)
            plane[rows, columns] += 1 / (radius + 1) ** kind.decay
        return kind.unit(plane)

    both = torch.cat((peak(side // 2, side), -peak(side - side // 2, side)))
    return kind.unit(both)


@pytest.mark.parametrize("kind", [_L2_BUMPS, _L1_BUMPS], ids=["L2", "L1"])
@pytest.mark.parametrize("side", [2, 3, 5, 6, 13, 29])
def test_bumps_are_those_of_the_paper(kind: _Bumps, side: int) -> None:
    expected = reference_bump(side, kind).float()
    upright, lying = _bump(side, side, kind)
    assert torch.allclose(upright, expected, atol=1e-7)
    assert torch.allclose(lying, expected.T, atol=1e-7)


# ---------------------------------------------------------------- how many, and when


@pytest.mark.parametrize("steps", [1, 2, 30])
@every_norm
def test_queries_are_counted_exactly(norm: Norm, steps: int) -> None:
    spy, x = Spy(Constant()), images(3, (3, 5, 5))
    records, _ = run(spy, attacks.create(f"square:steps={steps}"), norm, x, torch.zeros(3, dtype=torch.int64))
    assert records["queries"].tolist() == [steps] * 3
    assert records["backwards"].tolist() == [0] * 3
    assert len({tuple(batch[0].flatten().tolist()) for batch in spy.seen[1:]}) > steps // 3


@pytest.mark.parametrize("budget", [1, 5, 29, 30, 31])
def test_a_query_budget_is_never_exceeded(budget: int) -> None:
    x, labels = images(3, (3, 5, 5)), torch.zeros(3, dtype=torch.int64)
    records, _ = run(Constant(), attacks.create("square:steps=30"), LInf(0.1), x, labels, query_budget=budget)
    assert records["queries"].tolist() == [min(budget, 30)] * 3


def test_a_broken_row_stops_asking() -> None:
    model, x = two_classes(75, seed=1, margin=0.6), images(16, (3, 5, 5))
    labels = model(x).argmax(1)
    eps = 1.4 * float(np.median(distances(model, x, labels, "Linf")))
    records, _ = run(model, attacks.create("square:steps=400"), LInf(eps), x, labels)
    won = records[records["success"]]
    assert len(won) >= 8
    assert (won["queries"] == won["claimed_at_query"]).all()
    assert won["queries"].nunique() > 3


@pytest.mark.parametrize(
    ("settings", "proposals", "area"),
    [
        ("", [0, 10, 11, 50, 51, 200, 201, 500, 501], [1, 1, 2, 2, 4, 4, 8, 8, 16]),
        ("", [1000, 1001, 2000, 2001, 4000, 4001, 4999], [16, 32, 32, 64, 64, 128, 128]),
        (":steps=10000", [6000, 6001, 8000, 8001, 9999], [128, 256, 256, 512, 512]),
        (":steps=1000,rescale_schedule=true", [0, 1, 2, 5, 6, 20, 21, 801, 999], [1, 1, 2, 2, 4, 4, 8, 512, 512]),
    ],
)
def test_the_window_shrinks_as_published(settings: str, proposals: list[int], area: list[int]) -> None:
    attack: Any = attacks.create(f"square{settings}")
    assert [0.8 / attack._area(done) for done in proposals] == area


@every_norm
def test_a_query_budget_below_the_steps_fits_the_schedule_to_it(norm, monkeypatch):
    monkeypatch.setattr(ScoreAccess, "points_per_call", 1)
    x = images(2, (3, 16, 16))
    seen = []
    for settings in ("steps=5000", "steps=60,rescale_schedule=true"):
        spy = Spy(Constant())
        run(spy, attacks.create(f"square:{settings}"), norm, x, torch.zeros(2, dtype=torch.int64), query_budget=60)
        seen.append(torch.stack([batch[:2] for batch in spy.seen[1:]]))  # the first one counts the classes
    assert torch.equal(*seen)


def test_settings_are_checked() -> None:
    with pytest.raises(BadRequest, match="rescale_schedule must be of type bool"):
        attacks.create("square:rescale_schedule=2")


# ---------------------------------------------------------------- whose luck


@every_norm
def test_a_row_gets_the_same_alone_and_in_company(norm: Norm) -> None:
    """The released code draws one window for the whole batch, so its verdicts hang on who else is in it."""
    x = images(9, (3, 6, 7))
    model = two_classes(126, seed=4, margin=0.2)
    labels = model(x).argmax(1)
    eps = type(norm)(4 * float(np.median(distances(model, x, labels, norm.name))))
    attack = attacks.create("square:steps=60")
    together, together_adv = run(model, attack, eps, x, labels)
    assert together["success"].any()
    for part in (slice(0, 1), slice(4, 5), slice(2, 8)):
        alone, alone_adv = run(model, attack, eps, x[part], labels[part], ids=names(9)[part])
        assert torch.equal(alone_adv, together_adv[part])
        assert alone["queries"].tolist() == together["queries"][part].tolist()
        np.testing.assert_allclose(alone["margin"], together["margin"][part], rtol=1e-4)  # the model's own rounding


@every_norm
def test_equal_images_in_different_rows_are_asked_different_questions(norm: Norm) -> None:
    x = images(1, (3, 6, 6)).repeat(4, 1, 1, 1)
    points = watch(Constant(), norm, x, steps=20)
    assert all((points[:, row] != points[:, 0]).flatten(1).any(1).all() for row in range(1, 4))
    assert torch.equal(points, watch(Constant(), norm, x, steps=20))
    assert not torch.equal(points, watch(Constant(), norm, x, steps=20, seed=1))


# ---------------------------------------------------------------- what it finds


@pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])
@pytest.mark.parametrize("in_box", [False, True], ids=["grey", "walls"])
def test_the_corner_of_a_linf_ball_is_found_exactly(targeted: bool, in_box: bool) -> None:
    check_conforms(attacks.create("square:steps=300"), LInf, Case(reach=1.001), make_ground(LInf, 12, targeted, in_box))


@pytest.mark.parametrize("norm", [LInf, L2, L1], ids=lambda norm: norm.name)
def test_a_target_is_reached(norm: type[Norm]) -> None:
    draw = torch.Generator().manual_seed(0)
    model = Linear(torch.randn(4, 48, generator=draw), torch.zeros(4))
    x = images(8, (3, 4, 4))
    labels = model(x).argmax(1)
    target = {name: (int(label) + 1) % 4 for name, label in zip(names(8), labels, strict=True)}
    farthest = max(
        float(
            distances(
                Linear(model.weight[[a, b]].detach(), torch.zeros(2)), x[[row]], torch.zeros(1).long(), norm.name
            )[0]
        )
        for row, (a, b) in enumerate(zip(labels.tolist(), target.values(), strict=True))
    )
    records, _ = run(model, attacks.create("square:steps=400"), norm(3 * farthest), x, labels, target=LabelList(target))
    assert records["success"].all()
    assert records["adv_label"].tolist() == list(target.values())


@pytest.mark.parametrize(
    "norm",
    [LInf(4 / 255), *(pytest.param(norm, marks=pytest.mark.long) for norm in (L2(0.5), L1(6)))],
    ids=lambda norm: norm.name,
)
def test_it_beats_noise_clearly_on_a_real_network(norm: Norm) -> None:
    """Judged by margins: so few queries break few images under L2, with this or the released code."""
    model, photos = load_model("resnet20-natural"), data.load("cifar10-1k")
    x, labels = photos.images(slice(0, 8)), torch.as_tensor(photos.labels[:8])
    with torch.no_grad():
        clean = Untargeted(labels).margin(model(x)).numpy()
    assert (clean > 0).all()
    found, _ = run(model, attacks.create("square:steps=100"), norm, x, labels)
    noise, _ = run(model, attacks.create("uniform-noise:steps=100"), norm, x, labels)
    gains = [float((clean - frame["margin"]).mean()) for frame in (found, noise)]
    print(f"{norm}: margin lowered by {gains}, broken {found['success'].sum()} and {noise['success'].sum()}")
    assert gains[0] >= 1.3 * gains[1]
    assert found["success"].sum() >= noise["success"].sum()
