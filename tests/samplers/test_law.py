"""Every sampler errs as its exact law says, wherever it is used, and always keeps what it may."""

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.samplers import Products
from attnlimit.theory.one_query.sampler import sampler_law
from every_sampler import SAMPLERS, made_capture, sampled_errors

every = pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
SIZE = 24
PLACES = torch.tensor([0, 3, 11, 23])
DRAWS = 4000


def products_of(causal, dtype=torch.double):
    """Four queries, in three batches, and the keys they see."""
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(3, len(PLACES), 4, generator=generator, dtype=torch.double)
    key = torch.randn(3, SIZE, 4, generator=generator, dtype=torch.double)

    def scores(products):
        hidden = torch.arange(SIZE) > PLACES[:, None]
        return products.masked_fill(hidden, -torch.inf) if causal else products

    return Products(query.to(dtype), key.to(dtype), scores)


def scores_of(products):
    """Their scores."""
    return products.scores(products.query @ products.key.transpose(-1, -2))


@every
def test_errors_on_a_sequence_are_those_of_the_law(sampler):
    rng = np.random.default_rng(0)
    sequence = rng.standard_normal((SIZE, 3))
    head = al.Head(0.8 * np.eye(3), rng.standard_normal((2, 3)))
    errors = sampled_errors(head, sequence, PLACES.numpy(), sampler, DRAWS, seed=1)
    queries = sequence[PLACES.numpy()]
    tilts, keys = torch.from_numpy(head.tilts(queries)), torch.from_numpy(sequence)
    seeing = sampler.bind(Products(tilts, keys, lambda products: products))
    law = sampler_law(seeing, tilts @ keys.T, sequence @ head.V.T, PLACES)
    squares = (errors**2).sum(-1)
    noise = squares.std(axis=0) / DRAWS**0.5
    assert (np.abs(squares.mean(axis=0) - law.mse) < 4 * noise + 1e-9).all()
    spread = errors.std(axis=0) / DRAWS**0.5
    assert (np.abs(errors.mean(axis=0) - law.bias) < 4.5 * spread + 1e-6).all()


# Tokens drawn as queries and keys have a mean of another law, the two-query law, tested elsewhere.
CURVES = [("pointwise", sampler) for sampler in SAMPLERS] + [
    ("mean", sampler) for sampler in SAMPLERS if sampler.draws in ("nothing", "independent")
]


@pytest.mark.parametrize(("statistic", "sampler"), CURVES, ids=repr)
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
def test_errors_of_a_captured_head_are_predicted(statistic, sampler, causal):
    cap = made_capture(1.5, tokens=SIZE, causal=causal)
    predicted = al.predict(cap, statistic, head=1, sampler=sampler)
    measured = al.measure(cap, statistic, replicates=1500, head=1, sampler=sampler)
    gap = np.abs(predicted.value - measured.value)
    assert (gap < 4 * measured.stderr + 1e-6 * predicted.value + 1e-12).all()
    assert predicted.n.tolist() == measured.n.tolist()


@every
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
def test_something_visible_is_always_kept_and_nothing_else(sampler, causal):
    scores = scores_of(products_of(causal))
    sampler = sampler.bind(products_of(causal))
    chance = sampler.inclusion_probabilities(scores, PLACES)
    visible = scores > -torch.inf
    assert chance.shape == scores.shape
    assert (chance[~visible] == 0).all()
    assert ((chance >= 0) & (chance <= 1)).all()
    if sampler.draws in ("nothing", "independent"):
        assert (chance == 1).any(-1).all()
    drawn = torch.stack([sampler.draw(scores, PLACES, torch.Generator().manual_seed(k))
                         for k in range(200)])  # fmt: skip
    kept = drawn > -torch.inf
    assert drawn.shape[1:] == scores.shape
    assert not (kept & ~visible).any()
    assert kept.any(-1).all()
    assert torch.isfinite(torch.softmax(scores + drawn, -1)).all()
    often = kept.double().mean(0)
    noise = (chance * (1 - chance) / 200).sqrt()
    assert ((often - chance).abs() <= 5 * noise + 1e-12).all()
    if sampler.draws == "nothing":
        assert (drawn == drawn[0]).all()


@every
def test_batches_and_single_precision_keep_the_same_keys(sampler):
    products = products_of(causal=True)
    scores = scores_of(products)
    together = sampler.bind(products).inclusion_probabilities(scores, PLACES)
    alone = [
        sampler.bind(products.of([k])).inclusion_probabilities(scores[[k]], PLACES)[0]
        for k in range(3)
    ]
    torch.testing.assert_close(together, torch.stack(alone))
    floats = products_of(causal=True, dtype=torch.float)
    single = sampler.bind(floats).inclusion_probabilities(scores_of(floats), PLACES)
    assert single.dtype == torch.float
    torch.testing.assert_close(single.double(), together, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sampler", [s for s in SAMPLERS if s.weighted], ids=repr)
def test_corrected_weights_leave_the_denominator_unbiased(sampler):
    products = products_of(causal=True).of([0])
    scores = scores_of(products)[0].expand(DRAWS, -1, -1)
    drawn = sampler.bind(products).draw(scores, PLACES, torch.Generator().manual_seed(0))
    sums = torch.exp(scores + drawn).sum(-1)
    noise = sums.std(0) / DRAWS**0.5
    whole = torch.exp(scores[0]).sum(-1)
    assert ((sums.mean(0) - whole).abs() <= 4.5 * noise + 1e-9).all()


@pytest.mark.parametrize(
    "sampler",
    [
        al.Iid(),
        al.WithoutReplacement(),
        al.TopK(2),
        al.Window(4, random=4),
        al.Keep(al.TopK(1)),
        al.Threshold(1, proxy="3bit"),
    ],
    ids=repr,
)
def test_a_curve_over_n_sizes_the_sampler(sampler):
    cap = made_capture(1.5, tokens=SIZE)
    predicted = al.predict(cap, "pointwise", [4, 12], sampler=sampler)
    measured = al.measure(cap, "pointwise", [4, 12], replicates=800, sampler=sampler)
    assert predicted.n.tolist() == measured.n.tolist() == [4, 12]
    assert (np.abs(predicted.value - measured.value) < 4 * measured.stderr + 1e-9).all()
    alone = al.predict(cap, "pointwise", sampler=sampler.with_size(12))
    np.testing.assert_allclose(predicted.value[1], alone.value[0])


def test_the_best_key_is_kept_where_no_other_is_for_sure():
    scores = scores_of(products_of(causal=False))
    chance = al.Keep(None, sample=3).inclusion_probabilities(scores, PLACES)
    best = chance.gather(-1, scores.argmax(-1, keepdim=True))
    assert (best == 1).all()
    assert (chance == 1).sum() == best.numel()


def test_what_is_no_sampler_or_gives_no_chances_is_refused():
    class Twice(al.Sampler):
        def probabilities(self, scores, queries):
            return torch.full_like(scores, 2.0)

    class Short(al.Sampler):
        def probabilities(self, scores, queries):
            return scores[..., :1]

    cap = made_capture(tokens=SIZE)
    for wrong, message in [
        ("all", r"not a sampler.*al\.Sampler"),
        (Twice(), "outside 0 to 1"),
        (Short(), "one for each score"),
    ]:
        for ask in (al.predict, al.measure):
            with pytest.raises(al.BadInput, match=message):
                ask(cap, "pointwise", sampler=wrong)
    with pytest.raises(al.BadInput, match="with_size"):
        al.predict(cap, "pointwise", [8], sampler=al.TopP(0.5))
