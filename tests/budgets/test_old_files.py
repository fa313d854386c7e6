"""A budget file that 0.1.0 wrote is read as it was meant."""

import json

from attnlimit.budgets import read_plan
from budget_content import OLD


def test_a_file_of_the_first_release_is_read(tmp_path):
    path = tmp_path / "budget.json"
    path.write_text(json.dumps(OLD))
    plan = read_plan(path)
    assert plan.to_dict() == OLD
    assert plan[0, 0].sampler().k == 30
