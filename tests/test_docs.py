"""The documentation names every public thing, and says what each argument is."""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
typeset = pytest.importorskip("typeset", reason="needs the extra `docs`")
public_names = pytest.importorskip("public_names", reason="needs the extra `docs`").public_names

NAMES = [name for names in public_names().values() for name in names]
SHARED = {
    name
    for line in (ROOT / "docs/reference/arguments.md").read_text().splitlines()
    if line.startswith("`")
    for name in re.findall(r"`(\w+)`", line)
}
BUILT = ("explorer.html", "attnlimit.pdf")
PAGES = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def public_object(name):
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_says_what_it_is_and_what_it_takes(name):
    thing = public_object(name)
    text = inspect.getdoc(thing)
    assert text, f"{name} has no docstring"
    if inspect.isfunction(thing):
        words = set(re.findall(r"\w+", text)) | SHARED
        taken = inspect.signature(thing).parameters.values()
        named = [
            entry.name
            for entry in taken
            if entry.kind not in (entry.VAR_POSITIONAL, entry.VAR_KEYWORD)
        ]
        silent = [name for name in named if name not in words]
        assert not silent, f"{name} does not say what {', '.join(silent)} is"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page):
    if "_build" in page.parts or "gallery" in page.parts:
        return
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        built = "gallery/" in target or target.endswith(BUILT)
        if not built:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("e^{-te^{s_1}} dt", "e[−te[s[1]]] dt"),
        ("E[p_i - p_i²]", "E[p[i] - p[i]²]"),
        ("c_jc_k, H_kv, |_F^2, 10^12", "c[j]c[k], H[kv], |[F][2], 10[12]"),
        ("c_ju_jr_j|², w_ic_i², W_qΣ, w_⊥", "c[j]u[j]r[j]|², w[i]c[i]², W[q]Σ, w[⊥]"),
        ("score_std, keys_by_length, n_max", "score_std, keys_by_length, n_max"),
        ("q8_0/q4_0, f_0, 10^12", "q8_0/q4_0, f[0], 10[12]"),
    ],
)
def test_indices_are_set_and_names_are_left_alone(text, shown):
    def drawn(node):
        inner = "".join(drawn(child) for child in node.children) or node.astext()
        return f"[{inner}]" if node.tagname in ("subscript", "superscript") else inner

    assert "".join(drawn(node) for node in typeset.typeset(text)) == shown
