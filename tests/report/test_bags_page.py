"""The page of a plan for bags says what to do, in words that nothing of a user's can break."""

from dataclasses import replace

import pandas as pd
import pytest

from made_plan import HOSTILE, made_plan


@pytest.fixture(scope="module")
def page():
    pytest.importorskip("sklearn")
    from attnlimit.report.bags_page import plan_page

    deciding = pd.DataFrame([{"bag": HOSTILE, "instance": 3, "alone": 0.9}])
    plan = replace(made_plan(), deciding=deciding)
    return plan_page(plan, f"attnlimit bags plan {HOSTILE}", str(plan.estimator))


def test_the_page_says_what_to_use_and_what_it_stands_on(page):
    assert "labelled bags are enough" in page
    assert "90 %" in page
    assert "effective strength" in page
    assert "AttentionPooling" in page


def test_nothing_is_run(page):
    assert HOSTILE not in page
    assert "&lt;img" in page
