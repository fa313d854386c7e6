"""A plan keeps its target on the model, reads less where it may, and survives its file."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import transformers

import attnlimit as al
from attnlimit import Plan
from attnlimit.models import capture, evaluate, output_error, sampled_attention
from attnlimit.models import plan as make_plan
from attnlimit.models.loading import LoadedModel
from attnlimit.planning.allocation import SizeErrors, allocate, cheapest_common
from attnlimit.planning.cost import CostModel
from attnlimit.planning.target import Target, register_target


@register_target
@dataclass(frozen=True)
class LastLogit(Target):
    """Squared change of the largest logit of the last token: a target from outside."""

    distance: float | None = None

    name = "last-logit"
    measure = "logit_change"
    label = "squared change of a logit"
    default = 0.1

    @classmethod
    def to_distance(cls, value):
        return value

    @classmethod
    def to_value(cls, distance):
        return distance

    def read(self, outputs):
        return outputs.logits[-1, 7:8]

    def probes(self, read, count, generator):
        for _ in range(count):
            sign = 2 * torch.randint(0, 2, (1,), generator=generator) - 1
            yield (sign * read).sum()

    def scale(self, read):
        return 1.0

    def between(self, read, other):
        return float((read - other).square().sum())

    def limit(self, read):
        return 1.0


IDS = torch.randint(0, 99, (60,), generator=torch.Generator().manual_seed(2))
OTHERS = [torch.randint(0, 99, (50,), generator=torch.Generator().manual_seed(s)) for s in (4, 5)]


@pytest.fixture(scope="module")
def plans(causal):
    return {per: make_plan(causal, IDS, kl=0.01, per=per) for per in ("model", "layer", "head")}


@pytest.mark.parametrize("per", ["model", "layer", "head"])
def test_a_plan_is_kept_by_the_model(causal, plans, per):
    plan = plans[per]
    assert 0.0085 < plan.predicted <= 0.01
    measured = evaluate(causal, IDS, plan, repeats=20)
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
    read = [make_plan(causal, IDS, kl=kl).mean_keys for kl in (0.03, 0.01, 0.003)]
    assert read[0] < read[1] < read[2] < 30.5
    ratio = make_plan(causal, IDS, perplexity=1.01)
    assert ratio.target.distance == pytest.approx(np.log(1.01))


@pytest.mark.parametrize("scheme", ["top-k:4", al.Keep(al.TopK(8), sample=8)])
def test_other_families_are_planned_too(causal, scheme):
    plan = make_plan(causal, IDS, kl=0.01, scheme=scheme, probes=8)
    measured = evaluate(causal, IDS, plan, repeats=20)
    assert measured.kl < 0.012
    assert measured.kl > 0.002
    threshold = make_plan(causal, IDS, kl=0.01)
    assert threshold.mean_keys < plan.mean_keys


def test_an_encoder_keeps_its_angle(encoder):
    plan = make_plan(encoder, IDS, cosine=0.998, probes=16)
    measured = evaluate(encoder, IDS, plan, repeats=30)
    error = 4 * np.hypot(measured.stderr["embedding_cosine"], plan.stderr)
    assert 1 - measured.embedding_cosine == pytest.approx(0.002, abs=error + 0.0003)


def test_several_texts_keep_a_margin_for_the_next(causal, plans):
    plan = make_plan(causal, [IDS, *OTHERS], kl=0.01)
    assert plan.next_text <= 0.01
    assert plan.predicted < plan.next_text
    assert plan.tokens == (60, 50, 50)
    assert plan.contributions.sum() == pytest.approx(plan.predicted, rel=0.02)
    bare = make_plan(causal, [IDS, *OTHERS], kl=0.01, margin=1.0)
    assert bare.predicted == pytest.approx(0.01, rel=0.1)
    assert bare.mean_keys < plan.mean_keys
    assert plans["model"].next_text > plans["model"].predicted


def test_a_target_nothing_can_keep_is_dense_attention(causal):
    plan = make_plan(causal, IDS, kl=2e-7, margin=1e6)
    assert plan.mean_keys == pytest.approx(30.5)
    assert plan.predicted < 2e-7
    assert "KL 2e-07" in str(plan)


def test_the_lagrangian_is_the_best_of_all_choices():
    """Three heads of four sizes: the hull's choice is the cheapest of all 64 for what it keeps."""
    rng = np.random.default_rng(3)
    keys = np.array([2.0, 5.0, 9.0, 20.0])[:, None, None] * np.ones((4, 1, 3))
    size = rng.uniform(0.3, 3, 3)
    variance = (size / keys[..., :1] ** 1.2)[..., None] * np.ones((1, 1, 1, 2))
    variance = np.where(np.arange(4)[:, None, None, None] == 3, 0.0, variance)
    text = SizeErrors(variance, np.zeros_like(variance), keys, scale=1.0)
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
        read = Plan.read(plan.write(tmp_path / f"{per}.json"))
        assert read.samplers() == plan.samplers()
        assert str(read) == str(plan)
        np.testing.assert_array_equal(read.contributions, plan.contributions)
    with sampled_attention(causal, read) as stats, torch.no_grad():
        causal(IDS[None], use_cache=False)
    assert stats.mean_keys == pytest.approx(plan.mean_keys, rel=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "attnlimit.output-plan/3"}, "another version"),
        ({"schema": "mine"}, "not a plan"),
        ({"target": 0.01}, "target: .*name and value"),
        ({"target": {"name": "bits", "value": 1}}, "no target 'bits'"),
        ({"trusted": 7}, "trusted"),
        ({"extra": 1}, "extra"),
        ({"samplers": []}, "samplers"),
        ({"heads": [["threshold:48"]]}, "shape of the samplers"),
        ({"heads": [["threshold:x"]]}, "threshold takes"),
        ({"heads": 5}, "heads"),
        ({"tokens": []}, "tokens"),
        ({"predicted": -1.0}, "predicted"),
        ({"weights": "0" * 64, "model": "another"}, "changed after it was written"),
        ({"predicted": 0.005}, "changed after it was written"),
        ({"digest": "0" * 64}, "changed after it was written"),
        ({"evict": {"rule": "mine", "keep": 0.5}}, "no eviction rule 'mine'"),
    ],
)
def test_a_damaged_plan_is_refused(plans, tmp_path, change, message):
    path = plans["model"].write(tmp_path / "plan.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(al.BadInput, match=message):
        Plan.read(path)


def test_bad_requests_are_one_sentence(causal, encoder, plans):
    for options, message in [
        ({}, "Give one target"),
        ({"kl": 0.01, "cosine": 0.9}, "Give one target"),
        ({"kl": 0}, "kl must be above 0"),
        ({"kl": -1}, "kl must be above 0"),
        ({"perplexity": 1.0}, "above 1 like 1.01"),
        ({"cosine": 1.2}, "between 0 and 1"),
        ({"kl": 0.01, "per": "token"}, "per must be one of"),
        ({"kl": 0.01, "minimise": "time"}, "minimise must be one of"),
        ({"kl": 0.01, "scheme": "best"}, "There is no sampler 'best'"),
        ({"kl": 0.01, "scheme": al.TopP(0.9)}, "has no other sizes"),
        ({"kl": 0.01, "probes": 1}, "probes must be at least 2"),
    ]:
        with pytest.raises(al.BadInput, match=message):
            make_plan(causal, IDS, **options)
    with pytest.raises(al.BadInput, match="no texts"):
        make_plan(causal, [], kl=0.01)
    with pytest.raises(al.BadInput, match="does not predict a next token"):
        make_plan(encoder, IDS, kl=0.01)
    other = {(5, 0): al.TopK(3)}
    with pytest.raises(al.BadInput, match="make the plan with this model"):
        evaluate(causal, IDS, other)


def test_keys_that_heads_share_are_counted_once(causal, plans):
    plan = make_plan(causal, IDS, kl=0.01, scheme="top-k:4", probes=2)
    captured = capture(causal, IDS)
    sees = torch.ones(60, 60).tril() > 0
    for group in (0, 1):
        union = torch.zeros(60, 60, dtype=torch.bool)
        for head in (2 * group, 2 * group + 1):
            actual = captured[0, head]
            scores = torch.as_tensor(actual.q @ actual.k.T).masked_fill(~sees, -torch.inf)
            best = scores.topk(plan.heads[0][head].k, dim=-1).indices
            union |= torch.zeros_like(union).scatter(1, best, True) & sees
        assert plan.kv_keys[0, group] == pytest.approx(float(union.sum(1).float().mean()))
    shared, alone = plans["head"].kv_keys, plans["head"].keys.reshape(3, 2, 2)
    assert (shared >= 0.97 * alone.max(-1)).all()  # one draw against what is expected
    assert (shared <= 1.03 * alone.sum(-1)).all()


def test_a_plan_of_another_model_is_refused(causal, encoder, plans):
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48,
    )  # fmt: skip
    smaller = transformers.AutoModelForCausalLM.from_config(config).eval()
    for use in (evaluate, output_error):
        with pytest.raises(al.BadInput, match="3 layers, not 2"):
            use(smaller, IDS, plans["model"])
    with pytest.raises(al.BadInput, match="2 kv_heads, not 4"):
        plans["model"].check_model(encoder)
    with (
        pytest.raises(al.BadInput, match="3 layers, not 2"),
        sampled_attention(smaller, plans["model"]),
    ):
        pass


def test_weights_of_another_model_are_refused(causal, plans):
    loaded = LoadedModel("here", causal, None, "b" * 64, "made")
    other = plans["model"].model_copy(update={"weights": "a" * 64})
    with pytest.raises(al.BadInput, match=r"aaaa\.\.\.\), and this is here \(bbbb"):
        evaluate(loaded, IDS, other)
    same = plans["model"].model_copy(update={"weights": "b" * 64})
    assert evaluate(loaded, IDS, same, repeats=1).kl > 0


def test_a_longer_text_than_the_plans_is_warned_of(causal, plans):
    longer = torch.cat([IDS, IDS, IDS[:20]])
    with pytest.warns(UserWarning, match="texts of at most 60 tokens and is used on 140"):
        evaluation = evaluate(causal, longer, plans["model"], repeats=1)
    assert "plan on texts of this length" in str(evaluation)
    assert not evaluate(causal, IDS, plans["model"], repeats=1).notes


def test_a_plan_is_run_before_it_is_trusted(plans, causal):
    plan = plans["model"]
    assert plan.trusted
    assert plan.measured == pytest.approx(plan.predicted, rel=0.3)
    assert "measured" in str(plan)


def test_only_decoded_tokens_are_sampled(causal):
    plan = make_plan(causal, IDS, kl=0.01, decode=20, probes=8)
    whole = make_plan(causal, IDS, kl=0.01, probes=8)
    assert plan.mean_visible == pytest.approx(50.5)
    measured = evaluate(causal, IDS, plan, repeats=20)
    again = output_error(causal, IDS, plan, probes=16)
    assert measured.mean_visible == pytest.approx(50.5)
    assert again.kl == pytest.approx(plan.predicted, rel=0.3)
    assert plan.measured == pytest.approx(plan.predicted, rel=0.3)
    assert whole.decode is None
    assert "20 tokens after a prompt" in str(plan)


@pytest.mark.parametrize("scheme", [al.Threshold(8.0, proxy="index"), al.TwoLevel(8.0)])
def test_a_plan_takes_the_time_of_its_layers(causal, scheme):
    plan = make_plan(causal, IDS, kl=0.01, scheme=scheme, probes=2)
    dense, planned = plan.milliseconds(10**6)
    (c,) = {sampler.threshold for sampler in plan.samplers().values()}
    layer = CostModel().milliseconds(plan.shape(), 10**6, c)
    assert (dense, planned) == pytest.approx((3 * layer[0], 3 * layer[scheme.levels]))


def test_an_eviction_is_part_of_the_target(causal, tmp_path):
    rule = al.Evict(0.9, 8, recent=4)
    both = make_plan(causal, IDS, kl=0.05, evict=rule)
    alone = make_plan(causal, IDS, kl=0.05)
    assert both.mean_keys > alone.mean_keys
    read = Plan.read(both.write(tmp_path / "plan.json"))
    assert read.evict == rule
    assert evaluate(causal, IDS, read, repeats=4).cache_bytes is not None


def test_a_target_from_outside_is_one_class(causal, tmp_path):
    plan = make_plan(causal, IDS, target=LastLogit(0.05), probes=4)
    assert plan.predicted <= 0.05
    assert Plan.read(plan.write(tmp_path / "plan.json")).target == LastLogit(0.05)
    error = output_error(causal, IDS, plan, output="last-logit", probes=8)
    assert error.value == pytest.approx(plan.predicted, rel=1.0)
    assert error.measure == "logit_change"
    measured, stderr = evaluate(causal, IDS, plan, repeats=20).distance("logit_change")
    assert measured == pytest.approx(plan.predicted, abs=0.5 * plan.predicted + 4 * stderr)
