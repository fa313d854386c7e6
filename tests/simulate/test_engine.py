import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlimit import Head
from attnlimit.simulate.engine import attend, line_outputs, merge, prefix_outputs


def tensors(seed, batch=2, queries=5, keys=40, dim=3, spread=1.0):
    rng = np.random.default_rng(seed)
    tilts = spread * rng.standard_normal((batch, queries, dim))
    tokens = rng.standard_normal((batch, keys, dim))
    return torch.from_numpy(tilts).float(), torch.from_numpy(tokens).float()


def dense(tilts, keys):
    scores = tilts.double() @ keys.double().transpose(1, 2)
    return torch.softmax(scores, dim=-1) @ keys.double(), torch.logsumexp(scores, dim=-1)


@pytest.mark.parametrize("spread", [0.01, 1.0, 300.0])
def test_attend_is_softmax_attention(spread):
    tilts, keys = tensors(0, spread=spread)
    output, logsumexp = attend(tilts, keys)
    expected, expected_logsumexp = dense(tilts, keys)
    assert output.dtype == torch.float64
    torch.testing.assert_close(output, expected, rtol=0, atol=2e-4)
    torch.testing.assert_close(logsumexp, expected_logsumexp, rtol=1e-5, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(cut=st.integers(1, 39), seed=st.integers(0, 1000))
def test_merging_disjoint_keys_is_attention_over_their_union(cut, seed):
    tilts, keys = tensors(seed)
    merged = merge(attend(tilts, keys[:, :cut]), attend(tilts, keys[:, cut:]))
    whole = attend(tilts, keys)
    torch.testing.assert_close(merged[0], whole[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(merged[1], whole[1], rtol=0, atol=1e-5)


def test_prefixes_match_attention_over_each_prefix():
    tilts, keys = tensors(3, queries=30, keys=60)
    sizes, wanted = [4, 17, 33, 60], [4, 17, 20, 20]
    for output, size, count in zip(
        prefix_outputs(tilts, keys, sizes, wanted), sizes, wanted, strict=True
    ):
        assert output.shape == (2, count, 3)
        expected = dense(tilts[:, :count], keys[:, :size])[0]
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)


def test_blocks_of_queries_do_not_change_the_output(monkeypatch):
    tilts, keys = tensors(4, queries=50)
    whole = attend(tilts, keys)[0]
    monkeypatch.setattr("attnlimit.simulate.engine.MAX_QUERY_BLOCK", 7)
    torch.testing.assert_close(attend(tilts, keys)[0], whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_cells_of_a_line_lose_no_more_than_single_precision(spread):
    rng = np.random.default_rng(6)
    tilts, keys = spread * rng.standard_normal(8), rng.standard_normal(300)
    result = line_outputs(tilts, keys, np.array([10, 300]))
    for row, n in zip(result, (10, 300), strict=True):
        weights = np.exp(np.outer(tilts, keys[:n]))
        np.testing.assert_allclose(row, weights @ keys[:n] / weights.sum(axis=1), atol=1e-6)


def test_agrees_with_head():
    rng = np.random.default_rng(5)
    head = Head(rng.standard_normal((3, 3)), rng.standard_normal((2, 3)))
    x, y = rng.standard_normal((6, 3)), rng.standard_normal((20, 3))
    tilts = torch.from_numpy(x @ head.A.T).float()[None]
    output = attend(tilts, torch.from_numpy(y).float()[None])[0][0].numpy() @ head.V.T
    np.testing.assert_allclose(output, head(x, y), atol=1e-5)
