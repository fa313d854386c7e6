"""The shell completes commands, their options and the names of experiments."""

import pytest

from attnlimit.cli import main


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("attnlimit re", "reproduce"),
        ("attnlimit bags in", "instances"),
        ("attnlimit evaluate --samp", "--sampler"),
        ("attnlimit reproduce sparse-se", "sparse-separation"),
    ],
)
def test_the_shell_completes(typed, offered, monkeypatch, capsys):
    monkeypatch.setenv("_ATTNLIMIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    with pytest.raises(SystemExit):
        main([])
    words = capsys.readouterr().out.split()
    assert all(word.startswith(typed.split()[-1]) for word in words)
    assert offered in words
