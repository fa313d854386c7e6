"""How far is a thinned model from the dense one? Logits, KL, perplexity, embeddings, top-1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from attnlimit import checks
from attnlimit.errors import BadInput
from attnlimit.models.capture.dense import attend_dense
from attnlimit.models.capture.encode import Encoded, encode, unwrap
from attnlimit.models.capture.interface import attention_as
from attnlimit.models.spend.subsample import subsampled
from attnlimit.samplers import Sampler


@dataclass(frozen=True)
class Comparison:
    """A thinned model against the dense one on one text; averages over repeats of the sampling."""

    sampler: str
    repeats: int
    hidden_error: float  # |h~ - h| / |h| of the last hidden states, root mean square
    embedding_cosine: float  # of the mean-pooled embeddings
    logit_error: float | None  # root mean square difference of centred logits, causal models
    kl: float | None  # mean KL(dense || thinned) of the next token, in nats
    perplexity: float | None
    dense_perplexity: float | None
    top1: float | None  # share of positions whose most likely next token is the same
    stderr: dict[str, float]

    def to_frame(self) -> pd.DataFrame:
        """One row."""
        row = {key: value for key, value in self.__dict__.items() if key != "stderr"}
        row.update({f"{key}_stderr": value for key, value in self.stderr.items()})
        return pd.DataFrame([row])

    def __str__(self) -> str:
        parts = [
            f"{self.sampler}: hidden states "
            f"off by {self.hidden_error:.3g}, embedding cosine {self.embedding_cosine:.4f}"
        ]
        if self.kl is not None:
            parts.append(
                f"KL {self.kl:.3g} nats, perplexity {self.perplexity:.4g} "
                f"(dense {self.dense_perplexity:.4g}), top-1 agreement {self.top1:.3f}"
            )
        return "; ".join(parts)


def compare(
    model: Any,
    text: Any,
    sampler: Sampler | Mapping[tuple[int, int], Sampler],
    *,
    layers: Sequence[int] | None = None,
    repeats: int = 3,
    seed: int = 0,
    truncate: bool = False,
) -> Comparison:
    """Run a model with sampled keys on a text, `repeats` times, and compare with the dense run."""
    times = checks.count(repeats, "repeats")
    network, _ = unwrap(model)
    encoded = encode(model, text, truncate=truncate)
    with torch.no_grad():
        with attention_as(network, attend_dense, encoded.keep):
            dense = _run(network, encoded)
        rows = []
        for repeat in range(times):
            with subsampled(model, sampler, layers=layers, seed=seed + repeat, keep=encoded.keep):
                thin = _run(network, encoded)
            rows.append(_distances(dense, thin, encoded))
    frame = pd.DataFrame(rows)
    if not torch.isfinite(torch.tensor(frame["hidden_error"].to_numpy())).all():
        raise BadInput("The thinned model gave NaN; its weights are damaged.")
    mean = frame.mean()
    spread = frame.std(ddof=1) / times**0.5 if times > 1 else frame.iloc[0] * 0
    found = {key: float(value) for key, value in mean.items()}
    return Comparison(
        sampler=sampler.name if isinstance(sampler, Sampler) else "one sampler a head",
        repeats=times,
        hidden_error=found["hidden_error"],
        embedding_cosine=found["embedding_cosine"],
        logit_error=found.get("logit_error"),
        kl=found.get("kl"),
        perplexity=found.get("perplexity"),
        dense_perplexity=found.get("dense_perplexity"),
        top1=found.get("top1"),
        stderr={key: float(value) for key, value in spread.items()},
    )


def _run(network: Any, encoded: Encoded) -> tuple[Tensor, Tensor | None]:
    """Last hidden states (N, d) and logits (N, vocabulary) if there are any."""
    cache = {"use_cache": False} if getattr(network.config, "use_cache", None) else {}
    hidden = network.base_model(**encoded.inputs, **cache).last_hidden_state
    head = network.get_output_embeddings() if hasattr(network, "get_output_embeddings") else None
    logits = head(hidden)[0] if head is not None and network is not network.base_model else None
    return (hidden[0] if encoded.keep is None else hidden[0][encoded.keep]), logits


def _distances(
    dense: tuple[Tensor, Tensor | None], thin: tuple[Tensor, Tensor | None], encoded: Encoded
) -> dict[str, float]:
    gap = (thin[0] - dense[0]).square().sum(-1) / dense[0].square().sum(-1)
    pooled = [states.mean(0) for states in (dense[0], thin[0])]
    found = {
        "hidden_error": float(gap.mean().sqrt()),
        "embedding_cosine": float(torch.cosine_similarity(pooled[0], pooled[1], dim=0)),
    }
    if dense[1] is None or thin[1] is None:
        return found
    ids = encoded.inputs["input_ids"][0]
    centred = [logits - logits.mean(-1, keepdim=True) for logits in (dense[1], thin[1])]
    first, second = (torch.log_softmax(logits, -1) for logits in (dense[1], thin[1]))
    loss = [float(-logs[:-1].gather(1, ids[1:, None]).mean()) for logs in (first, second)]
    found |= {
        "logit_error": float((centred[0] - centred[1]).square().mean().sqrt()),
        "kl": float((first.exp() * (first - second)).sum(-1).mean()),
        "dense_perplexity": float(torch.tensor(loss[0]).exp()),
        "perplexity": float(torch.tensor(loss[1]).exp()),
        "top1": float((first.argmax(-1) == second.argmax(-1)).float().mean()),
    }
    return found
