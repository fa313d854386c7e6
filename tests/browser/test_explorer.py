"""The explorer in a real browser: moving a slider moves its curve."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from explorer import write_explorer


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_explorer(tmp_path_factory.mktemp("page") / "explorer.html")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "light"), (1280, "dark")])
def test_the_explorer_loads_quietly_and_fits(visit, path, width, scheme):
    seen = visit(path, width=width, scheme=scheme)
    seen.keep(f"explorer-{width}-{scheme}")
    assert seen.errors == []
    assert seen.outside() == []
    assert seen.fits()


@pytest.mark.parametrize(
    ("slider", "plot", "trace"),
    [
        ("horizon", "law-plot", 1),
        ("dim", "law-plot", 1),
        ("sharpness", "law-plot", 1),
        ("n", "law-plot", 2),
        ("length", "strength-plot", 0),
        ("signals", "strength-plot", 0),
        ("strength", "alpha-plot", 0),
        ("alpha", "strength-plot", 0),
    ],
)
def test_a_slider_moves_its_curve(visit, path, slider, plot, trace):
    seen = visit(path)
    values = f"document.getElementById('{plot}').data[{trace}].y.join()"
    before = seen.page.evaluate(values)
    seen.page.locator(f"#slider-{slider}").focus()
    seen.page.keyboard.press("ArrowRight")
    assert seen.page.evaluate(values) != before
    assert seen.errors == []


def test_the_explorer_prints(visit, path, tmp_path):
    seen = visit(path)
    seen.page.emulate_media(media="print")
    seen.page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 10_000
    assert seen.errors == []
