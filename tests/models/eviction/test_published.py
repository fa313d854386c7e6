"""Published eviction rules keep the keys that their papers' equations name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

from attnlimit.errors import BadInput  # noqa: E402
from attnlimit.models import (  # noqa: E402
    H2O,
    AdaKV,
    MomentKV,
    NexusSampling,
    PyramidKV,
    SnapKV,
    evaluate,
    sampled_attention,
)
from attnlimit.models.eviction.context import EvictionContext, Queries  # noqa: E402
from attnlimit.models.eviction.rules import (  # noqa: E402
    parse_rule,
    rule_from_dict,
    rule_to_dict,
)
from small_causal import build, prompts  # noqa: E402

TOKENS, WIDTH = 24, 4
RULES = [
    H2O(0.5),
    AdaKV(0.5, 4),
    PyramidKV(0.5, 4),
    NexusSampling(0.5, 4),
    MomentKV(0.5, 4),
]


def context(seed=0, heads=4, groups=2, tokens=TOKENS):
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(count, tokens, WIDTH, generator=generator)
        for count in (heads, heads // groups, heads // groups)
    )
    places = torch.arange(tokens)
    return EvictionContext(
        queries=Queries(query, places),
        key=key,
        value=value,
        offset=torch.zeros(key.shape[:2]),
        positions=places.expand(key.shape[:2]),
        length=tokens,
        scale=WIDTH**-0.5,
        softcap=None,
        rotate=lambda query, steps: query,
    )


def attention(given, head):
    """Causal weights (n, n) of one query head."""
    query = given.queries.query[head].double().numpy()
    key = given.key[head // 2].double().numpy()
    scores = given.scale * query @ key.T
    scores[np.triu_indices(len(key), 1)] = -np.inf
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def kept(rule, given, importance):
    places = given.positions.expand(importance.shape)
    return rule.inclusion_probabilities(importance, places >= 0, places, given.length)


def test_h2o_sums_attention_over_all_queries():
    """H2O: a token's score is the sum over queries of its attention; half the budget is recent."""
    given, rule = context(), H2O(0.5)
    importance = rule.importance(given)
    chosen = kept(rule, given, importance[None])[0]
    for head in range(2):
        summed = attention(given, 2 * head).sum(0) + attention(given, 2 * head + 1).sum(0)
        np.testing.assert_allclose(importance[head], summed, rtol=1e-5)
        heavy = np.argsort(-summed[: TOKENS - 6])[:6]
        recent = range(TOKENS - 6, TOKENS)
        assert set(chosen[head].nonzero().ravel().tolist()) == {*heavy.tolist(), *recent}


def test_adakv_sizes_heads_by_the_best_scores_of_a_layer():
    """Ada-KV, alg. 1 and 2: B_i = a B + (1 - a) N_i, N_i of the layer's B H best scores."""
    importance = torch.rand(3, 2, TOKENS, generator=torch.Generator().manual_seed(1))
    importance[0, 0] += 5.0
    given = context()
    chosen = kept(AdaKV(0.5, 4, safeguard=0.25), given, importance)
    assert chosen[0].sum(-1).tolist() == [21, 3]
    pool = kept(AdaKV(0.5, 4, safeguard=0.0), given, importance)
    for layer in range(3):
        best = importance[layer].flatten().topk(24).indices
        assert set(best.tolist()) == set(pool[layer].flatten().nonzero().ravel().tolist())
    assert (kept(AdaKV(0.5, 4, safeguard=1.0), given, importance).sum(-1) == 12).all()


def test_rules_keep_the_keys_that_public_code_keeps():
    """Numbers from the classes of KVCache-Factory (pyramidkv_utils.py), run on these tensors."""
    rng = np.random.default_rng(7)
    query, key = (
        torch.tensor(rng.standard_normal((count, 48, 4)).astype(np.float32)) for count in (4, 2)
    )
    given = replace(
        context(tokens=48), queries=Queries(query, torch.arange(48)), key=key, value=key
    )
    uneven = replace(given, key=key * torch.tensor([3.0, 0.3])[:, None, None])
    last, six = [44, 45, 46, 47], [42, 43, 44, 45, 46, 47]
    expected = {
        SnapKV(0.251, 4): [
            [2, 3, 4, *range(13, 18), *last],
            [14, 15, 17, 18, 24, 27, 28, 31, *last],
        ],
        H2O(0.251): [[0, 1, 2, 4, 6, 7, *six], [0, 1, 2, 3, 5, 13, *six]],
        AdaKV(0.292, 4): [
            [*range(2, 7), *range(10, 18), 19, 35, *last],
            [15, 17, 18, 28, 31, *last],
        ],
    }
    for rule, keys in expected.items():
        state = uneven if isinstance(rule, AdaKV) else given
        late = replace(state, queries=rule.select_queries(state.queries, 48))
        chosen = kept(rule, state, rule.importance(late)[None])[0]
        assert [row.nonzero().ravel().tolist() for row in chosen] == keys, rule
    pyramid = PyramidKV(14.01 / 48, 4, beta=5.0)
    late = replace(given, queries=pyramid.select_queries(given.queries, 48))
    chosen = kept(pyramid, given, pyramid.importance(late).expand(3, -1, -1))
    assert chosen.sum(-1).tolist() == [[22, 22], [14, 14], [6, 6]]
    middle = [[2, 3, 4, 5, 6, *range(13, 18), *last], [*range(14, 19), 24, 27, 28, 31, 33, *last]]
    assert [row.nonzero().ravel().tolist() for row in chosen[1]] == middle
    assert [row.nonzero().ravel().tolist() for row in chosen[2]] == [
        [3, 13, *last],
        [27, 28, *last],
    ]


def test_pyramidkv_gives_layers_a_line():
    """PyramidKV, eq. 2 and 3: k of the last layer is the mean over beta; the others on a line."""
    sizes = PyramidKV(0.25, window=10, beta=20.0).layer_sizes(5, 400)
    assert sizes.tolist() == [186, 143, 100, 57, 14]
    assert PyramidKV(0.25, window=10, beta=1.0).layer_sizes(5, 400).tolist() == [100] * 5
    full = PyramidKV(0.75, window=10).layer_sizes(5, 400)  # the first layer has no more keys
    assert full[0] == 400
    assert full.sum() == 5 * 300
    importance = torch.rand(5, 2, 400, generator=torch.Generator().manual_seed(1))
    places = torch.arange(400).expand(importance.shape)
    chosen = PyramidKV(0.25, window=10).inclusion_probabilities(
        importance, places >= 0, places, 400
    )
    assert chosen.sum(-1)[:, 0].tolist() == sizes.tolist()


def test_nexus_walks_along_attention():
    """Nexus: direct attention of the last queries, then a walk along attention, a, a A, a A A."""
    given = context(heads=2, groups=2)
    importance = NexusSampling(0.5, window=4, steps=2).importance(given)
    heads = [attention(given, head) for head in range(2)]
    mean = (heads[0] + heads[1]) / 2
    walk = mean[-4:].mean(0)
    total = walk.copy()
    for _ in range(2):
        walk = walk @ mean
        total += walk
    np.testing.assert_allclose(importance[0, : TOKENS - 4], total[: TOKENS - 4] / 3, rtol=1e-4)


def test_nexus_keeps_a_weighted_reservoir():
    """Efraimidis and Spirakis: the largest u^(1/w); the first is drawn in proportion to w."""
    weights = torch.arange(1.0, 7.0)[None, None]
    places = torch.arange(6)[None, None]
    counts = torch.zeros(6)
    for seed in range(3000):
        rule = NexusSampling(1 / 6, window=1, seed=seed)
        counts += rule.inclusion_probabilities(weights, places >= 0, places, 6)[0, 0]
    share = (weights / weights.sum())[0, 0]
    assert ((counts / 3000 - share).abs() < 5 * (share * (1 - share) / 3000).sqrt()).all()


def test_momentkv_adds_the_first_order_of_dropped_keys():
    """MomentKV: n e^(s q.mu) and n e^(s q.mu) (nu + s C q) beside the sums over kept keys."""
    given = context(tokens=200)
    key, value = given.key[0].double(), given.value[0].double()
    query, scale = given.queries.query[0, :5].double(), given.scale
    extra = MomentKV(0.5).stand_ins(key[:150], value[:150], torch.zeros(150).double())
    rest = key[150:], value[150:], torch.zeros(50)
    held = [torch.cat(pair) for pair in zip(extra, rest, strict=True)]
    output = torch.softmax(scale * query @ held[0].T + held[2], -1) @ held[1]
    mu, nu = key[:150].mean(0), value[:150].mean(0)
    covariance = (value[:150] - nu).T @ (key[:150] - mu) / 150
    kept_weights = torch.exp(scale * query @ key[150:].T)
    dropped = 150 * torch.exp(scale * query @ mu)[:, None]
    top = kept_weights @ value[150:] + dropped * (nu + scale * query @ covariance.T)
    whole = kept_weights.sum(-1, keepdim=True) + dropped
    torch.testing.assert_close(output, top / whole, atol=2e-3, rtol=0)
    assert MomentKV(0.5).stand_ins(key[:0], value[:0], torch.zeros(0)) is None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_caches_are_cut_by_published_rules(rule):
    model = build()
    _, inputs = prompts((40,))
    with torch.no_grad(), sampled_attention(model, rule) as stats:
        model.generate(**inputs, max_new_tokens=3, do_sample=False)
    assert stats.dense_bytes > 0
    run = evaluate(model, inputs["input_ids"][0].tolist(), rule, prompt=30)
    assert 0 < run.kl < 5
    almost = replace(rule, keep=1.0)
    assert evaluate(model, inputs["input_ids"][0].tolist(), almost, prompt=30).kl < 1e-6
    assert rule_from_dict(rule_to_dict(rule)) == rule


def test_moments_of_dropped_keys_bring_the_model_nearer():
    model = build()
    (text,), _ = prompts((60,))
    plain, moments = (
        evaluate(model, text.tolist(), rule, prompt=48).kl
        for rule in (SnapKV(0.4, 4), MomentKV(0.4, 4))
    )
    assert moments < plain


def test_published_rules_have_names_and_limits():
    assert parse_rule("h2o:0.5") == H2O(0.5)
    assert parse_rule("nexus:0.5,steps=3") == NexusSampling(0.5, steps=3)
    for make, sentence in (
        (lambda: AdaKV(0.5, safeguard=2.0), "safeguard"),
        (lambda: PyramidKV(0.5, beta=0.5), "beta"),
        (lambda: NexusSampling(0.5, steps=-1), "steps"),
        (lambda: H2O(0.0), "keep"),
    ):
        with pytest.raises(BadInput, match=sentence):
            make()
