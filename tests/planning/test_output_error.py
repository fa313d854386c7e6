"""What a prediction says of a model's output is what the thinned model does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

import attnlimit as al
from attnlimit.models import evaluate, output_error, output_errors, sampled_attention
from attnlimit.models.passes import encode, run
from attnlimit.planning.changes import SampledKeys, SamplingTerms, expected_pass
from attnlimit.planning.error import compare_with_run
from attnlimit.planning.probes import probe
from attnlimit.planning.target import NextToken, Target, choose_target

IDS = torch.randint(0, 99, (60,), generator=torch.Generator().manual_seed(2))
DRAWN = {
    "threshold": al.Threshold(30),
    "kept": al.Keep(al.TopK(16), sample=16),
    "plain": al.Keep(al.SinksAndRecent(2, 36), sample=16, weighted=False),
    "some heads": {(0, 1): al.Threshold(12), (2, 3): al.Keep(al.TopK(8), sample=8)},
}


@pytest.fixture(scope="module")
def predicted(causal):
    return output_errors(causal, IDS, DRAWN, probes=24)


@pytest.mark.parametrize("name", DRAWN)
def test_the_predicted_kl_is_measured(causal, predicted, name):
    actual = predicted[name]
    measured = evaluate(causal, IDS, DRAWN[name], repeats=30)
    assert measured.kl < 0.03
    slack = 0.12 * measured.kl + 4 * np.hypot(actual.stderr, measured.stderr["kl"])
    assert actual.numerical_error < 0.1 * actual.kl
    assert abs(actual.kl - measured.kl) < slack
    assert actual.trusted
    assert actual.mean_visible == pytest.approx(30.5)
    assert actual.mean_keys == pytest.approx(measured.mean_keys, rel=0.02)


@pytest.mark.parametrize("sampler", [al.TopK(20), al.TopP(0.95), al.SinksAndRecent(2, 40)])
def test_what_draws_nothing_is_predicted_by_one_pass(causal, sampler):
    error = output_error(causal, IDS, sampler, probes=2)
    measured = evaluate(causal, IDS, sampler, repeats=1)
    assert error.kl == pytest.approx(measured.kl, rel=1e-3)
    assert error.variance == 0
    assert error.stderr == 0
    assert error.mean_keys == pytest.approx(measured.mean_keys, rel=0.02)


def test_the_last_tokens_have_an_error_of_their_own(causal):
    target, encoded, sampler = NextToken(first=52), encode(causal, IDS), DRAWN["threshold"]
    result = output_error(causal, IDS, sampler, output=target, probes=48)
    with torch.no_grad():
        dense = target.read(run(causal, encoded))
        values = []
        for seed in range(40):
            with sampled_attention(causal, sampler, seed=seed):
                values.append(target.between(dense, target.read(run(causal, encoded))))
    assert len(dense) == 8
    error = np.hypot(result.stderr, np.std(values, ddof=1) / len(values) ** 0.5)
    assert abs(result.kl - np.mean(values)) < 0.12 * np.mean(values) + 4 * error


def test_probes_and_the_pass_agree_on_a_small_bias(causal):
    samplers = {(0, 3): al.TopK(20), (1, 2): al.TopP(0.98)}
    encoded, target = encode(causal, IDS), choose_target(causal, "kl")
    change = SampledKeys(samplers).bound_to(causal, 60)
    sums = SamplingTerms([change.table], 200)
    passed = probe(causal, encoded, target, 200, 3, sums.add)
    terms = sums.terms()
    bias = terms.bias.sum((0, 1))
    probed = passed.scale * (terms.variance.sum((0, 1)) + bias**2)
    with torch.no_grad(), expected_pass(causal, change):
        exact = target.between(passed.read, target.read(run(causal, encoded)))
    assert 1e-5 < exact < 0.01
    assert abs(probed.mean() - exact) < 4 * probed.std() / np.sqrt(200) + 0.05 * exact


def test_an_encoders_angle_is_predicted(encoder):
    error = output_error(encoder, IDS, al.Threshold(40), probes=32)
    measured = evaluate(encoder, IDS, al.Threshold(40), repeats=40)
    loss = 1 - measured.embedding_cosine
    assert loss < 0.01
    slack = 0.1 * loss + 4 * np.hypot(error.stderr, measured.stderr["embedding_cosine"])
    assert abs(error.cosine_loss - loss) < slack
    assert "1 - cosine" in str(error)


@dataclass(frozen=True)
class LastLogits(Target):
    """Squared change of the last token's logits: a target of a user's own."""

    name = "last-logits"
    measure = "squared_change"
    label = "squared change of the last logits"
    detached = False

    @classmethod
    def to_distance(cls, value):
        return value

    @classmethod
    def to_value(cls, distance):
        return distance

    def read(self, outputs):
        return outputs.logits[-1].detach() if self.detached else outputs.logits[-1]

    def probes(self, read, count, generator):
        for _ in range(count):
            yield torch.randn(read.shape, generator=generator) @ read

    def scale(self, read):
        return 1.0

    def between(self, read, other):
        return float((other - read).square().sum())

    def limit(self, read):
        return 0.02 * float(read.detach().square().sum())


class Detached(LastLogits):
    detached = True


def test_any_output_can_be_a_target(causal):
    target = LastLogits()
    result = output_error(causal, IDS, al.Threshold(30), output=target, probes=48)
    encoded = encode(causal, IDS)
    with torch.no_grad():
        dense = target.read(run(causal, encoded))
        squares = []
        for seed in range(60):
            with sampled_attention(causal, al.Threshold(30), seed=seed):
                squares.append(target.between(dense, target.read(run(causal, encoded))))
    error = np.std(squares) / np.sqrt(60)
    slack = 0.15 * np.mean(squares) + 4 * np.hypot(result.stderr, error)
    assert abs(result.value - np.mean(squares)) < slack


def test_heads_add_up_to_the_model(predicted):
    for value in predicted.values():
        frame = value.to_frame()
        assert len(frame) == 12
        assert frame.contribution.sum() == pytest.approx(value.value)
        assert frame.mean_keys.mean() == pytest.approx(value.mean_keys)
    few = predicted["some heads"].to_frame().set_index(["layer", "head"]).contribution
    assert set(few[few != 0].index) == {(0, 1), (2, 3)}


def test_nothing_beats_the_bound_of_independent_sampling(causal, predicted):
    grid = {str(c): al.Threshold(c) for c in (12, 30, 100)} | {"kept": DRAWN["kept"]}
    errors = output_errors(causal, IDS, grid, probes=8)
    for error in [*errors.values(), *(predicted[name] for name in ("threshold", "kept"))]:
        assert 0 < error.bound < error.variance
    assert errors["30"].bound > 0.1 * errors["30"].kl
    assert predicted["threshold"].kl / predicted["threshold"].bound < (
        predicted["kept"].kl / predicted["kept"].bound
    )


def test_many_ways_share_their_probes(causal, predicted):
    alone = output_error(causal, IDS, DRAWN["threshold"], probes=24)
    assert alone.kl == pytest.approx(predicted["threshold"].kl, rel=1e-6)
    assert alone.stderr == pytest.approx(predicted["threshold"].stderr, rel=1e-4)


def test_padding_changes_nothing(causal):
    ids = torch.cat([torch.zeros(5, dtype=torch.long), IDS])[None]
    keep = (torch.arange(65) >= 5).long()[None]
    padded = {"input_ids": ids, "attention_mask": keep}
    padded["position_ids"] = (keep.cumsum(-1) - 1).clamp_min(0)
    plain, left = (output_error(causal, text, al.Threshold(30)) for text in (IDS, padded))
    assert left.kl == pytest.approx(plain.kl, rel=1e-3)
    assert left.mean_keys == pytest.approx(plain.mean_keys)


def test_keeping_everything_is_no_error_and_far_too_little_is_doubted(causal):
    everything = output_error(causal, IDS, al.TopK(60))
    assert everything.kl < 1e-10
    assert everything.trusted
    poor = output_errors(causal, IDS, {"few": al.Keep(None, sample=2), "iid": al.Iid(4)}, probes=2)
    assert not poor["few"].trusted
    assert "evaluate" in str(poor["few"])


def test_tiny_samples_go_by_the_exact_law(encoder):
    """A head that samples almost nothing: first order is far off there, the exact law is not."""
    samplers = {(2, 1): al.Keep(None, sample=3)}
    error = output_error(encoder, IDS, samplers, probes=64)
    measured = evaluate(encoder, IDS, samplers, repeats=200)
    loss = 1 - measured.embedding_cosine
    slack = 0.05 * loss + 4 * np.hypot(error.stderr, measured.stderr["embedding_cosine"])
    assert abs(error.cosine_loss - loss) < slack
    assert error.trusted


def test_the_model_is_left_as_it_was(causal):
    before = [weight.requires_grad for weight in causal.parameters()]
    output_error(causal, IDS, al.Threshold(30), probes=1)
    assert [weight.requires_grad for weight in causal.parameters()] == before
    assert all(weight.grad is None for weight in causal.parameters())


def test_bad_requests_are_one_sentence(causal, encoder):
    with pytest.raises(al.BadInput, match="does not predict a next token"):
        output_error(encoder, IDS, al.TopK(4), output="kl")
    with pytest.raises(al.BadInput, match='must be "kl"'):
        output_error(causal, IDS, al.TopK(4), output="angle")
    with pytest.raises(al.BadInput, match="No gradient reaches"):
        output_error(causal, IDS, al.TopK(4), output=Detached())
    with pytest.raises(al.BadInput, match="or a Target, got"):
        output_error(causal, IDS, al.TopK(4), output=lambda outputs: outputs.logits)
    with pytest.raises(al.BadInput, match="by name"):
        output_errors(causal, IDS, {})
    with pytest.raises(al.BadInput, match="probes"):
        output_error(causal, IDS, al.TopK(4), probes=0)
    with pytest.raises(al.BadInput, match=r"of the KL .\.kl."):
        _ = output_error(causal, IDS, al.TopK(4), probes=1).cosine_loss


def test_a_trusted_prediction_was_run_and_both_are_shown(causal, predicted):
    actual = predicted["threshold"]
    assert actual.measured == pytest.approx(actual.kl, rel=0.5)
    assert "measured by one run on the same text" in str(actual)
    silent = output_error(causal, IDS, DRAWN["threshold"], probes=2, check=False)
    assert silent.measured is None


def test_trust_is_withdrawn_where_a_run_disagrees(predicted):
    actual = predicted["threshold"]
    far = compare_with_run(actual, 3 * actual.kl, 0.05 * actual.kl)
    assert not far.trusted
    assert "3 times the prediction" in str(far)
    assert far.value == actual.value
    for measured, stderr in ((1.25 * actual.kl, 0.0), (3 * actual.kl, actual.kl)):
        assert compare_with_run(actual, measured, stderr).trusted


def test_several_changes_add(causal):
    sampler, rule = al.Threshold(60), al.Evict(0.9, 8, recent=4)
    both = output_error(causal, IDS, [sampler, rule], probes=8)
    apart = output_error(causal, IDS, rule, probes=8)
    last = output_error(causal, IDS, sampler, output=NextToken(first=30), probes=8)
    assert both.prompt == apart.prompt == 30
    assert both.kl == pytest.approx(apart.kl + last.kl, rel=1e-3)
    measured = evaluate(causal, IDS, [sampler, rule], repeats=20)
    assert both.kl == pytest.approx(measured.kl, rel=0.4)


def test_the_order_of_changes_does_not_matter(causal):
    changes = [al.TopK(20), al.Quantize(6, 5, group=8)]
    options = {"probes": 4, "check": False}
    one, other = (output_error(causal, IDS, part, **options) for part in (changes, changes[::-1]))
    assert other.kl == pytest.approx(one.kl)
    np.testing.assert_allclose(other.contributions, one.contributions)
    rounded = output_error(causal, IDS, changes[1], **options)
    assert rounded.parts
    for both in (one, other):  # the sampler's error has no parts
        assert both.parts.keys() == rounded.parts.keys()
        for name, part in rounded.parts.items():
            assert both.parts[name].sum() == pytest.approx(part.sum())
