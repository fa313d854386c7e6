"""A budget file may come from anywhere: it is read, or refused in one sentence."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlimit.budgets import plan_budgets, read_plan
from attnlimit.budgets.terms import Terms
from fuzz.hostile import as_json, damaged, json_values, nested, one_sentence, rewritten, share
from made_run import made_capture

PLAN = plan_budgets(made_capture(layers=2, heads=2), Terms(0.3, 0.1, 0.9), source={"model": "a"})
CONTENT = json.loads(json.dumps(PLAN.to_dict()))
FILE = json.dumps(CONTENT).encode()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("budgets") / "budget.json"


def use(place, content):
    """Read a budget file, and use the plan in every way there is."""
    place.write_bytes(content)
    with one_sentence():
        plan = read_plan(place)
        assert str(plan)
        plan.to_frame()
        plan.layers()
        plan.samplers()
        assert plan.tokens >= 1
        for head in plan.heads:
            assert str(head)
            head.to_frame()
        plan.write(place)


def test_the_file_itself_is_fine(place):
    use(place, FILE)
    assert read_plan(place).to_dict() == CONTENT


@share(1)
@given(st.binary(max_size=200) | json_values.map(as_json) | nested.map(str.encode))
def test_noise(place, content):
    use(place, content)


@share(4)
@given(damaged(FILE))
def test_a_damaged_file(place, content):
    use(place, content)


@share(3)
@given(rewritten(CONTENT).map(as_json))
def test_a_file_of_nonsense(place, content):
    use(place, content)
