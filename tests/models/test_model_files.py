"""A model runs on every device that is here, in every precision that it can do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

import attnlimit as al  # noqa: E402
from attnlimit.errors import BadInput  # noqa: E402
from attnlimit.models.loading import devices_here  # noqa: E402

IDS = list(range(3, 35))


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def folder(request, tmp_path_factory):
    """A random model of two layers, saved in bfloat16."""
    torch.manual_seed(5)
    shape = {
        "vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 32,
        "num_attention_heads": 4, "num_key_value_heads": 2,
    }  # fmt: skip
    if request.param == "llama":
        config = transformers.LlamaConfig(**shape)
    else:  # softcaps and windows, which no fused kernel does
        config = transformers.Gemma2Config(
            **shape, head_dim=8, sliding_window=6, attn_logit_softcapping=3.0
        )
    model = transformers.AutoModelForCausalLM.from_config(config).bfloat16()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.mul_(12 if "_proj" in name else 1)
    place = tmp_path_factory.mktemp("saved")
    model.save_pretrained(place)
    return place


@pytest.mark.parametrize("device", ["auto", *devices_here()])
@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16"])
def test_a_capture_is_the_model_wherever_it_runs(folder, device, dtype, tmp_path):
    loaded = al.models.load(folder, device=device, dtype=dtype)
    kind = torch.float32 if dtype == "float32" else torch.bfloat16  # its own, unless asked for
    assert loaded.model.dtype == kind
    cap = al.models.capture(loaded, IDS, folder=tmp_path / "c")
    assert cap.layers[0].q.dtype == kind
    assert cap[0, 0].q.dtype == torch.float32
    network = loaded.model
    network.set_attn_implementation("eager")
    inputs = torch.tensor([IDS], device=network.device)
    with torch.no_grad():
        own = network.base_model(inputs, output_attentions=True).attentions
    tolerance = 1e-5 if kind == torch.float32 else 2e-2
    for head in cap:
        weights = own[head.layer][0, head.head].float().cpu()
        torch.testing.assert_close(
            torch.softmax(head.scores(), -1), weights, atol=tolerance, rtol=tolerance
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_output_is_predicted_and_measured_in_every_precision(folder, dtype):
    loaded = al.models.load(folder, dtype=dtype)
    sampler = al.Threshold(12.0)
    guess = al.models.output_error(loaded, IDS, sampler, probes=8)
    evaluation = al.models.evaluate(loaded, IDS, sampler, repeats=8)
    assert np.isfinite(guess.kl)
    assert evaluation.kl == pytest.approx(guess.kl, rel=0.8, abs=4 * evaluation.stderr["kl"] + 2e-3)
    plan = al.models.plan(loaded, [IDS], kl=0.05)
    assert plan.predicted <= 0.05


def test_a_folder_in_bfloat16_says_that_it_runs_in_it(folder):
    assert any("runs in bfloat16" in note for note in al.models.load(folder).notes)
    assert not any("runs in" in note for note in al.models.load(folder, dtype="float32").notes)


def test_several_devices_share_a_model(folder):
    pytest.importorskip("accelerate")
    spread = al.models.load(folder, device="several")
    alone = al.models.load(folder, device="cpu")
    actual, other = (al.models.capture(model, IDS)[1, 0].q for model in (spread, alone))
    assert torch.equal(actual, other)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"device": "cuda:7"}, "There is no device 'cuda:7' on this machine; there is"),
        ({"device": "tpu"}, "device must be one of auto, cpu, cuda, mps, several; got 'tpu'"),
        ({"dtype": "float8_e4m3fn", "device": "cpu"}, "cpu cannot run a model in float8_e4m3fn"),
        ({"dtype": "int8"}, "dtype must be float32, bfloat16, float16 or float64, got 'int8'"),
        ({"dtype": "half a pound"}, "dtype must be float32"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(folder, how, says):
    with pytest.raises(BadInput, match=says):
        al.models.load(folder, **how)
