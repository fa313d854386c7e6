"""The technical report: parts of the pages and their tables, as one PDF beside the site."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from typeset import RAISED

HERE = Path(__file__).parent
SOURCE = HERE / "report.md"
STYLE = HERE / "style.typ"
IMAGES = HERE.parent / "images"
FIGURES = ("model_baselines.png", "decoding.png")
INCLUDE = re.compile(r"^```\{include\} (\S+)\n(.*?)^```$", re.M | re.S)
PLAIN = re.compile(r"(\$\$.*?\$\$|\$[^$]*\$|```.*?```|`[^`]*`)", re.S)


def write_report(path: Path) -> None:
    """Write the PDF, with pandoc for formulas and Typst for pages."""
    import typst

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "report.typ"
        source.write_text(typst_source(), encoding="utf-8")
        for figure in FIGURES:
            shutil.copy(IMAGES / figure, folder)
        typst.compile(str(source), output=str(path))


def typst_source() -> str:
    """Return the report in Typst."""
    import pypandoc

    body = pypandoc.convert_text(
        markdown(),
        "typst",
        format="markdown-citations-raw_html-smart",
        extra_args=["--columns=500"],
    )
    return STYLE.read_text(encoding="utf-8") + str(body)


def markdown() -> str:
    """Return the report in pandoc's Markdown, with all that it includes."""
    text = INCLUDE.sub(lambda mark: included(mark[1], mark[2]), SOURCE.read_text(encoding="utf-8"))
    text = re.sub(r"\\tag\{(.*?)\}", r"\\qquad (\1)", text)
    text = re.sub(r"\\big[lr]?\b", "", text)
    text = text.replace("](../images/", "](")
    text = re.sub(r"\s\(\[[^\]]*\]\([^)]*\)\)", "", text)  # links lead to pages of the site
    text = re.sub(r"(?<!!)\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return "".join(
        with_fences(part) if PLAIN.fullmatch(part) else with_indices(part)
        for part in PLAIN.split(text)
    )


def included(name: str, options: str) -> str:
    """Return the part of a page between two of its lines, or a table with its source."""
    text = (HERE / name).read_text(encoding="utf-8")
    if "/tables/" in name:
        text = text.replace(" ± ", "\u00a0±\u00a0")
    for option, value in re.findall(r'^:([\w-]+): "(.*)"$', options, re.M):
        before, match, after = text.partition(value)
        if not match:
            raise ValueError(f"{name} has no line {value!r}.")
        text = after if option == "start-after" else before
    return re.sub(r"^## (?:\d+\. )?", "### ", text.strip(), flags=re.M)


def with_fences(part: str) -> str:
    """Let the bars and large brackets of a formula stretch; code is left as it is."""
    if not part.startswith("$"):
        return part
    part = re.sub(r"(?<!\\)\|([^|]*)(?<!\\)\|", r"\\left|\1\\right|", part)
    part = re.sub(r"\\Big(?=[(\[])", r"\\left", part)
    return re.sub(r"\\Big(?=[)\]])", r"\\right", part)


def with_indices(text: str) -> str:
    """Lower and raise indices of running text, as the site does."""

    def mark(match: re.Match[str]) -> str:
        sign = "~" if match[1] == "_" else "^"
        inner = match[2].removeprefix("{").removesuffix("}") if match[2][0] == "{" else match[2]
        inner = re.sub(r"[_^{}]", "", inner).replace(" ", r"\ ").replace("-", "−")
        return f"{sign}{inner}{sign}"

    return RAISED.sub(mark, text.replace("<=", "≤").replace(">=", "≥"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the report into the built site."""
    app.connect("build-finished", write_built)
    return {"parallel_read_safe": True}


def write_built(app: Sphinx, error: Exception | None) -> None:
    """Write `attnlimit.pdf` beside the pages, if these were built."""
    if error is None and app.builder.format == "html":
        write_report(Path(app.outdir) / "attnlimit.pdf")
