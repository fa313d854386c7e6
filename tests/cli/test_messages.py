"""Messages of errors are short, name what was given, and end with what to do."""

import ast
import re
from pathlib import Path

import pytest

import attnlimit
from attnlimit.cli import main

MOST_WORDS = 30
ERRORS = {"BadInput", "NoLimitError", "NotConverged", "UnboundedSupport", "UnreliableFit"}
LIST = re.compile(r"\S+(?:, \S+){2,}")
TO_DO = re.compile(
    r"\b(must|give|write|make|use|choose|name|names|install|try|there are|it has|such as|need)\b"
    r"|one of|Did you mean|\blist\b|-h\b",
    re.I,
)


def sentence(node: ast.expr) -> str | None:
    """A message as it is written, with one word for each value that is put in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return f"{sentence(node.left) or 'X'}{sentence(node.right) or 'X'}"
    return None


MESSAGES = [
    (f"{path.name}:{node.lineno}", text)
    for path in sorted(Path(attnlimit.__file__).parent.rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS
    if node.args and (text := sentence(node.args[0]))
]


def test_a_message_has_at_most_thirty_words():
    assert len(MESSAGES) > 300
    assert [(at, text) for at, text in MESSAGES if len(text.split()) > MOST_WORDS] == []


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
