"""An agent gives tasks to sub-agents, which run out of turns, wait for people, cost, and delegate in turn."""

import re

from benchmarks.loopbench.observed import Observed
from benchmarks.loopbench.replies import Delegate, Finish, call, reply
from benchmarks.loopbench.scenario import (
    Role,
    Scenario,
    Setup,
    Verdict,
    approve,
    decide,
    reject,
    send,
    verdict,
)
from benchmarks.loopbench.scenarios.people import broke, unasked

READ_ALL = "Read all twelve records of the archive."
READS = tuple(reply(call("read", name=f"record {number}")) for number in range(12))
ALLOWED = 3
OVER = 1
"""Some find out by one call more, whose reply they drop, or ask once more for an answer; each agent does."""
UNDONE = re.compile(
    r"limit|\bmax|exceed|error|exception|fail|abort|incomplete|unfinished|interrupted|ran out|out of turns"
    r"|cut (off|short)|stopped|\bnot (be )?(done|finish|complete|succeed)",
    re.IGNORECASE,
)
"""Words by which a reader can tell that a task was not done; what the tools and the script say has none."""

PAY_BILL = "Note the bill of ada, then pay it."
NOTE = call("write", name="ada", text="a bill of 5")
PAY = call("pay", to="ada", amount=5)
PAY_ADA = "Note the bill of ada and pay 5 to ada."
PAY_BOB = "Note the bill of bob and pay 7 to bob."

TREE = 6
SHORT = tuple(reply(call("read", name=f"page {number}")) for number in range(2))
CHAPTERS = tuple(f"Read chapter {number} of the manual." for number in ("one", "two", "three", "four"))
PASS_ON = "Find somebody who counts the stars."


def _idle(seen: Observed, *tasks: str) -> str:
    """A sub-agent that was never asked has shown nothing."""
    idle = [task for task in tasks if not seen.calls_of(task)]
    return f"no sub-agent was given: {idle[0]}" if idle else ""


def _out_of_turns(seen: Observed) -> Verdict:
    calls = len(seen.calls_of(READ_ALL))
    told = any(UNDONE.search(shown.told_since) for shown in seen.calls_of(""))
    return verdict(
        seen,
        _idle(seen, READ_ALL),
        calls > ALLOWED + OVER and f"the sub-agent called its model {calls} times, {ALLOWED} were allowed",
        seen.succeeded
        and not told
        and "success, and the model above was not told that its sub-agent had not finished",
    )


def _again(seen: Observed, *names: str) -> str:
    """What a sub-agent did before it waited is done once."""
    counts = [len(seen.effects("write", name=name)) for name in names]
    return "" if set(counts) == {1} else f"what was done before the wait was done {counts} times"


def _waits_below(seen: Observed) -> Verdict:
    return verdict(
        seen,
        broke(seen),
        _idle(seen, PAY_BILL),
        unasked(seen),
        _again(seen, "ada"),
        len(seen.effects("pay")) != 1 and f"paid {len(seen.effects('pay'))} times",
        not seen.succeeded and "it did not come to its end",
    )


def _two_ask(seen: Observed) -> Verdict:
    paid = [str(run.args["to"]) for run in seen.effects("pay")]
    heard = {
        task: any(one.says("paid already") for one in seen.calls_of(task)) for task in (PAY_ADA, PAY_BOB)
    }
    return verdict(
        seen,
        broke(seen),
        _idle(seen, PAY_ADA, PAY_BOB),
        unasked(seen),
        _again(seen, "ada", "bob"),
        paid != ["ada"] and f"paid {paid}, approved was ada alone",
        not heard[PAY_BOB] and "the sub-agent whose call was rejected was not told why",
        heard[PAY_ADA] and "the sub-agent whose call was approved was told the other one's answer",
        not seen.succeeded and "it did not come to its end",
    )


def _limit_over_tree(seen: Observed) -> Verdict:
    return verdict(
        seen,
        _idle(seen, *CHAPTERS[:2]),
        len(seen.calls) > TREE + 2 * OVER
        and f"{len(seen.calls)} model calls in the tree, {TREE} were allowed",
        seen.succeeded and "a limit passed for a success",
    )


def _recursive(seen: Observed) -> Verdict:
    passed_on = any(shown.calls and "stars" in shown.calls[0][2] for shown in seen.calls_of(PASS_ON))
    return verdict(
        seen,
        _idle(seen, PASS_ON),
        not passed_on and "no sub-agent gave the task to another one",
        seen.last.status not in ("success", "limit", "error") and f"it ended as {seen.last.status}",
    )


SCENARIOS = (
    Scenario(
        "child_out_of_turns",
        "Is the work of a sub-agent that ran out of turns taken for done?",
        "The model that gave the task is told that it was not finished, or the run does not say success. "
        "Else it builds on work that nobody did.",
        _out_of_turns,
        (reply(Delegate("clerk", READ_ALL)),),
        Setup(("read",), helpers=("clerk",), helper_turns=ALLOWED),
        needs=("children", "child_limit"),
        then=reply(Finish("The archive is read.")),
        by_history=True,
        roles=(Role(READ_ALL, READS, cornered=reply("The first records are quiet.")),),
        thread="https://github.com/google-gemini/gemini-cli/issues/22323",
    ),
    Scenario(
        "child_approved_later",
        "Can what a sub-agent waits for be approved in another process?",
        "Nothing is paid before the approval, and it is paid once after it, although the process that asked "
        "is gone; what the sub-agent did before is not done again.",
        _waits_below,
        (reply(Delegate("clerk", PAY_BILL)),),
        Setup(("read", "write", "pay"), approve=("pay",), helpers=("clerk",)),
        (send("Settle what is open."), approve(fresh=True)),
        needs=("children", "approval", "durable_wait", "child_wait", "child_durable"),
        then=reply(Finish("The bill is paid.")),
        by_history=True,
        roles=(Role(PAY_BILL, (reply(NOTE), reply(PAY)), reply(Finish("Ada is paid."))),),
        thread="https://github.com/strands-agents/harness-sdk/issues/3076",
    ),
    Scenario(
        "two_children_ask",
        "What if two sub-agents, called in one reply, both wait for a person?",
        "Both are decided on, at once or one after the other, and each gets its own answer: the approved "
        "payment is made once, the rejected one is not, and nothing that either did before is done again.",
        _two_ask,
        (reply(Delegate("buyer", PAY_ADA), Delegate("seller", PAY_BOB)),),
        Setup(("read", "write", "pay"), approve=("pay",), helpers=("buyer", "seller")),
        (
            send("Settle what is open."),
            decide(
                {"type": "approve", "when": {"to": "ada"}},
                {**reject("Bob is paid already."), "when": {"to": "bob"}},
                times=4,
            ),
        ),
        needs=("children", "approval", "child_wait"),
        then=reply(Finish("Ada is paid, bob is not.")),
        by_history=True,
        roles=(
            Role(PAY_ADA, (reply(NOTE), reply(PAY)), reply(Finish("Ada is paid."))),
            Role(
                PAY_BOB,
                (
                    reply(call("write", name="bob", text="a bill of 7")),
                    reply(call("pay", to="bob", amount=7)),
                ),
                reply(Finish("Bob was not paid.")),
            ),
        ),
        thread="https://github.com/langchain-ai/deepagents/issues/420",
    ),
    Scenario(
        "limit_over_tree",
        "Does one limit hold over an agent and its sub-agents?",
        "No more calls of the model than it allows are made by all together, and reaching it is no success: "
        "else whoever delegates has no budget.",
        _limit_over_tree,
        tuple(reply(Delegate("clerk", task)) for task in CHAPTERS),
        Setup(("read",), helpers=("clerk",), tree_turns=TREE),
        needs=("children", "tree_limit"),
        then=reply(Finish("The manual is read.")),
        by_history=True,
        roles=tuple(Role(task, SHORT, reply(Finish("It is read."))) for task in CHAPTERS),
        thread="https://github.com/pydantic/pydantic-ai-harness/pull/589",
    ),
    Scenario(
        "recursive_delegation",
        "Does it end when an agent delegates to one like itself, which does the same?",
        "By itself, with nothing configured, within 60 calls of the model: a bound on the depth or on the "
        "whole ends it. Whether that is an error or something that the models report is not judged.",
        _recursive,
        (reply(Delegate("clerk", PASS_ON)),),
        Setup(("read",), helpers=("clerk",), recursive=True),
        needs=("children", "recursion"),
        then=reply(Finish("It was passed on.")),
        by_history=True,
        roles=(Role(PASS_ON, (reply(Delegate("clerk", PASS_ON)),), reply(Finish("It was passed on."))),),
        thread="https://github.com/anthropics/claude-code/issues/69578",
    ),
)
