"""On real models and real text, what is predicted is what is measured."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")

import attnlimit as al
from attnlimit.models import evaluate, output_errors, sampled_attention
from attnlimit.models import plan as make_plan
from attnlimit.models.loading import BUNDLED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def smollm():
    if BUNDLED["smollm2"].path is None:
        pytest.skip("the weights of smollm2 are not installed")
    return al.models.load("smollm2")


def start(model, text, tokens):
    return model.tokenizer(text, truncation=True, max_length=tokens)["input_ids"]


def test_the_angle_of_minilms_embedding(minilm, text):
    ids = start(minilm, text, 256)
    samplers = {
        "threshold": al.Threshold(64),
        "kept": al.Keep(al.TopK(32), sample=64),
        "some layers": {(layer, head): al.Threshold(16) for layer in (2, 5) for head in range(12)},
    }
    for name, error in output_errors(minilm, ids, samplers, probes=16).items():
        measured = evaluate(minilm, ids, samplers[name], repeats=6)
        loss = 1 - measured.embedding_cosine
        assert loss < 0.005
        slack = 3 * (error.stderr + measured.stderr["embedding_cosine"])
        assert abs(error.cosine_loss - loss) < 0.1 * loss + slack
        assert error.trusted


def test_a_plan_for_smollm_holds_on_its_text_and_another(smollm, text):
    ids = start(smollm, text, 160)
    plan = make_plan(smollm, ids, kl=0.01)
    assert plan.mean_keys < 0.25 * plan.mean_visible
    measured = evaluate(smollm, ids, plan, repeats=2)
    assert measured.kl == pytest.approx(plan.predicted, rel=0.15)
    other = start(smollm, al.models.wikipedia()["Alabama"].text, 160)
    assert evaluate(smollm, other, plan, repeats=1).kl < plan.next_text


def test_smollm_generates_alone_what_it_does_in_a_batch(smollm, text):
    network, tokenizer = smollm.model, smollm.tokenizer
    pieces = [text[:400], text[2000:2200], text[5000:5300]]
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    batch = tokenizer(pieces, return_tensors="pt", padding=True)
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    with sampled_attention(smollm, al.Threshold(200), seed=1) as stats:
        together = network.generate(**batch, **options)[:, -6:]
    assert stats.mean_keys < stats.mean_visible
    for row, piece in enumerate(pieces):
        with sampled_attention(smollm, al.Threshold(200), seed=1):
            alone = network.generate(**tokenizer(piece, return_tensors="pt"), **options)
        assert torch.equal(alone[0, -6:], together[row])
