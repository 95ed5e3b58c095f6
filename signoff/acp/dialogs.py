"""What a person decides in the dialogs of a client: permissions, and forms where it has them."""

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

from signoff.acp.updates import Updates, make_call_id
from signoff.front.cards import asking, in_text
from signoff.front.forms import Schema, make_arguments_form, make_form, read_form
from signoff.front.text import one_line
from signoff.graph.errors import ThreadError, quote_id
from signoff.session.decisions import Approval, Confirmation, PendingCall, Question, Waiting

T = TypeVar("T")


class Gone(Exception):
    """The person has cancelled the prompt."""


@dataclass(frozen=True)
class Dialogs:
    """The dialogs of one session of a client. cancelled: that of its prompt. has_forms: the client can show
    a form.

    What they ask raises Gone when the prompt is cancelled, acp.RequestError where the client cannot show it,
    and pydantic.ValidationError where what it answers is no answer.
    """

    client: Any
    session_id: str
    updates: Updates
    cancelled: asyncio.Event
    has_forms: bool

    async def ask(self, waiting: Waiting) -> list[str]:
        """What a person says in the client's own dialogs; empty where it has none for this."""
        if isinstance(waiting, Approval):
            found = []
            for call in waiting.calls:
                if not (text := await self._ask_permission(waiting, call)):
                    return []
                found.append(text)
            return found
        if isinstance(waiting, Question | Confirmation) and self.has_forms:
            content = await self._ask_in_form(in_text(asking(waiting)), make_form(waiting))
            text = read_form(waiting, content)
            return [text] if text else []
        return []

    async def _ask_permission(self, approval: Approval, call: PendingCall) -> str:
        """A person's decision on one call; empty where the client cannot ask for it."""
        options = [option for kind, option in _make_options(self.has_forms).items() if kind in call.allowed]
        if not options:
            return ""
        update = self.updates.announce(approval, call)
        await self.client.session_update(session_id=self.session_id, update=update)
        told = ToolCallUpdate(
            tool_call_id=make_call_id(approval.reply_id, call.call_id),
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
            raise ThreadError(f"{quote_id(chosen)} is none of the options; nothing was decided.")
        if chosen != "edit":
            return str(chosen)
        filled = await self._ask_in_form(f"The arguments of {one_line(call.name)}", make_arguments_form(call))
        if not filled:
            raise Gone
        return f"edit: {filled.get('arguments', '')}"

    async def _ask_in_form(self, message: str, schema: Schema) -> Mapping[str, Any] | None:
        """What was filled in; None when nothing was."""
        mode = ElicitationFormSessionMode(
            session_id=self.session_id, requested_schema=ElicitationSchema.model_validate(schema)
        )
        response = await self._unless_cancelled(self.client.create_elicitation(message, mode))
        return response.content if response.action == "accept" else None

    async def _unless_cancelled(self, asked: Awaitable[T]) -> T:
        """What the client answers. Raises Gone when the prompt is cancelled meanwhile."""
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
    """The options of a permission. An editor has none for other arguments, but a form may."""
    edit = {"edit": PermissionOption(option_id="edit", name="Edit the arguments", kind="allow_once")}
    return {
        "approve": PermissionOption(option_id="approve", name="Approve", kind="allow_once"),
        **(edit if has_forms else {}),
        "reject": PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
    }
