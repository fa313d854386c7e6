"""While a thinned model runs it knows what it has read and how wrong it is, and can go back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

import attnlimit as al
from attnlimit.models import capture, evaluate, sampled_attention
from attnlimit.models import plan as make_plan

IDS = torch.randint(0, 99, (60,), generator=torch.Generator().manual_seed(2))
OTHER = torch.randint(0, 99, (60,), generator=torch.Generator().manual_seed(4))


@pytest.fixture(scope="module")
def plan(causal):
    return make_plan(causal, IDS, kl=0.01)


def passed(model, samplers, ids=IDS, **options):
    with torch.no_grad(), sampled_attention(model, samplers, **options) as stats:
        logits = model(ids[None], use_cache=False).logits[0]
    return stats, logits


@pytest.mark.parametrize("sampler", [al.Threshold(40), al.Threshold(40, proxy="4bit")], ids=repr)
def test_squared_errors_are_seen_from_the_keys_that_were_read(causal, sampler):
    heads = {(1, head): sampler for head in range(4)}
    cap = capture(causal, IDS)
    true, seen, outputs = [], [], []
    handle = causal.model.layers[1].self_attn.o_proj.register_forward_pre_hook(
        lambda module, given: outputs.append(given[0][0])
    )
    for seed in range(60):
        step = passed(causal, heads, seed=seed)[0].layers[0, 1]
        seen.append(step.squares / step.tokens)
        drawn = outputs[-1].unflatten(-1, (4, 8))
        gaps = [(drawn[:, h] - cap[1, h].output()).square().sum(-1).mean() for h in range(4)]
        true.append(torch.stack(gaps).numpy())
    handle.remove()
    np.testing.assert_allclose(np.mean(seen, 0), np.mean(true, 0), rtol=0.12)


def test_the_nats_of_a_plan_are_counted_while_it_runs(causal, plan):
    seen = np.mean([passed(causal, plan, seed=seed)[0].kl for seed in range(8)])
    assert seen == pytest.approx(plan.predicted, rel=0.1)
    other = np.mean([passed(causal, plan, OTHER, seed=seed)[0].kl for seed in range(8)])
    assert other == pytest.approx(evaluate(causal, OTHER, plan, repeats=20).kl, rel=0.6)
    stats = passed(causal, plan)[0]
    frame = stats.to_frame()
    assert frame.kl.sum() == pytest.approx(stats.kl)
    assert frame["layer"].tolist() == [0, 1, 2]
    assert "nats a token" in str(stats)


def test_no_token_passes_its_limit(causal, plan):
    free, _ = passed(causal, plan)
    held, logits = passed(causal, plan, limit=0.002)
    assert 0 < held.kl < 0.002 < free.kl
    assert 0 < held.dense_share < 1
    assert free.mean_keys < held.mean_keys < held.mean_visible
    assert "dense" in str(held)
    dense = torch.log_softmax(causal(IDS[None]).logits[0].detach(), -1)
    kl = (dense.exp() * (dense - torch.log_softmax(logits, -1))).sum(-1).mean()
    assert float(kl) < plan.predicted / 2
    # A query that drew none of its unlikely keys sees no error, and stays thinned.
    nothing, _ = passed(causal, plan, limit=1e-12)
    assert held.mean_keys < nothing.mean_keys <= nothing.mean_visible


def test_every_sequence_of_a_batch_has_a_limit_of_its_own(causal, plan):
    both = torch.stack([IDS, OTHER])
    with torch.no_grad(), sampled_attention(causal, plan, limit=0.003):
        together = causal(both, use_cache=False).logits
    for row, ids in enumerate(both):
        _, alone = passed(causal, plan, ids, limit=0.003)
        torch.testing.assert_close(together[row], alone, atol=1e-5, rtol=1e-4)


def test_bytes_are_those_of_what_is_read(causal):
    """Two query heads share each of two key-value heads of 8 + 8 numbers of 4 bytes; 3 layers."""
    dense = 3 * 2 * 30.5 * 16 * 4
    recent, _ = passed(causal, al.SinksAndRecent(1, 4))
    assert recent.visible_bytes == pytest.approx(dense)
    assert recent.mean_bytes == pytest.approx(dense * recent.mean_keys / 30.5)
    whole, _ = passed(causal, al.TopK(60))
    assert whole.mean_bytes == pytest.approx(dense)
    by_bits, _ = passed(causal, al.Threshold(1e-9, proxy="4bit"))  # the best key of each head
    selection = 3 * 2 * 30.5 * (4 + 4)
    assert selection + 3 * 2 * 64 <= by_bits.mean_bytes <= selection + 3 * 2 * 2 * 64


def test_what_cannot_be_known_is_not_said(causal, plan):
    stats, _ = passed(causal, al.TopK(5))
    assert np.isnan(stats.relative_error)
    with pytest.raises(al.BadInput, match="comes with a plan"):
        _ = stats.kl
    for samplers, limit, message in [
        (al.Threshold(20), 0.01, "limit is in nats"),
        (plan, 0.0, "limit must be"),
    ]:
        with (
            pytest.raises(al.BadInput, match=message),
            sampled_attention(causal, samplers, limit=limit),
        ):
            pass
