"""OpenAI's client, used with plain dicts in place of the SDK's objects and conversions, to save CPU time.

The SDK builds an object from each chunk, part by part, and LangChain's package immediately converts it back
to a dict. Here the graph's copy of the model reads the dicts directly, from the SDK's own stream, so that
parsing, the end of the stream, errors, retries and timeouts remain the SDK's. A dict gets the fields that the
object would have had, so that the package sees the same. Everything unknown keeps its usual path: another
provider's client, a client that was replaced, OpenAI's Responses API, a `response_format`, requested headers.
So does a call that somebody watches from inside the SDK, as tracing packages do: they read the messages among
its options, and the reply from its objects.

If no one is shown the chunks of a reply, those in quick succession are joined: most of the remaining cost is
LangChain's work per chunk.

The SDK also looks through each part of a request for what must be converted, and finds nothing in values that
are JSON already. It does not look into `extra_body`, whose values it puts into the same body: so the messages
and the tools go there.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel

from signoff.graph.inside.private import SDK_CLIENT, SDK_POST, SDK_STEPS
from signoff.nodes.model.stream import WATCH

_PACKAGES = ("langchain_openai.", "langchain_deepseek.", "langchain_xai.")
"""The classes whose `_stream` accepts dicts as chunks, and treats them the same."""
_CLIENTS = {"client": "Completions", "async_client": "AsyncCompletions"}
_MODULE = "openai.resources.chat.completions.completions"

# What is neither a dict nor a list where the API is kept to; all else that the SDK knows is left to it.
_PLAIN_OF_CHUNK = ("id", "created", "model", "object", "obfuscation", "service_tier", "system_fingerprint")

Json = dict[str, Any]

_HOLD = 0.05
"""The maximum seconds for which a chunk is held back after another one was passed on."""
_MOST = 200
"""The maximum characters that are held back, so that limits of tokens, cost and size cut off a reply in
time."""


def use_plain_dicts(twin: Any) -> None:
    """Makes `twin`, a private copy of a model, send its requests and read its provider's stream as plain
    dicts, if its package can."""
    if not _takes_dicts(type(twin)) or not _is_known():
        return
    for name, kind in _CLIENTS.items():
        client = twin.__dict__.get(name)
        if _is_sdks_own(client, kind):
            twin.__dict__[name] = (_Client if name == "client" else _AsyncClient)(client)


def dumped(chunk: object) -> object:
    """A chunk as the SDK's object of it would give it by `model_dump`."""
    # What LangChain's package says of a chunk that is not an object is told from its own way.
    return _form().dumped(chunk) if isinstance(chunk, dict) else chunk


def _takes_dicts(model: type[BaseChatModel]) -> bool:
    """Whether each class that has a say in this model's stream is of a package that is known."""
    parts = [kind for kind in model.__mro__ if {"_stream", "_astream"} & vars(kind).keys()]
    # Our own guard hands on what it gets.
    packages = (*_PACKAGES, "langchain_core.", "signoff.nodes.model.guard")
    known = all(kind.__module__.startswith(packages) for kind in parts)
    return known and any(kind.__module__.startswith("langchain_openai.") for kind in parts)


def _is_sdks_own(client: Any, kind: str) -> bool:
    """Whether it is the client of OpenAI's package, whose requests nobody else watches."""
    own = getattr(sys.modules.get(_MODULE), kind, None)
    return own is not None and type(client) is own and not _is_watched(client)


def _is_watched(client: Any) -> bool:
    """Whether a method through which a request goes is not the SDK's (replaced by tracing or a test, or
    another one in a subclass)."""
    if not _is_original(client, "create"):
        return True
    # In a version of the SDK without one of these names, the call is the SDK's own.
    inner, post = getattr(client, SDK_CLIENT, None), getattr(client, SDK_POST, None)
    # A resource keeps `post` from the time when it was made.
    return getattr(post, "__self__", None) is not inner or not all(
        _is_original(inner, name) for name in SDK_STEPS
    )


def _is_original(owner: object, name: str) -> bool:
    found = getattr(type(owner), name, None)
    # Whoever wraps it may take the name of what is wrapped, but its code stays that of another module.
    own = type(found) is FunctionType and str(found.__globals__["__name__"]).startswith("openai.")
    return own and name not in vars(owner)


@cache
def _is_known() -> bool:
    try:
        return bool(_form())
    except (ImportError, AttributeError):
        # Another version of the SDK has other classes.
        return False


class _Proxy:
    """The SDK's client, except what a subclass has in its place."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "_inner" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)


class _Raw(_Proxy):
    """The SDK's `with_raw_response`, sync or async."""

    def create(self, **given: Any) -> Any:
        return self._inner.create(**past_conversion(given))


def _raw(client: Any) -> Any:
    found = client.with_raw_response
    return found if _is_watched(client) else _Raw(found)


class _Client(_Proxy):
    @property
    def with_raw_response(self) -> Any:
        return _raw(self._inner)

    def create(self, **given: Any) -> Any:
        # Tracing may begin after the graph was built.
        if _is_watched(self._inner):
            return self._inner.create(**given)
        given = past_conversion(given)
        if given.get("stream") is not True:
            return self._inner.create(**given)
        from openai import Stream

        return _Chunks(self._inner.with_raw_response.create(**given).parse(to=Stream[object]))


class _AsyncClient(_Proxy):
    @property
    def with_raw_response(self) -> Any:
        return _raw(self._inner)

    async def create(self, **given: Any) -> Any:
        if _is_watched(self._inner):
            return await self._inner.create(**given)
        given = past_conversion(given)
        if given.get("stream") is not True:
            return await self._inner.create(**given)
        from openai import AsyncStream

        made = await self._inner.with_raw_response.create(**given)
        return _AsyncChunks(made.parse(to=AsyncStream[object]))


def past_conversion(given: Json) -> Json:
    """The arguments of `create`, with messages and tools that are JSON already in `extra_body`, which the
    SDK does not convert. The body of the request is the same."""
    own = given.get("extra_body")
    if not isinstance(own, dict | None):
        return given
    moved = {name: given[name] for name in ("messages", "tools") if name in given and _is_json(given[name])}
    if not moved:
        return given
    rest = {name: value for name, value in given.items() if name not in moved}
    if "messages" in moved:
        # The SDK requires the argument.
        rest["messages"] = ()
    # The user's own `extra_body` takes precedence over the arguments, as in the SDK.
    return {**rest, "extra_body": {**moved, **(own or {})}}


def _is_json(value: object) -> bool:
    kind = type(value)
    # Loops, since this runs for the whole history.
    if kind is dict:
        for key, part in value.items():  # type: ignore[attr-defined]  # it is a dict
            if type(key) is not str or not (type(part) is str or _is_json(part)):
                return False
        return True
    if kind is list:
        for part in value:  # type: ignore[attr-defined]  # noqa: SIM110  # it is a list; as above
            if not _is_json(part):
                return False
        return True
    return value is None or kind in (str, int, float, bool)


class _Chunks(_Proxy):
    def __enter__(self) -> "_Chunks":
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.close()

    def __iter__(self) -> Iterator[object]:
        return map(dumped, _joined(self._inner) if _may_join() else self._inner)


class _AsyncChunks(_Proxy):
    async def __aenter__(self) -> "_AsyncChunks":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._inner.close()

    async def __aiter__(self) -> AsyncIterator[object]:
        joined = _Joined() if _may_join() else None
        try:
            async for chunk in self._inner:
                for given in (chunk,) if joined is None else joined.take(chunk):
                    yield dumped(given)
        except (Exception, asyncio.CancelledError):
            for given in joined.rest() if joined else ():
                yield dumped(given)
            raise
        for given in joined.rest() if joined else ():
            yield dumped(given)


def _may_join() -> bool:
    bounds = WATCH.get()
    return bounds is not None and bounds.unseen


def _joined(chunks: Iterable[object]) -> Iterator[object]:
    joined = _Joined()
    try:
        for chunk in chunks:
            yield from joined.take(chunk)
    except Exception:
        # What came before the error is a part of the reply.
        yield from joined.rest()
        raise
    yield from joined.rest()


class _Joined:
    """Joins pieces of words, or of the arguments of one call, that follow each other quickly."""

    def __init__(self) -> None:
        self._held: Json = {}
        self._at = _Piece({}, "", -1)
        self._texts: list[str] = []
        self._size = 0
        self._due = 0.0

    def take(self, chunk: object) -> list[object]:
        """Takes the next chunk; returns what is handed on now."""
        now, piece = time.monotonic(), _piece(chunk)
        if piece and self._held and (piece.name, piece.place) == (self._at.name, self._at.place):
            text = piece.part[piece.name]
            self._texts.append(text)
            self._size += len(text)
            return self._rest(now) if now >= self._due or self._size >= _MOST else []
        given = self._rest(now) if self._held else []
        if piece is None or now >= self._due:
            self._due = now + _HOLD
            return [*given, chunk]
        assert isinstance(chunk, dict), "else it is no piece"
        text = piece.part[piece.name]
        self._held, self._at, self._texts, self._size = chunk, piece, [text], len(text)
        return given

    def rest(self) -> list[object]:
        """What is held back."""
        return self._rest(time.monotonic()) if self._held else []

    def _rest(self, now: float) -> list[object]:
        self._at.part[self._at.name] = "".join(self._texts)
        held, self._held, self._due = self._held, {}, now + _HOLD
        return [held]


class _Piece(NamedTuple):
    """Where the text of a chunk stands: the part of it, and the name in that. place: the number of the call;
    -1 for words."""

    part: Json
    name: str
    place: int


def _piece(chunk: object) -> _Piece | None:
    """The text of a chunk that is just a piece of words, or of the arguments of one call."""
    if not isinstance(chunk, dict) or not _just(chunk, _PLAIN_OF_CHUNK, "choices"):
        return None
    choice = _only(chunk.get("choices"))
    if not isinstance(choice, dict):
        return None
    delta = choice.get("delta")
    if not isinstance(delta, dict) or not _just(choice, ("index",), "delta") or choice.get("index") != 0:
        return None
    content, calls = delta.get("content"), delta.get("tool_calls")
    if delta.get("role") not in (None, "assistant") or not isinstance(content, str | None):
        return None
    if calls is None:
        return _Piece(delta, "content", -1) if content and _just(delta, ("role",), "content") else None
    if content or not _just(delta, ("role", "content"), "tool_calls"):
        return None
    return _arguments(_only(calls))


def _only(given: Any) -> Any:
    return given[0] if isinstance(given, list) and len(given) == 1 else None


def _arguments(call: Any) -> _Piece | None:
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        return None
    index, text = call.get("index"), function.get("arguments")
    just = _just(call, ("index", "type"), "function") and _just(function, (), "arguments")
    if not just or type(index) is not int or index < 0 or not isinstance(text, str):
        return None
    return _Piece(function, "arguments", index)


def _just(part: Json, plain: Iterable[str], name: str) -> bool:
    """Whether nothing is said in `part` but `name`, and what does not change a reply."""
    for key, value in part.items():  # noqa: SIM110  for each chunk: `all` takes twice the time
        if value is not None and key != name and key not in plain:
            return False
    return True


@dataclass(frozen=True)
class _Part:
    """A part of a chunk. defaults: its fields as they are where the provider names none. rest: those of
    them that are neither plain nor known here."""

    defaults: Mapping[str, None]
    rest: frozenset[str]


@dataclass(frozen=True)
class _Form:
    """What a chunk is made of, by the SDK's own classes."""

    whole: Any
    chunk: _Part
    choice: _Part
    delta: _Part
    call: _Part
    function: _Part

    def dumped(self, chunk: Json) -> Json:
        found: Json = self._chunk(chunk) or self.whole.construct(**chunk).model_dump()
        return found

    # Each of these gives None for what only the SDK knows to read.

    def _chunk(self, chunk: Json) -> Json | None:
        choices = chunk.get("choices")
        if not isinstance(choices, list) or _has(chunk, self.chunk):
            return None
        made = [self._choice(choice) for choice in choices]
        return None if None in made else {**self.chunk.defaults, **chunk, "choices": made}

    def _choice(self, choice: object) -> Json | None:
        if not isinstance(choice, dict) or _has(choice, self.choice):
            return None
        made = self._delta(choice.get("delta"))
        return made and {**self.choice.defaults, **choice, "delta": made}

    def _delta(self, delta: object) -> Json | None:
        if not isinstance(delta, dict) or _has(delta, self.delta):
            return None
        calls = delta.get("tool_calls")
        if calls is None:
            return {**self.delta.defaults, **delta}
        if not isinstance(calls, list):
            return None
        made = [self._call(call) for call in calls]
        return None if None in made else {**self.delta.defaults, **delta, "tool_calls": made}

    def _call(self, call: object) -> Json | None:
        if not isinstance(call, dict) or _has(call, self.call):
            return None
        function = call.get("function")
        if not isinstance(function, dict) or _has(function, self.function):
            return None
        made = {**self.function.defaults, **function}
        return {**self.call.defaults, **call, "function": made}


def _has(given: Json, part: _Part) -> bool:
    for name, value in given.items():  # noqa: SIM110  as above
        if value is not None and name in part.rest:
            return True
    return False


@cache
def _form() -> _Form:
    # Slow to import, and there already when a model has such a client.
    from openai.types.chat import chat_completion_chunk as known

    kinds: list[tuple[Any, set[str]]] = [
        (known.ChatCompletionChunk, {"choices", *_PLAIN_OF_CHUNK}),
        (known.Choice, {"delta", "index", "finish_reason"}),
        (known.ChoiceDelta, {"tool_calls", "content", "refusal", "role"}),
        (known.ChoiceDeltaToolCall, {"function", "index", "id", "type"}),
        (known.ChoiceDeltaToolCallFunction, {"arguments", "name"}),
    ]
    return _Form(known.ChatCompletionChunk, *(_part(kind, read) for kind, read in kinds))


def _part(kind: Any, read: set[str]) -> _Part:
    defaults = kind.construct().model_dump()
    return _Part(defaults, frozenset(defaults) - read)
