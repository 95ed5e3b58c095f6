"""Replies of `FakeProvider` in the shape of Anthropic's messages; whole, never streamed.

with FakeProvider([AnthropicReply("Hello.")]) as server:
    model = ChatAnthropic(model="m", base_url=server.root, api_key="…")
"""

import json
from dataclasses import dataclass

from tests.support.servers.fake_provider import Body, Reply


@dataclass(frozen=True)
class AnthropicReply(Reply):
    """A message as Anthropic's API writes it."""

    def whole(self) -> str:
        blocks: list[Body] = [{"type": "text", "text": self.text}] if self.text else []
        for call in self.calls:
            function = call["function"]
            use = {"type": "tool_use", "id": call["id"], "name": function["name"]}
            blocks.append({**use, "input": json.loads(function["arguments"])})
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake", "content": blocks}
        usage = {"input_tokens": 100, "output_tokens": 20}
        stopped = {"stop_reason": "tool_use" if self.calls else "end_turn", "stop_sequence": None}
        return json.dumps({**head, **stopped, "usage": usage})
