"""A small run on a made model, whose tokens try to be markup."""

import torch

from attnlimit.budgets.terms import Terms
from attnlimit.models.capture.captured import CapturedLayer
from attnlimit.models.capture.masks import Mask
from attnlimit.models.captures import Capture
from attnlimit.reproduce.model import EXPERIMENT
from attnlimit.runs import execute
from attnlimit.survey import Goal, Passage, Question

HOSTILE = "<script>alert(1)</script>"


def made_capture(layers=2, heads=3, tokens=24):
    generator = torch.Generator().manual_seed(3)
    kept = {}
    for layer in range(layers):
        q, k, v = (torch.randn(heads, tokens, 4, generator=generator) for _ in range(3))
        scale = torch.tensor([0.1, 1.0, 6.0])[:heads, None, None]
        kept[layer] = CapturedLayer(
            q * scale, k, v + 1, Mask(torch.arange(tokens)), 0.5, None, None
        )
    names = [HOSTILE, "</script>", "&amp;", '"quoted"'] + [f"word{i}" for i in range(tokens - 4)]
    return Capture(
        layers=kept,
        tokens=tuple(names),
        positions=torch.arange(tokens),
        special=torch.zeros(tokens, dtype=torch.bool),
        depth=layers,
        heads=heads,
    )


def made_model(layers=2, heads=3):
    """Return an untrained BERT of the capture's shape."""
    import transformers

    from attnlimit.models import LoadedModel

    torch.manual_seed(5)
    shape = {"num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": 64}
    config = transformers.BertConfig(
        **shape,
        hidden_size=8 * heads,
        intermediate_size=16,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    config._attn_implementation = "eager"
    network = transformers.BertModel(config).eval()
    return LoadedModel("made", network, None, "0" * 64, "made", "none")


def made_run(root, monkeypatch, text="wikipedia:Made", **shape):
    """Write the run folder of a made model, finished, under `root`."""
    capture = made_capture(**shape)
    model = made_model(len(capture.layers), capture.heads)
    monkeypatch.setattr(Question, "captures", lambda self: (capture,))
    monkeypatch.setattr(Question, "loaded", lambda self: model)
    ids = tuple(range(len(capture)))
    question = Question(
        model="made<b>model</b>",
        pickled=None,
        weights="0" * 64,
        weights_licence="none",
        notes=(),
        passages=(Passage(text, "made", "none", 0, ids),),
        unseen=Passage(text, "made", "none", 1, ids[::-1]),
        goal=Goal("cosine", 0.001, repeats=2),
        layers=tuple(capture.layers),
        heads=capture.heads,
        terms=Terms(0.3, 0.1, 0.9),
        queries=24,
        replicates=20,
        seed=0,
    )
    return execute(EXPERIMENT, question.to_config(), root, weights=question.weights)
