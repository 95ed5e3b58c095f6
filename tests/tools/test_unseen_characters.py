"""What cannot be seen is named wherever a person decides, and stays where a script or an emoji needs it."""

from pathlib import Path

from tests.support.benches.cli import Bench, steps
from tests.unseen import unseen

# Control characters have symbols of their own; the last are thousands of one kind.
CHARACTERS = [chr(code) for code in sorted(unseen()) if 0xA0 <= code < 0xE0200]
DECEIVING = "\u3164\u2800\u115f\u1160\uffa0\ufe0f\U000e0100\u034f\u17b4\u180b\u200b\u202e\u00ad\u00a0"


def test_a_person_who_approves_a_command_sees_each_of_them(tmp_path: Path) -> None:
    assert set(DECEIVING) <= set(CHARACTERS)
    bench = Bench(tmp_path)
    command = " ".join(f"rm{character}x" for character in CHARACTERS)
    bench.model(steps(f'call("run_shell", command={command!a})'))
    shown = bench.run("x", "--approve", "write,terminal").stdout
    named = " ".join(f"rm⟨U+{ord(character):04X}⟩x" for character in CHARACTERS)
    assert named in " ".join(shown.split(" \n"))
    assert [character for character in CHARACTERS if character in shown] == []


# A text, and as it is shown; where nothing is named, it stays.
JOINED = {
    "\u0645\u06cc\u200c\u062e": "",
    "\u0915\u094d\u200d\u0937": "",
    "👩\u200d💻 👍🏽\u200d❄\ufe0f": "",
    "я\u200dю": "я⟨U+200D⟩ю",
    "\u0645\u200c\u200c\u0645": "\u0645⟨U+200C⟩⟨U+200C⟩\u0645",
    "😀\ufe0f\U000e0100": "😀⟨U+FE0F⟩⟨U+E0100⟩",
    "大\u3000": "大⟨U+3000⟩",
}


def test_a_joiner_stays_only_where_it_joins(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    text = "\n".join(f"<{each}>" for each in JOINED)
    bench.model(steps(f'call("ask_user", question={text!a})'))
    shown = bench.run("x").stdout
    assert [f"<{named or each}>" in shown for each, named in JOINED.items()] == [True] * len(JOINED)
