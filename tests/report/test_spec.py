import pytest

from attnlimit.picture import BARS, FigureSpec, Panel, Series


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
