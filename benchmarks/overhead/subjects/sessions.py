"""What all subjects of a session share: the task, the tool, and texts like those of real work. Standard
library only."""

import random

SYSTEM = "You look after a house. " * 40
TASK = "Look everywhere."
ARGUMENT, RESULT, SUMMARY = 400, 1_600, 2_800
"""Characters of a call's argument, of a tool's result, and of a summary."""
_NAMES = """
the door of this room stands open and behind it is a table with two chairs where nobody has been for days
window kitchen stairs below roof garden light switch water pipe cold floor carpet shelf books paper key lock
hall mirror lamp wall picture corner dust box old clock bed sheet pillow drawer empty bottle glass plate cup
spoon knife bread fire wood smoke stone brick wire plug fuse meter gauge seven closed broken
"""
ran = [0]


def text_of(seed: str, size: int) -> str:
    """Words and numbers that are nowhere else, four characters a token on average."""
    drawn, names = random.Random(seed), _NAMES.split()
    words: list[str] = []
    while sum(map(len, words)) + len(words) < size:
        words += [*drawn.choices(names, k=3), str(drawn.randrange(10, 1_000))]
    return " ".join(words)[:size]


def look(number: int, where: str) -> str:
    """Look at a place, and say what is there."""
    ran[0] += 1
    return text_of(f"found {number}", RESULT)
