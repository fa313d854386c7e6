"""Messages of errors are short, name what was given, and end with what to do."""

import ast
import re
from pathlib import Path

import pytest

import attnlimit
from attnlimit.cli import main

MOST_WORDS = 30
ROOT = Path(attnlimit.__file__).parent
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.rglob("*.py"))
}
LIST = re.compile(r"\S+(?:, \S+){2,}")
TO_DO = re.compile(
    r"\b(must|needs?|needed|there are|there is|it has|has|such as|expecting|numbered)\b"
    r"|\b(accept|allow|ask|call|capture|change|check|choose|computes?|convert|copy|download|draw)\b"
    r"|\b(drop|fill|generate|give|install|keep|label|leave|load|lower|make|measure|mend|names?)\b"
    r"|\b(number|override|pass|plan with|put|raise|read|reduce|reinstall|remove|rescale|run)\b"
    r"|\b(set|start|take|takes|try|use|wait|write)\b"
    r"|one of|Did you mean|\blist\b|-h\b|is named by|from 0|resume",
    re.I,
)
# A reason that its caller puts into a sentence, what Python's own protocols raise, and Ctrl-C.
REASONS = {
    "bags/reading.py", "files.py", "models/model_files.py", "models/store.py",
    "planning/plan.py", "samplers/threshold.py",
}  # fmt: skip
PROTOCOLS = {"AttributeError", "KeyError", "KeyboardInterrupt", "Exit", "StopIteration"}


def sentence(node: ast.expr) -> str:
    """A message as it is written, with X for each value that is put in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return f"{sentence(node.left)}{sentence(node.right)}"
    return "X"


def errors() -> set[str]:
    """Names of AttnlimitError and of every class that derives from it."""
    classes = [node for tree in TREES.values() for node in ast.walk(tree)]
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for node in classes
        if isinstance(node, ast.ClassDef)
    }
    names = {"AttnlimitError"}
    while more := {name for name, base in bases.items() if base & names} - names:
        names |= more
    return names


RAISED = [
    (file, node)
    for file, tree in TREES.items()
    for node in ast.walk(tree)
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
]
ERRORS = errors()
MESSAGES = [
    (f"{file}:{node.lineno}", " ".join(map(sentence, node.exc.args)))
    for file, node in RAISED
    if ast.unparse(node.exc.func).rpartition(".")[2] in ERRORS
]


def test_every_error_is_the_packages_own_or_a_reason_for_one():
    other = {
        (file, name)
        for file, node in RAISED
        if (name := ast.unparse(node.exc.func).rpartition(".")[2]) not in ERRORS | PROTOCOLS
    }
    assert {file for file, name in other if name == "ValueError"} <= REASONS
    assert {name for _, name in other} <= {"ValueError", "_lost"}


def test_a_message_has_at_most_thirty_words():
    assert len(MESSAGES) > 500
    assert [(at, text) for at, text in MESSAGES if len(text.split()) > MOST_WORDS] == []


def test_a_message_says_what_to_do():
    written = [(at, text) for at, text in MESSAGES if set(text.split()) != {"X"}]
    assert len(MESSAGES) - len(written) < 10
    assert [(at, text) for at, text in written if not TO_DO.search(text)] == []


WRONG = {
    "plan --kl -1": "kl",
    "plan --kl much": "--kl",
    "plan --capture /nope": "/nope",
    "plan --bogus": "--bogus",
    "evaluate --sampler nonsense:3": "nonsense:3",
    "evaluate --evict 2": "keep",
    "evaluate --quantize q9_9": "q9_9",
    "evaluate --plan /nope.json": "/nope.json",
    "export /nope.json --to kvpress": "/nope.json",
    "export plan.json --to foo": "foo",
    "tokens --capture /nope": "/nope",
    "reproduce nosuch": "nosuch",
    "reproduce gaussian --set foo=1": "foo",
    "bags plan /nope.csv": "/nope.csv",
    "bags instances /nope.csv --pooling nosuch": "nosuch",
    "runs show nosuch": "nosuch",
    "bagz": "bagz",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_is_told_what_to_do(line, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(line.split())
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    words = re.sub(r"[│╭╰╮╯─]", " ", LIST.sub("values", said)).split()
    text = " ".join(words)
    assert WRONG[line] in said, said
    assert len(words) <= MOST_WORDS, said
    assert TO_DO.search(text.removeprefix("Error")), said
    assert "Traceback" not in said
