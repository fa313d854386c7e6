"""The page of `attnlimit bags instances` in a real browser."""

import numpy as np
import pytest

import attnlimit as al
from attnlimit.bags import ScoredBags, instances
from attnlimit.report.bags_page import instances_page


@pytest.fixture(scope="module")
def path(browser, tmp_path_factory):
    rng = np.random.default_rng(0)
    features = [rng.standard_normal((6, 3)) for _ in range(4)]
    scored = ScoredBags([feature[:, 0] for feature in features], features, np.ones(3), 0.1)
    budget = instances(None, scored, [2, 4], samplers=(al.Iid(), al.TopK(1)), draws=20)
    page = tmp_path_factory.mktemp("page") / "enough.html"
    page.write_text(instances_page(budget, "<img src=x onerror=alert(1)>", "attnlimit <b>"))
    return page


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "light"), (1280, "dark")])
def test_the_page_loads_quietly_and_fits(visit, path, width, scheme):
    seen = visit(path, width=width, scheme=scheme)
    assert seen.page.locator("#figure-0-3 .main-svg").count() > 0
    seen.keep(f"enough-{width}-{scheme}")
    assert seen.errors == []
    assert seen.outside() == []
    assert seen.dialogs == []
    assert seen.fits()
    assert seen.page.locator("h1 img, pre b").count() == 0
    assert "is enough" in seen.page.locator("main ul").inner_text()
