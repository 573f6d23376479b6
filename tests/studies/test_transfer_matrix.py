"""Transfer matrices: the diagonal is white-box, both denominators are right, and sizes are fitted at the centre."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import robustassay as ra
from robustassay import data
from robustassay.analysis import transfer
from robustassay.errors import BadRequest
from robustassay.studies.measures import transfer_matrix as studies
from robustassay.studies.measures.transfer_matrix import Examples, fitted, ranks, transfer_matrix, transfer_outcomes
from robustassay.threat import LInf, RandomTarget, ThreatModel


class Says(nn.Module):
    """Says the class written into the first value of an image, shifted by so many, and counts how often it is asked."""

    def __init__(self, shift: int = 0, classes: int = 10) -> None:
        super().__init__()
        self.shift, self.classes, self.images = shift, classes, 0
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.images += len(x)
        said = (x.flatten(1)[:, 0] * 100).round().long() + self.shift
        return torch.eye(self.classes)[said % self.classes] + 0.01 * torch.arange(self.classes)


def images(*classes: int) -> Tensor:
    """Write classes into images."""
    x = torch.zeros(len(classes), 1, 2, 2)
    x[:, 0, 0, 0] = torch.tensor(classes) / 100
    return x


CLEAN = images(0, 1, 2, 3)
LABELS = torch.tensor([0, 1, 2, 5])  # the honest model is wrong about the last
ADVERSARIAL = images(0, 4, 4, 5)
AIMS = torch.tensor([9, 4, 4, 4])


def test_two_identical_models_have_white_box_rates_everywhere():
    source = ra.load_model("resnet20-natural")
    result = ra.evaluate("resnet20-natural", "cifar10-1k", LInf(2 / 255), "fgsm", limit=48)
    made = Examples.of_result(result, data.load("cifar10-1k"))
    found = transfer_matrix({"one": made, "two": made}, {"one": source, "two": ra.load_model("resnet20-natural")})
    assert 0.1 < found.rates.to_numpy().min() < 1, "neither nothing nor everything falls"
    assert np.unique(found.rates.to_numpy()).size == 1
    assert found.rate("one", "two").value == 1 - result.robust_accuracy
    both = transfer_matrix({"one": made}, {"one": source}, among="both correct")
    assert both.rates.to_numpy() == result.attack_success_rate
    assert both.rate("one", "one").total == int(result.records["clean_ok"].sum()) < 48


def test_a_targeted_diagonal_is_the_success_rate():
    threat = ThreatModel(LInf(4 / 255), RandomTarget())
    result = ra.evaluate("resnet20-natural", "cifar10-1k", threat, "bim:steps=3", limit=16)
    made = Examples.of_result(result, data.load("cifar10-1k"))
    found = transfer_matrix({"r": made}, {"r": ra.load_model("resnet20-natural")}, measure="matching")
    assert 0 < found.rate("r", "r").value == result.attack_success_rate


def test_every_number_by_hand():
    made = Examples(CLEAN, ADVERSARIAL, LABELS, AIMS)
    targets = {"honest": Says(), "shifted": Says(shift=1)}
    outcomes = transfer_outcomes({"honest": made}, targets)
    # honest says 0 4 4 5 of labels 0 1 2 5; shifted says 1 5 5 6 and is wrong about every clean image
    assert outcomes["predicted"].tolist() == [0, 4, 4, 5, 1, 5, 5, 6]
    error = transfer.matrix(outcomes)
    assert error.counts.to_numpy()[0].tolist() == [2, 4]
    assert error.rates.to_numpy()[0].tolist() == [0.5, 1.0]
    pd.testing.assert_frame_equal(transfer.matrix(outcomes, "accuracy").rates, 1 - error.rates)
    assert transfer.matrix(outcomes, "matching").counts.to_numpy()[0].tolist() == [2, 0]
    both = transfer.matrix(outcomes, among="both correct")
    assert both.totals.to_numpy()[0].tolist() == [3, 0]  # the last clean image is a mistake; no one agrees with shifted
    assert both.counts.to_numpy()[0].tolist() == [2, 0]
    assert both.rates.isna().to_numpy().tolist() == [[False, True]]
    assert "both models are right" in both.title
    assert "all examples" in error.title
    assert (error.images, both.images) == ("4 images", "0 to 3 images")
    low, high = error.interval()
    assert (low.loc["honest", "honest"], high.loc["honest", "honest"]) == error.rate("honest", "honest").interval()


def test_top_k_counts_ranks_with_the_platforms_rule_for_ties():
    logits = torch.tensor([[3.0, 1.0, 3.0, 2.0]])
    assert [int(ranks(logits, torch.tensor([k]))) for k in range(4)] == [0, 3, 1, 2]
    assert int(logits.argmax(1)) == 0
    outcomes = transfer_outcomes({"honest": Examples(CLEAN, ADVERSARIAL, LABELS, AIMS)}, {"honest": Says()})
    # beside the class it says, Says finds higher classes likelier: target 9 of the first image comes second
    assert [transfer.matrix(outcomes, "matching", top).counts.iat[0, 0] for top in (1, 2, 10)] == [2, 3, 4]
    with pytest.raises(BadRequest, match="top must be"):
        transfer.matrix(outcomes, "matching", 0)


def test_who_was_right_is_found_out_or_asked_for():
    made = Examples(CLEAN, ADVERSARIAL, LABELS)
    outside = transfer_outcomes({"source": made}, {"honest": Says()})
    with pytest.raises(BadRequest, match="not known"):
        transfer.matrix(outside, among="both correct")
    told = Examples(CLEAN, ADVERSARIAL, LABELS, clean_ok=torch.tensor([False, True, True, True]))
    assert transfer_matrix({"source": told}, {"honest": Says()}, among="both correct").totals.to_numpy() == 2
    with pytest.raises(BadRequest, match="no target to match"):
        transfer.matrix(outside, "matching")


def test_clean_images_are_looked_at_once_for_all_sources():
    target = Says()
    made = {name: Examples(CLEAN, ADVERSARIAL, LABELS) for name in "abc"}
    transfer_outcomes(made, {"t": target})
    batch = 8  # networks are asked in whole lanes; one more call each time learns the number of classes
    assert target.images == (1 + 3) * (batch + 1)
    shared: studies.CleanLogits = {}
    again = Says()
    first, second = (transfer_outcomes(made, {"t": again}, known=shared) for _ in range(2))  # of two attacks
    assert again.images == (1 + 3 + 3) * (batch + 1)
    assert first.equals(second)


def test_images_of_another_size_are_cut_or_padded_at_the_centre_or_scaled():
    x = torch.arange(25.0).view(1, 1, 5, 5) / 25
    assert torch.equal(fitted(x, (3, 3)), x[..., 1:4, 1:4])
    wide = fitted(x, (7, 7))
    assert torch.equal(wide[..., 1:6, 1:6], x)
    assert wide.sum() == x.sum()
    assert torch.equal(fitted(fitted(x, (8, 9)), (5, 5)), x)
    assert fitted(x, (3, 7)).shape[-2:] == (3, 7)
    assert torch.equal(fitted(x, (5, 5), "resize"), x)
    flat = torch.full((1, 1, 5, 5), 0.25)
    assert torch.allclose(fitted(flat, (9, 9), "resize"), torch.full((1, 1, 9, 9), 0.25))
    made = Examples(CLEAN, ADVERSARIAL, LABELS)
    padded = transfer_matrix({"s": made}, {"t": Says()}, sizes={"t": (4, 4)})
    assert padded.counts.to_numpy() == 3  # the class is written into the corner, which is black now: all say 0


def test_same_mistakes_and_common_wrong_labels():
    outcomes = transfer_outcomes(
        {"s": Examples(CLEAN, ADVERSARIAL, LABELS)}, {"a": Says(), "b": Says(), "c": Says(shift=1)}
    )
    same, both = transfer.same_mistakes(outcomes)
    assert same.to_numpy().tolist() == [[2, 2, 0], [2, 2, 0], [0, 0, 4]]
    assert both.to_numpy().tolist() == [[2, 2, 2], [2, 2, 2], [2, 2, 4]]
    wrong = transfer.wrong_labels(outcomes, most=2)
    assert wrong[wrong["target"] == "c"][["label", "count", "part"]].to_numpy().tolist() == [[5, 2, 0.5], [1, 1, 0.25]]
    with pytest.raises(BadRequest, match="one source"):
        transfer.same_mistakes(pd.concat([outcomes, outcomes.assign(source="other")]))


def test_bad_requests_are_refused():
    with pytest.raises(BadRequest, match="one adversarial image"):
        Examples(CLEAN, ADVERSARIAL[:2], LABELS)
    with pytest.raises(BadRequest, match="training mode"):
        transfer_outcomes({"s": Examples(CLEAN, ADVERSARIAL, LABELS)}, {"t": Says().train()})
    result = ra.evaluate(Says(), (CLEAN, LABELS), LInf(0.1), "uniform-noise:steps=1", keep_images=False)
    with pytest.raises(BadRequest, match="kept no images"):
        studies.Examples.of_result(result, data.load("cifar10-1k"))
