"""The doctor: silent on honest models, loud on every broken one, and remedies that work."""

import ast
import dataclasses
import importlib
import inspect
import json
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import robustassay as ra
from robustassay import data
from robustassay.cli import main
from robustassay.doctor import (
    attack_checks,
    cross_checks,
    diagnose,
    diagnosis,
    gradient_checks,
    output_checks,
    repeat_checks,
)
from robustassay.doctor.attack_checks import PlainAttack
from robustassay.doctor.candidates import gives_gradients
from robustassay.doctor.gradient_fixes import (
    Bypass,
    FixedGradients,
    LayerOutput,
    LogOutputs,
    RescaleLogits,
    ReverseGradient,
    SmoothGradient,
)
from robustassay.doctor.layer_trace import find_bypass
from robustassay.doctor.probe_set import AscentTrace, ProbeSet
from robustassay.doctor.taps import find_logit_layer
from robustassay.errors import BadRequest, UnknownName
from robustassay.models import names
from robustassay.target import LocalModel
from robustassay.threat import LInf, Untargeted
from tests.support.masked import GALLERY, Closed, Embeds, Lies, Masked, Purifies, Staircase, Thermometer, quantised
from tests.support.toys import CPU, Linear, two_classes

EPS = 8 / 255
IMAGES = 8  # few, so that the suite stays quick; benchmarks/masked_models.py examines with more


@pytest.fixture(autouse=True)
def short_cross_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Square makes few queries, so that the suite stays quick; tests/doctor/test_checks.py tries it alone."""
    monkeypatch.setattr(cross_checks, "QUERIES", cross_checks.MIN_QUERIES)


@pytest.fixture(scope="module")
def small() -> nn.Module:
    """A small network with fixed weights, whose labels are its own answers."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Softplus(),
        nn.Conv2d(8, 8, 3, stride=4),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 4),
    ).eval()


@pytest.fixture(scope="module")
def x() -> Tensor:
    return data.load("cifar10-1k").images(slice(0, 6))[:, :, ::2, ::2].contiguous()


def slope(ask: object, x: Tensor) -> Tensor:
    """The gradient of the first logit."""
    images = x.clone().requires_grad_()
    out = ask(images)  # type: ignore[operator]
    (found,) = torch.autograd.grad(out[:, 0].sum(), images)
    return found


def target_of(module: nn.Module, x: Tensor) -> LocalModel:
    return LocalModel.of(module, x, CPU)


def goal_of(module: nn.Module, x: Tensor) -> Untargeted:
    with torch.no_grad():
        return Untargeted(module(x).argmax(1))


# ---------------------------------------------------------------- fixes, against gradients that are known


@pytest.mark.parametrize("front", [Closed, quantised, lambda m: Masked(m, before=lambda v: v.detach())])
def test_a_bridge_gives_the_gradient_of_the_model_behind_the_fault_at_what_that_model_is_shown(front, small, x):
    broken = front(small)
    shown = {"seen": x}
    with small[0].register_forward_pre_hook(lambda layer, values: shown.update(seen=values[0].detach())):
        broken(x)
    bypass = find_bypass(target_of(broken, x), x, goal_of(broken, x))
    assert bypass is not None
    fixed = FixedGradients(broken, [bypass])
    truth = slope(small, shown["seen"])
    found = slope(fixed.differentiable, x)
    assert F.cosine_similarity(found.flatten(1), truth.flatten(1)).min() > 0.999
    assert torch.equal(fixed(x), broken(x))
    assert torch.allclose(fixed.differentiable(x), broken(x), atol=1e-6)


@pytest.mark.parametrize("front", [Embeds, Thermometer, lambda m: Staircase(m, 16)])
def test_a_bridge_is_found_over_tables_codes_and_dead_units(front, x):
    torch.manual_seed(1)
    small = nn.Sequential(nn.Conv2d(3, 6, 3), nn.Softplus(), nn.Flatten(), nn.Linear(6 * 14 * 14, 4)).eval()
    broken = front(small)
    bypass = find_bypass(target_of(broken, x), x, goal_of(broken, x))
    assert bypass is not None
    found, truth = slope(FixedGradients(broken, [bypass]).differentiable, x), slope(small, x)
    assert F.cosine_similarity(found.flatten(1), truth.flatten(1)).min() > 0.9


def test_a_bridge_takes_a_normalisation_for_what_it_is(x):
    torch.manual_seed(2)
    head = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 14 * 14, 3)).eval()
    scale = torch.tensor([0.2, 0.5, 3.0]).view(3, 1, 1)
    honest, broken = Masked(head, before=lambda v: v / scale), Masked(head, before=lambda v: v.detach() / scale)
    bypass = find_bypass(target_of(broken, x), x, goal_of(broken, x))
    assert bypass is not None
    assert torch.allclose(
        slope(FixedGradients(broken, [bypass]).differentiable, x), slope(honest, x), rtol=1e-3, atol=1e-5
    )


def test_a_bridge_starts_at_the_layer_before_the_gap_and_not_at_the_image(x):
    torch.manual_seed(3)
    first, second = nn.Conv2d(3, 5, 3), nn.Linear(5 * 14 * 14, 3)
    body = nn.Sequential(first, nn.Conv2d(5, 5, 1), nn.Flatten(), second).eval()

    class Gap(nn.Module):
        def forward(self, v: Tensor) -> Tensor:
            logits: Tensor = second(body[1](first(v).detach()).flatten(1))
            return logits

    broken = Gap()
    broken.body = body
    broken.eval()
    bypass = find_bypass(target_of(broken, x), x, goal_of(broken, x))
    assert bypass is not None
    assert bypass.source is first
    assert torch.allclose(
        slope(FixedGradients(broken, [bypass]).differentiable, x), slope(body, x), rtol=1e-3, atol=1e-6
    )


def test_a_bridge_leaves_the_inner_passes_of_an_optimising_model_alone(x):
    torch.manual_seed(4)
    even = [nn.Conv2d(3, 6, 3, padding=1), nn.Softplus(), nn.Conv2d(6, 6, 3, padding=1), nn.Flatten()]
    body = nn.Sequential(*even, nn.Linear(6 * 16 * 16, 4)).eval()  # its layers fit each other: none may be the start
    broken = Purifies(body, steps=2)
    bypass = find_bypass(target_of(broken, x), x, goal_of(broken, x))
    assert bypass is not None
    assert bypass.source is None
    assert bypass.call == 3, "two steps of its own, then the answer"
    fixed = FixedGradients(broken, [bypass])
    assert torch.allclose(fixed.differentiable(x), broken(x), atol=1e-6)
    found, truth = slope(fixed.differentiable, x), slope(body, x)
    assert F.cosine_similarity(found.flatten(1), truth.flatten(1)).min() > 0.95, "its steps are small"


def test_inference_mode_cannot_be_opened_and_is_no_error(small, x):
    class Sealed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = small
            self.eval()

        @torch.inference_mode()
        def forward(self, v: Tensor) -> Tensor:
            logits: Tensor = self.inner(v)
            return logits

    sealed, names = Sealed(), [str(row) for row in range(len(x))]
    assert find_bypass(target_of(sealed, x), x, goal_of(sealed, x)) is None
    tap = find_logit_layer(target_of(sealed, x), x)
    assert tap is not None
    shown = ProbeSet.of(LocalModel(sealed, 4, CPU, 8), names, x, goal_of(sealed, x).labels, LInf(EPS))
    assert not gives_gradients(FixedGradients(sealed, [tap]), shown), "so it is never prescribed"
    opened = ProbeSet.of(LocalModel(small, 4, CPU, 8), names, x, goal_of(small, x).labels, LInf(EPS))
    assert gives_gradients(FixedGradients(small, [tap]), opened)


def test_no_bridge_where_nothing_linear_explains_what_a_layer_is_shown(small, x):
    scrambled = Masked(small, before=lambda v: torch.sin(1e5 * v.detach()))
    assert find_bypass(target_of(scrambled, x), x, goal_of(scrambled, x)) is None


def test_taps_and_scales_return_the_logits_before_what_was_done_to_them(small, x):
    plain = small(x)
    for spoilt in (lambda z: z.softmax(1), lambda z: z / 1e3, lambda z: z.detach(), lambda z: torch.sigmoid(9 * z)):
        broken = Masked(small, after=spoilt)
        tap = find_logit_layer(target_of(broken, x), x)
        assert tap is not None
        assert torch.allclose(FixedGradients(broken, [tap]).differentiable(x), plain)
    logs = FixedGradients(Masked(small, after=lambda z: z.softmax(1)), [LogOutputs()]).differentiable(x)
    assert torch.allclose(logs - logs.mean(1, True), plain - plain.mean(1, True), atol=1e-4)
    assert torch.allclose(FixedGradients(small, [RescaleLogits(7.0)]).differentiable(x), 7 * plain)


def test_a_reversed_gradient_is_the_true_one_of_a_model_that_flips_signs(small, x):
    liar = Lies(small, torch.neg)
    assert torch.allclose(
        slope(FixedGradients(liar, [ReverseGradient()]).differentiable, x), slope(small, x), atol=1e-6
    )


def test_smoothing_finds_the_slope_under_a_ripple():
    weight = torch.tensor([[1.0, -2.0, 0.5, 1.0], [0, 0, 0, 0]])
    plain = Linear(weight, torch.zeros(2))
    rippled = Masked(plain, before=lambda v: v + 0.01 * torch.sin(3e3 * v))
    x = torch.full((3, 1, 2, 2), 0.4) + 0.01 * torch.arange(3).view(3, 1, 1, 1)
    truth = slope(plain, x).flatten(1)
    before = F.cosine_similarity(slope(rippled, x).flatten(1), truth)
    smooth = FixedGradients(rippled, [SmoothGradient(0.02, 512)])
    after = F.cosine_similarity(slope(smooth.differentiable, x).flatten(1), truth)
    assert after.min() > before.min()
    alone = torch.cat([smooth.differentiable(row[None]) for row in x])
    assert torch.allclose(alone, smooth.differentiable(x), atol=1e-6), "an image's mates change nothing"


def test_treatments_travel_to_other_processes(small, x):
    broken = Closed(small)
    bypass = find_bypass(target_of(broken, x), x, goal_of(broken, x))
    assert isinstance(bypass, Bypass)
    tap = find_logit_layer(target_of(broken, x), x)
    assert isinstance(tap, LayerOutput)
    fixed = FixedGradients(broken, [bypass, tap])
    again = pickle.loads(pickle.dumps(fixed))
    assert torch.equal(slope(again.differentiable, x), slope(fixed.differentiable, x))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in broken.modules()), "no hook is left"


# ---------------------------------------------------------------- indicators, on models whose answer is known


def probes(module: nn.Module, eps: float, n: int = 4) -> ProbeSet:
    x = torch.full((n, 1, 2, 2), 0.5)
    network = LocalModel(module, 2, CPU, 8)
    return ProbeSet.of(network, [str(row) for row in range(n)], x, torch.zeros(n, dtype=torch.int64), LInf(eps))


def test_the_plain_attack_breaks_a_linear_model_just_above_its_distance_and_not_below():
    model = two_classes(4)
    step = float(model.weight.detach().diff(dim=0).abs().sum())  # margin lost a unit of eps
    above, below = (PlainAttack.run(probes(model, 1.0 / step * factor)) for factor in (1.05, 0.95))
    assert not above.unbroken.any()
    assert below.unbroken.all()
    for search in (above, below):
        findings = (search.silent_success(), search.incomplete(), search.fails_unbounded(), search.not_falling())
        assert not [finding.indicator for finding in findings if finding.strong]


def test_a_constant_model_withstands_what_no_honest_one_does():
    class Still(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor([[1.0, 0.0]]) + 0 * x.flatten(1)[:, :2]

    search = PlainAttack.run(probes(Still().eval(), 0.1))
    assert search.fails_unbounded().value == 1
    assert search.fails_unbounded().strong
    assert search.not_falling().strong


def search_with(margins: list[list[float]]) -> PlainAttack:
    """A search on two images whose plain attack saw these margins, one row a step, the clean ones being 1."""
    seen = torch.tensor(margins)
    shown = dataclasses.replace(probes(two_classes(4), 0.1, n=2), clean=torch.ones(2))
    ascent = AscentTrace(seen, seen < 0)
    return PlainAttack(shown, ascent, {1.0: ascent.broken}, ascent.broken, ascent.lowest[-1])


def test_a_success_on_the_way_that_is_lost_at_the_end_is_silent():
    lost = search_with([[1.0, 1.0], [-0.1, 0.9], [0.2, 0.8]]).silent_success()
    kept = search_with([[1.0, 1.0], [0.2, 0.9], [-0.1, 0.8]]).silent_success()
    assert (lost.value, lost.strong) == (0.5, True)
    assert (kept.value, kept.strong) == (0.0, False)


def test_a_search_that_still_gains_at_its_end_is_incomplete():
    falling = [[1 - 0.04 * step, 1.0] for step in range(8)]
    settled = [[max(0.9, 1 - 0.05 * step)] * 2 for step in range(8)]
    assert search_with(falling).incomplete().value == 0.5
    both = search_with([[row[0]] * 2 for row in falling]).incomplete()
    assert (both.weak, both.strong) == (True, False), "an honest network may need more steps too"
    assert search_with(settled).incomplete().value == 0


# ---------------------------------------------------------------- the gallery and the zoo


@pytest.fixture(scope="module")
def natural() -> nn.Module:
    """The quickest natural model of the zoo."""
    return ra.load_model("vgg11-natural")


SLOW = pytest.mark.long


@pytest.mark.parametrize(
    "name", [name if name in ("vgg11-natural", "convnet-ibp") else pytest.param(name, marks=SLOW) for name in names()]
)
def test_honest_models_raise_no_alarm(name):
    found = diagnose(name, data.load("cifar10-1k"), samples=16)
    assert found.alarms == ()
    assert len(found.results) == 20
    assert found.unexamined == ()


def base_of(name: str) -> str:
    """Name what to break; in a shallow network ReLU lets no more than the k winners pass anyway."""
    return "resnet20-natural" if name == "k winners take all" else "vgg11-natural"


QUICK = ["temperature 1e3", "label leak"]  # others are found out where their remedies are tried


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=SLOW) for name in GALLERY])
def test_every_broken_model_is_found_out(name):
    found = diagnose(GALLERY[name](ra.load_model(base_of(name))), data.load("cifar10-1k"), samples=IMAGES, name=name)
    assert found.alarms, name
    assert found.remedies


def few() -> data.Dataset:
    """A dataset so small that the examination is short."""
    images = data.load("cifar10-1k")
    return data.from_arrays(images.images(slice(0, IMAGES)), images.labels[:IMAGES])


REMEDIED = {
    "quantised input": "bpda",
    "temperature 1e-3": "logits",
    "gradient sign flipped": "bpda",
}


@pytest.mark.parametrize(
    "name",
    [
        "temperature 1e-3",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("quantised input", "gradient sign flipped")),
    ],
)
def test_the_remedy_breaks_what_a_plain_attack_leaves_standing(name, natural, tmp_path):
    out = tmp_path / "run"
    result = ra.evaluate(  # exact: the surrogate of a model that flips signs is traced, and has none to flip
        GALLERY[name](natural),
        few(),
        LInf(EPS),
        "pgd:steps=3",
        search=ra.Search(adaptive="auto", precision="exact"),
        out=out,
    )
    plain = result.parts["pgd"]
    assert plain.robust_accuracy > 0.4, "or there was nothing to remedy"
    assert result.robust_accuracy == 0
    applied = [part.manifest["adaptive"]["remedy"] for label, part in result.parts.items() if label != "pgd"]
    assert applied, "the attack that breaks it is a remedy"
    assert REMEDIED[name] in plain.manifest["adaptive"]["remedies"], "though a cheaper one may do as well"
    assert plain.manifest["adaptive"]["alarms"]
    assert result.invalid_claims == 0
    again = ra.Result.load(out)
    assert again.robust_accuracy == result.robust_accuracy
    assert again.parts.keys() == result.parts.keys()


@pytest.mark.oracle
@SLOW
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GALLERY)
def test_remedies_leave_no_more_standing_than_the_strongest_other_library(name):
    pytest.importorskip("pyautoattack")
    row = importlib.import_module("benchmarks.masked_models").broken(name, base_of(name), IMAGES)
    assert row["alarms"]
    assert row["adaptive"] <= min(row["peers"].values())


@pytest.mark.long
def test_an_honest_model_gets_no_remedy(natural):
    plain = ra.evaluate(natural, few(), LInf(1 / 255), "pgd:steps=3")
    result = ra.evaluate(natural, few(), LInf(1 / 255), "pgd:steps=3", search=ra.Search(adaptive="auto"))
    assert list(result.parts) == ["pgd"]
    assert result.parts["pgd"].manifest["adaptive"]["alarms"] == []
    assert result.manifest["parts"]["pgd"]["key"] == plain.manifest["key"], "advice does not change what a run is"
    assert result.robust_accuracy == plain.robust_accuracy


def test_the_command_prints_evidence_and_json(tmp_path, capsys):
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import robustassay as ra, torch\n"
        "class Rounds(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inner = ra.load_model('convnet-ibp')\n"
        "    def forward(self, x):\n"
        "        return self.inner((x * 15).round() / 15)\n"
        "def make():\n"
        "    return Rounds().eval()\n"
    )
    assert main(["doctor", f"{broken}:make", "--limit", "6", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    first = told["indicators"][0]
    assert told["alarms"]
    assert (first["indicator"], first["value"], first["limit"]) == ("unavailable gradients", 1.0, 0.2)
    assert first["verdict"] == "alarm"
    assert "BPDA" in told["remedies"]["bpda"]
    assert main(["doctor", "convnet-ibp", "--limit", "6"]) == 0
    shown = capsys.readouterr()
    assert "unavailable gradients" in shown.out
    assert "no alarm" in shown.err


def test_bad_requests_say_what_to_do(natural):
    images = data.load("cifar10-1k")
    with pytest.raises(BadRequest, match="Linf, L2 or L1"):
        diagnose(natural, images, ra.L0(3))
    wrong = data.from_arrays(images.images(slice(0, 2)), (images.labels[:2] + 1) % 10)
    with pytest.raises(BadRequest, match="none of the 2 images"):
        diagnose(natural, wrong)
    with pytest.raises(UnknownName, match="adviser"):
        ra.evaluate(natural, images, LInf(EPS), "pgd", limit=2, search=ra.Search(adaptive="nurse"))


@pytest.mark.parametrize("module", [attack_checks, cross_checks, gradient_checks, output_checks, repeat_checks])
def test_every_check_is_part_of_a_diagnosis(module):
    functions = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.FunctionDef)]
    checks = [one.name for one in functions if one.returns and ast.unparse(one.returns) == "IndicatorResult"]
    public = [name for name in checks if not name.startswith("_")]
    assert public
    for name in public:
        assert f".{name}(" in inspect.getsource(diagnosis._results), f"{name} never runs: yield it in _results"
