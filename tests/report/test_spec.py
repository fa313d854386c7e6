import numpy as np
import pytest

from attnlimit.picture import BARS, REFERENCE, FigureSpec, Panel, Series


@pytest.mark.parametrize(
    ("error", "caption", "below"),
    [
        (None, "All heads.", "All heads."),
        ([0.1], "All heads.", f"All heads; {BARS}"),
        ([0.1], "", BARS),
    ],
)
def test_a_figure_says_what_its_bars_are_where_it_has_some(error, caption, below):
    panel = Panel("one", "x", "y", [Series([1], [2], "points", error=error)])
    assert FigureSpec("title", [panel], caption=caption).below == below


def test_a_colour_means_the_same_in_all_panels():
    first = Panel("one", "x", "y", [Series([1], [2], group=name) for name in ("law", "drawn")])
    second = Panel("two", "x", "y", [Series([1], [2], group="drawn")])
    level = Panel("three", "x", "y", [Series([1], [2], group=REFERENCE)])
    assert FigureSpec("title", [second, first, level]).colours == {"drawn": 0, "law": 1}


def test_many_numbers_are_on_a_scale_and_names_keep_their_colours():
    many = [Series([1], [2], group=np.int64(n)) for n in (9, 1, 3, 5, 7, 2, 4, 6)]
    panel = Panel("one", "x", "y", [*many, Series([1], [2], group="slope")])
    colours = FigureSpec("title", [panel]).colours
    assert colours.pop("slope") == 0
    assert list(colours) == sorted(colours)
    assert (colours[1], colours[9]) == (0.0, 1.0)
