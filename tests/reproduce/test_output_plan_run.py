"""Workers that read the layers of a capture plan for the output what one process plans."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")

from attnlimit.errors import BadInput
from attnlimit.models import capture, open_capture, plan_output
from attnlimit.reproduce.output_plan_run import output_plan_by_workers
from attnlimit.runs import InProcess
from attnlimit.survey import ask_stored
from called import call
from small_causal import build

IDS = torch.randint(0, 99, (40,), generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("kept")
    capture(build(), IDS, folder=place, probes=3)
    return place


@pytest.mark.parametrize("cost", ["read", "bytes"])
def test_a_plan_by_layers_is_the_plan(folder, cost):
    how = {"per": "head", "cost": cost}
    apart = output_plan_by_workers(ask_stored(folder, output={"kl": 0.01, **how}), InProcess())
    assert apart.to_dict() == plan_output(open_capture(folder), kl=0.01, **how).to_dict()


def test_what_a_capture_cannot_plan_is_refused_before_any_work(folder):
    question = ask_stored(folder, output={"kl": 0.01, "scheme": "top-k:4"})
    with pytest.raises(BadInput, match="takes a run of the model"):
        output_plan_by_workers(question, None)


@pytest.mark.slow
def test_the_command_plans_with_two_workers(folder):
    found = [
        call("plan", "--capture", folder, "--kl", 0.01, "--json", "--workers", number)
        for number in (1, 2)
    ]
    assert [code for code, _, _ in found] == [0, 0]
    assert found[0][1] == found[1][1]
