"""The page of a plan for bags says what to do, in words that nothing of a user's can break."""

import pandas as pd
import pytest

from made_plan import HOSTILE, made_plan


@pytest.fixture(scope="module")
def page():
    pytest.importorskip("sklearn")
    from attnlimit.report.bags_page import plan_page

    plan = made_plan()
    telling = pd.DataFrame([{"bag": HOSTILE, "instance": 3, "alone": 0.9}])
    return plan_page(plan, telling, f"attnlimit sparse plan {HOSTILE}")


def test_the_page_says_what_to_use_and_what_it_stands_on(page):
    assert "Use attention" in page
    assert "90 %" in page
    assert "effective strength" in page
    assert "AttentionPooling" in page


def test_nothing_is_run(page):
    assert HOSTILE not in page
    assert "&lt;img" in page
