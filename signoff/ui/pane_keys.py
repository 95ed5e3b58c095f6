"""What a terminal sends to its program for a key that a person pressed, or a text that was pasted."""

import re

_PASTE_BEGINS, _PASTE_ENDS = b"\x1b[200~", b"\x1b[201~"
_MODIFIERS = {"shift": 1, "alt": 2, "ctrl": 4}
_PLAIN = {"enter": b"\r", "tab": b"\t", "escape": b"\x1b", "backspace": b"\x7f", "space": b" "}
_ENDINGS = {"up": "A", "down": "B", "right": "C", "left": "D", "home": "H", "end": "F"}
_FIRST_FOUR = {"f1": "P", "f2": "Q", "f3": "R", "f4": "S"}
_NUMBERS = {"insert": 2, "delete": 3, "pageup": 5, "pagedown": 6}
_NUMBERS |= {
    f"f{key}": code for key, code in zip(range(5, 13), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)
}
_WITH_CTRL = {
    "space": 0,
    "at": 0,
    "backslash": 0x1C,
    "right_square_bracket": 0x1D,
    "circumflex_accent": 0x1E,
    "underscore": 0x1F,
}
_NOT_PASTED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def typed(key: str, character: str | None, *, application: bool) -> bytes:
    """The bytes for a key by its name, such as `ctrl+c`; none for one that no program knows.

    application: the program asked for the other sequences of the cursor keys.
    """
    *names, base = key.split("+")
    modifiers = sum(_MODIFIERS.get(name, 0) for name in names)
    if sequence := _named(base, modifiers, application=application):
        return sequence
    before = b"\x1b" if "alt" in names else b""
    if "ctrl" in names:
        code = ord(base.upper()) & 0x1F if re.fullmatch("[a-zA-Z]", base) else _WITH_CTRL.get(base)
        return b"" if code is None else before + bytes([code])
    if base in _PLAIN:
        return before + _PLAIN[base]
    return before + character.encode(errors="ignore") if character and character.isprintable() else b""


def _named(base: str, modifiers: int, *, application: bool) -> bytes:
    if base == "tab" and modifiers == 1:
        return b"\x1b[Z"
    ending = _ENDINGS.get(base) or _FIRST_FOUR.get(base)
    if ending and modifiers:
        return f"\x1b[1;{modifiers + 1}{ending}".encode()
    if ending:
        return f"\x1b{'O' if application or base in _FIRST_FOUR else '['}{ending}".encode()
    if base in _NUMBERS:
        return f"\x1b[{_NUMBERS[base]}{f';{modifiers + 1}' if modifiers else ''}~".encode()
    return b""


def pasted(text: str, *, bracketed: bool) -> bytes:
    """The bytes for a pasted text, which can press no key but Enter and Tab.

    bracketed: the program asked to be told what is pasted.
    """
    lines = _NOT_PASTED.sub("", text).replace("\r\n", "\n").replace("\n", "\r")
    data = lines.encode(errors="ignore")
    return _PASTE_BEGINS + data + _PASTE_ENDS if bracketed else data
