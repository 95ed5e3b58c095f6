"""What of a text may be read as its writer's word."""

import re
from collections.abc import Iterator

_EVIDENCE = re.compile(r"[ \t]*+<EVIDENCE[\s>]", re.IGNORECASE)
_EVIDENCE_END = re.compile(r"</EVIDENCE\s*+>", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)(.*)")


def prose(text: str) -> str:
    """`text` without code blocks, inline code and quoted evidence: what may be read as the model's word."""
    return "\n".join(re.sub(r"`[^\n]*`", "", line) for line in _outside(text.split("\n")))


def _outside(lines: list[str]) -> Iterator[str]:
    fence, quoted = "", False
    for line in lines:
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark and not quoted:
            fence = mark[1]
        elif quoted or _EVIDENCE.match(line):
            quoted = not _EVIDENCE_END.search(line)
        else:
            yield line
