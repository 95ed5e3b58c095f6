"""Each client of the docs' table against its strict server: `docs/how-to/models.md` claims what is here.

The servers refuse what the real providers refuse (tests/support/providers/strict.py), so a case that passes
is a thread whose every request such a provider takes.
"""

from itertools import pairwise, product

import pytest

from tests.support.providers.cases import CASES, has
from tests.support.providers.clients import CLIENTS, Client
from tests.support.providers.playing import WAYS, Playing, Way

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.slow,
    # Of Google's own client in an event loop.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    # langchain-anthropic leaves a forced choice out by itself while the model thinks.
    pytest.mark.filterwarnings("ignore:tool_choice is forced but thinking is enabled:UserWarning"),
]
CELLS = [(client, name) for client, name in product(CLIENTS, CASES) if has(client, name)]


@pytest.mark.parametrize(("client", "name"), CELLS, ids=[f"{client.row}: {name}" for client, name in CELLS])
def test_cell(client: Client, name: str) -> None:
    for way in WAYS:
        if CASES[name].guards or way.startswith("build_graph"):
            play(client, name, way)


def play(client: Client, name: str, way: Way) -> None:
    case = CASES[name]
    with Playing(client, way, case.script(client), **case.rules) as playing:
        case.steps(playing)
        refused = playing.server.refused
        assert refused == [] or client.pictures == "text", (way, refused)
        assert playing.server.answers == [], f"{way}: the script is not at its end"
        if not case.folds and not refused:
            assert all(after.begins_with(before) for before, after in pairwise(playing.sent())), way
