"""What is asked of a model? Its weights, the passages of text it reads, and what is promised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from attnlimit import checks
from attnlimit.budgets.head import QUERIES
from attnlimit.budgets.terms import Terms
from attnlimit.errors import BadInput
from attnlimit.models import Capture, LoadedModel, capture, read_corpus
from attnlimit.models.load.load import load_once
from attnlimit.models.store.folder import local_path
from attnlimit.survey.goal import Goal, goal_for, goal_of
from attnlimit.survey.stored import Stored, part_folder, told

FEWEST = 8
PARTS = 4


@dataclass(frozen=True)
class Passage:
    """Token ids of a part of a text."""

    text: str  # as the user names it
    source: str
    licence: str
    part: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """A model and all that its answer depends on; JSON and back by `to_config`, `from_config`."""

    model: str
    pickled: str | None  # a pickled file that may be read
    weights: str  # SHA-256
    weights_licence: str
    notes: tuple[str, ...]
    passages: tuple[Passage, ...]  # all of one length; the first is shown
    unseen: Passage | None  # the next one, on which plans are measured, if the text has it
    goal: Goal  # what must stay of the output
    layers: tuple[int, ...]
    heads: int  # in a layer
    terms: Terms
    queries: int
    replicates: int
    seed: int
    stored: Stored | None = None  # where the captures are, if they are files
    device: str = "auto"  # that the model runs on
    dtype: str | None = None  # that it runs in; None is that of its weights

    @property
    def text(self) -> str:
        """The text that is shown."""
        return self.passages[0].text

    @property
    def tokens(self) -> int:
        """Tokens in a passage: the context that budgets are for."""
        return len(self.passages[0].ids)

    @property
    def source(self) -> dict[str, Any]:
        """What a plan says of where it comes from."""
        return {
            "model": self.model,
            "weights": self.weights,
            "text": self.text,
            "tokens": self.tokens,
            "passages": [[one.text, one.part] for one in self.passages],
        }

    def measured_on(self) -> Passage:
        """Return the passage on which plans are measured: one they have not seen, if there is."""
        return self.passages[0] if self.unseen is None else self.unseen

    def loaded(self) -> LoadedModel:
        """Load the model, once in a process."""
        if self.stored is not None:
            raise BadInput(
                f"A capture has no model to run: give --model and --text for what needs one, "
                f"instead of {self.stored.paths[0]}."
            )
        return load_once(self.model, self.pickled, self.device, self.dtype)

    def captures(self) -> tuple[Capture, ...]:
        """Capture every passage, once in a process; or open what is stored."""
        if self.stored is not None:
            return self.stored.captures()
        texts = tuple(one.ids for one in self.passages)
        how = self.pickled, self.device, self.dtype
        return _captured(self.model, how, self.weights, texts, self.layers)

    def to_config(self) -> dict[str, Any]:
        """Return the question as JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Question:
        """Return the question that `to_config` wrote, wherever it has been since."""
        names = [one.name for one in fields(cls)]
        later = {"stored": None, "device": "auto", "dtype": None}  # than the first runs
        config = later | dict(config)
        missing = [name for name in names if name not in config]
        if missing:
            raise BadInput(f"it has no setting {', '.join(map(repr, missing))}")
        given = {name: config[name] for name in names}
        unseen = given["unseen"]
        return cls(
            **given
            | {
                "notes": tuple(given["notes"]),
                "layers": tuple(given["layers"]),
                "terms": Terms(**given["terms"]),
                "stored": given["stored"] and Stored.read(given["stored"]),
                "goal": Goal(**given["goal"]),
                "passages": tuple(_passage(one) for one in given["passages"]),
                "unseen": None if unseen is None else _passage(unseen),
            }
        )


def ask(
    model: str = "minilm",
    text: str = "wikipedia:Anarchism",
    *others: str,
    tokens: int = 512,
    parts: int = PARTS,
    terms: Terms | None = None,
    layers: Sequence[int] | None = None,
    replicates: int = 100,
    seed: int = 0,
    pickled: str | None = None,
    device: str = "auto",
    dtype: str | None = None,
    output: Mapping[str, Any] | None = None,
) -> Question:
    """Ask about a model on the first `tokens` tokens of `text`, which are recorded as ids.

    Plans are made on more than those: on the next passages of `text`, up to `parts` in all,
    and on as many of each of `others`. The passage after those is kept to measure on. A plan
    belongs to a context, so that all passages have one length, that of the shortest text if it has
    fewer than `tokens`. `output` says what must stay of the model's output, as `goal_for` does.
    """
    if len({text, *others}) <= len(others):
        raise BadInput("The same text is given twice; each one counts as another text.")
    loaded = load_once(model, pickled, device, dtype)
    length = checks.count(tokens, "tokens", smallest=FEWEST)
    if loaded.positions is not None and length > loaded.positions:
        raise BadInput(
            f"{model} reads {loaded.positions} tokens at most, and {length} were asked for; "
            f"ask for --tokens {loaded.positions} or fewer."
        )
    texts = [_whole(loaded, source) for source in (text, *others)]
    length = min(length, *(len(one.ids) for one in texts))
    wanted_parts = checks.count(parts, "parts", smallest=1)
    cut = [_cut(loaded, one, length, wanted_parts + 1) for one in texts]
    depth = int(loaded.model.config.num_hidden_layers)
    chosen = range(depth) if layers is None else sorted({_layer(k, depth) for k in layers})
    return Question(
        model=model,
        pickled=pickled,
        weights=loaded.weights,
        weights_licence=loaded.licence,
        notes=tuple(loaded.notes),
        passages=tuple(passage for one in cut for passage in one[:wanted_parts]),
        unseen=next((one[-1] for one in cut if len(one) > wanted_parts), None),
        goal=goal_for(loaded.model, **(output or {})),
        layers=tuple(chosen),
        heads=int(loaded.model.config.num_attention_heads),
        terms=Terms() if terms is None else terms,
        queries=QUERIES,
        replicates=checks.count(replicates, "replicates", smallest=2),
        seed=checks.count(seed, "seed", smallest=0),
        device=device,
        dtype=dtype,
    )


def _passage(content: Mapping[str, Any]) -> Passage:
    return Passage(**{**content, "ids": tuple(content["ids"])})


def ask_stored(
    *paths: str | Path,
    causal: bool = True,
    terms: Terms | None = None,
    layers: Sequence[int] | None = None,
    replicates: int = 100,
    seed: int = 0,
    output: Mapping[str, Any] | None = None,
) -> Question:
    """Ask about captures that are files: a folder, or own tensors as q.npy, k.npy and v.npy.

    `output` says what must stay of the model's output, if they keep its gradients.
    """
    stored = Stored.at(paths, causal)
    captures = stored.captures()
    first = captures[0]
    passages = tuple(told(one, str(paths[0])) for one in captures)
    if len({len(one) for one in captures}) > 1:
        raise BadInput(f"The captures in {paths[0]} are of passages of different lengths.")
    words = {name: str(first.source.get(name, "unknown")) for name in ("model", "weights")}
    chosen = first.layers if layers is None else {first.check_layer(layer) for layer in layers}
    return Question(
        **words,
        pickled=None,
        weights_licence=str(first.source.get("licence", "unknown")),
        notes=tuple(map(str, first.source.get("notes", ()))),
        passages=tuple(_passage(one) for one in passages),
        unseen=None,
        goal=goal_of("kl" if first.probes is None else first.probes.output, **(output or {})),
        layers=tuple(sorted(chosen)),
        heads=first.heads,
        terms=Terms() if terms is None else terms,
        queries=QUERIES,
        replicates=checks.count(replicates, "replicates", smallest=2),
        seed=checks.count(seed, "seed", smallest=0),
        stored=stored,
    )


def write_captures(
    question: Question,
    folder: str | Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    probes: int | None = None,
    output: str | None = None,
) -> Question:
    """Capture a question's passages to a folder, and return the question about the files.

    With `probes`, the gradients of so many backward passes are kept, of what `output` names.
    """
    root = local_path(folder)
    loaded, count = question.loaded(), len(question.passages)
    layers = question.layers if probes is None else None
    for done, passage in enumerate(question.passages):
        if progress is not None:
            progress(done, count)
        capture(
            loaded,
            list(passage.ids),
            layers=layers,
            folder=part_folder(root, done),
            probes=probes,
            output=output,
            seed=question.seed + done,
            about={"passage": asdict(passage), "parts": count if done == 0 else 1},
        )
    if progress is not None:
        progress(count, count)
    return replace(question, stored=Stored.at([root]))


def _layer(layer: int, depth: int) -> int:
    if not -depth <= layer < depth:
        raise BadInput(f"There is no layer {layer}: the model has {depth}, from 0.")
    return layer % depth


def _whole(loaded: LoadedModel, source: str) -> Passage:
    corpus = read_corpus(source)
    ids = tuple(loaded.ids(corpus.joined()))
    if len(ids) < FEWEST:
        raise BadInput(f"The text {source!r} has {len(ids)} tokens; at least {FEWEST} are needed.")
    return Passage(source, corpus.source, corpus.licence, 0, ids)


def _cut(loaded: LoadedModel, text: Passage, length: int, parts: int) -> list[Passage]:
    """Cut a text into whole passages, each begun and ended by the text's special tokens."""
    ids = text.ids
    special = set(loaded.tokenizer.all_special_ids) if loaded.tokenizer is not None else set()
    start, end = (ids[:1] if ids[0] in special else ()), (ids[-1:] if ids[-1] in special else ())
    body = ids[len(start) : len(ids) - len(end)]
    width = length - len(start) - len(end)
    count = min(parts, max(1, len(body) // width))
    return [
        replace(text, part=k, ids=(*start, *body[k * width : (k + 1) * width], *end))
        for k in range(count)
    ]


@lru_cache(maxsize=1)
def _captured(
    model: str,
    how: tuple[str | None, str, str | None],
    weights: str,
    texts: tuple[tuple[int, ...], ...],
    layers: tuple[int, ...],
) -> tuple[Capture, ...]:
    loaded = load_once(model, *how)
    if loaded.weights != weights:
        raise BadInput(
            f"The weights of {model} here have SHA-256 {loaded.weights[:12]}..., the run began "
            f"with {weights[:12]}...: every machine must have the same."
        )
    return tuple(capture(loaded, list(ids), layers=layers) for ids in texts)
