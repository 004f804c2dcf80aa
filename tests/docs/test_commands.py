"""Every command that a page shows is one that exists, with options that exist."""

import pytest
import typer.main

from exactline.cli import app
from tests.docs.pages import PAGES, Block, blocks, commands

SHOWN = [(block, words) for page in PAGES for block in blocks(page) for words in commands(block)]


def parsed(words: list[str]) -> None:
    """Let the real parser take the words; it raises where one of them is not known."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words, "a group is no command"
        if words[0].startswith("-"):
            assert words[0] in {name for option in command.params for name in option.opts}, words[0]
            return
        assert words[0] in command.commands, words[0]
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, list(words))


@pytest.mark.parametrize(("block", "words"), SHOWN, ids=[f"{b} {' '.join(w)}"[:90] for b, w in SHOWN])
def test_a_command_that_is_shown_can_be_given(block: Block, words: list[str]):
    parsed(words[1:])


def test_there_are_commands_to_look_at():
    assert len(SHOWN) > 80


@pytest.mark.parametrize("words", ["restric", "restrict net.onnx --form 1 --to 2", "scale", "--frobnicate"])
def test_a_command_that_is_wrong_would_be_seen(words):
    with pytest.raises(Exception):  # noqa: B017, PT011
        parsed(words.split())
