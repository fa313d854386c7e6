"""Exports keep a plan's numbers, and are what other tools read."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm

import attnlimit as al
from attnlimit import Plan
from attnlimit.planning.export import FORMATS, HeadShares, budget_curves, export_plan
from attnlimit.planning.target import EmbeddingAngle, NextToken
from read_exports import check_export

SHARE = st.floats(0.05, 0.95)


def kept_together(keys, kv_heads):
    """Share of keys that some head of each group keeps, if heads choose independently."""
    return 1 - (1 - keys / 100).reshape(len(keys), kv_heads, -1).prod(-1)


def output_plan(samplers, keys, kv_heads=2, **other):
    """A plan for the output of a made-up model, on a text of 200 tokens."""
    keys = np.array(keys, dtype=float)
    shape = {"layers": len(keys), "heads": keys.shape[1], "kv_heads": kv_heads, "head_dim": 8}
    known = {
        "target": NextToken(0.01), "predicted": 0.01, "stderr": 0.001, "next_text": 0.02,
        "measured": None, "measured_stderr": None, "doubt": "", "decode": None, "evict": None,
        "mean_keys": float(keys.mean()), "mean_visible": 100.0, "per": "head",
        "scheme": "Threshold", "tokens": (200,), "probes": 2, "model": "made", "weights": "",
        "trusted": True, "heads": tuple(map(tuple, samplers)), "architecture": shape,
        "contributions": np.zeros_like(keys), "keys": keys, "cost": "read", "price": 1.0,
        "dense_price": 2.0, "sensitivity": None, "kv_keys": 100 * kept_together(keys, kv_heads),
        "quantize": (al.Quantize("row8", "row4"),) * len(keys),
    }  # fmt: skip
    return Plan(**known | other)


def shares(plan):
    return HeadShares(plan).key_value_shares()


@pytest.fixture
def plan():
    """Two layers of four heads, that read 10 to 80 of 100 keys."""
    c = [[16.0, 32.0, 32.0, 16.0], [64.0, 16.0, 16.0, 16.0]]
    keys = [[10, 20, 20, 10], [80, 10, 10, 10]]
    return output_plan([[al.Threshold(entry) for entry in row] for row in c], keys)


def test_a_union_that_was_counted_is_taken(plan):
    counted = plan.model_copy(update={"kv_keys": np.array([[22.0, 25.0], [80.0, 12.0]])})
    assert shares(counted) == pytest.approx(counted.kv_keys / 100)
    with pytest.raises(al.BadInput, match="has not counted"):
        export_plan(plan.model_copy(update={"kv_keys": None}), "kvpress")


def kept_by_lukv(pruned, tokens):
    """Keys of each head as LUKVPress rounds them: down, then the largest remainders up."""
    ideal = (1 - pruned.astype(np.float32)) * np.float32(tokens)
    kept = np.floor(ideal).astype(int)
    more = round(float(ideal.sum())) - kept.sum()
    kept[np.argsort(kept - ideal)[: max(0, more)]] += 1
    return kept.clip(1, tokens)


def test_kvpress_keeps_what_the_plan_keeps(plan, tmp_path):
    made = export_plan(plan, "kvpress", recent=8)
    curves = check_export(made.write(tmp_path / "out"), "kvpress")
    assert curves.shape == (99, 2, 2)
    about = json.loads((tmp_path / "out" / "export.json").read_text())
    row = curves[round(100 * about["compression_ratio"]) - 1]
    union = 200 * shares(plan)
    for layer in (0, 1):
        assert np.abs(kept_by_lukv(row[layer], 200) - union[layer]).max() <= 1
    assert (about["sink"], about["window"]) == (4, 8)
    assert "chosen once" in about["lost"]


@given(arrays(float, (3, 2), elements=SHARE))
@settings(max_examples=50)
def test_curves_pass_through_the_plan_and_have_the_global_ratio(kept):
    curves, own = budget_curves(kept)
    assert np.allclose(curves[own - 1], 1 - kept)
    assert ((curves >= 0) & (curves <= 1)).all()
    assert np.abs(curves.mean((1, 2)) - np.arange(1, 100) / 100).max() <= 0.005 + 1e-12
    assert (np.diff(curves, axis=0) >= -1e-12).all()


def test_sinks_fit_into_every_head():
    keys = [[1, 50]]
    made = export_plan(output_plan([[al.Threshold(9.0)] * 2], keys), "kvpress")
    assert made.table["least"][0] == 5 / 200
    assert "for their sinks: 1." in made.lost
    assert made.numbers["window"] == 1


def test_duo_keeps_as_much_of_the_cache_as_the_plan(plan):
    made = export_plan(plan, "duo", sinks=4, recent=16)
    streaming = made.numbers["sparsity"]
    kept = shares(plan).mean()
    assert 1 - streaming + streaming * 20 / 200 == pytest.approx(kept)


def test_scores_are_shares_of_each_head(plan, tmp_path):
    made = export_plan(plan, "scores")
    scores = check_export(made.write(tmp_path / "out"), "scores")
    assert list(scores)[:2] == ["0-0", "0-1"]
    assert scores["1-0"] == [0.8]


def test_layers_have_whole_pages_and_count_sinks_and_recents(plan, tmp_path):
    made = export_plan(plan, "layers", page_size=16, sinks=4, recent=64)
    content = check_export(made.write(tmp_path / "out"), "layers")
    assert [entry["planned"] for entry in content["layers"]] == [56, 164]
    assert [entry["tokens"] for entry in content["layers"]] == [80, 176]  # 68 are always kept
    assert content["total_pages"] == 16
    assert content["dense_pages"] == 26


def test_the_hub_has_the_epsilon_of_the_most_demanding_threshold(plan, tmp_path):
    made = export_plan(plan, "hub")
    config = check_export(made.write(tmp_path / "out"), "hub")
    assert config["epsilon"] == pytest.approx(norm.isf(0.05) / 8)
    assert config["base_rate_sampling"] == pytest.approx(0.1)
    assert "most demanding head" in made.lost


def test_that_epsilon_bounds_the_threshold_s_denominator():
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.full(300, 0.3))
    c = 40.0
    chance = np.minimum(1, c * weights)
    variance = (weights**2 * (1 / chance - 1)).sum()
    assert variance <= 1 / c
    total = ((rng.random((4000, 300)) < chance) * weights / chance).sum(1)
    assert (total - 1 > norm.isf(0.05) / np.sqrt(c)).mean() < 0.05


@pytest.mark.parametrize(
    ("to", "change", "options", "message"),
    [
        ("vllm", {}, {}, "The format must be one of kvpress, duo, scores, layers, hub"),
        ("duo", {"target": EmbeddingAngle(0.01)}, {}, "no key-value cache"),
        ("duo", {}, {"recent": 300}, "keep all of the plan's 200"),
        ("hub", {}, {"recent": 300}, "Nothing is left to sample"),
        ("hub", {"heads": ((None,) * 4,) * 2}, {}, "8 heads of the plan read all keys"),
        ("hub", {"heads": ((al.TopK(3),) * 4,) * 2}, {}, "Only thresholds"),
        ("hub", {"heads": ((al.Threshold(2.0),) * 4,) * 2}, {}, "between 0 and 1"),
        ("kvpress", {"keys": [[100.0] * 4] * 2}, {}, "keeps 100.0% of the cache"),
        ("layers", {}, {"page_size": 0}, "page_size must be at least 1"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(plan, to, change, options, message):
    changed = output_plan(**{"samplers": plan.heads, "keys": plan.keys} | change)
    with pytest.raises(al.BadInput, match=message):
        export_plan(changed, to, **options)


def test_four_tokens_are_enough_to_sample_two_from(plan, tmp_path):
    made = export_plan(plan, "hub", sinks=4, recent=192)
    config = check_export(made.write(tmp_path / "out"), "hub")
    assert config["local_offset"] == 192
    with pytest.raises(al.BadInput, match="Nothing is left to sample"):
        export_plan(plan, "hub", sinks=4, recent=193)


@pytest.mark.parametrize("to", FORMATS)
def test_files_that_a_tool_cannot_read_are_refused(plan, to, tmp_path):
    made = export_plan(plan, to)
    folder = made.write(tmp_path / "out")
    name = sorted(made.files)[-1]
    for content in (b"", b"{}", b'{"0-0": [2.0]}', b"3\t4\n", b"[1]"):
        (folder / name).write_bytes(content)
        with pytest.raises(al.BadInput):
            check_export(folder, to)


def test_bits_are_exported_as_the_nearest_single_type(plan, tmp_path):
    made = export_plan(plan, "llama.cpp")
    types = check_export(made.write(tmp_path / "llama"), "llama.cpp")
    assert types == {"cache_type_k": "q8_0", "cache_type_v": "q4_0"}
    assert "--cache-type-k q8_0" in made.use
    mixed = (al.Quantize("row8", "row4"), None)
    other = export_plan(plan.model_copy(update={"quantize": mixed}), "llama.cpp")
    assert other.numbers["cache_type_v"] == "q8_0"  # 10 bits on average
    assert "single layers" in other.lost
    config = check_export(export_plan(plan, "transformers").write(tmp_path / "t"), "transformers")
    assert config["cache_config"]["nbits"] in (4, 8)
    for to in ("llama.cpp", "transformers"):
        with pytest.raises(al.BadInput, match="rounds nothing"):
            export_plan(plan.model_copy(update={"quantize": None}), to)


def test_the_threshold_of_modelopt_skips_no_key_that_is_read_for_sure(plan, tmp_path):
    made = export_plan(plan, "modelopt")
    content = check_export(made.write(tmp_path / "out"), "modelopt")
    group = content["config_groups"]["group_0"]
    phase = group["threshold_scale_factor"]["decode"]
    assert phase["a"] * np.exp(phase["b"] * 0.5) / 200 == pytest.approx(1 / 64)
    dense = plan.model_copy(update={"heads": ((None,) * 4,) * 2})
    with pytest.raises(al.BadInput, match="without one"):
        export_plan(dense, "modelopt")
