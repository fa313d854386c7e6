"""A longer text has more keys of the same law: copies of the far ones are what is predicted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnlimit.errors import BadInput
from attnlimit.theory.one_query.first_order import threshold_sums
from context_scaling import decay, extended, output_growth
from small_causal import build

C = np.array([4.0, 16.0, 64.0])
FLAT = torch.zeros(3, dtype=torch.double)


@pytest.fixture
def drawn():
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(3, 5, 20, generator=generator, dtype=torch.double)
    along = torch.randn(2, 3, 5, 20, generator=generator, dtype=torch.double)
    near = torch.zeros(5, 20, dtype=torch.bool)
    near[:, :2] = near[:, 14:] = True
    return scores, along, near


def test_far_keys_count_as_many_times_as_the_text_is_longer(drawn):
    scores, along, near = drawn
    copies = torch.cat([torch.arange(20), torch.arange(2, 14), torch.arange(2, 14)])
    result = extended(scores, along, near, 20 + 24, C, FLAT)
    same = extended(scores[..., copies], along[..., copies], near[:, copies], 44, C, FLAT)
    for entry, other in zip(result, same, strict=True):
        assert entry == pytest.approx(other, rel=1e-9)


def test_at_its_own_length_a_text_has_its_own_law(drawn):
    scores, along, near = drawn
    weights = torch.softmax(scores, -1)
    keys, variance = extended(scores, along, near, 20, C, FLAT)
    centred = along - (weights * along).sum(-1, keepdim=True)
    own = threshold_sums(weights, centred, torch.tensor(C))
    # The sums leave the best key out, which is certain at all thresholds that matter.
    assert keys[1:] == pytest.approx(own.keys.sum(1).numpy()[1:], rel=1e-6)
    assert variance[1:] == pytest.approx(own.variance.sum(2).numpy()[1:], rel=1e-6)


def test_a_query_reads_at_most_c_keys_however_long_the_text(drawn):
    scores, along, near = drawn
    keys = np.array(
        [extended(scores, along, near, n, C, FLAT)[0] / 15 for n in (20, 1e3, 1e6, 1e9)]
    )
    assert (keys <= C * (1 + 1e-9)).all()
    assert (np.diff(keys, axis=0) > -1e-9).all()


def test_keys_that_fall_with_distance_are_foretold_from_the_near_ones():
    generator = torch.Generator().manual_seed(1)
    power, window = -0.8, 64
    place = torch.arange(4096.0, dtype=torch.double)

    def drawn(length):
        distance = length - place[:length]
        noise = torch.randn(1, 24, length, generator=generator, dtype=torch.double)
        near = (distance < window).expand(24, -1)
        return noise + power * distance.log(), near, distance.expand(24, -1)

    scores, near, distance = drawn(512)
    fall = decay(scores, near, distance)
    assert float(fall) == pytest.approx(power, abs=0.05)
    truth = (256 * torch.softmax(drawn(4096)[0], -1)).clamp_max(1).sum() / 24
    along = torch.zeros(1, *scores.shape)
    actual, copies = (
        extended(scores, along, near, 4096, np.array([256.0]), entry)[0][0] / 24
        for entry in (fall, torch.zeros_like(fall))
    )
    assert actual == pytest.approx(float(truth), rel=0.02)
    assert copies > 1.1 * float(truth)


def test_a_text_without_far_keys_is_refused():
    causal = build()
    with pytest.raises(BadInput, match="no far keys"):
        output_growth(causal, list(range(3, 13)), [16], [100])
    result = output_growth(causal, list(range(3, 63)), [16, 64], [30, 1000], probes=2)
    assert result.error.shape == (2, 2, 2)
    assert (result.error >= 0).all()
    assert (result.over_text(500) <= result.error.max(1)).all()
