"""Page of a plan: its result, other targets, other samplers, and the share of each head."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from attnlimit.planning.comparison import Comparison
from attnlimit.planning.plan import Plan
from attnlimit.report.page import (
    asset,
    cards_html,
    command_html,
    docs_link,
    document,
    escape,
    figure_data,
    figure_html,
    fill,
    provenance,
    scrolled,
    table,
)
from attnlimit.result import format_pm
from attnlimit.samplers.spec import sampler_spec

if TYPE_CHECKING:
    from attnlimit.decoding.generation import ContextTimes, Generation

USE = """import attnlimit as al

model = al.models.load({model!r})
with al.models.sampled_attention(model, al.Plan.read("plan.json")):
    ...  # the model reads only those keys in here"""

LONG = 131072
"""Tokens of a long context, for which the page says what a plan means."""
LABELS = {"kl": "KL divergence of the next token", "cosine_loss": "1 − cosine of the embedding"}
SCHEMES = {
    "threshold": "threshold: heavy keys + a sample of the rest",
    "top-k + sample": "top-k + a plain sample of the rest",
    "top-p": "top-p: heaviest keys up to a share of the weight",
    "top-k": "top-k: the best keys alone",
    "sinks + recent": "first 4 keys + the nearest",
    "bound": "first-order bound of independent sampling",
}
"""Samplers of the curves, by their name in the table, as the legend shows them."""


@dataclass(frozen=True)
class PageSource:
    """Origin of a plan's model and texts."""

    options: str  # of the command line that made the plan
    text: str  # that is shown
    others: tuple[str, ...]  # texts planned on besides
    text_source: str
    text_licence: str
    weights_licence: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decoding:
    """Fast decoding of a model by a plan of its own."""

    plan: Plan
    written: Generation  # text after a prompt, with the plan's keys and with all
    times: ContextTimes

    def headline(self, model: str) -> str:
        """What is saved at the longest context, in one sentence."""
        last = self.times.frame.iloc[-1]
        return (
            f"After {last.tokens:,.0f} tokens {model} attends in {last.ms:.2g} ms instead of "
            f"{last['dense, ms']:.2g}, for {self.plan.target.distance:.3g}{self.plan.target.unit}."
        )

    def meaning(self) -> str:
        """Bytes, and the loss predicted and measured."""
        plan, written, last = self.plan, self.written, self.times.frame.iloc[-1]
        predicted = format_pm(plan.predicted, plan.stderr)
        measured = format_pm(written.kl, written.kl_stderr)
        return (
            f"A decoded token reads {_size(1e6 * last.MB)} of the cache's "
            f"{_size(1e6 * last['dense, MB'])} "
            f"({plan.rule()}). Predicted on the {max(plan.tokens):,} tokens of the prompt: the "
            f"next token's probabilities move by a KL divergence of {predicted} nats; measured on "
            f"the {written.tokens} tokens written after it: {measured} nats."
        )

    def section(self) -> str:
        """Times and bytes against the context, and the two texts."""
        stats = self.written.stats
        kept = f"the plan's keys, {stats.keys:.0f} of {stats.mean_visible:.0f} for a query"
        texts = {"all keys": (self.written.dense_texts or ("",))[0], kept: self.written.texts[0]}
        numbers = scrolled(table(self.times.frame), "Decoded tokens by context")
        parts = "".join(
            f"<figure><figcaption>{escape(name)}</figcaption><blockquote>{escape(text)}"
            "</blockquote></figure>"
            for name, text in texts.items()
        )
        note = (
            "All layers together, on this machine. Lines are predicted from two speeds measured "
            "at the start, bytes and operations; points are measured."
        )
        more = (
            f"<p class='note'>{note}</p><details><summary>The numbers behind it</summary>{numbers}"
            "</details>"
        )
        return (
            figure_html(self.times.figure(), "What it saves", more)
            + '<section aria-labelledby="text-title"><h2 id="text-title">The text it writes</h2>'
            f'<div class="texts">{parts}</div></section>'
        )


def model_page(
    record: dict[str, Any],
    result: Comparison,
    source: PageSource,
    beside: Path,
    decoding: Decoding | None = None,
) -> str:
    """Return the page of a plan, to be written in the folder `beside`."""
    plan, title = result.plan, source.text.removeprefix("wikipedia:")
    sentences = [result.headline()]
    if decoding is not None:
        sentences.insert(0, decoding.headline(result.model))
    paragraphs = [
        f"{result.meaning()} {result.rule()} {result.storage()}",
        f"{result.prediction()} {result.measurement()} {result.rival()}",
    ]
    if decoding is not None:
        paragraphs.insert(0, decoding.meaning())
        paragraphs[1] = f"{sentences[1]} {paragraphs[1]}"
    doubt = (
        "" if plan.trusted else f"<p class='warning'>{escape(f'Not trusted: {plan.doubt}.')}</p>"
    )
    layers, heads = plan.keys.shape
    count = len(plan.tokens)
    body = fill(
        "model.html",
        eyebrow=escape(
            f"attnlimit · {plan.model} on {title} · {max(plan.tokens)} tokens · "
            f"{layers} layers × {heads} heads · planned on "
            f"{count} passage{'' if count == 1 else 's'}"
        ),
        sentence=escape(sentences[0]),
        answer="".join(f"<p>{escape(text)}</p>" for text in paragraphs) + doubt,
        cards=cards_html(_cards(result)),
        output=_output_section(result) + _knobs(plan) + _cache_types(result),
        decoding="" if decoding is None else decoding.section(),
        commands="".join(command_html(*command) for command in _commands(result, source)),
        link_threshold=docs_link("theory/threshold.md", "Threshold sampling", beside),
        link_output=docs_link("theory/output.md", "From heads to the output", beside),
        link_plan=docs_link("plan.md", "Planning", beside),
        provenance=provenance(record),
        footer=escape(_footer(plan, source)),
    )
    data = {
        "layers": list(range(layers)),
        "heads": heads,
        "output": _output_data(result),
        "command": f"attnlimit plan {source.options} --out plan.json",
    }
    name = f"{plan.model} on {title}: how few keys are enough"
    scripts = ["output.js", "model.js"]
    if decoding is not None:
        data |= figure_data(decoding.times.figure())
        scripts.append("run.js")
    return document(name, body, data, [asset(script) for script in scripts])


def _cards(result: Comparison) -> list[tuple[str, str]]:
    """Main numbers, each with its meaning."""
    plan, run = result.plan, result.evaluation
    share = plan.mean_keys / plan.mean_visible
    label = _label(plan)
    first = (f"{100 * share:.0f} %", f"of the keys are read: {plan.mean_keys:.0f} by a query")
    (read, all_read), (stored, whole), _ = plan.costs().values()
    if plan.joint:
        caption = f"of the bytes are read for a decoded token: {_size(read)} of {_size(all_read)}"
        first = (f"{100 * read / all_read:.3g} %", caption)
    cards = [
        first,
        (format_pm(plan.predicted, plan.stderr), f"predicted ({label})"),
        (f"{plan.next_text:.2g}", "bound for nine of ten other passages"),
    ]
    if run is not None:
        where = "a passage not planned on" if result.unseen else "the passage planned on"
        value = format_pm(*run.distance(plan.target.measure))
        cards.insert(2, (value, f"measured on {where}"))
        caption = f"moved for a token instead of {_size(run.dense_bytes)}"
        used = (_size(run.mean_bytes), caption)
        if plan.joint:
            caption = f"of the bytes are stored: {_size(stored)} of {_size(whole)}"
            used = (f"{100 * stored / whole:.3g} %", caption)
        cards.append(used)
        if run.top1 is not None:
            agreed = "of the positions keep the same most likely token, measured"
            cards.append((f"{100 * run.top1:.1f} %", agreed))
    return cards


def _label(plan: Plan) -> str:
    return LABELS.get(plan.target.measure, plan.target.label)


def _output_section(result: Comparison) -> str:
    """Slider over targets, and curves of samplers."""
    plan = result.plan
    label = {"kl": "KL allowed, in nats", "cosine_loss": "1 − cosine allowed"}
    slider = label.get(plan.target.measure, f"{plan.target.label} allowed")
    return fill(
        "output.html",
        slider_label=escape(slider),
        last=str(len(result.alternatives) - 1),
        chosen=str(_chosen(result)),
        curve_says=escape(_curve_text(result)),
        curve_table=scrolled(table(_numbers(result.curves)), "Output error by sampler"),
    )


def _curve_text(result: Comparison) -> str:
    plan, run = result.plan, result.evaluation
    axes = f"{_label(plan)} against the keys that a query reads; lower and further left is better"
    marks = "The dashed line is the target above, the star its plan."
    if run is None:
        return f"{axes}. The line is predicted from the capture's backward passes. {marks}"
    where = "a passage that was not planned on" if result.unseen else "the passage planned on"
    return (
        f"{axes}, on {where}. Lines are predicted from {plan.probes} backward passes; points are "
        f"measured by running the model, with bars of one standard error over {run.repeats} runs. "
        f"{marks}"
    )


def _output_data(result: Comparison) -> dict[str, Any]:
    """Data of the slider, the curves and the map."""
    return {
        "measure": result.plan.target.measure,
        "word": _label(result.plan),
        "unit": result.plan.target.unit,
        "model": result.model,
        "chosen": _chosen(result),
        "levels": [_level(plan) for plan in result.alternatives],
        "schemes": _schemes(result),
    }


def _level(plan: Plan) -> dict[str, Any]:
    kinds = {None if s is None else sampler_spec(s) for row in plan.heads for s in row}
    allowed = float(plan.target.distance)
    return {
        "target": allowed,
        "option": _option(plan),
        "keys": plan.mean_keys,
        "visible": plan.mean_visible,
        "predicted": plan.predicted,
        "stderr": plan.stderr,
        "trusted": plan.trusted,
        "next": plan.next_text,
        "sampler": (kinds.pop() or "all keys") if len(kinds) == 1 else None,
        "use": _use(plan) if plan.joint else None,
        "bars": _bars(plan) if plan.target.measure == "kl" else [],
        "long": _long_context(plan) if plan.target.measure == "kl" else "",
        "headKeys": plan.keys.ravel().tolist(),
        "headShares": (plan.contributions / (plan.predicted or 1.0)).ravel().tolist(),
    }


def _use(plan: Plan) -> dict[str, str]:
    """What a decoded token reads and the cache holds, of what dense attention does."""
    (read, all_read), (stored, whole), _ = plan.costs().values()
    return {
        "read": f"{_size(read)} of {_size(all_read)}",
        "stored": f"{_size(stored)} of {_size(whole)}",
    }


def _bars(plan: Plan) -> list[dict[str, Any]]:
    """Shares of keys read, bits and keys stored, each beside what dense attention has."""
    keep = 1.0 if plan.evict is None else plan.evict.keep
    whole = 8 * plan.number
    bars = [
        ("keys read", plan.mean_keys / plan.mean_visible, f"{plan.mean_keys:.3g} keys"),
        ("bits of a number", plan.stored_bits() / whole, f"{plan.stored_bits():.3g} of {whole:g}"),
        ("prompt keys stored", keep, "all" if keep == 1 else "rest evicted"),
    ]
    return [{"name": name, "share": share, "text": text} for name, share, text in bars]


def _long_context(plan: Plan) -> str:
    """What the plan means for a context of 128k tokens."""
    costs = plan.costs(LONG)
    read, stored, time = (costs[name] for name in ("bytes_read", "bytes_stored", "milliseconds"))
    text = (
        f"At {LONG:,} tokens a decoded token reads {_size(read[0])} instead of {_size(read[1])}, "
        f"and the cache holds {_size(stored[0])} instead of {_size(stored[1])}"
    )
    if np.isfinite(time[0]):
        text += (
            f"; its attention takes {time[0]:.3g} ms instead of {time[1]:.3g} (fast decoding on "
            "one core of a server, predicted)"
        )
    return f"{text}. The loss is that of {max(plan.tokens):,} tokens, and grows with the context."


def _size(number: float) -> str:
    return f"{number / 1e9:.3g} GB" if number >= 1e9 else f"{number / 1e6:.3g} MB"


def _knobs(plan: Plan) -> str:
    """What each change of a plan of several costs and saves."""
    if len(plan.losses) < 2:
        return ""
    frame = plan.knobs().rename(columns={"loss": f"predicted loss,{plan.target.unit}"})
    note = (
        "The predicted losses add up to that of the plan. A change saves the bytes that a decoded "
        f"token would read, and the cache would hold, at {max(plan.tokens):,} tokens with all "
        "other changes and not this one."
    )
    return (
        '<section aria-labelledby="knobs-title"><h2 id="knobs-title">What each change costs and '
        f'saves</h2><p class="note">{note}</p>{scrolled(table(frame), "Changes of the plan")}'
        "</section>"
    )


def _cache_types(result: Comparison) -> str:
    """Predicted loss of cache types that other programs have, with a warning where they break."""
    if not result.cache_types:
        return ""
    allowed = float(result.plan.target.distance)
    rows = [
        {
            "cache type": name,
            "predicted": format_pm(error.value, error.stderr),
            "verdict": (
                "breaks this model" if not error.trusted
                else "within the target" if error.value <= allowed else "above the target"
            ),
            "where": error.blame(),
        }
        for name, error in result.cache_types.items()
    ]  # fmt: skip
    broken = [row["cache type"] for row in rows if row["verdict"] == "breaks this model"]
    warning = (
        f"<p class='warning'>{escape(', '.join(broken))}: more is lost than predictions hold for; "
        "do not use it without a measurement.</p>"
        if broken
        else ""
    )
    return (
        '<section aria-labelledby="types-title"><h2 id="types-title">What a quantised cache '
        "costs</h2>"
        '<p class="note">Predicted loss in nats of the next token, all keys read, of cache types '
        "of llama.cpp and transformers; and the layers that cause it.</p>"
        f"{warning}{scrolled(table(pd.DataFrame(rows)), 'Loss of cache types')}</section>"
    )


def _chosen(result: Comparison) -> int:
    """Place of the plan among the alternatives."""
    allowed = result.plan.target.distance
    return sum(float(plan.target.distance) < allowed for plan in result.alternatives)


def _schemes(result: Comparison) -> list[dict[str, Any]]:
    curves = result.curves
    if result.evaluation is None:  # a capture: the curve is that of its plans
        plans = [(plan.mean_keys, plan.predicted, plan.stderr) for plan in result.alternatives]
        curves = pd.DataFrame(plans, columns=["keys", "error", "stderr"])
        curves = curves.assign(law="predicted", scheme="threshold", sampler=None)
    curves = curves[curves.error > 0].sort_values("keys")

    def points(name: str, law: str) -> dict[str, Any]:
        part = curves[(curves.scheme == name) & (curves.law == law)]
        columns = {"x": "keys", "y": "error", "e": "stderr", "sampler": "sampler"}
        return {key: part[column].tolist() for key, column in columns.items()}

    return [
        {"name": name, "label": label}
        | {law: points(name, law) for law in ("predicted", "measured")}
        for name, label in SCHEMES.items()
    ]


def _numbers(curves: pd.DataFrame) -> pd.DataFrame:
    """One row for each sampler, predicted beside measured where both are known."""
    place = ["scheme", "sampler"]
    keep = [*place, "keys", "error", "stderr"]
    predicted, measured = (
        curves[(curves.law == law) & curves.sampler.notna()][keep]
        for law in ("predicted", "measured")
    )
    both = predicted.merge(measured, on=place, how="outer", suffixes=("", " measured"))
    both["keys"] = both["keys"].fillna(both["keys measured"])
    names = {"error": "predicted", "stderr": "± probes", "error measured": "measured"}
    names |= {"stderr measured": "± runs", "keys": "keys read"}
    shown = both.drop(columns="keys measured").rename(columns=names)
    order = [*place, "keys read", "predicted", "± probes", "measured", "± runs"]
    return shown.sort_values(["scheme", "keys read"])[order]


def _commands(result: Comparison, source: PageSource) -> list[tuple[str, str]]:
    plan = result.plan
    option, model = _option(plan), quote(plan.model)
    return [
        (
            f"attnlimit plan {source.options} {option} --out plan.json",
            "Write this plan to a file (the slider above has the command of any other target):",
        ),
        (
            f"attnlimit evaluate --model {model} --text YOUR_TEXT.txt --tokens {max(plan.tokens)} "
            "--plan plan.json",
            "Run it on a text of your own, predicted beside measured:",
        ),
        (USE.format(model=plan.model), "Use it in your own program, in Python:"),
    ]


def _option(plan: Plan) -> str:
    """The option of a plan's target on the command line."""
    name, value = plan.target.name, plan.target.to_value(float(plan.target.distance))
    named = name in ("kl", "perplexity", "cosine")
    return f"--{name} {value:.8g}" if named else f"--target {name}:{value:.8g}"


def _footer(plan: Plan, source: PageSource) -> str:
    more = [name.removeprefix("wikipedia:") for name in source.others]
    others = f"; planned also on {', '.join(more)}" if more else ""
    return (
        f"Weights: {plan.model} ({source.weights_licence}), sha256 "
        f"{plan.weights[:16]}…{''.join('; ' + note for note in source.notes)}. "
        f"Text: {source.text_source} ({source.text_licence}){others}."
    )
