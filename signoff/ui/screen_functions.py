"""The control functions of a terminal by their codes, as far as they only act on the grid."""

from collections.abc import Callable

from signoff.ui.screen_grid import Grid


def nothing() -> None:
    """What most control characters do."""


def control_characters(grid: Grid) -> dict[str, Callable[[], object]]:
    """What single control characters do."""
    return {
        "\b": grid.backspace,
        "\t": grid.tab,
        "\n": grid.linefeed,
        "\x0b": grid.linefeed,
        "\x0c": grid.linefeed,
        "\r": grid.carriage_return,
        "\x0e": grid.shift_out,
        "\x0f": grid.shift_in,
    }


def escape_sequences(grid: Grid) -> dict[str, Callable[[], object]]:
    """What follows ESC, and what it does."""
    return {
        "c": grid.reset,
        "D": grid.index,
        "E": grid.next_line,
        "M": grid.reverse_index,
        "H": grid.set_tab_stop,
        "7": grid.save_cursor,
        "8": grid.restore_cursor,
        "#8": grid.alignment_display,
    }


def control_sequences(grid: Grid) -> dict[str, Callable[[int], object]]:
    """The last characters of control sequences (CSI) that take one number, 0 when it is left out."""
    return {
        "@": grid.insert_characters,
        "A": grid.cursor_up,
        "B": grid.cursor_down,
        "C": grid.cursor_forward,
        "D": grid.cursor_back,
        "E": grid.cursor_down1,
        "F": grid.cursor_up1,
        "G": grid.cursor_to_column,
        "I": grid.forward_tab,
        "J": grid.erase_in_display,
        "K": grid.erase_in_line,
        "L": grid.insert_lines,
        "M": grid.delete_lines,
        "P": grid.delete_characters,
        "S": lambda count: grid.scroll(count or 1),
        "T": lambda count: grid.scroll(-(count or 1)),
        "X": grid.erase_characters,
        "Z": grid.back_tab,
        "`": grid.cursor_to_column,
        "a": grid.cursor_forward,
        "b": grid.repeat,
        "d": grid.cursor_to_line,
        "e": grid.cursor_down,
        "g": grid.clear_tab_stop,
        "s": lambda _: grid.save_cursor(),
        "u": lambda _: grid.restore_cursor(),
    }
