"""A thinned model is the dense one when it sees all keys, and what its sampler says otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

from attnlimit.errors import BadInput  # noqa: E402
from attnlimit.models import capture, evaluate, sampled_attention  # noqa: E402
from attnlimit.models.sampled import embed  # noqa: E402
from attnlimit.samplers import (  # noqa: E402
    Iid,
    Keep,
    SinksAndRecent,
    Threshold,
    TopK,
    TopP,
    Window,
    WithoutReplacement,
)
from attnlimit.theory.one_query.sampler import sampler_law  # noqa: E402
from every_sampler import SAMPLERS  # noqa: E402


@pytest.fixture(scope="module")
def causal():
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48,
    )  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config).eval()


IDS = torch.randint(0, 99, (40,), generator=torch.Generator().manual_seed(2))
EVERYTHING = [
    WithoutReplacement(40),
    TopK(40),
    Window(40, random=0),
    SinksAndRecent(4, 40),
    Keep(TopK(1), sample=100),
    TopP(1.0),
    Threshold(1e9),
]


@pytest.mark.parametrize("sampler", EVERYTHING, ids=repr)
def test_seeing_every_key_changes_nothing(causal, sampler):
    evaluation = evaluate(causal, IDS, sampler, repeats=1)
    assert evaluation.mean_keys == evaluation.mean_visible == 20.5
    assert evaluation.hidden_error < 1e-5
    assert evaluation.kl < 1e-6
    assert evaluation.top1 == 1
    assert evaluation.perplexity == pytest.approx(evaluation.dense_perplexity, rel=1e-4)


def test_fewer_keys_lose_more_and_weighted_samples_lose_less(causal):
    errors = [evaluate(causal, IDS, Iid(n), repeats=4).hidden_error for n in (4, 16, 256)]
    assert errors[0] > errors[1] > errors[2]
    plain = evaluate(causal, IDS, TopK(12), repeats=1).hidden_error
    fair = evaluate(causal, IDS, Keep(TopK(4), sample=8), repeats=4).hidden_error
    assert fair < errors[0]
    assert plain < errors[0]


def test_only_the_chosen_heads_are_thinned(causal):
    all_layers = evaluate(causal, IDS, Iid(4), repeats=4).hidden_error
    layer = {(2, head): Iid(4) for head in range(4)}
    last = evaluate(causal, IDS, layer, repeats=4).hidden_error
    assert 0 < last < all_layers


@pytest.mark.parametrize(
    "four", [SAMPLERS[k : k + 4] for k in range(0, len(SAMPLERS), 4)], ids=repr
)
def test_heads_of_the_model_err_as_the_law_of_their_sampler_says(causal, four):
    """Every sampler, one from outside included, each in a head of its own."""
    cap = capture(causal, IDS)
    heads = {(1, head): sampler for head, sampler in enumerate(four)}
    captures = []
    for seed in range(300):
        with torch.no_grad(), sampled_attention(causal, heads, seed=seed):
            outputs = []
            handle = causal.model.layers[1].self_attn.o_proj.register_forward_pre_hook(
                lambda m, args, store=outputs: store.append(args[0][0])
            )
            causal.base_model(input_ids=IDS[None], use_cache=False)
            handle.remove()
        captures.append(outputs[0])
    drawn = torch.stack(captures).unflatten(-1, (4, 8)).double()
    for head, sampler in enumerate(four):
        actual = cap[1, head]
        seeing = sampler.bind(actual.products())
        law = sampler_law(seeing, actual.scores(), actual.v, torch.arange(len(actual))).mse.mean()
        errors = (drawn[:, :, head] - actual.output().double()).square().sum(-1).mean(1).numpy()
        assert abs(errors.mean() - law) < 4 * errors.std() / np.sqrt(300) + 1e-5 * law


def test_the_model_is_put_back_as_it_was(causal):
    before = causal.config._attn_implementation
    with pytest.raises(RuntimeError, match="stop"), sampled_attention(causal, TopK(3)):
        raise RuntimeError("stop")
    assert causal.config._attn_implementation == before


def test_the_same_seed_gives_the_same_output(causal):
    runs = [evaluate(causal, IDS, Iid(8), repeats=1, seed=s).hidden_error for s in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]


def test_bad_requests_are_one_sentence(causal):
    for samplers, message in [
        (Iid(), "needs n"),
        ("all", "not a sampler.*al.Sampler"),
        ({(0, 0): 5}, "not a sampler"),
        ({(3, 0): TopK(2)}, "has 3 layers of 4 heads"),
        ({2: TopK(2)}, "by .layer, head."),
    ]:
        with pytest.raises(BadInput, match=message):
            evaluate(causal, IDS, samplers)


def test_a_trial_says_what_was_read_and_how_sure_it_is(causal):
    evaluation = evaluate(causal, IDS, Threshold(8), repeats=3)
    assert 1 <= evaluation.mean_keys < 8
    assert evaluation.stderr["kl"] > 0
    assert "MB a token\n  KL" in str(evaluation)
    assert evaluation.to_frame().loc[0, "kl_stderr"] == evaluation.stderr["kl"]
    assert np.isnan(evaluate(causal, IDS, TopK(4), repeats=1).stderr["kl"])


def test_padding_changes_nothing(causal):
    ids = torch.cat([torch.zeros(5, dtype=torch.long), IDS])[None]
    keep = torch.ones_like(ids)
    keep[:, :5] = 0
    padded = {"input_ids": ids, "attention_mask": keep, "position_ids": keep.cumsum(-1) - 1}
    padded["position_ids"][:, :5] = 0
    for sampler in (SinksAndRecent(2, 6), Threshold(8)):
        plain = evaluate(causal, IDS, sampler, repeats=1)
        left = evaluate(causal, padded, sampler, repeats=1)
        assert left.kl == pytest.approx(plain.kl, rel=1e-3)
        assert left.mean_keys == plain.mean_keys


@pytest.mark.slow
def test_embeddings_are_close(minilm):
    texts = ["A kitten sleeps in the warm sun of the garden.", "The bank raised its rates again."]
    dense, thin, poor = (embed(minilm, texts, entry) for entry in (None, Keep(TopK(4), 4), Iid(2)))
    assert (poor * dense).sum(1).mean() < (thin * dense).sum(1).mean() < 1
    with pytest.raises(BadInput, match="no texts"):
        embed(minilm, [])
