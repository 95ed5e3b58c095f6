"""A person's decisions in a client's dialogs: permissions, and forms if the client has them."""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from acp.schema import (
    ElicitationFormSessionMode,
    ElicitationSchema,
    PermissionOption,
    ToolCallUpdate,
)

from signoff import Approval, PendingCall, Question, ThreadError, Waiting
from signoff.acp.updates import Updates
from signoff.front.cards import asking, in_text
from signoff.front.forms import Schema, make_arguments_form, make_form, read_form
from signoff.front.text import one_line
from signoff.text import quote_id

T = TypeVar("T")


class Gone(Exception):
    """The person cancelled the prompt."""


@dataclass(frozen=True)
class Dialogs:
    """The dialogs of one session of a client. cancelled: set when its prompt is cancelled. has_forms: the
    client can show forms.

    They raise Gone if the prompt is cancelled, acp.RequestError if the client cannot show the dialog, and
    pydantic.ValidationError if its response is not valid.
    """

    client: Any
    session_id: str
    updates: Updates
    cancelled: asyncio.Event
    has_forms: bool

    async def ask(self, waiting: Waiting) -> list[str]:
        """Returns a person's answer from the client's own dialogs; empty if it has none for this."""
        if isinstance(waiting, Approval):
            found = []
            for call in waiting.calls:
                if not (text := await self._ask_permission(waiting, call)):
                    return []
                found.append(text)
            return found
        if isinstance(waiting, Question) and self.has_forms:
            content = await self._ask_in_form(in_text(asking(waiting)), make_form(waiting))
            text = read_form(waiting, content)
            return [text] if text else []
        return []

    async def _ask_permission(self, approval: Approval, call: PendingCall) -> str:
        """Returns a person's decision on one call; empty if the client cannot ask for it."""
        options = [option for kind, option in _make_options(self.has_forms).items() if kind in call.allowed]
        if not options:
            return ""
        update = self.updates.announce(approval, call)
        await self.client.session_update(session_id=self.session_id, update=update)
        told = ToolCallUpdate(
            tool_call_id=update.tool_call_id,
            title=update.title,
            kind=update.kind,
            status="pending",
            content=update.content,
            locations=update.locations,
            raw_input=update.raw_input,
        )
        response = await self._unless_cancelled(
            self.client.request_permission(session_id=self.session_id, tool_call=told, options=options)
        )
        if response.outcome.outcome != "selected":
            raise Gone
        chosen = response.outcome.option_id
        if chosen not in {option.option_id for option in options}:
            raise ThreadError(f"{quote_id(chosen)} is not one of the options; nothing was decided.")
        if chosen != "edit":
            return str(chosen)
        filled = await self._ask_in_form(f"The arguments of {one_line(call.name)}", make_arguments_form(call))
        if not filled:
            raise Gone
        return f"edit: {filled.get('arguments', '')}"

    async def _ask_in_form(self, message: str, schema: Schema) -> Mapping[str, Any] | None:
        """Returns the filled-in form; None if nothing was filled in."""
        mode = ElicitationFormSessionMode(
            session_id=self.session_id, requested_schema=ElicitationSchema.model_validate(schema)
        )
        response = await self._unless_cancelled(self.client.create_elicitation(message, mode))
        return response.content if response.action == "accept" else None

    async def _unless_cancelled(self, asked: Awaitable[T]) -> T:
        """Returns the client's response. Raises Gone if the prompt is cancelled meanwhile."""
        asking_client = asyncio.ensure_future(asked)
        cancelled = asyncio.ensure_future(self.cancelled.wait())
        try:
            await asyncio.wait({asking_client, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            if not asking_client.done():
                raise Gone
            return asking_client.result()
        finally:
            asking_client.cancel()
            cancelled.cancel()


def _make_options(has_forms: bool) -> Mapping[str, PermissionOption]:
    """Returns the options of a permission. A permission cannot carry edited arguments, but a form can."""
    edit = {"edit": PermissionOption(option_id="edit", name="Edit the arguments", kind="allow_once")}
    return {
        "approve": PermissionOption(option_id="approve", name="Approve", kind="allow_once"),
        **(edit if has_forms else {}),
        "reject": PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
    }
