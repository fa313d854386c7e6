"""A survey's tables are of their schemas, and say what the library says of each head by itself."""

import json

import numpy as np
import pyarrow as pa
import pytest

from attnlimit.budgets import plan_budgets
from attnlimit.errors import BadInput
from attnlimit.models import predict_capture
from attnlimit.reproduce.model import survey_of
from attnlimit.survey import SCHEMAS, Question, survey_head
from made_run import made_capture, made_run


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        return survey_of(made_run(tmp_path_factory.mktemp("runs"), patch))


@pytest.fixture(scope="module")
def capture():
    return made_capture()


def test_a_head_has_rows_of_every_schema(survey, capture, monkeypatch):
    monkeypatch.setattr(Question, "captures", lambda self: (capture,))
    tables = survey_head(survey.question, 0, 0, np.random.SeedSequence(1))
    assert set(tables) == set(SCHEMAS) - {"targets", "shares", "output", "refusals"}
    for name, rows in tables.items():
        assert rows
        assert all(set(row) == set(SCHEMAS[name].names) for row in rows), name
        pa.Table.from_pylist(rows, schema=SCHEMAS[name])


def test_the_tables_hold_every_head_and_token_once(survey, capture):
    places = [(head.layer, head.head) for head in capture]
    for name in ("heads", "budgets"):
        frame = survey.tables[name]
        assert list(zip(frame["layer"], frame["head"], strict=True)) == places
    assert survey.tables["tokens"].token.tolist() == list(capture.tokens)
    assert len(survey.tables["influence"]) == len(places) * len(capture)


def test_the_plan_of_the_tables_is_the_plan_of_the_captures(survey, capture):
    asked = survey.question
    plan = plan_budgets(capture, asked.terms, queries=asked.queries, source=asked.source)
    assert survey.plan == plan


def test_a_head_has_the_horizon_of_all_heads_together(survey, capture):
    assert survey.tables["heads"].horizon.to_numpy() == pytest.approx(capture.horizons().ravel())


def test_curves_are_relative_to_the_output(survey, capture):
    curves = survey.tables["curves"]
    rows = curves[(curves.law == "exact") & (curves["layer"] == 1) & (curves["head"] == 2)]
    predicted = predict_capture(capture, "pointwise", rows.n.to_numpy(), layer=1, head=2)
    size = float(capture[1, 2].output().double().square().sum(1).mean().sqrt())
    assert rows.error.to_numpy() == pytest.approx(predicted.root / size)
    assert rows.rate.to_numpy() == pytest.approx(predicted.local_rate)


def test_measured_errors_agree_with_the_exact_law(survey):
    gap = survey.referee
    assert len(gap) == (survey.tables["curves"].law == "measured").sum()
    assert (gap.deviations.abs() < 4).mean() > 0.9
    assert abs(gap.deviations.mean()) < 4 / np.sqrt(len(gap)) * gap.deviations.std()


def test_densities_are_densities(survey):
    for _, part in survey.tables["scores"].groupby(["layer", "head", "quantity"]):
        width = np.diff(part.value).mean()
        assert (part.density * width).sum() == pytest.approx(1.0)


def test_a_question_survives_json(survey):
    config = json.loads(json.dumps(survey.question.to_config()))
    assert Question.from_config(config) == survey.question


def test_a_question_that_lacks_a_setting_names_it(survey):
    config = survey.question.to_config()
    del config["terms"]
    with pytest.raises(BadInput, match="'terms'"):
        Question.from_config(config)
