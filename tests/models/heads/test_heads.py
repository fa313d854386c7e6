"""Horizons, profiles, influence and the delta method are what their definitions say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnlimit.errors import BadInput
from attnlimit.models.captures import capture, capture_windows
from attnlimit.models.heads.delta import delta_curves
from attnlimit.models.heads.draws import replicate_errors
from attnlimit.models.heads.influence import layer_influence
from attnlimit.models.heads.selection import RULES, selection_error
from attnlimit.samplers import Iid


def test_the_horizon_is_that_of_the_tokens_and_the_projections(minilm, cap):
    """From hidden states and weights, |S^1/2 A S^1/2| without going through queries and keys."""
    hidden = []
    module = minilm.model.encoder.layer[2].attention.self
    handle = module.register_forward_hook(
        lambda m, args, kwargs, out: hidden.append(args[0] if args else kwargs["hidden_states"]),
        with_kwargs=True,
    )
    ids = torch.tensor([minilm.tokenizer.convert_tokens_to_ids(list(cap.tokens))])
    with torch.no_grad():
        minilm.model(input_ids=ids)
    handle.remove()
    x = hidden[0][0].double().numpy()
    covariance = np.cov(x.T, bias=True)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(values.clip(0)) @ vectors.T
    table = cap.horizons()
    summed = cap.horizons(convention="summed")
    w_q, w_k = (p.weight.double().detach().numpy() for p in (module.query, module.key))
    for head in (0, 7):
        rows = slice(32 * head, 32 * head + 32)
        score = w_k[rows].T @ w_q[rows] / np.sqrt(32)
        np.testing.assert_allclose(
            table[2, head], np.linalg.norm(root @ score @ root, 2), rtol=1e-4
        )
    whole = np.linalg.norm(root @ w_k.T @ w_q @ root, 2)
    np.testing.assert_allclose(summed[2], whole, rtol=1e-4)
    with pytest.raises(BadInput, match="convention"):
        cap.horizons(convention="other")


def test_the_profile_adds_up(cap):
    table = cap.profile()
    assert len(table) == 72
    np.testing.assert_allclose(table[["gaussian", "stable", "frozen"]].sum(axis=1), 1)
    assert (table.effective_tokens >= 1).all()
    assert (table.effective_tokens <= len(cap)).all()
    head = cap[3, 4]
    weights = torch.softmax(head.scores(), -1)
    row = table[(table.layer == 3) & (table["head"] == 4)].iloc[0]
    np.testing.assert_allclose(row.participation, weights.square().sum(1).mean(), rtol=1e-5)
    np.testing.assert_allclose(row.score_std, np.median(head.scores().numpy().std(1)), rtol=1e-3)


def test_influence_is_the_derivative_of_the_mean_output(cap):
    """Give token j a little more weight in the document: the mean output moves along psi_j."""
    head = cap[1, 3]
    psi = layer_influence(cap.layers[1], [3]).psi[0].double()
    scores, v = head.scores().double(), head.v.double()

    def mean_output(weight: torch.Tensor) -> torch.Tensor:
        attention = torch.softmax(scores + torch.log(weight), -1)
        return weight @ (attention @ v)

    size = len(head)
    even = torch.full((size,), 1 / size, dtype=torch.double)
    for j in (0, 17, 90):
        step = 1e-5
        moved = (1 - step) * even
        moved[j] += step
        derivative = (mean_output(moved) - mean_output(even)) / step
        torch.testing.assert_close(derivative, psi[j], rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(psi.mean(0), torch.zeros(32).double(), atol=1e-5, rtol=0)
    whole = np.sqrt(sum(cap.influence(1, h) ** 2 for h in range(12)))
    np.testing.assert_allclose(cap.influence(1), whole, rtol=1e-4)
    with pytest.raises(BadInput, match="no head 12"):
        cap.influence(1, 12)


def test_a_block_at_a_time_gives_the_same_influence(cap, monkeypatch):
    whole = cap.influence(4, 5)
    monkeypatch.setattr("attnlimit.models.heads.influence.BLOCK", 1000)
    np.testing.assert_allclose(cap.influence(4, 5), whole, rtol=1e-4)


@pytest.mark.slow
def test_the_delta_method_is_right_where_it_says_so(cap):
    counts = [64, 512, 2048]
    found = delta_curves(cap, counts)
    assert found.reliable.any()
    assert not found.reliable.all()
    checked = 0
    for layer in range(0, 6, 2):
        for head in range(0, 12, 3):
            for k, n in enumerate(counts[:2]):
                if not found.reliable[layer, head, k]:
                    continue
                draws = 1500 if n < 100 else 400
                errors = replicate_errors(cap[layer, head], ["mean"], Iid(n), draws, checked)[
                    "mean"
                ]
                root = np.sqrt(errors.mean())
                noise = errors.std() / np.sqrt(draws) / (2 * root)
                assert abs(np.sqrt(found.mse[layer, head, k]) - root) < 0.1 * root + 3 * noise
                checked += 1
    assert checked >= 5
    assert "reliable" in str(found)
    fewer = delta_curves(cap, [64], replacement=False).mse / delta_curves(cap, [64]).mse
    np.testing.assert_allclose(fewer, (128 - 64) / 127)


def test_windows_cover_a_long_text_and_know_their_place(minilm, text):
    windows = capture_windows(minilm, text[:6000], width=100, overlap=10, layers=[0])
    ids = minilm.tokenizer(text[:6000], add_special_tokens=False)["input_ids"]
    covered = set()
    for window in windows:
        assert len(window) <= 100
        assert window.tokens[0] == "[CLS]"
        assert window.tokens[-1] == "[SEP]"
        inside = ~window.special
        places = window.positions[inside].tolist()
        names = [t for t, s in zip(window.tokens, window.special, strict=True) if not s]
        assert minilm.tokenizer.convert_ids_to_tokens([ids[p] for p in places]) == names
        covered |= set(places)
    assert covered == set(range(len(ids)))
    assert windows[1].positions[1] == 98 - 10
    with pytest.raises(BadInput, match="truncate=True"):
        capture(minilm, text)
    with pytest.raises(BadInput, match="empty"):
        capture(minilm, "  ")
    with pytest.raises(BadInput, match="overlap"):
        capture_windows(minilm, text, width=50, overlap=48)
    with pytest.raises(BadInput, match="takes 512"):
        capture_windows(minilm, text, width=600)
    assert not capture(minilm, "only a few words", special_tokens=False).special.any()


def test_keeping_all_tokens_costs_nothing_and_weighting_helps(cap):
    table = selection_error(cap, 5, [32, len(cap)]).set_index(["n", "rule"])
    for rule in RULES:
        assert table.output_error[len(cap), rule] < 1e-5
    few = table.output_error[32]
    assert few["influence, weighted"] < few["random"]
    assert few["influence, weighted"] < few["influence"]
    with pytest.raises(BadInput, match="too many"):
        selection_error(cap, 0, [1000])
