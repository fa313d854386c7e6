"""A plan keeps its target on the model, reads less where it may, and survives its file."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

import attnlimit as al
from attnlimit.models import OutputPlan, capture, output_error, plan_output, spend, try_samplers
from attnlimit.models.output.allocate import Sized, allocate, cheapest_common

IDS = torch.randint(0, 99, (60,), generator=torch.Generator().manual_seed(2))
OTHERS = [torch.randint(0, 99, (50,), generator=torch.Generator().manual_seed(s)) for s in (4, 5)]


@pytest.fixture(scope="module")
def plans(causal):
    return {per: plan_output(causal, IDS, kl=0.01, per=per) for per in ("model", "layer", "head")}


@pytest.mark.parametrize("per", ["model", "layer", "head"])
def test_a_plan_is_kept_by_the_model(causal, plans, per):
    plan = plans[per]
    assert 0.0085 < plan.predicted <= 0.01
    measured = try_samplers(causal, IDS, plan, repeats=20)
    assert measured.kl == pytest.approx(0.01, rel=0.2)
    assert measured.mean_keys == pytest.approx(plan.mean_keys, rel=0.03)
    again = output_error(causal, IDS, plan, probes=16, seed=5)
    assert again.kl == pytest.approx(plan.predicted, abs=4 * np.hypot(again.stderr, plan.stderr))
    assert f"{plan.mean_keys:.1f} of 30.5 keys" in str(plan)


def test_finer_plans_read_less(plans):
    read = [plans[per].mean_keys for per in ("model", "layer", "head")]
    assert read[0] >= read[1] * 0.999 >= read[2] * 0.998
    assert len(set(plans["model"].samplers().values())) == 1
    assert len(set(plans["layer"].samplers().values())) <= 3
    frame = plans["head"].to_frame()
    assert frame.contribution.sum() == pytest.approx(plans["head"].predicted, rel=0.05)


def test_tighter_targets_read_more(causal):
    read = [plan_output(causal, IDS, kl=kl).mean_keys for kl in (0.03, 0.01, 0.003)]
    assert read[0] < read[1] < read[2] < 30.5
    ratio = plan_output(causal, IDS, perplexity=1.01)
    assert ratio.target == pytest.approx(np.log(1.01))


@pytest.mark.parametrize("scheme", ["top-k:4", al.Keep(al.TopK(8), sample=8)])
def test_other_families_are_planned_too(causal, scheme):
    plan = plan_output(causal, IDS, kl=0.01, scheme=scheme, probes=8)
    measured = try_samplers(causal, IDS, plan, repeats=20)
    assert measured.kl < 0.012
    assert measured.kl > 0.002
    threshold = plan_output(causal, IDS, kl=0.01)
    assert threshold.mean_keys < plan.mean_keys


def test_an_encoder_keeps_its_angle(encoder):
    plan = plan_output(encoder, IDS, cosine=0.998, probes=16)
    measured = try_samplers(encoder, IDS, plan, repeats=30)
    error = 4 * np.hypot(measured.stderr["embedding_cosine"], plan.stderr)
    assert 1 - measured.embedding_cosine == pytest.approx(0.002, abs=error + 0.0003)


def test_several_texts_keep_a_margin_for_the_next(causal, plans):
    plan = plan_output(causal, [IDS, *OTHERS], kl=0.01)
    assert plan.next_text <= 0.01
    assert plan.predicted < plan.next_text
    assert plan.tokens == (60, 50, 50)
    bare = plan_output(causal, [IDS, *OTHERS], kl=0.01, margin=1.0)
    assert bare.predicted == pytest.approx(0.01, rel=0.1)
    assert bare.mean_keys < plan.mean_keys
    assert plans["model"].next_text > plans["model"].predicted


def test_a_target_nothing_can_keep_is_dense_attention(causal):
    plan = plan_output(causal, IDS, kl=1e-12)
    assert plan.mean_keys == pytest.approx(30.5)
    assert plan.predicted < 1e-12
    assert "KL 1e-12" in str(plan)


def test_the_lagrangian_is_the_best_of_all_choices():
    """Three heads of four sizes: the hull's choice is the cheapest of all 64 for what it keeps."""
    rng = np.random.default_rng(3)
    keys = np.array([2.0, 5.0, 9.0, 20.0])[:, None, None] * np.ones((4, 1, 3))
    size = rng.uniform(0.3, 3, 3)
    variance = (size / keys[..., :1] ** 1.2)[..., None] * np.ones((1, 1, 1, 2))
    variance = np.where(np.arange(4)[:, None, None, None] == 3, 0.0, variance)
    text = Sized(variance, np.zeros_like(variance), keys, scale=1.0, cost=keys)
    for target in (0.1, 0.3, 0.8):
        choice = allocate([text], 1, lambda c, t=target: text.by_probe(c).mean() <= t)
        reached = text.by_probe(choice).mean()
        grid = np.stack(np.meshgrid(*[np.arange(4)] * 3), -1).reshape(-1, 1, 3)
        kept = [c for c in grid if text.by_probe(c).mean() <= reached + 1e-12]
        assert text.mean_keys(choice) == pytest.approx(min(text.mean_keys(c) for c in kept))
        common = cheapest_common([text], lambda c, t=target: text.by_probe(c).mean() <= t)
        assert text.by_probe(common).mean() <= target


def test_a_plan_survives_its_file(causal, plans, tmp_path):
    for per, plan in plans.items():
        read = OutputPlan.read(plan.write(tmp_path / f"{per}.json"))
        assert read.samplers() == plan.samplers()
        assert str(read) == str(plan)
        np.testing.assert_array_equal(read.contributions, plan.contributions)
    with spend(causal, read) as spent, torch.no_grad():
        causal(IDS[None], use_cache=False)
    assert spent.mean_keys == pytest.approx(plan.mean_keys, rel=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "attnlimit.budget/1"}, "not a plan of schema"),
        ({"target": "0.01"}, "target is"),
        ({"trusted": 1}, "trusted is"),
        ({"extra": 1}, "other fields.*extra"),
        ({"samplers": [["threshold:48"]]}, "shape of its samplers"),
        ({"samplers": [["threshold:x"]]}, "not a sampler's size"),
        ({"samplers": 5}, "damaged"),
        ({"tokens": []}, "tokens is"),
        ({"measure": "bits"}, "measure is"),
    ],
)
def test_a_damaged_plan_is_refused(plans, tmp_path, change, message):
    path = plans["model"].write(tmp_path / "plan.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(al.BadInput, match=message):
        OutputPlan.read(path)


def test_bad_requests_are_one_sentence(causal, encoder, plans):
    for options, message in [
        ({}, "Give one target"),
        ({"kl": 0.01, "cosine": 0.9}, "Give one target"),
        ({"kl": 0}, "kl must be above 0"),
        ({"kl": -1}, "kl must be above 0"),
        ({"perplexity": 1.0}, "above 1 like 1.01"),
        ({"cosine": 1.2}, "between 0 and 1"),
        ({"kl": 0.01, "per": "token"}, "per must be one of"),
        ({"kl": 0.01, "cost": "time"}, "cost must be one of"),
        ({"kl": 0.01, "cost": "stored"}, "all of them must stay stored"),
        ({"kl": 0.01, "scheme": "best"}, "There is no sampler 'best'"),
        ({"kl": 0.01, "scheme": al.TopP(0.9)}, "cannot be given another size"),
        ({"kl": 0.01, "probes": 1}, "probes must be at least 2"),
    ]:
        with pytest.raises(al.BadInput, match=message):
            plan_output(causal, IDS, **options)
    with pytest.raises(al.BadInput, match="no texts"):
        plan_output(causal, [], kl=0.01)
    with pytest.raises(al.BadInput, match="does not predict a next token"):
        plan_output(encoder, IDS, kl=0.01)
    other = {(5, 0): al.TopK(3)}
    with pytest.raises(al.BadInput, match="make the plan with this model"):
        try_samplers(causal, IDS, other)


@pytest.mark.parametrize("per", ["model", "head"])
def test_a_plan_for_bytes_moves_what_it_says(causal, plans, per):
    plan = plan_output(causal, IDS, kl=0.01, per=per, cost="bytes", scheme="threshold:1:4bit")
    measured = try_samplers(causal, IDS, plan, repeats=10)
    assert measured.mean_bytes == pytest.approx(plan.price, rel=0.03)
    assert measured.dense_bytes == pytest.approx(plan.dense_price)
    assert measured.kl == pytest.approx(0.01, rel=0.25)
    read = try_samplers(causal, IDS, plans[per], repeats=3)
    assert measured.mean_bytes < read.mean_bytes
    shared = {(layer, head // 2): set() for layer in range(3) for head in range(4)}
    for (layer, head), sampler in plan.samplers().items():
        shared[layer, head // 2].add(sampler)
    assert all(len(sizes) == 1 for sizes in shared.values())
    assert "a token moves" in str(plan)


def test_a_plan_for_storage_needs_a_family_that_forgets(causal, encoder):
    forgets = {"scheme": "sinks-recent:2,8", "cost": "stored"}
    plan = plan_output(causal, IDS, kl=0.05, probes=4, **forgets)
    assert plan.price == pytest.approx(plan.mean_keys)
    assert "needs stored" in str(plan)
    assert plan.sensitivity is None
    with pytest.raises(al.BadInput, match="asks all its queries at once"):
        plan_output(encoder, IDS, cosine=0.99, **forgets)


def test_keys_that_heads_share_are_counted_once(causal, plans):
    plan = plan_output(causal, IDS, kl=0.01, scheme="top-k:4", probes=2)
    captured = capture(causal, IDS)
    sees = torch.ones(60, 60).tril() > 0
    for group in (0, 1):
        union = torch.zeros(60, 60, dtype=torch.bool)
        for head in (2 * group, 2 * group + 1):
            one = captured[0, head]
            scores = torch.as_tensor(one.q @ one.k.T).masked_fill(~sees, -torch.inf)
            best = scores.topk(plan.heads[0][head].k, dim=-1).indices
            union |= torch.zeros_like(union).scatter(1, best, True) & sees
        assert plan.kv_keys[0, group] == pytest.approx(float(union.sum(1).float().mean()))
    shared, alone = plans["head"].kv_keys, plans["head"].keys.reshape(3, 2, 2)
    assert (shared >= 0.97 * alone.max(-1)).all()  # one draw against what is expected
    assert (shared <= 1.03 * alone.sum(-1)).all()


@pytest.mark.parametrize(
    ("number", "later"),
    [(1, ["cost", "price", "dense_price", "sensitivity", "kv_keys"]), (2, ["kv_keys"])],
)
def test_a_plan_of_an_older_schema_is_still_read(plans, tmp_path, number, later):
    path = plans["model"].write(tmp_path / "plan.json")
    content = json.loads(path.read_text()) | {"schema": f"attnlimit.output-plan/{number}"}
    for name in later:
        del content[name]
    path.write_text(json.dumps(content))
    old = OutputPlan.read(path)
    assert old.samplers() == plans["model"].samplers()
    assert (old.cost, old.kv_keys) == ("read", None)
    assert (old.sensitivity is None) == (number == 1)
    assert str(old) == str(plans["model"])
