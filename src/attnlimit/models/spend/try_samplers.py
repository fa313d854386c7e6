"""What do samplers do to a model's output? Run it with them, beside the dense one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.capture.dense import attend_dense
from attnlimit.models.capture.encode import Encoded, encode, unwrap
from attnlimit.models.capture.interface import attention_as
from attnlimit.models.spend.assign import Samplers, describe, sampler_table
from attnlimit.models.spend.outputs import Outputs, run
from attnlimit.models.spend.spend import spend
from attnlimit.result import Result


@dataclass(frozen=True)
class Trial(Result):
    """A thinned model against the dense one on one text; averages over repeats of the sampling."""

    sampler: str
    repeats: int
    mean_keys: float  # read by a query of a head
    mean_visible: float  # that it sees
    mean_bytes: float  # of keys, values and proxies, read for a token by all layers
    dense_bytes: float  # that dense attention reads
    hidden_error: float  # |h~ - h| / |h| of the last hidden states, root mean square
    embedding_cosine: float  # of the mean-pooled embeddings
    logit_error: float | None  # root mean square difference of centred logits, causal models
    kl: float | None  # mean KL(dense || thinned) of the next token, in nats
    perplexity: float | None
    dense_perplexity: float | None
    top1: float | None  # share of positions whose most likely next token is the same
    stderr: dict[str, float]  # of each number, over the repeats; NaN from one repeat

    def to_frame(self) -> pd.DataFrame:
        """One row."""
        row = {key: value for key, value in self.__dict__.items() if key != "stderr"}
        row.update({f"{key}_stderr": value for key, value in self.stderr.items()})
        return pd.DataFrame([row])

    def __str__(self) -> str:
        moved, dense = self.mean_bytes / 1e6, self.dense_bytes / 1e6
        keys = (
            f"{self.sampler}: {self.mean_keys:.1f} of {self.mean_visible:.1f} keys read, "
            f"{moved:.3g} of {dense:.3g} MB a token"
        )
        if self.kl is None:
            return (
                f"{keys}\n  1 - cosine of the embedding {self._text('embedding_cosine', 1.0)}, "
                f"hidden states off by {self.hidden_error:.3g}"
            )
        return (
            f"{keys}\n  KL {self._text('kl')} nats, perplexity {self.perplexity:.5g} "
            f"(dense {self.dense_perplexity:.5g}), same top token at {100 * (self.top1 or 0):.1f} %"
        )

    def _text(self, name: str, minus: float = 0.0) -> str:
        error = self.stderr[name]
        value = f"{abs(getattr(self, name) - minus):.3g}"
        return value if error != error else f"{value} +- {error:.1g}"


def try_samplers(
    model: Any,
    text: Any,
    samplers: Samplers,
    *,
    repeats: int = 3,
    seed: int = 0,
    truncate: bool = False,
) -> Trial:
    """Run a model with sampled keys on a text, `repeats` times, and compare with the dense run.

    Parameters
    ----------
    model : LoadedModel or transformers model
    text : str, token ids, or a mapping of input tensors
    samplers : Sampler, mapping or plan
        One sampler for every head, samplers by (layer, head), or a plan.
    """
    times = checks.count(repeats, "repeats")
    root = checks.count(seed, "seed", smallest=0)
    network, _ = unwrap(model)
    sampler_table(network, samplers)
    encoded = encode(model, text, truncate=truncate)
    with torch.no_grad():
        with attention_as(network, attend_dense):
            dense = run(network, encoded)
        rows = []
        for repeat in range(times):
            with spend(model, samplers, seed=root + repeat) as spent:
                thin = run(network, encoded)
            names = ("mean_keys", "mean_visible", "mean_bytes", "visible_bytes")
            keys = {name: getattr(spent, name) for name in names}
            rows.append(keys | _distances(dense, thin, encoded))
    frame = pd.DataFrame(rows)
    if not torch.isfinite(torch.tensor(frame["hidden_error"].to_numpy())).all():
        raise BadInput("The thinned model gave NaN; its weights are damaged.")
    spread = frame.std(ddof=1) / times**0.5
    found = {key: float(value) for key, value in frame.mean().items()}
    return Trial(
        sampler=describe(samplers),
        repeats=times,
        mean_keys=found["mean_keys"],
        mean_visible=found["mean_visible"],
        mean_bytes=found["mean_bytes"],
        dense_bytes=found["visible_bytes"],
        hidden_error=found["hidden_error"],
        embedding_cosine=found["embedding_cosine"],
        logit_error=found.get("logit_error"),
        kl=found.get("kl"),
        perplexity=found.get("perplexity"),
        dense_perplexity=found.get("dense_perplexity"),
        top1=found.get("top1"),
        stderr={str(key): float(value) for key, value in spread.items()},
    )


def _distances(dense: Outputs, thin: Outputs, encoded: Encoded) -> dict[str, float]:
    gap = (thin.hidden - dense.hidden).square().sum(-1) / dense.hidden.square().sum(-1)
    found = {
        "hidden_error": float(gap.mean().sqrt()),
        "embedding_cosine": float(
            torch.cosine_similarity(dense.embedding.double(), thin.embedding.double(), dim=0)
        ),
    }
    if dense.logits is None or thin.logits is None:
        return found
    ids = encoded.inputs["input_ids"][0].cpu()
    ids = ids if encoded.keep is None else ids[encoded.keep]
    centred = [logits - logits.mean(-1, keepdim=True) for logits in (dense.logits, thin.logits)]
    first, second = (torch.log_softmax(logits, -1) for logits in (dense.logits, thin.logits))
    loss = [float(-logs[:-1].gather(1, ids[1:, None]).mean()) for logs in (first, second)]
    return found | {
        "logit_error": float((centred[0] - centred[1]).square().mean().sqrt()),
        "kl": float((first.exp() * (first - second)).sum(-1).mean()),
        "dense_perplexity": float(torch.tensor(loss[0]).exp()),
        "perplexity": float(torch.tensor(loss[1]).exp()),
        "top1": float((first.argmax(-1) == second.argmax(-1)).float().mean()),
    }
