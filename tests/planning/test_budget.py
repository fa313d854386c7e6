"""Budgets are the smallest that the exact law allows, and they keep their promise."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

import attnlimit as al
from attnlimit.planning.head_budget import (
    SCHEMES,
    QuerySample,
    SizedErrors,
    Tolerance,
    captured_head_budget,
    first_within,
    schemes,
    smallest_on_grid,
)
from attnlimit.samplers.base import generator_of
from attnlimit.simulate.engine import drawn_outputs
from attnlimit.theory.one_query.sampler import sampler_law
from every_sampler import made_capture
from outside_sampler import Nearby


@pytest.fixture(scope="module")
def capture():
    return made_capture()


def test_the_budget_of_a_query_is_the_smallest_that_the_exact_law_allows():
    head, tokens = al.Head(0.4 * np.eye(3)), al.Gaussian(dim=3, variance=1.0)
    x = np.array([[1.0, 0.5, -0.2], [0.1, 0.1, 0.1]])
    budget = al.budget(head, tokens, x, epsilon=0.2, delta=0.1)
    for query, n, size in zip(x, budget.certified.astype(int), budget.size, strict=True):
        before, at = al.pointwise_error(head, tokens, query, [n - 1, n]).mse[0]
        assert at <= 0.1 * 0.2**2 * size**2 < before


@pytest.mark.parametrize("delta", [0.01, 0.3])
def test_typical_tokens_are_those_of_a_chi_squared_error(delta):
    """Exactly so on a line and where the covariance is a multiple of the identity."""
    for dim in (1, 4):
        n = Tolerance(0.1, delta).normal_tokens(np.array(2.0 * dim), np.array(4.0 * dim), 3.0)
        beyond = chi2.sf((0.1 * 3.0) ** 2 * n / 2.0, dim)
        assert beyond == pytest.approx(delta)


def test_measured_failures_stay_below_delta():
    head, tokens = al.Head(0.8 * np.eye(2)), al.Gaussian(dim=2, variance=1.0)
    x = np.array([1.0, 0.3])
    n = al.budget(head, tokens, x, epsilon=0.4, delta=0.2).n
    rng = np.random.default_rng(0)
    limit = al.limit(head, tokens)(x)
    outputs = np.array([head(x[None], tokens.sample(n, rng))[0] for _ in range(400)])
    failed = np.linalg.norm(outputs - limit, axis=1) > 0.4 * np.linalg.norm(limit)
    assert failed.mean() <= 0.2


@settings(max_examples=15, deadline=None)
@given(st.floats(0.1, 1.2), st.floats(0.05, 0.3), st.floats(0.02, 0.2))
def test_a_stricter_promise_never_takes_fewer_tokens(strength, epsilon, delta):
    head, tokens = al.Head(strength * np.eye(2)), al.Gaussian(dim=2, variance=1.0)
    x = np.array([0.7, -0.4])
    loose, tight, surer = (
        al.budget(head, tokens, x, epsilon=e, delta=d).certified[0]
        for e, d in ((epsilon, delta), (epsilon / 2, delta), (epsilon, delta / 2))
    )
    assert tight >= loose
    assert surer >= loose


def test_certificates_cost_more_than_the_typical_budget():
    budget = al.budget(al.Head(0.3 * np.eye(4)), al.Gaussian(dim=4, variance=1.0), queries=16)
    assert (budget.certified > budget.typical).all()
    assert budget.n == budget.certified.max()
    assert len(budget.to_frame()) == 16
    assert "certified" in str(budget)


def test_a_power_law_curve_gives_its_own_crossing():
    n = np.array([10, 100, 1000, 10000])
    curve = al.Curve("pointwise", n, 4.0 / n, np.zeros(4), "exact law")
    budget = al.budget(curve, epsilon=0.5, delta=0.1, size=2.0)
    assert budget.n == 40  # 4 / n <= 0.1 * 0.25 * 4
    with pytest.raises(al.BadInput, match="larger n"):
        al.budget(curve, epsilon=0.001)


def test_a_measured_curve_pays_for_its_noise():
    n = np.array([10, 100, 1000, 10000])
    exact = al.Curve("pointwise", n, 4.0 / n, np.zeros(4), "exact law")
    noisy = al.Curve("pointwise", n, 4.0 / n, 0.4 / n, "monte carlo")
    assert al.budget(noisy, epsilon=0.5).n > al.budget(exact, epsilon=0.5).n


@pytest.mark.parametrize("wrong", [{"epsilon": 0}, {"delta": 1}, {"delta": 0}, {"quantile": 1.5}])
def test_impossible_terms_are_refused(wrong):
    with pytest.raises(al.BadInput):
        al.budget(al.Head(np.eye(2)), al.Gaussian(dim=2, variance=1.0), **wrong)


def test_a_zero_limit_has_no_relative_error():
    with pytest.raises(al.BadInput, match="size"):
        al.budget(al.Head(np.eye(2)), al.Gaussian(dim=2, variance=1.0), np.zeros(2))
    budget = al.budget(al.Head(np.eye(2)), al.Gaussian(dim=2, variance=1.0), np.zeros(2), size=1.0)
    assert budget.n == pytest.approx(2 / (0.05 * 0.01), rel=0.01)  # the mean of n normals in R^2


def test_a_limit_that_is_all_rounding_is_none():
    head, tokens = al.Head(np.eye(2)), al.Gaussian(dim=2)
    with pytest.raises(al.BadInput, match="limit is zero at query 1"):
        al.budget(head, tokens, [[1.0, 0.5], [1e-16, 0.0]])
    assert (al.budget(head, tokens, [[1.0, 0.5], [1e-2, 0.0]]).certified > 1).all()


def test_numerical_errors_count_in_a_certificate():
    n = np.array([10, 100, 1000, 10000])
    exact = al.Curve("pointwise", n, 4.0 / n, np.zeros(4), "exact law")
    stated = al.Curve("pointwise", n, 4.0 / n, np.zeros(4), "quadrature", numerical_error=4.0 / n)
    assert al.budget(stated, epsilon=0.5).n == pytest.approx(2 * al.budget(exact, epsilon=0.5).n, 1)
    large = al.Curve("pointwise", n, 4.0 / n, np.zeros(4), "first order", numerical_error=1 + 0 * n)
    with pytest.raises(al.BadInput, match="stated errors"):
        al.budget(large, epsilon=0.5)
    unknown = al.Curve("pointwise", n, 4.0 / n, np.full(4, np.nan), "one replicate")
    with pytest.raises(al.BadInput, match="finite error"):
        al.budget(unknown, epsilon=0.5)


def test_first_within_waits_until_the_error_stays_small():
    error = np.array([[0.5, 0.05, 0.3, 0.05], [0.05, 0.04, 0.03, 0.02], [1.0, 1.0, 1.0, 1.0]])
    assert first_within(error, 0.1).tolist() == [3, 0, 4]


@pytest.mark.parametrize("first", [0, 1, 7, 99, 100])
def test_the_smallest_n_of_a_step_is_its_first(first):
    ends = np.array([0, 100])
    result = smallest_on_grid(lambda n: float(n < first), ends, (ends < first).astype(float), 0.0)
    assert result == first


@settings(max_examples=60, deadline=None)
@given(st.floats(0.2, 2.0), st.floats(1.5, 500.0), st.integers(3, 10**9))
def test_the_smallest_is_found_in_few_steps(power, scale, last):
    sizes = []

    def law(n):
        sizes.append(n)
        return scale / n**power * (1 + 1 / n)

    grid = np.unique(np.geomspace(1, last, 20).astype(np.int64))
    result = smallest_on_grid(law, grid, np.array([law(n) for n in grid]), 1.0)
    before = len(sizes) - len(grid)
    if np.isfinite(result):
        assert law(int(result)) <= 1.0
        assert result == 1 or law(int(result) - 1) > 1.0
    assert before <= 40


@pytest.mark.parametrize("scheme", ["sample", "top-k + sample"])
def test_drawn_schemes_err_as_drawing_does(capture, scheme):
    queries = QuerySample.of(capture[0, 0], 12)
    law = SizedErrors(schemes(True)[scheme], queries).at_size(24)
    sampler = schemes(True)[scheme].with_size(24)
    seen = queries.scores, queries.values, queries.rows
    blocks = drawn_outputs(sampler, *seen, 4000, generator_of(0))
    whole = torch.softmax(queries.scores, -1) @ queries.values
    gaps = [(output - whole).norm(dim=-1) for output in blocks]
    errors = (torch.cat(gaps) / whole.norm(dim=1)).numpy() ** 2
    noise = errors.std(axis=0) / 4000**0.5
    assert (np.abs(errors.mean(axis=0) - law**2) < 4.5 * noise).all()


@pytest.mark.parametrize("causal", [False, True])
def test_the_best_keys_are_the_fewest_that_are_enough(causal):
    head, tolerance = made_capture(causal=causal)[0, 1], Tolerance(0.3, 0.1)
    sized = SizedErrors(al.TopK(1), QuerySample.of(head, 24))
    n = int(sized.smallest(tolerance, 0.3))
    errors = [tolerance.over_queries(sized.at_size(k)) for k in range(n - 1, len(head) + 1)]
    assert errors[0] > 0.3
    assert max(errors[1:]) <= 0.3


def test_a_heads_budget_is_certified_at_its_queries(capture):
    tolerance = Tolerance(0.5, 0.2, 0.9)
    result = captured_head_budget(capture[0, 0], tolerance, queries=32)
    sample = QuerySample.of(capture[0, 0], 32)
    for name, sampler in schemes(True).items():
        budget, errors = result.schemes[name], SizedErrors(sampler, sample)
        if budget.certified is None:
            continue
        largest = tolerance.certified if errors.drawn else tolerance.epsilon
        assert (errors.at_size(budget.certified) <= largest + 1e-12).mean() >= 0.9
    assert result.tokens == min(b.certified for b in result.schemes.values() if b.certified)
    assert len(result.to_frame()) == 4


OWN = {"near": Nearby(30.0), "parts": al.Threshold(3.0), "some": al.TopP(0.9)}


@pytest.mark.parametrize("causal", [False, True])
def test_samplers_of_a_user_are_budgeted_beside_the_schemes(causal):
    head = made_capture(causal=causal)[0, 0]
    budget = al.budget(head, epsilon=0.9, delta=0.3, queries=24, samplers=OWN)
    alone = al.budget(head, epsilon=0.9, delta=0.3, queries=24)
    assert list(budget.schemes) == [*SCHEMES, *OWN]
    assert {name: budget.schemes[name] for name in SCHEMES} == alone.schemes
    seen = QuerySample.of(head, 24)
    for name, sampler in OWN.items():
        n = budget.schemes[name].certified
        used = sampler.with_size(n) if name == "parts" else sampler
        law = sampler_law(used, seen.scores, seen.values, seen.rows).relative
        tolerance = budget.tolerance.certified if used.draws != "nothing" else 0.9
        assert (n is not None) == (
            budget.tolerance.over_queries(law) <= tolerance
        ) or name == "parts"
        if n is not None:
            assert budget.tolerance.over_queries(law) <= tolerance
    assert budget.sampler() == (OWN | alone.samplers)[budget.best].with_size(budget.tokens)
    assert "near" in str(budget)


def test_a_users_sampler_wins_where_it_is_best():
    options = {"epsilon": 0.5, "delta": 0.3, "samplers": {"all": Nearby(1e9)}}
    assert "all" in al.budget(made_capture(0.01)[0, 0], **options).schemes
    near = al.budget(made_capture(40.0)[0, 0], epsilon=0.2, samplers={"sharp": al.Threshold(1.0)})
    assert near.best in ("sharp", "top-k")


def test_what_means_nothing_for_a_target_is_refused(capture):
    head, tokens = al.Head(0.4 * np.eye(3)), al.Gaussian(dim=3, variance=1.0)
    curve = al.Curve("pointwise", np.array([10, 100]), np.array([0.1, 0.01]), np.zeros(2), "x")
    for target, options, message in [
        (capture[0, 0], {"size": 1.0}, "takes no size"),
        (capture, {}, "al.models.plan"),
        (head, {"tokens": tokens, "x": np.zeros((2, 2, 3))}, "got shape"),
        (capture[0, 0], {"seed": 1}, "takes no seed"),
        (curve, {"samplers": OWN}, "takes no samplers"),
        (head, {"tokens": tokens, "samplers": OWN}, "takes no samplers"),
        (capture[0, 0], {"samplers": {"mine": 3}}, "not a sampler"),
        (capture[0, 0], {"samplers": {"top-k": al.TopK(1)}}, "another name"),
        ("model", {}, "budget needs"),
    ]:
        with pytest.raises(al.BadInput, match=message):
            al.budget(target, **options)


def test_the_delta_method_is_taken_where_it_is_asked_for():
    head, tokens = al.Head(0.4 * np.eye(3)), al.Gaussian(dim=3, variance=1.0)
    x = np.array([[1.0, 0.5, -0.2]])
    exact, delta = (al.budget(head, tokens, x, method=m) for m in ("exact", "delta"))
    assert delta.n == pytest.approx(exact.n, rel=0.05)
    assert delta.source == "delta method"


def test_sharp_heads_keep_few_keys_and_flat_ones_many():
    sharp, flat = (al.budget(made_capture(s)[0, 0], epsilon=0.2, queries=32) for s in (40.0, 0.05))
    assert sharp.best == "top-k"
    assert sharp.tokens < 12
    assert flat.tokens > 24
