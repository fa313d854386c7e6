"""Own tensors: any library's arrays give the capture that a model would, without transformers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import attnlimit as al
from attnlimit.errors import BadInput
from studied import STUDIES


def arrays(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


class Foreign:
    """An array of a library that shares only the protocol."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class Device:
    """An array of numbers that numpy does not know, which go by DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **how):
        return self.tensor.__dlpack__()

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("shape", [(12, 4), (3, 12, 4), (2, 3, 12, 4)])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, Foreign])
def test_one_head_a_layer_or_a_model(shape, kind):
    given = arrays(shape, shape, shape)
    cap = al.models.from_arrays(*map(kind, given), causal=False)
    wide = [array[(None,) * (4 - array.ndim)] for array in given]
    assert (len(cap.layers), cap.heads, len(cap)) == wide[0].shape[:3]
    for head in cap:
        q, k, v = (array[head.layer, head.head].astype(np.float64) for array in wide)
        weights = np.exp(q @ k.T / 2)
        expected = weights / weights.sum(1, keepdims=True) @ v
        np.testing.assert_allclose(head.output(), expected, rtol=1e-5, atol=1e-5)


def test_bfloat16_by_dlpack_and_grouped_keys():
    q, k, v = (torch.randn(4 // n, 10, 8).bfloat16() for n in (1, 2, 2))
    cap = al.models.from_arrays(Device(q), Device(k), Device(v), window=3, scale=1.0)
    assert torch.equal(cap[0, 3].k, k[1].float())
    assert (cap[0, 0].mask.causal, cap[0, 0].mask.window, cap[0, 0].scale) == (True, 3, 1.0)


def test_what_is_predicted_is_measured():
    cap = al.models.from_arrays(*arrays((24, 4), (24, 4), (24, 6)), causal=False)
    law = al.predict(cap, "pointwise", [4, 12])
    drawn = al.measure(cap, "pointwise", [4, 12], 400)
    assert np.all(np.abs(law.value - drawn.value) < 4 * drawn.stderr)


@pytest.mark.parametrize(
    ("shapes", "more", "says"),
    [
        (((9, 4), (9, 4), (2, 9, 4)), {}, r"must all be \(N, d\)"),
        (((9, 4), (8, 4), (8, 4)), {}, "same N tokens"),
        (((9, 4), (9, 5), (9, 4)), {}, "same width d"),
        (((3, 9, 4), (2, 9, 4), (2, 9, 4)), {}, "one for each group"),
        (((2, 2, 9, 4), (1, 2, 9, 4), (2, 2, 9, 4)), {}, "same number of layers"),
        (((1, 4), (1, 4), (1, 4)), {}, "one token"),
        (((9, 0), (9, 0), (9, 4)), {}, "must not be empty"),
        (((9, 4),) * 3, {"window": 0}, "window must be at least 1"),
        (((9, 4),) * 3, {"scale": -1}, "scale must be positive"),
        (((9, 4),) * 3, {"tokens": ["a"]}, "1 names for 9 tokens"),
    ],
)
def test_shapes_that_disagree_are_refused(shapes, more, says):
    with pytest.raises(BadInput, match=says):
        al.models.from_arrays(*arrays(*shapes), **more)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_is_refused(bad):
    q, k, v = arrays((9, 4), (9, 4), (9, 4))
    k[3, 2] = bad
    with pytest.raises(BadInput, match="k contains NaN or infinite"):
        al.models.from_arrays(q, k, v)


@pytest.mark.parametrize("bad", ["text", None, [[1, 2], [3]], np.ones((9, 4), complex)])
def test_what_is_no_array_is_refused(bad):
    q, _, v = arrays((9, 4), (9, 4), (9, 4))
    with pytest.raises(BadInput, match="k must be an array of real numbers"):
        al.models.from_arrays(q, bad, v)


WITHOUT_TRANSFORMERS = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("transformers", "safetensors", "tokenizers", "accelerate"):
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
from pathlib import Path

import numpy as np
import attnlimit as al
from attnlimit.cli.main import main

place = sys.argv[1]
rng = np.random.default_rng(0)
q, k, v = (rng.normal(size=(2, 24, 4)) for _ in range(3))
cap = al.models.from_arrays(q, k, v)
law, drawn = al.predict(cap, "pointwise", [8]), al.measure(cap, "pointwise", [8], 200)
assert abs(law.value - drawn.value) < 4 * drawn.stderr
budget = al.budget(cap[0, 0])
cap.save(f"{place}/folder")
assert al.budget(al.models.open_capture(f"{place}/folder")[0, 0]) == budget
commands = sys.argv[2].split(";")
while commands:
    command = commands.pop(0)
    try:
        main(command.replace("@", place).split())
    except SystemExit as ended:
        assert not ended.code, command
    if command.startswith("measure"):
        run = next(Path(place, "runs").iterdir())
        (run / "report.html").unlink()
        commands.insert(0, f"report {run}")
"""


def test_everything_works_where_transformers_cannot_be_imported(tmp_path):
    transformers = pytest.importorskip("transformers")
    shape = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 16}
    config = transformers.LlamaConfig(**shape, num_attention_heads=2, num_key_value_heads=1)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    al.models.capture_sensitivities(model, list(range(24)), tmp_path / "probed", probes=2)
    run = "--out @/runs --workers 1 --json"
    heads = STUDIES / "heads.py"
    small = "--set pointwise_n=[8] --set mean_n=[8] --set pointwise_replicates=20"
    commands = [
        "plan --capture @/probed --kl 0.01 --out @/plan.json",
        "tokens --capture @/folder --out @/tokens.html",
        f"reproduce {heads} --capture @/folder {small} --set mean_replicates=20 {run}",
    ]
    command = [sys.executable, "-c", WITHOUT_TRANSFORMERS, str(tmp_path), ";".join(commands)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("runs/*/report.html"))) == 1
    assert "influence of each token" in (tmp_path / "tokens.html").read_text()
    planned = al.models.plan(model, list(range(24)), kl=0.01, probes=2)
    assert al.Plan.read(tmp_path / "plan.json").heads == planned.heads
