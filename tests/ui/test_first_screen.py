"""What a person meets first: an empty thread that says what to type, the prompt, 80 columns, the colours."""

from pathlib import Path

import pytest
from textual.widgets import Button, Footer

from signoff import SetupError
from signoff.front.settings import Given, theme_of
from signoff.graph.machine import edges
from signoff.ui.app import THEMES as THEMES_OF_APP
from signoff.ui.app import SignoffApp
from tests.support.benches.ui import Opened, UiBench

NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
USED = {"red", "green", "yellow", "blue", "magenta", "cyan"}
DONE = '[call("finish_task", summary="Done.")] * 2'


@pytest.fixture
def bench(tmp_path: Path) -> UiBench:
    return UiBench(tmp_path)


def lines(opened: Opened) -> list[str]:
    return opened.screen().splitlines()


async def test_an_empty_thread_says_what_to_type_until_something_happens(bench: UiBench) -> None:
    async with bench.opened(size=(80, 24), model=bench.model(DONE)) as opened:
        shown = opened.screen()
        for words in (
            "Type a task below, such as:",
            "Enter",
            "Ctrl-J",
            "all keys",
            "files, shell",
            str(bench.workspace)[:20],
        ):
            assert words in shown
        await opened.send("Go")
        await opened.rests()
        assert "Type a task below" not in opened.screen()
    async with bench.opened(size=(80, 24), model=bench.model(DONE)) as opened:
        assert "Type a task below" not in opened.screen(), "a thread with a history shows that"


async def test_at_80_columns_the_conversation_has_the_room_and_the_footer_its_keys(bench: UiBench) -> None:
    async with bench.opened(size=(80, 24), model=bench.model(DONE)) as opened:
        assert opened.desk.conversation.size.height >= 16
        assert opened.desk.pane is not None
        assert not opened.desk.pane.display
        footer = lines(opened)[-1]
        for key in (
            "^q leave",
            "F1 keys",
            "F2 threads",
            "F3 search",
            "F4 more",
            "F5 pause",
            "F6 terminal",
            "F8 stop",
        ):
            assert key in footer
        assert opened.app.query_one(Footer).region.bottom == 24
        await opened.pilot.press("f6")
        await opened.until(lambda: opened.app.focused is opened.desk.pane)
        assert opened.desk.pane.display
        assert opened.desk.pane.size.height >= 6


async def test_all_keys_fit_into_80_columns_and_24_lines(bench: UiBench) -> None:
    async with bench.opened(size=(80, 24), model=bench.model(DONE)) as opened:
        await opened.pilot.press("f1")
        await opened.pilot.pause()
        shown = opened.screen()
        for words in ("Working", "i: back to it", "leave; everything is saved", "Escape closes"):
            assert words in shown


@pytest.mark.parametrize("key", ["ctrl+j", "shift+enter", "alt+enter"])
async def test_a_task_may_have_several_lines(bench: UiBench, key: str) -> None:
    async with bench.opened(size=(80, 24), model=bench.model(DONE)) as opened:
        before = opened.desk.prompt.outer_size.height
        await opened.pilot.press("o", "n", "e", key, "t", "w", "o")
        assert opened.desk.prompt.value == "one\ntwo"
        assert opened.desk.prompt.outer_size.height == before + 1
        await opened.pilot.press("enter")
        await opened.rests()
        assert opened.desk.prompt.value == ""
        assert opened.desk.story is not None
        assert opened.desk.story.status.task.messages[0].text == "one\ntwo"


async def test_a_long_text_scrolls_in_the_prompt(bench: UiBench) -> None:
    async with bench.opened(size=(80, 24), model=bench.model(DONE)) as opened:
        opened.desk.prompt.value = "\n".join(map(str, range(100)))
        await opened.pilot.pause()
        assert opened.desk.prompt.outer_size.height <= 8


async def test_light_and_dark_by_a_key(bench: UiBench) -> None:
    async with bench.opened(model=bench.model(DONE)) as opened:
        assert opened.app.current_theme.dark
        await opened.pilot.press("f10")
        assert not opened.app.current_theme.dark
        await opened.pilot.press("escape", "l")
        assert opened.app.current_theme.dark


def _contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """As WCAG counts it."""

    def light(colour: tuple[int, int, int]) -> float:
        parts = [part / 255 for part in colour]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_every_colour_of_a_card_can_be_read_on_its_ground(bench: UiBench, theme: str) -> None:
    with bench.database.open() as storage:
        app = SignoffApp(bench.database, storage, Given(workspace=bench.workspace), "t1", theme)
        async with app.run_test():
            ground = app.screen.styles.background.rgb
            palette = app.ansi_theme_dark if theme == "dark" else app.ansi_theme_light
            assert app.current_theme.dark == (theme == "dark")
            used = {name: palette.ansi_colors[number] for number, name in enumerate(NAMES) if name in USED}
            weak = {name: _contrast(colour, ground) for name, colour in used.items()}
        app.desk.close_terminal()
    assert {name: found for name, found in weak.items() if found < 4.5} == {}


async def test_no_event_of_the_machine_is_cut_off(bench: UiBench) -> None:
    async with bench.opened(size=(140, 80), model=bench.model(DONE)) as opened:
        picture = " ".join(line[88:] for line in lines(opened))
        missing = [
            event
            for row in edges().values()
            for label in row.values()
            for event in label.split(" / ")
            if event not in picture
        ]
        assert missing == []


THEMES = {
    "given": ("light", {"SIGNOFF_THEME": "dark"}, "", "light"),
    "the environment's": (None, {"SIGNOFF_THEME": "light"}, "", "light"),
    "the user's file": (None, {}, 'theme = "light"', "light"),
    "none": (None, {}, "", "dark"),
}


@pytest.mark.parametrize("case", THEMES)
def test_where_the_theme_comes_from(case: str, tmp_path: Path) -> None:
    given, env, text, expected = THEMES[case]
    file = tmp_path / "signoff.toml"
    file.write_text(text)
    file.chmod(0o600)
    assert theme_of(given, env, file) == expected


def test_a_theme_that_there_is_not() -> None:
    with pytest.raises(SetupError, match="--theme is 'pink'; use dark or light"):
        theme_of("pink", {}, None)


MANY = """[call("ask_user", question="Which?", options=[f"the port number {at}, or so" for at in range(9)]),
    call("finish_task", summary="Done.")]"""


@pytest.mark.parametrize("size", [(80, 24), (80, 40), (140, 40)])
async def test_every_option_has_a_button_that_is_whole(bench: UiBench, size: tuple[int, int]) -> None:
    async with bench.opened(size=size, model=bench.model(MANY)) as opened:
        await opened.send("Go")
        await opened.rests(at="answer")
        buttons = list(opened.desk.asking.query(Button))
        assert [button.name for button in buttons] == [str(number) for number in range(1, 10)]
        assert max(button.region.right for button in buttons) <= size[0]
        # The last one can be brought into sight, and pressed.
        buttons[-1].focus()
        place = opened.desk.asking.query_one("#choices")
        await opened.until(lambda: place.region.contains_region(buttons[-1].region))
        assert opened.desk.region.contains_region(buttons[-1].region)
        await opened.pilot.press("enter")
        await opened.rests()
        assert "the port number 8" in opened.said()


@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_the_hint_in_the_prompt_can_be_read(bench: UiBench, theme: str) -> None:
    async with bench.opened(size=(80, 24), model=bench.model(DONE)) as opened:
        opened.app.theme = THEMES_OF_APP[theme]
        await opened.pilot.pause()
        prompt = opened.desk.prompt
        ground = prompt.background_colors[1]
        ink = ground + prompt.get_component_styles("text-area--placeholder").color
        assert _contrast(ink.rgb, ground.rgb) >= 4.5
