"""The page of a plan for bags in a real browser: it draws, fits, and stays on the machine."""

from dataclasses import replace

import pandas as pd
import pytest

from made_plan import HOSTILE, made_plan


@pytest.fixture(scope="module")
def path(browser, tmp_path_factory):
    pytest.importorskip("sklearn")
    from attnlimit.report.bags_page import plan_page
    from attnlimit.report.page import write_page

    telling = pd.DataFrame([{"bag": HOSTILE, "instance": 3, "of": 12, "alone": 0.93}])
    text = plan_page(replace(made_plan(), deciding=telling), "attnlimit bags plan pilot.csv")
    return write_page(tmp_path_factory.mktemp("plan") / "sparse-plan.html", text)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_the_page_loads_quietly_and_fits(visit, path, width, scheme):
    seen = visit(path, width=width, scheme=scheme)
    assert seen.page.locator(".canvas .main-svg").count() >= 2
    seen.keep(f"bags-plan-{width}-{scheme}")
    assert seen.errors == []
    assert seen.outside() == []
    assert seen.dialogs == []
    assert seen.fits()


def test_bands_lines_and_points_are_drawn(visit, path):
    seen = visit(path)
    kinds = "document.getElementById('figure-0-0').data.map((t) => t.mode + (t.fill || '')).join()"
    drawn = seen.page.evaluate(kinds)
    assert "toself" in drawn
    assert "markers" in drawn
    assert seen.page.locator("h1").inner_text().endswith("labelled bags are enough")
