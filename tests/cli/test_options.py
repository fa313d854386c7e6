"""Options and output that commands share."""

import inspect

import typer

from attnlimit.cli import options
from attnlimit.cli import plan as plan_module
from attnlimit.cli.main import load_command


def given(*arguments, always=("model",)):
    """What `options.given` says of a plan's command line."""
    command = load_command("plan")
    context = command.make_context("plan", list(arguments))
    return options.given(context, always, plan_module.TARGETS_AND_FILES)


def test_a_command_that_plans_again_has_every_option_but_target_and_files():
    words = ["--text", "a b.txt", "--text", "c", "--per", "layer", "--probes", "3", "--seed", "7"]
    quoted = "--model smollm2 --text 'a b.txt' --text c --probes 3 --seed 7 --per layer"
    again = given(*words, "--kl", "0.1", "--page", "x.html", "--json")
    assert sorted(again.split()) == sorted(quoted.split())
    assert given("--capture", "a folder", always=()) == "--capture 'a folder'"
    assert given() == "--model smollm2"


def test_left_out_options_are_those_of_the_command():
    names = inspect.signature(plan_module.plan).parameters
    assert set(plan_module.TARGETS_AND_FILES) <= set(names)
    assert "context" in names
    assert isinstance(load_command("plan"), typer.core.TyperCommand)
