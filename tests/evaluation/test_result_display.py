"""A result in a notebook or an interpreter: texts, figures, names and progress."""

import sys
import types

import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay.analysis.rates import Rate
from robustassay.errors import BadRequest
from robustassay.evaluation.notebook_progress import NotebookProgress, default_progress
from robustassay.evaluation.progress import NoProgress

X = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()


@pytest.fixture(scope="module")
def result(model):
    labels = model(X).argmax(1)
    return ra.evaluate(model, (X, labels), ra.LInf(0.1), ["fgsm", "pgd:steps=3"], search=ra.Search(self_test=0))


def test_texts_are_short_and_hold_the_numbers(result):
    assert repr(result) == f"<Result {result}>"
    assert len(repr(result)) < 300
    html = result._repr_html_()
    assert f"{result.robust_accuracy:.1%}" in html
    assert "worst case" in html
    assert html.count("<tr>") == 4


def test_rates_over_nothing_are_dashes(result):
    import dataclasses

    empty = dataclasses.replace(result.parts["pgd"], records=result.parts["pgd"].records[:0])
    assert "nan" not in str(empty)
    assert "clean –" in str(empty)
    assert "nan" not in empty._repr_html_()


def test_plot_draws_a_curve_per_attack_and_the_worst_case(result):
    figure = result.plot()
    (axes,) = figure.axes
    assert axes.get_xlabel() == "iterations"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["fgsm", "pgd", "worst case"]
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert result.parts["pgd"].plot("eps").axes[0].get_xlabel() == "eps (1/255)"


def test_examples_show_broken_samples_and_need_their_images(result, tmp_path):
    broken = int(result.records["success"].sum())
    assert broken
    assert len(result.show_examples(count=2).axes) == 3 * min(2, broken)
    result.save(tmp_path)
    loaded = ra.Result.load(tmp_path)
    labels = torch.tensor(result.records["label"].to_numpy("int64"))
    assert len(loaded.show_examples(1, data=(X, labels)).axes) == 3
    with pytest.raises(BadRequest, match="not the images of the run"):
        loaded.show_examples(1, data=(1 - X, labels))


def test_nothing_broken_is_said(model):
    standing = ra.evaluate(model, (X, model(X).argmax(1)), ra.LInf(1e-6), "fgsm", search=ra.Search(self_test=0))
    with pytest.raises(BadRequest, match="No image was broken"):
        standing.show_examples()


def test_public_names_are_listed_and_misspelled_ones_corrected():
    assert dir(ra) == sorted(ra.__all__)
    with pytest.raises(AttributeError, match="did you mean LInf"):
        getattr(ra, "Linf")  # noqa: B009, a type checker reports the name
    with pytest.raises(AttributeError, match="did you mean evaluate"):
        getattr(ra, "evalute")  # noqa: B009
    assert not hasattr(ra, "__wrapped__")


def test_a_notebook_gets_a_bar(monkeypatch):
    shown = []

    class Handle:
        def update(self, html):
            shown.append(html)

    def show(html, display_id):
        shown.append(html)
        return Handle()

    display = types.SimpleNamespace(HTML=str, display=show)
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    bar = default_progress()
    assert isinstance(bar, NotebookProgress)
    bar.start("model, pgd", 10, 2)
    bar._due = 0
    bar.update(6.0, Rate(3, 6))
    bar.finish()
    assert "6 of 10 samples" in shown[1]
    assert "50.0%" in shown[1]
    assert shown[2] == ""
    shell.kernel = None
    assert isinstance(default_progress(), NoProgress)
