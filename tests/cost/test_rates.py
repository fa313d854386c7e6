"""Are rates found again from timings made with them, and is a file of them read with care?"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlimit.cost import Rates, Timing, counts, fit_rates
from attnlimit.cost.counts import Work
from attnlimit.errors import BadInput

TRUE = {"calls": 1e-3, "pairs": 2e-9, "pair numbers": 5e-11}


def timings(noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    works = [counts.delta(tokens, dim) for tokens in (64, 128, 500, 2000) for dim in (16, 64, 128)]
    return [
        Timing(
            "delta pass",
            work,
            sum(TRUE[name] * count for name, count in work.units.items())
            * np.exp(noise * rng.standard_normal()),
        )
        for work in works
    ]


def test_known_rates_are_recovered():
    rates = fit_rates(timings())
    assert rates.seconds["delta pass"] == pytest.approx(TRUE, rel=1e-6)
    assert rates.error["delta pass"] < 1e-9
    assert rates.timings == {"delta pass": 12}


def test_noise_is_what_the_fit_says_it_misses():
    rates = fit_rates(timings(noise=0.1))
    assert 0.05 < rates.error["delta pass"] < 0.15
    larger = counts.delta(20_000, 64)
    exact = sum(TRUE[name] * count for name, count in larger.units.items())
    assert rates.of("delta pass", larger) == pytest.approx(exact, rel=0.2)


def test_no_rate_is_negative():
    work = [Work(0, {"a": 1.0, "b": float(k)}) for k in range(1, 6)]
    falling = [Timing("s", one, 1.0 / k) for k, one in enumerate(work, 1)]
    assert min(fit_rates(falling).seconds["s"].values()) >= 0


def test_rates_survive_the_disk(tmp_path):
    rates = fit_rates(timings(), {"processor": "made"})
    assert Rates.read(rates.write(tmp_path / "deep" / "cost.json")) == rates
    assert "delta pass" in str(rates)


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said.pop("schema"),
        lambda said: said.pop("error"),
        lambda said: said["seconds"].update(more={}),
        lambda said: said["seconds"]["delta pass"].update(pairs="fast"),
        lambda said: said["seconds"]["delta pass"].update(pairs=-1.0),
        lambda said: said["seconds"]["delta pass"].update(pairs=float("nan")),
        lambda said: said.update(seconds={"delta pass": 3}),
    ],
)
def test_a_file_that_is_not_ours_is_refused(tmp_path, change):
    path = fit_rates(timings()).write(tmp_path / "cost.json")
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))
    with pytest.raises(BadInput, match="--calibrate"):
        Rates.read(path)


@given(st.binary(max_size=60))
def test_bytes_are_refused_in_a_sentence(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "cost-bytes.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="--calibrate"):
        Rates.read(path)


def test_an_unknown_stage_or_unit_asks_for_a_calibration():
    rates = fit_rates(timings())
    for stage, work in (("law", Work(0, {})), ("delta pass", Work(0, {"new": 1.0}))):
        with pytest.raises(BadInput, match="--calibrate"):
            rates.of(stage, work)


def test_a_timing_of_nothing_is_refused():
    with pytest.raises(BadInput, match="positive"):
        fit_rates([Timing("s", Work(0, {"a": 1.0}), 0.0)])
