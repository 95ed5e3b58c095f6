"""How much of a reply has come in."""

from typing import Any

from langchain_core.callbacks import BaseCallbackHandler

from signoff.session.events import Entered, Event


class Streamed(BaseCallbackHandler):
    """Counts the pieces of the reply that is coming in; about one a token."""

    def __init__(self) -> None:
        self.pieces = 0

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        self.pieces += 1

    def seen(self, event: Event) -> None:
        """With the next state the reply is counted among those that are whole."""
        if isinstance(event, Entered):
            self.pieces = 0
