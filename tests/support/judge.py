"""A decision model of LangChain 1.5 that answers by a function of what it is shown."""

from collections.abc import Callable
from typing import Any

from langchain_core.decisions import BaseDecisionModel, ClassifierResponse
from pydantic import Field


class Judge(BaseDecisionModel):
    """answer: the answer to each question, of the state; an exception if it raises. seen: the states."""

    model: str = "judge"
    answer: Callable[[Any], dict[str, Any]]
    seen: list[Any] = Field(default_factory=list)

    @property
    def _provider(self) -> str:
        return "scripted"

    def _classify(self, state: Any, questions: dict[str, Any]) -> ClassifierResponse:
        self.seen.append(state)
        answers = {name: self.answer(state) for name in questions}
        return ClassifierResponse.model_validate({"model": self.model, "answers": answers})


def risk_of(*names: str) -> Callable[[Any], dict[str, Any]]:
    """A call is risky if one of its arguments is among the names."""
    return lambda state: {
        "type": "noul",
        "noul": 0.9 if {*state["tool_call"]["args"].values()} & {*names} else 0.1,
    }


def route_by(word: str) -> Callable[[Any], dict[str, Any]]:
    """The route is "hard" if the message has the word, else "easy"."""

    def answer(state: Any) -> dict[str, Any]:
        route = "hard" if word in state.text else "easy"
        return {
            "type": "choice",
            "choice": route,
            "probabilities": {"easy": 0.5, "hard": 0.5, route: 0.9},
            "confidence": 0.9,
        }

    return answer
