"""Every result can be drawn, with labels on its axes, alone and on axes of the user's."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

import attnlimit as al
from attnlimit import sparse
from attnlimit.result import Pictured

HEAD, TOKENS = al.Head(0.8 * np.eye(3)), al.Gaussian(dim=3, variance=0.5)
N = [20, 40, 80, 160]
KEYS = al.Empirical(np.random.default_rng(0).normal(size=(30, 3)))
TASK = sparse.SparseTask(length=4, signals=1, strength=3.0)


def measured():
    return al.measure(HEAD, TOKENS, "mean", N, replicates=20)


MAKERS = {
    "predicted": lambda: al.predict(HEAD, TOKENS, "mean", N),
    "measured": measured,
    "fit": lambda: al.fit_rate(measured(), predicted=al.predict(HEAD, TOKENS, "mean", N)),
    "law": lambda: al.gaussian_law([[0.5], [2.0]], N),
    "pointwise": lambda: al.pointwise_error(HEAD, TOKENS, np.eye(3)[:2], N),
    "bound": lambda: al.uniform_bound(HEAD, al.Sphere(3), 1.0, N, 0.05),
    "hardmax": lambda: al.hardmax_error(HEAD, TOKENS, np.eye(3)[:1], N),
    "sampler": lambda: al.kept_error(HEAD, KEYS, np.eye(3), [1.0] + 29 * [0.4]),
    "readout": lambda: sparse.readout(TASK, 2.0, cosine=0.8),
    "pooled": lambda: sparse.readout(TASK, 2.0, "pooled"),
    "learning": lambda: sparse.learning_curve(TASK, [1.0, 2.0], "pooled"),
}


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.mark.parametrize("name", MAKERS)
def test_a_result_draws_itself(name):
    result = MAKERS[name]()
    assert isinstance(result, Pictured)
    axes = result.plot()
    assert axes.get_xlabel()
    assert axes.get_title()
    assert axes.lines or axes.containers or axes.collections
    axes.figure.canvas.draw()
    html = result._repr_html_()
    assert html.startswith("<p>")
    assert "<table" in html


def test_predicted_and_measured_share_a_colour_and_differ_in_style():
    axes = al.predict(HEAD, TOKENS, "mean", N).plot(measured())
    line, points = axes.lines[0], axes.containers[0].lines[0]
    assert line.get_color() == points.get_color()
    assert line.get_linestyle() == "-"
    assert points.get_marker() == "o"
    assert len(axes.get_legend().get_texts()) == 2


def test_a_user_s_axes_take_the_next_colour_and_the_label():
    _, axes = plt.subplots()
    for scale in (0.5, 1.0):
        drawn = al.predict(HEAD.scaled(scale), TOKENS, "mean", N).plot(
            ax=axes, label=f"λ = {scale}"
        )
        assert drawn is axes
    colours = {line.get_color() for line in axes.lines}
    assert len(colours) == 2
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["λ = 0.5", "λ = 1.0"]
    chosen = al.predict(HEAD, TOKENS, "mean", N).plot(color="black")
    assert chosen.lines[0].get_color() == "black"


def test_a_readout_draws_the_law_of_its_prediction():
    readout = sparse.readout(TASK, 2.0, cosine=0.8)
    positive, negative = readout.panel().series[:2]
    step = positive.x[1] - positive.x[0]
    assert sum(positive.y) * step == pytest.approx(TASK.prior, abs=2e-3)
    missed = sum(positive.y[positive.x < 0]) + sum(negative.y[negative.x > 0])
    assert missed * step == pytest.approx(readout.test_error, abs=5e-3)
