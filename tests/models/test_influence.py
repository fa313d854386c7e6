"""Influence is the derivative of the mean output; the delta method is right where it says so."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.errors import BadInput
from attnlimit.models.curves import replicate_errors
from attnlimit.models.profile import head_influence
from attnlimit.samplers import Iid


def test_influence_is_the_derivative_of_the_mean_output(cap):
    """Give token j a little more weight in the document: the mean output moves along psi_j."""
    head = cap[1, 3]
    psi = head_influence(head).psi.double()
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
    monkeypatch.setattr("attnlimit.models.profile.BLOCK", 1000)
    np.testing.assert_allclose(cap.influence(4, 5), whole, rtol=1e-4)


@pytest.mark.slow
def test_the_delta_method_is_right_where_it_says_so(cap):
    counts = [64, 512, 2048]
    curves = {
        (layer, head): al.predict(cap, "mean", counts, layer=layer, head=head, method="delta")
        for layer in range(0, 6, 2)
        for head in range(0, 12, 3)
    }
    flags = np.array([curve.diagnostics.reliable for curve in curves.values()])
    assert flags.any()
    assert not flags.all()
    checked = 0
    for (layer, head), curve in curves.items():
        for k, n in enumerate(counts[:2]):
            if not curve.diagnostics.reliable[k]:
                continue
            draws = 1500 if n < 100 else 400
            errors = replicate_errors(cap[layer, head], ["mean"], Iid(n), draws, checked)["mean"]
            root = np.sqrt(errors.mean())
            noise = errors.std() / np.sqrt(draws) / (2 * root)
            assert abs(curve.root[k] - root) < 0.1 * root + 3 * noise
            checked += 1
    assert checked >= 5
    how = {"layer": 1, "head": 3, "method": "delta"}
    fewer = al.predict(cap, "mean", [64], sampler=al.WithoutReplacement(), **how)
    np.testing.assert_allclose(
        fewer.value, al.predict(cap, "mean", [64], **how).value * (128 - 64) / 127
    )
