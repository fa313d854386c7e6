"""Workers that read a stored capture plan what one process plans, bit for bit."""

from __future__ import annotations

import pytest

from attnlimit.budgets import plan_budgets
from attnlimit.errors import BadInput
from attnlimit.reproduce.plan_run import plan_by_workers
from attnlimit.runs import InProcess
from attnlimit.survey import ask_stored
from called import call
from every_sampler import made_capture


@pytest.fixture
def folder(tmp_path):
    made_capture(tokens=20, causal=True).save(tmp_path / "capture")
    return tmp_path / "capture"


def test_a_plan_by_workers_is_the_plan(folder):
    question = ask_stored(folder)
    alone = plan_budgets(question.captures(), question.terms, source=question.source)
    spread = plan_by_workers(question, InProcess())
    assert spread.to_dict() == alone.to_dict()


def test_captures_that_changed_since_are_refused(folder):
    question = ask_stored(folder)
    path = folder / "capture.json"
    path.write_text(path.read_text().replace('"t3"', '"t4"'))
    with pytest.raises(BadInput, match="have changed since they were asked about"):
        plan_by_workers(question, InProcess())


@pytest.mark.slow
def test_the_command_plans_with_two_workers(folder):
    code, alone, err = call("plan", "--capture", folder, "--json", "--workers", 1)
    assert code == 0, err
    code, spread, err = call("plan", "--capture", folder, "--json", "--workers", 2)
    assert code == 0, err
    assert spread == alone


def test_a_capture_without_gradients_says_nothing_of_the_output(folder):
    code, _, err = call("plan", "--capture", folder, "--kl", 0.01)
    assert code == 2
    assert "capture again with --probes 4" in err
