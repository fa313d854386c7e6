"""Horizons are those of tokens and projections; profiles are of rows."""

from __future__ import annotations

import numpy as np
import torch

from attnlimit.models.profile import unscaled_horizon


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
    w_q, w_k = (p.weight.double().detach().numpy() for p in (module.query, module.key))
    for head in (0, 7):
        rows = slice(32 * head, 32 * head + 32)
        score = w_k[rows].T @ w_q[rows] / np.sqrt(32)
        np.testing.assert_allclose(
            table[2, head], np.linalg.norm(root @ score @ root, 2), rtol=1e-4
        )
    whole = np.linalg.norm(root @ w_k.T @ w_q @ root, 2)
    heads = [cap[2, head] for head in range(12)]
    q, k = (torch.cat([getattr(head, name) for head in heads], dim=1) for name in "qk")
    np.testing.assert_allclose(unscaled_horizon(q, k), whole, rtol=1e-4)


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
