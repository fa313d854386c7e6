"""A sampler's text names it, and only it."""

import pytest

import attnlimit as al
from attnlimit.samplers.spec import parse_sampler, sampler_spec

WRITTEN = {
    "threshold:48.0": al.Threshold(48.0),
    "top-k:64": al.TopK(64),
    "top-p:0.95": al.TopP(0.95),
    "iid:200": al.Iid(200),
    "without-replacement:20": al.WithoutReplacement(20),
    "window:64,50": al.Window(64, random=50),
    "sinks-recent:4,64": al.SinksAndRecent(4, 64),
    "sinks-window:4,64": al.SinksAndWindow(4, 64),
    "top-k:64+192": al.Keep(al.TopK(64), sample=192),
    "sinks-recent:4,64+192plain": al.Keep(al.SinksAndRecent(4, 64), sample=192, weighted=False),
    "+192": al.Keep(None, sample=192),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_samplers_are_written_and_read(text):
    assert parse_sampler(text) == WRITTEN[text]
    assert sampler_spec(WRITTEN[text]) == text


def test_a_large_threshold_is_not_a_sample():
    assert parse_sampler(sampler_spec(al.Threshold(1e30))) == al.Threshold(1e30)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("best:3", "There is no sampler 'best:3'"),
        ("", "There is no sampler"),
        ("threshold", "written? like|write it like threshold:48"),
        ("threshold:many", "write it like threshold:48"),
        ("window:3", "write it like window:4,64"),
        ("top-k:0", "k must be at least 1"),
        ("iid:5+3", "draws nothing"),
    ],
)
def test_other_texts_are_refused(text, message):
    with pytest.raises(al.BadInput, match=message):
        parse_sampler(text)


def test_a_sampler_of_ones_own_cannot_be_written():
    class Own(al.Sampler):
        def probabilities(self, scores, queries):
            return scores

    with pytest.raises(al.BadInput, match="cannot be written"):
        sampler_spec(Own())
