"""Keeping all tokens costs nothing, and weighting helps."""

import pytest

import attnlimit as al
from kept_tokens import RULES, selection_error


@pytest.fixture(scope="module")
def cap(text_and_model):
    model, text = al.models.load("minilm"), al.models.wikipedia()["Anarchism"].text
    return al.models.capture(model, model.ids(text, 128))


def test_keeping_all_tokens_costs_nothing_and_weighting_helps(cap):
    table = selection_error(cap, 5, [32, len(cap)]).set_index(["n", "rule"])
    for rule in RULES:
        assert table.output_error[len(cap), rule] < 1e-5
    few = table.output_error[32]
    assert few["influence, weighted"] < few["random"]
    assert few["influence, weighted"] < few["influence"]
    with pytest.raises(al.BadInput, match="too many"):
        selection_error(cap, 0, [1000])
