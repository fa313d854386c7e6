"""What does a person see of a model? Its answer first, what less would cost, and what to do."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

from attnlimit.report.heads_part import heads_data, heads_section
from attnlimit.report.output_part import output_cards, output_data, output_section
from attnlimit.report.page import (
    cards_html,
    command_html,
    docs_link,
    document,
    escape,
    fill,
    provenance,
)
from attnlimit.survey import Question, Survey
from attnlimit.survey.answer import DOUBT

SPEND = """import attnlimit as al

model = al.models.load({model!r})
with al.models.spend(model, al.models.OutputPlan.read("plan.json")):
    ...  # the model reads only those keys in here"""


def model_page(record: dict[str, Any], survey: Survey, beside: Path) -> str:
    """Return the page of a model, to be written in the folder `beside`."""
    asked = survey.question
    title = asked.text.removeprefix("wikipedia:")
    said = survey.says()
    sentence = f"{asked.model}: every head by itself"
    output, cards, doubt = "", "", ""
    if survey.has_output:
        answer = survey.answer
        sentence = answer.headline()
        said = [f"{answer.meaning()} {answer.rule()}"]
        said += [f"{answer.prediction()} {answer.measurement()} {survey.rival()}"]
        doubt = "" if answer.trusted else f"<p class='warning'>{escape(DOUBT)}</p>"
        output, cards = output_section(survey), cards_html(output_cards(answer))
    body = fill(
        "model.html",
        eyebrow=escape(
            f"attnlimit · {asked.model} on {title} · {asked.tokens} tokens · "
            f"{len(asked.layers)} layers × {asked.heads} heads"
            f" · planned on {_passages(asked)}"
        ),
        sentence=escape(sentence),
        answer="".join(f"<p>{escape(one)}</p>" for one in said) + doubt,
        cards=cards,
        output=output,
        map_title="Where the error comes from" if survey.has_output else "Every head",
        map_says=escape(_map_says(survey)),
        commands="".join(command_html(*one) for one in _commands(survey)),
        heads=heads_section(survey, beside) if survey.has_heads else "",
        link_threshold=docs_link("theory/threshold.md", "Threshold sampling", beside),
        link_output=docs_link("theory/output.md", "From heads to the output", beside),
        link_plan=docs_link("plan.md", "Planning", beside),
        provenance=provenance(record),
        footer=escape(_footer(asked)),
    )
    data = {
        "context": asked.tokens,
        "layers": asked.layers,
        "heads": asked.heads,
        "output": output_data(survey) if survey.has_output else None,
        "single": heads_data(survey) if survey.has_heads else None,
        "command": _plan_command(asked),
    }
    name = f"{asked.model} on {title}: how few keys are enough"
    return document(name, body, data, ["output.js", "model.js"])


def _passages(asked: Question) -> str:
    count = len(asked.passages)
    return f"{count} passages" if count > 1 else "1 passage"


def _map_says(survey: Survey) -> str:
    about = (
        "The share of each head in the predicted error of the output, at the target chosen above: "
        "bright heads are where reading more would help most. "
        if survey.has_output
        else ""
    )
    point = "Point at a cell for its numbers"
    if not survey.has_heads:
        return f"{about}{point}; the arrow keys move."
    return (
        f"{about}{point}; click it, or move with the arrow keys and press Enter, for its details."
    )


def _plan_command(asked: Question) -> str:
    return f"attnlimit plan {_options(asked)} --budget plan.json"


def _options(asked: Question) -> str:
    if asked.stored is not None:
        return f"--capture {' '.join(map(quote, asked.stored.paths))}"
    texts = dict.fromkeys(one.text for one in asked.passages)
    named = " ".join(f"--text {quote(text)}" for text in texts)
    parts = 1 + max(one.part for one in asked.passages)
    return f"--model {quote(asked.model)} {named} --tokens {asked.tokens} --parts {parts}"


def _commands(survey: Survey) -> list[tuple[str, str]]:
    asked = survey.question
    model = quote(asked.model)
    goal = asked.goal
    kept = {"kl": f"--kl {goal.allowed:g}", "cosine": f"--cosine {1 - goal.allowed:.6g}"}
    output = [
        (
            f"{_plan_command(asked)} {kept[goal.output]}",
            "Write this plan to a file (the slider above has the command of any other target):",
        ),
        (
            f"attnlimit try --model {model} --text YOUR_TEXT.txt --tokens {asked.tokens} "
            "--plan plan.json",
            "Run it on a text of your own, predicted beside measured:",
        ),
        (SPEND.format(model=asked.model), "Use it in your own program, in Python:"),
    ]
    promise = f"--epsilon {asked.terms.epsilon:g} --delta {asked.terms.delta:g}"
    heads = (
        f"attnlimit measure {_options(asked)} {promise} --seed {asked.seed}",
        "Look at every head by itself, and get this page again:",
    )
    return [*(output if survey.has_output else []), heads]


def _footer(asked: Question) -> str:
    shown = asked.passages[0]
    names = dict.fromkeys(one.text for one in asked.passages)
    more = [name.removeprefix("wikipedia:") for name in names if name != asked.text]
    others = f"; planned also on {', '.join(more)}" if more else ""
    return (
        f"Weights: {asked.model} ({asked.weights_licence}), sha256 "
        f"{asked.weights[:16]}…{''.join('; ' + note for note in asked.notes)}. "
        f"Text: {shown.source} ({shown.licence}){others}."
    )
