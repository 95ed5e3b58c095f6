"""A provider on loopback that is strict: it refuses what the real one refuses, and else plays its script."""

from collections.abc import Sequence
from dataclasses import replace

from langchain_core.language_models import BaseChatModel

from tests.support.providers.clients import Client
from tests.support.providers.strict import Refused
from tests.support.replies.wire import WireReply
from tests.support.servers.fake_provider import FakeProvider, Fault, Reply, Request, error

Answer = WireReply | Fault


class StrictServer(FakeProvider):
    """Answers each request that it takes with the next of `answers`, in the words and the form of `client`.

    Calls get ids of the provider's own form, unless the reply has them. refused: why requests were refused.
    """

    def __init__(self, client: Client, answers: Sequence[Answer]) -> None:
        super().__init__()
        self.client, self.answers = client, list(answers)
        self.refused: list[str] = []
        self._calls = 0

    @property
    def model(self) -> BaseChatModel:
        return self.client.provider.client(self.root)

    def take(self, request: Request) -> Reply | Fault:
        self.requests.append(request)
        try:
            self.client.check(request.body)
        except Refused as refusal:
            self.refused.append(str(refusal))
            return self.client.refusal(str(refusal))
        if not self.answers:
            return error(500, "the script is at its end")
        answer = self.answers.pop(0)
        return answer if isinstance(answer, Fault) else self._written(self._with_ids(answer), request)

    def _with_ids(self, reply: WireReply) -> WireReply:
        reason = reply.reason or self.client.reason(reply)
        reply = replace(reply, reason=reason, serial=len(self.requests))
        if self.client.thoughts and not reply.thoughts:
            reply = replace(reply, thoughts=f"Hm, {self._calls}.", veiled=self.client.veiled)
        ids = tuple(self.client.ids.format(self._calls + at) for at in range(len(reply.calls)))
        self._calls += len(ids)
        return reply if reply.ids else replace(reply, ids=ids)

    def _written(self, reply: WireReply, request: Request) -> Fault:
        whole, provider = self.client.whole, self.client.provider
        if whole is None or request.streamed:
            return provider.answer(provider.events(reply))
        return Fault(200, whole(reply))
