"""Values without effect at the images: found where a gate is closed, and moved until it opens."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.doctor.cross_checks import WhiteBox, inactive_values
from robustassay.doctor.function_trace import FunctionCall
from robustassay.doctor.gradient_fixes import FixedGradients
from robustassay.doctor.inactive_values import find_inactive_values
from robustassay.doctor.probe_set import ProbeSet
from robustassay.doctor.straight_through import straight_through
from robustassay.doctor.value_fixes import ClassMeans, PushedValue, value_fixes
from robustassay.errors import ModelFailed
from robustassay.target import LocalModel
from robustassay.threat import LInf
from tests.support.patterns import CLASSES, EPS, FAINT, VALUES, ByPattern, broken_through, patterns, probes_of
from tests.support.toys import CPU, two_classes


class GatedByCode(ByPattern):
    """A code of six values, from the faint pattern, decides where it is that of another class."""

    def __init__(self) -> None:
        super().__init__()
        drawn = torch.randn(CLASSES, 6, generator=torch.Generator().manual_seed(3))
        self.book = nn.Buffer(drawn / drawn.norm(dim=1, keepdim=True))
        self.reader = nn.Buffer(self.faint @ self.book)

    def forward(self, x: Tensor) -> Tensor:
        shown = super().forward(x)
        code = torch.tanh((x - 0.5).flatten(1) @ self.reader / VALUES / FAINT)
        fits = torch.einsum("nb,cb->nc", code, self.book)
        opened = torch.relu(fits.amax(1) - (fits * F.one_hot(shown.argmax(1), CLASSES)).sum(1) - 0.1)
        return shown + 1e4 * (opened**3)[:, None] * fits


class GatedByValue(ByPattern):
    """The next class wins where one value of the image, far from zero, lies above a limit."""

    def __init__(self) -> None:
        super().__init__()
        drawn = patterns(4)[:, :1]
        self.pattern = nn.Buffer(drawn - self.clear @ torch.linalg.lstsq(self.clear, drawn).solution)

    def forward(self, x: Tensor) -> Tensor:
        shown = super().forward(x)
        value = self.scores(self.seen(x), self.pattern) + 1
        return shown + 1e3 * torch.relu(value - 1 - 0.7 * EPS) * shown.detach().roll(1, 1)

    def seen(self, x: Tensor) -> Tensor:
        """Return the image that the value is computed of."""
        return x


class GatedByRoundedValue(GatedByValue):
    """The same, of an image with rounded pixels."""

    def seen(self, x: Tensor) -> Tensor:
        """Return the image with 256 values per pixel."""
        return (255 * x).round() / 255


@pytest.mark.parametrize(
    ("gate", "fix"), [(GatedByCode, ClassMeans), (GatedByValue, PushedValue), (GatedByRoundedValue, PushedValue)]
)
def test_closed_gates_are_opened(gate, fix):
    probes = probes_of(gate())
    assert len(probes) == 12
    assert broken_through(probes, []) == 0, "or no attack on values is needed"
    tried = [fixes for fixes, _ in value_fixes(probes, straight_through(probes)) if isinstance(fixes[0], fix)]
    assert max(broken_through(probes, fixes) for fixes in tried) == 12
    found = inactive_values(WhiteBox(probes, probes.clean.double()))
    assert found.value == 1
    assert found.remedies == ("inactive", "square")


def test_an_honest_model_has_no_inactive_values():
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    model = nn.Sequential(*layers).eval()
    x = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    probes = ProbeSet.of(LocalModel(model, 4, CPU), list("abcdefgh"), x, model(x).argmax(1), LInf(EPS))
    assert find_inactive_values(probes) == []
    assert value_fixes(probes) == []
    found = inactive_values(WhiteBox(probes, probes.clean.double()))
    assert (found.value, found.unexamined) == (0, "")


def test_values_that_are_equal_on_all_images_do_not_count():
    labels = torch.arange(3).repeat(4)
    varying = F.one_hot(labels, 3).double()
    values = torch.cat((varying, torch.ones(12, 1).double()), 1)
    fitted, alone = (ClassMeans.fit(FunctionCall("linear", 1), one, labels, 3) for one in (values, varying))
    assert torch.allclose(fitted.nearness(values), alone.nearness(varying))
    assert torch.equal(fitted.nearness(values).argmax(1), labels)


def test_class_means_rank_the_classes_by_distance():
    drawn = torch.Generator().manual_seed(0)
    values, labels = torch.randn(9, 5, generator=drawn), torch.tensor([0, 2, 3] * 3)
    fitted = ClassMeans.fit(FunctionCall("linear", 1), values, labels, 5)
    scaled = values / values.std(0)
    means = torch.stack([scaled[labels == label].mean(0) for label in (0, 2, 3)])
    distances = torch.cdist(scaled, means).square()
    scores = fitted.nearness(values)
    assert torch.allclose(scores[:, [0, 2, 3]].diff(dim=1), -distances.diff(dim=1) / 2, atol=1e-5)
    assert bool((scores[:, [1, 4]] <= scores[:, [0, 2, 3]].amin(1, keepdim=True)).all()), "classes without images"


def test_a_call_that_other_images_do_not_reach_is_a_failure_of_the_model():
    fixed = FixedGradients(two_classes(4), [PushedValue(FunctionCall("linear", 2), 0.0, 1.0, 1.0)])
    with pytest.raises(ModelFailed, match="another way"):
        fixed.differentiable(torch.full((1, 1, 2, 2), 0.5))
