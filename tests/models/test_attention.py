"""A transformers mask function becomes data, or is refused: nothing is guessed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

masking = pytest.importorskip("transformers.masking_utils")

from attnlimit.errors import BadInput  # noqa: E402
from attnlimit.models.attention import (  # noqa: E402
    Mask,
    recognise,
    sees,
)


@settings(max_examples=40, deadline=None)
@given(width=st.integers(1, 12), tokens=st.integers(2, 20), start=st.integers(0, 7))
@pytest.mark.parametrize("two_sided", [False, True])
def test_a_sliding_window_is_recognised_wherever_it_is_asked(two_sided, width, tokens, start):
    kind = "bidirectional" if two_sided else "causal"
    function = getattr(masking, f"sliding_window_{kind}_mask_function")(width)
    places = torch.arange(start, start + tokens)
    causal, window = recognise(function, places, places)
    row = torch.zeros((), dtype=torch.long)
    own = function(row, row, places[:, None], places[None, :])
    assert torch.equal(sees(places, places, causal, window), own)
    if tokens > width + 1:
        assert (causal, window) == (not two_sided, width + two_sided)


def test_a_single_query_of_a_cache_is_causal():
    window = masking.sliding_window_causal_mask_function(4)
    assert recognise(window, torch.tensor([9]), torch.arange(10)) == (True, 4)
    assert recognise(window, torch.tensor([2]), torch.arange(3)) == (True, None)
    assert recognise(masking.causal_mask_function, torch.tensor([9]), torch.arange(10))[0]


@pytest.mark.parametrize(
    "function",
    [
        masking.chunked_causal_mask_function(4, torch.zeros(1, dtype=torch.long)),
        masking.and_masks(
            masking.causal_mask_function,
            masking.packed_sequence_mask_function(torch.tensor([[0] * 5 + [1] * 7])),
        ),
        masking.or_masks(
            masking.causal_mask_function,
            masking.blockwise_overlay(torch.tensor([[-1] * 6 + [0, 0] + [-1] * 4])),
        ),
        lambda b, h, q, k: k < 0 * q,
    ],
    ids=["chunks", "packed", "blocks", "nothing"],
)
def test_any_other_mask_is_refused(function):
    places = torch.arange(12)
    with pytest.raises(BadInput, match="neither causal, nor a sliding window, nor full"):
        recognise(function, places, places)


def test_a_batch_whose_rows_differ_is_refused():
    packed = masking.packed_sequence_mask_function(torch.tensor([[0] * 12, [0] * 5 + [1] * 7]))
    places = torch.arange(12)
    with pytest.raises(BadInput, match="neither causal"):
        recognise(masking.and_masks(masking.causal_mask_function, packed), places, places, 2)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 3, 40])
def test_a_query_sees_itself(causal, window):
    mask = Mask(torch.tensor([0, 1, 2, 5, 6, 9]), causal, window)  # padding left gaps
    dense = mask.visible(slice(None))
    assert bool(dense.diagonal().all())
    assert mask.full == (not causal and window is None)
