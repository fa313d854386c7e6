"""What a survey says of the output is what the library says, in sentences that hold."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from attnlimit.errors import BadInput
from attnlimit.models import output_error, plan_output, try_samplers
from attnlimit.reproduce.model import EXPERIMENT, survey_of
from attnlimit.samplers.spec import parse_sampler
from attnlimit.survey import Goal, Question, output_parts, survey_output
from attnlimit.survey.answer import Answer, keys_for, with_error
from made_run import made_model, made_run


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        return survey_of(made_run(tmp_path_factory.mktemp("runs"), patch))


@pytest.fixture(autouse=True)
def loaded(monkeypatch):
    model = made_model()
    monkeypatch.setattr(Question, "loaded", lambda self: model)
    return model


def test_the_asked_target_has_the_plan_of_plan_output(survey, loaded):
    question = replace(survey.question, goal=replace(survey.question.goal, allowed=2.5e-3))
    rows = pd.DataFrame(survey_output(question, "plan", 7)["targets"])
    asked = rows[rows.target == 2.5e-3].iloc[0]
    plan = plan_output(loaded, [list(question.passages[0].ids)], cosine=0.9975, seed=7)
    assert (asked["keys"], asked.predicted) == (plan.mean_keys, plan.predicted)
    assert rows.target.is_monotonic_increasing
    assert rows["keys"].is_monotonic_decreasing
    trial = try_samplers(loaded, list(question.unseen.ids), plan, repeats=2, seed=7)
    assert asked.measured == pytest.approx(1 - trial.embedding_cosine)
    assert rows.measured.notna().sum() == 1


def test_shares_add_up_to_the_predicted_error(survey):
    total = survey.tables["shares"].groupby("target").contribution.sum()
    predicted = survey.tables["targets"].set_index("target").predicted
    assert total.to_numpy() == pytest.approx(predicted.loc[total.index].to_numpy(), rel=0.01)


def test_the_plan_of_the_tables_can_be_written_and_read(survey, tmp_path):
    plan = survey.output_plan
    again = type(plan).read(plan.write(tmp_path / "plan.json"))
    assert again.samplers() == plan.samplers()
    assert plan.mean_keys == pytest.approx(plan.keys.mean())
    assert plan.predicted == pytest.approx(plan.contributions.sum(), rel=0.01)


def test_curves_are_those_of_the_passage_no_plan_has_seen(survey, loaded):
    curves = survey.tables["output"]
    assert set(curves.scheme) == {*output_parts()[2:], "yardstick"}
    row = curves[(curves.scheme == "top-k + sample") & (curves.law == "predicted")].iloc[-1]
    ids = list(survey.question.unseen.ids)
    one = output_error(loaded, ids, parse_sampler(row.sampler), probes=16)
    assert row["keys"] == pytest.approx(one.mean_keys)
    assert row.error == pytest.approx(one.value, abs=4 * np.hypot(row.stderr, one.stderr))
    limit = curves[curves.scheme == "yardstick"]
    ours = curves[(curves.scheme == "threshold") & (curves.law == "predicted")]
    assert (limit.error.to_numpy() <= ours.error.to_numpy()).all()


def test_a_model_whose_output_is_refused_still_has_heads(survey, monkeypatch):
    def refuse(*_, **__):
        raise BadInput("No gradient reaches the output.")

    monkeypatch.setattr("attnlimit.survey.output.ground_of", refuse)
    config = survey.question.to_config()
    seed = np.random.SeedSequence(0)
    row = EXPERIMENT.compute({**config, "part": output_parts()[0]}, seed).iloc[0]
    assert row.refusals == [{"reason": "No gradient reaches the output."}]
    assert row.targets == []
    empty = {name: survey.tables[name].iloc[:0] for name in ("targets", "shares", "output")}
    reasons = pd.DataFrame(row.refusals)
    tables = {**survey.tables, **empty, "refusals": reasons}
    assert "No gradient" in replace(survey, tables=tables).says()[0]


def test_targets_can_be_read_and_hold_the_asked_one():
    found = Goal("kl", 0.0123).targets()
    assert found == sorted(found)
    assert {0.0005, 0.01, 0.0123, 0.1} <= set(found)


def test_keys_are_interpolated_only_between_sizes():
    rows = pd.DataFrame({"keys": [10.0, 100.0], "error": [0.1, 0.001]})
    assert keys_for(rows, 0.01) == pytest.approx(10**1.5)
    assert keys_for(rows, 0.0001) is None
    assert keys_for(rows, 0.5) is None


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.00068, 5.4e-5, "0.00068 ± 0.00005"),
        (0.0123, 0.0012, "0.0123 ± 0.0012"),
        (0.0123, float("nan"), "0.012"),
        (3.2e-12, 1e-13, "3.2e-12 ± 1e-13"),
        (12.3, 4.0, "12 ± 4"),
    ],
)
def test_a_number_has_the_digits_of_its_error(value, error, text):
    assert with_error(value, error) == text


def test_the_answer_of_a_causal_model_is_in_nats():
    row = pd.Series(
        {
            "measure": "kl",
            "target": 0.01,
            "keys": 25.2,
            "visible": 256.5,
            "predicted": 0.0072,
            "stderr": 0.0004,
            "next_text": 0.0099,
            "trusted": True,
            "sampler": "threshold:96.0",
            "measured": 0.0075,
            "measured_stderr": 0.0002,
            "repeats": 3,
            "unseen": True,
            "perplexity": 22.3,
            "dense_perplexity": 22.1,
            "same_token": 0.946,
        }
    )
    answer = Answer.of("smollm2", 4, row)
    assert answer.headline() == "SmolLM2 reads 25 of 256 keys for 0.01 nats."
    assert "perplexity 22.3 instead of 22.1" in answer.measurement()
    assert "1/96" in answer.rule()
