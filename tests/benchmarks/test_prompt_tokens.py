"""What the control tools and the rules of the loop add to the first request of a task."""

import pytest

from benchmarks.prompt_tokens import more, o200k, own

# The encoding is too large to come with the tests: 4.4 characters make one of its tokens here, as
# `python -m benchmarks.prompt_tokens` shows.
CHARACTERS = 2_420
TOKENS = 550


@pytest.mark.parametrize("waits", [False, True])
def test_the_first_request_is_little_longer_than_that_of_create_agent(waits: bool) -> None:
    assert 2_000 < more(len, waits=waits) <= CHARACTERS


def test_in_tokens_where_the_encoding_is_here() -> None:
    count = o200k()
    if count is None:
        pytest.skip("bpe-openai is not here")
    assert more(count, waits=True) <= TOKENS


def test_a_deadline_is_offered_where_a_question_can_wait() -> None:
    for waits in (False, True):
        (ask,) = [
            tool["function"] for tool in own(waits=waits).tools if tool["function"]["name"] == "ask_user"
        ]
        offered = {"question", "options"} | ({"default_answer", "deadline_seconds"} if waits else set())
        assert set(ask["parameters"]["properties"]) == offered
