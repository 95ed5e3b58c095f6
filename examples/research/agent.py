"""A research agent over local documents: its statements quote them, and a check compares the quotes.

python examples/research/agent.py                                          # a script plays the model
python examples/research/agent.py --model anthropic:claude-sonnet-4-5      # a real one; needs its key
python examples/research/agent.py --model … --documents FOLDER "A question of yours"
"""

import argparse
import sys
from pathlib import Path

from pydantic import BaseModel, Field

from signoff import build_graph, outcome_of
from signoff.models import ScriptedModel, call
from signoff.tools import workspace_tools

DOCUMENTS = Path(__file__).parent / "documents"
QUESTION = "When does the council have to act on the lighthouse of Kap Arn, if the cliff goes on as it does?"


# 1. The shape of an answer. It is the argument `result` of `finish_task`, and what does not fit is refused.
class Citation(BaseModel):
    """What a document says, word for word."""

    document: str = Field(description="The name of the file, such as minutes.txt.")
    quote: str = Field(min_length=20, description="Copied from the document, word for word.")


class Statement(BaseModel):
    """One statement of the answer, and what it rests on."""

    text: str
    citations: list[Citation] = Field(min_length=1)


class Report(BaseModel):
    """The answer to the question."""

    statements: list[Statement] = Field(min_length=1)


# 2. The check: every quote stands in the document that it names. Lines may be broken elsewhere. It shows that
#    the quotes are true; whether a statement follows from them is for the reader, who has both side by side.
def citations_check(folder: Path):
    def every_quote_is_there(claim):
        wrong = []
        for statement in Report.model_validate(claim["result"]).statements:
            for cited in statement.citations:
                texts = {path.name: path.read_text("utf-8") for path in folder.glob("*.txt")}
                if cited.document not in texts:
                    wrong.append(
                        f"There is no document {cited.document!r}; there are {', '.join(sorted(texts))}."
                    )
                elif flat(cited.quote) not in flat(texts[cited.document]):
                    wrong.append(
                        f"{cited.document} does not say {cited.quote!r}. Read it, and quote it exactly."
                    )
        return "\n".join(wrong) or True

    return every_quote_is_there


def flat(text: str) -> str:
    return " ".join(text.split())


# 3. The script: it quotes from memory first, is refused, reads on, and quotes what is there.
def report(loss: str):
    survey = {"document": "survey.txt", "quote": loss}
    left = {"document": "survey.txt", "quote": "31 metres were left between its foot and the edge in 2019"}
    limit = "between the tower and the edge falls below 20 metres"
    decided = {"document": "council.txt", "quote": "It decided to move nothing before the distance " + limit}
    return {
        "statements": [
            {"text": "The council acts once fewer than 20 metres are left.", "citations": [decided]},
            {
                "text": "The 11 metres above that last about 92 years, until 2111.",
                "citations": [left, survey],
            },
        ]
    }


script = [
    call("search_files", pattern="Kap Arn|tower"),
    [call("read_file", path="council.txt"), call("read_file", path="survey.txt")],
    call("finish_task", summary="About 2111.", result=report("The cliff loses about 12 cm every year")),
    call("read_file", path="survey.txt"),
    call("finish_task", summary="About 2111.",
         result=report("The cliff below the lighthouse of Kap Arn loses 12 centimetres a year")),
]  # fmt: skip


# 4. The agent: the reading half of the file tools, the shape, and the check.
def make_agent(model, folder: Path):
    return build_graph(
        model,
        [one for one in workspace_tools(folder) if one.metadata["kind"] == "read"],
        system_prompt="Answer from the documents alone, and cite them for each statement.",
        response_format=Report,
        checks=[citations_check(folder)],
        limits={"turns": 20},
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="A research agent over local documents.")
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--documents", type=Path, default=DOCUMENTS)
    parser.add_argument("--model", metavar="PROVIDER:NAME", help="a real model; default: a script")
    given = parser.parse_args()

    agent = make_agent(given.model or ScriptedModel(script), given.documents)
    result = agent.invoke({"messages": [("user", given.question)]})
    for message in result["messages"]:
        if message.type == "tool" and message.status == "error":
            print(message.text, end="\n\n")
    outcome = outcome_of(result)
    print(f"{outcome.status}, {outcome.verified}: {outcome.summary}")
    for number, statement in enumerate(outcome.result.statements if outcome.result else [], 1):
        print(f"{number}. {statement.text}")
        for cited in statement.citations:
            print(f"   {cited.document}: “{cited.quote}”")
    return 0 if outcome.status == "success" else 1


if __name__ == "__main__":
    sys.exit(main())
