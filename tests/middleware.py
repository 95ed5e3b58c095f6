"""Prints the table of docs/how-to/middleware.md: every middleware class that LangChain and deepagents export,
and whether a Signoff graph takes it: `python -m tests.middleware`. The tests run a case of each.
"""

import sys
from collections.abc import Iterator

from signoff.nodes.middleware.given import why_refused
from tests.support.cases.middleware import CASES, classes


def table() -> Iterator[str]:
    """The lines of the table."""
    yield "| class | package | in a Signoff graph | what to know |"
    yield "| --- | --- | --- | --- |"
    for (package, name), kind in classes().items():
        refused = why_refused(kind)
        said = refused or (CASES[kind].__doc__ or "").strip()
        yield f"| `{name}` | {package} | {'refused' if refused else 'works'} | {said} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
