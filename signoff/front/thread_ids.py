"""Thread ids that are easy to type: made of words, and of limited length."""

import secrets
from collections.abc import Container

from signoff import SetupError
from signoff.graph.foreign import checked_thread_id as checked

MOST_CHARACTERS = 500
_ROOM = 20

_HOW = """
amber bold brave brisk calm clear deft eager early fair firm fleet fresh gentle glad golden grand
green happy keen kind late light lively lucky mellow neat nimble noble plain prime proud quick quiet
rapid ready royal sharp silver sleek smart solid steady still sunny swift tidy vivid warm wise
""".split()  # noqa: SIM905  a list literal would be a page long
_WHO = """
badger beaver bison crane dolphin eagle egret falcon ferret finch fox gecko gull hare hawk heron
ibex jackal jay kite koala lark lemur linnet lynx magpie marten merlin mole newt ocelot orca osprey
otter owl panda pelican plover puffin quail rabbit raven robin salmon seal sparrow stork swan swift
tapir tern thrush toad turtle vole walrus weasel wren yak zebra
""".split()  # noqa: SIM905  a list literal would be a page long


def new_thread_id(taken: Container[str]) -> str:
    """Returns an id like `calm-otter-47` that is not in `taken`."""
    while True:
        number = 10 + secrets.randbelow(90)
        name = f"{secrets.choice(_HOW)}-{secrets.choice(_WHO)}-{number}"
        if name not in taken:
            return name


def forked_thread_id(thread_id: str, taken: Container[str]) -> str:
    """Returns the id of the next fork of a thread: `calm-otter-47-fork-2`."""
    number, own = 1, thread_id[: MOST_CHARACTERS - _ROOM]
    while (name := f"{own}-fork-{number}") in taken:
        number += 1
    return name


def checked_thread_id(thread_id: str) -> str:
    """Returns `thread_id` if it is a valid thread id. Raises SetupError otherwise."""
    if len(thread_id) > MOST_CHARACTERS:
        raise SetupError(
            f"A thread ID has at most {MOST_CHARACTERS} characters here; this one has {len(thread_id)}."
        )
    return checked(thread_id)
