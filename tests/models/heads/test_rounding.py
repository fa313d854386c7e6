"""The rounding of a capture is predicted: rounded numbers move outputs by as much."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnlimit as al


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sharpness", [0.5, 3.0])
def test_the_predicted_rounding_is_the_measured(dtype, sharpness):
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(24, 64, 16, generator=generator, dtype=torch.double) for _ in range(3))
    exact = al.models.from_arrays(sharpness * q, k, v + 0.5)
    rounded = al.models.from_arrays(*((sharpness * q).to(dtype), k.to(dtype), (v + 0.5).to(dtype)))
    predicted = rounded.rounding(queries=64).error[0] ** 2
    measured = []
    for one, other in zip(exact, rounded, strict=True):
        truth = one.output()
        moved = other.output().double() - truth
        measured.append(float(moved.square().sum() / truth.square().sum()))
    ratio = np.array(measured) / predicted
    assert abs(ratio.mean() - 1) < 4 * ratio.std(ddof=1) / len(ratio) ** 0.5 + 0.02


def test_more_bits_round_less_and_the_result_prints():
    q, k, v = (torch.randn(2, 12, 8) for _ in range(3))
    errors = [
        al.models.from_arrays(q.to(t), k.to(t), v.to(t)).rounding().error.max()
        for t in (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    ]
    assert errors == sorted(errors, reverse=True)
    found = al.models.from_arrays(q.bfloat16(), k.bfloat16(), v.bfloat16()).rounding()
    assert "bfloat16: rounding of q, k and v moves" in str(found)
    assert list(found.to_frame().columns) == ["layer", "head", "error"]
