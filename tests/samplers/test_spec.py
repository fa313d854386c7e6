"""A sampler's text names it, and only it."""

from importlib.metadata import EntryPoint

import pytest

import attnlimit as al
from attnlimit import registry
from attnlimit.registry import Registry
from attnlimit.samplers import parse_sampler, register, sampler_names, sampler_spec, spec
from outside_sampler import Nearby

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
        ("threshold", "threshold takes c, proxy and floor"),
        ("threshold:many", "threshold takes c, proxy and floor"),
        ("window:x", "'x' is not a number"),
        ("top-k:0", "k must be at least 1"),
        ("top-k", "top-k takes k"),
        ("iid:5+3", "draws nothing"),
    ],
)
def test_other_texts_are_refused(text, message):
    with pytest.raises(al.BadInput, match=message):
        parse_sampler(text)


def test_a_sampler_without_a_name_cannot_be_written():
    class Own(al.Sampler):
        def probabilities(self, scores, queries):
            return scores

    with pytest.raises(al.BadInput, match="register"):
        sampler_spec(Own())


@pytest.fixture
def _forget(monkeypatch):
    names = Registry("attnlimit.samplers")
    names.update(spec.REGISTERED)
    monkeypatch.setattr(spec, "REGISTERED", names)
    monkeypatch.setattr(Nearby, "spec_name", None)


@pytest.mark.usefixtures("_forget")
@pytest.mark.parametrize("sampler", [Nearby(3.0), Nearby(0.25, weighted=True)])
def test_a_registered_sampler_is_written_and_read(sampler):
    register("nearby")(Nearby)
    assert parse_sampler(sampler_spec(sampler)) == sampler
    assert parse_sampler("nearby:3.0") == Nearby(3.0)
    assert "nearby" in sampler_names()
    with pytest.raises(al.BadInput, match="nearby takes reach,weighted"):
        parse_sampler("nearby")
    with pytest.raises(al.BadInput, match="takes 2 arguments"):
        parse_sampler("nearby:1,True,3")


@pytest.mark.usefixtures("_forget")
def test_an_entry_point_is_loaded_when_its_name_is_used(monkeypatch):
    point = EntryPoint("nearby", "outside_sampler:Nearby", "attnlimit.samplers")

    def installed(group, name="nearby"):
        return [point] if (group, name) == ("attnlimit.samplers", "nearby") else []

    monkeypatch.setattr(registry, "entry_points", installed)
    assert "nearby" in sampler_names()
    assert parse_sampler("nearby:2.5") == Nearby(2.5)
    assert sampler_spec(Nearby(2.5)) == "nearby:2.5,False"


@pytest.mark.usefixtures("_forget")
def test_a_name_belongs_to_one_class():
    with pytest.raises(al.BadInput, match="already belongs to TopK"):
        register("top-k")(Nearby)
    with pytest.raises(al.BadInput, match="lower-case"):
        register("Near By")
