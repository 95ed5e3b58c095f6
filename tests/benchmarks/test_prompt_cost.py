"""A long task costs no more than with `create_agent`, where a provider caches the beginnings of prompts."""

from benchmarks.prompt_cost import rows


def test_a_hundred_turns_cost_no_more_than_with_create_agent() -> None:
    peer, whole, own, lines = rows(turns=100, budget=20_000).values()
    assert (peer.summaries, lines.summaries) == (0, 0)
    assert whole.summaries >= own.summaries > 1
    assert max(own.dollars, lines.dollars) <= min(peer.dollars, whole.dollars)
