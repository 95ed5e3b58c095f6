"""What cannot be seen is named wherever a person decides: command line, web application, page."""

import io
import json
import subprocess

import pytest
from rich.console import Console

from signoff.front.cards import asking, card
from signoff.front.choices import arguments_text
from signoff.front.record.draw import templates
from signoff.front.text import one_line, plain, shell_command
from signoff.front.unseen import UNSEEN
from signoff.session.decisions import AnyWaiting, Approval, PendingCall, Question
from signoff.web.pane_shell import announced
from tests import unseen

CODES = sorted(code for first, last in UNSEEN for code in range(first, last + 1))
# Control characters have symbols of their own.
LETTERS = [chr(code) for code in CODES if code >= 0xA0]


def test_the_table_is_what_unicode_says() -> None:
    assert set(CODES) == unseen.unseen(), "Unicode has changed: write it anew by `python -m tests.unseen`"


DECEIVED = "\u3164\u2800\u115f\u1160\uffa0\ufe0f\U000e0100\u034f\u17b4\u180b\u200b\u202e\u00ad\u00a0"


@pytest.mark.parametrize("character", DECEIVED)
def test_characters_that_were_used_to_deceive_are_in_it(character: str) -> None:
    assert ord(character) in CODES


def name(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def printed(waiting: AnyWaiting) -> str:
    console = Console(file=io.StringIO(), width=100, no_color=True)
    console.print(card(asking(waiting), boxed=True))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def call(command: str) -> PendingCall:
    return PendingCall("run_shell", {"command": command})


PAGE = templates().from_string('<p title="{{ text }}">{{ text }}</p>')
PLACES = {
    "a text": plain,
    "a line": one_line,
    "an approval": lambda text: printed(Approval("1", (call(text),))),
    "a name of an argument": lambda text: printed(Approval("1", (PendingCall("pay", {text: 1}),))),
    "a question": lambda text: printed(Question("1", text, (text,), "1")),
    "a confirmation": lambda text: printed(
        Approval(
            "i",
            (
                PendingCall(
                    "finish_task",
                    {"summary": text, "pending_issues": [text]},
                    ("approve", "reject"),
                    id="c",
                ),
            ),
            {"finish": True},
        )
    ),
    "a page": lambda text: PAGE.render(text=text),
    "a command in the terminal of the web application": announced,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_person_sees_each_of_them(place: str) -> None:
    few = LETTERS if place in ("a text", "a line", "a page") else [*DECEIVED, *LETTERS[::200]]
    for character in few:
        seen = PLACES[place](f"rm{character}x")
        assert name(character) in seen, hex(ord(character))
        assert character not in seen, hex(ord(character))


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        # Where a script or an emoji needs one, it stays.
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
        ("\u0915\u094d\u200d\u0937", "\u0915\u094d\u200d\u0937"),
        ("👩\u200d💻 👍🏽\u200d❄\ufe0f", "👩\u200d💻 👍🏽\u200d❄\ufe0f"),
        ("❤\ufe0f\u200d🔥", "❤\ufe0f\u200d🔥"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("東京\u3000大阪", "東京\u3000大阪"),
        # Where it does nothing but hide, it is named, also among letters that are not ASCII.
        ("я\u200dю", "я⟨U+200D⟩ю"),
        ("é\u200cé", "é⟨U+200C⟩é"),
        ("\u0645\u200c\u200c\u0645", "\u0645⟨U+200C⟩⟨U+200C⟩\u0645"),
        ("👩\u200d\u200d💻", "👩⟨U+200D⟩⟨U+200D⟩💻"),
        ("😀\ufe0f\ufe0e\ufe0f", "😀⟨U+FE0F⟩⟨U+FE0E⟩⟨U+FE0F⟩"),
        ("😀\ufe0f\U000e0100", "😀⟨U+FE0F⟩⟨U+E0100⟩"),
        ("\u2800\ufe0f", "⟨U+2800⟩⟨U+FE0F⟩"),
        ("\u3164\u3000\u3164", "⟨U+3164⟩⟨U+3000⟩⟨U+3164⟩"),
        ("大\u3000", "大⟨U+3000⟩"),
    ],
)
def test_a_joiner_stays_only_where_it_joins(text: str, seen: str) -> None:
    assert plain(text) == seen


def test_arguments_to_be_edited_show_them_as_escapes_and_stay_what_they_are() -> None:
    args = {"command": "rm " + "".join(LETTERS[:60]) + "\U000e0100\t", "漢字": "é 日本"}
    shown_args = arguments_text(PendingCall("run_shell", args))
    assert json.loads(shown_args) == args
    assert not set(shown_args) & set(LETTERS)
    assert "漢字" in shown_args


def test_a_printed_command_line_shows_them_and_means_them() -> None:
    word = "a\u3164b\u2800\ufe0f"
    command = shell_command(["printf", "%s", word])
    assert command == r"printf %s $'a\xe3\x85\xa4b\xe2\xa0\x80\xef\xb8\x8f'"
    assert subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout.decode() == word
