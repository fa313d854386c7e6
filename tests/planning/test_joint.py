"""Joint plans: keys read, bits and evictions bought together, predicted beside measured."""

import re

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.models import evaluate, output_error
from attnlimit.models import plan as make_plan

IDS = torch.randint(0, 99, (300,), generator=torch.Generator().manual_seed(2)).tolist()


@pytest.fixture(scope="module")
def plans(causal):
    return {
        what: make_plan(causal, IDS, kl=0.02, minimise=what)
        for what in ("bytes_read", "bytes_stored", "milliseconds")
    }


@pytest.mark.parametrize("what", ["bytes_read", "bytes_stored", "milliseconds"])
def test_a_joint_plan_keeps_its_target(causal, plans, what):
    plan = plans[what]
    assert plan.predicted <= 0.02
    assert sum(plan.losses.values()) == pytest.approx(plan.predicted, rel=1e-6)
    assert plan.contributions.sum() == pytest.approx(plan.predicted, rel=0.02)
    measured = evaluate(causal, IDS, plan, repeats=8)
    assert 0.5 < plan.predicted / measured.kl < 1.6
    assert measured.prompt == 150
    cost, dense = plan.costs()[what]
    assert plan.price == pytest.approx(cost)
    assert cost < (1.0 if what == "milliseconds" else 0.4) * dense  # few keys, short times


def test_each_plan_is_the_cheapest_by_its_own_cost(plans):
    for what, plan in plans.items():
        assert plan.costs()[what][0] <= min(p.costs()[what][0] for p in plans.values()) * (1 + 1e-6)
        fast, dense = plan.costs()["milliseconds"]
        assert str(plan).count(f"attention of a token takes {fast:.3g} of {dense:.3g} ms") == 1


def test_knobs_say_what_they_cost_and_save(plans):
    plan = plans["bytes_read"]
    frame = plan.knobs()
    assert set(frame["change"]) == set(plan.losses)
    assert (frame["saves MB read"] >= 0).all()
    assert "saves MB read, stored" in str(plan)
    assert "most in layers" in str(plan)
    longer = plan.costs(131072)
    assert longer["bytes_stored"][1] > 400 * plan.costs()["bytes_stored"][1]


def test_a_joint_plan_is_a_file(plans, tmp_path):
    plan = plans["bytes_read"]
    again = al.Plan.read(plan.write(tmp_path / "plan.json"))
    assert str(again) == str(plan)
    assert again.quantize == plan.quantize


def test_a_joint_plan_runs(causal, plans):
    plan = plans["bytes_read"]
    ids = torch.tensor([IDS])
    with al.models.fast_decoding(causal, plan, dense_below=0) as stats, torch.no_grad():
        cache = causal(ids[:, :150], use_cache=True).past_key_values
        for end in range(150, 180):
            given = {"past_key_values": cache, "use_cache": True}
            cache = causal(ids[:, end : end + 1], **given).past_key_values
    assert stats.tokens == 30
    assert stats.bytes < 0.5 * stats.dense_bytes


def mixtures():
    reads = [al.Threshold(150.0), al.Threshold(300.0), al.Threshold(600.0, proxy="index")]
    bits = [al.Quantize("row8", "row8"), al.Quantize("row8", "row4"), al.Quantize(6, 5, group=8)]
    keeps = [al.models.Evict(share, again=None) for share in (0.9, 0.95)]
    return [
        [reads[0], bits[0]], [reads[1], bits[1]], [reads[2], bits[2]], [reads[1], keeps[0]],
        [reads[2], keeps[1]], [bits[0], keeps[0]], [bits[1], keeps[1]],
        [reads[0], bits[1], keeps[1]], [reads[1], bits[0], keeps[0]], [reads[2], bits[2], keeps[1]],
    ]  # fmt: skip


@pytest.mark.parametrize("parts", mixtures(), ids=lambda parts: " ".join(p.name for p in parts))
def test_errors_of_mixtures_add(causal, parts):
    prompt = 150 if any(isinstance(one, al.models.EvictionRule) for one in parts) else None
    options = {"probes": 4, "check": False, "prompt": prompt}
    both = output_error(causal, IDS, parts, **options)
    measured = evaluate(causal, IDS, parts, repeats=4, prompt=prompt)
    assert both.kl == pytest.approx(measured.kl, rel=0.5)
    if prompt is None:
        each = [output_error(causal, IDS, one, **options).value for one in parts]
        assert both.value == pytest.approx(sum(each), rel=1e-5)


def test_what_is_refused(causal, encoder):
    for given, words in [
        ({"minimise": "bytes"}, "bytes_read"),
        ({"minimise": "bytes_read", "per": "head"}, "one threshold"),
        ({"minimise": "bytes_read", "quantize": al.Quantize(2, 2, group=8)}, "take more"),
    ]:
        with pytest.raises(al.BadInput, match=words):
            make_plan(causal, IDS, kl=0.01, **given)
    with pytest.raises(al.BadInput, match="no cache"):
        make_plan(encoder, IDS[:60], cosine=0.99, minimise="bytes_read")
    with pytest.raises(al.BadInput, match="most in layers"):
        make_plan(causal, IDS, kl=0.01, quantize=al.Quantize(2, 2, group=8))


def test_the_loss_that_a_refusal_names_is_the_least_that_can_be_kept(causal):
    options = {"minimise": "bytes_read", "quantize": al.Quantize(2, 2, group=8), "probes": 2}
    with pytest.raises(al.BadInput, match="alone") as caught:
        make_plan(causal, IDS[:200], kl=0.01, **options)
    least = float(re.search(r"costs ([0-9.]+) nats", str(caught.value))[1])
    assert make_plan(causal, IDS[:200], kl=1.01 * least, **options).predicted <= 1.01 * least
    with pytest.raises(al.BadInput, match="alone"):
        make_plan(causal, IDS[:200], kl=0.99 * least, **options)


def test_without_a_rotation_nothing_is_evicted(causal, monkeypatch):
    def refuse(*args):
        raise al.BadInput("unknown rotation")

    monkeypatch.setattr("attnlimit.models.eviction.cache.rotation_for", refuse)
    plan = make_plan(causal, IDS, kl=0.02, minimise="bytes_stored", probes=2)
    assert plan.evict is None
    assert np.isfinite(plan.price)
