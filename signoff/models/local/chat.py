"""The local model as a LangChain chat model.

Its requests go directly to the server's current port, with its key, regardless of the environment.

`WORKED_EXAMPLES` is for the system prompt: a model this small follows examples more than instructions. The
examples use the tools of `signoff.tools.files`. `chat.jinja` finds the block anywhere in the prompt and shows
it to the model as earlier turns of the conversation, in the same form as real ones. The last one weighs most.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ClassVar, Self, cast

import httpx
from langchain_core.language_models import ModelProfile
from langchain_core.messages import (
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    convert_to_openai_messages,
)
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import (
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
)
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr, SecretStr

from signoff.models.local.server import (
    MODEL_NAME,
    Endpoint,
    Lease,
    LocalServer,
    ServerSettings,
    lease,
    progress_in,
)
from signoff.models.local.weights import Progress, silent
from signoff.nodes.model.providers import READING

# A connection that outlives its event loop breaks the next loop; on loopback a new one costs nothing.
_LIMITS = httpx.Limits(max_keepalive_connections=0)


class _Transport(httpx.HTTPTransport):
    def __init__(self, server: LocalServer) -> None:
        super().__init__(limits=_LIMITS, trust_env=False)
        self._server = server

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        _aim(request, self._server)
        response = super().handle_request(request)
        if response.status_code == httpx.codes.BAD_REQUEST:
            return _as_openai(response, response.read())
        return response


class _AsyncTransport(httpx.AsyncHTTPTransport):
    def __init__(self, server: LocalServer) -> None:
        super().__init__(limits=_LIMITS, trust_env=False)
        self._server = server

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        _aim(request, self._server)
        response = await super().handle_async_request(request)
        if response.status_code == httpx.codes.BAD_REQUEST:
            return _as_openai(response, await response.aread())
        return response


def _aim(request: httpx.Request, server: LocalServer) -> None:
    """Sends the request to the server's current address, without OpenAI headers from the environment."""
    endpoint = server.endpoint
    if endpoint is None:
        raise httpx.ConnectError("The local model's server has ended.", request=request)
    request.url = request.url.copy_with(port=endpoint.port)
    for name in [name for name in request.headers if name.startswith("openai-")]:
        del request.headers[name]
    request.headers.update({**endpoint.headers, "Host": f"127.0.0.1:{endpoint.port}"})


def _as_openai(response: httpx.Response, body: bytes) -> httpx.Response:
    """Converts the error for a too long prompt to OpenAI's form, which LangChain recognises."""
    answer = json.loads(body)
    error = answer["error"]
    if error["type"] == "exceed_context_size_error":
        error.update(code="context_length_exceeded", message=f"context_length_exceeded: {error['message']}")
    return httpx.Response(response.status_code, json=answer)


def sync_client(server: LocalServer) -> httpx.Client:
    """Returns a client for `server`."""
    return httpx.Client(transport=_Transport(server), trust_env=False)


def async_client(server: LocalServer) -> httpx.AsyncClient:
    """Returns a client for `server`, usable in one event loop after another."""
    return httpx.AsyncClient(transport=_AsyncTransport(server), trust_env=False)


Tool = dict[str, Any] | type | Callable[..., Any] | BaseTool


class LocalChatModel(ChatOpenAI):
    """The embedded model. Use `local_model()` to make one.

    The server starts with the first call, or with `start()`. `close()` (or leaving a `with` block) releases
    it; it stops when the last model of the process has released it. OPENAI_* and proxy variables are ignored.
    """

    one_name: ClassVar[bool] = True
    _share: Lease = PrivateAttr()

    @property
    def _llm_type(self) -> str:
        return "signoff-local"

    def start(self, on_progress: Progress = silent) -> Endpoint:
        """Joins and verifies the weights if needed, loads the model, and returns its endpoint.

        Raises SetupError when something is missing. The endpoint also serves /health and /metrics.
        """
        return self._share.server.start(on_progress)

    @property
    def endpoint(self) -> Endpoint | None:
        """Returns the server's endpoint; None while it is not running."""
        return self._share.server.endpoint

    @property
    def server_pid(self) -> int | None:
        """Returns the process id of the server; None while it is not running."""
        return self._share.server.pid

    def close(self) -> None:
        """Releases the server, which stops when the last model has released it."""
        self._share.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get_num_tokens(self, text: str) -> int:
        """Returns the length of `text` in the model's own tokens; starts the server."""
        return len(self.get_token_ids(text))

    def get_token_ids(self, text: str) -> list[int]:
        """Returns `text` as the model's own tokens; starts the server."""
        ids: list[int] = self._ask("/tokenize", {"content": text})["tokens"]
        return ids

    def get_num_tokens_from_messages(
        self, messages: Sequence[BaseMessage], tools: Sequence[Tool] | None = None, **_: Any
    ) -> int:
        """Returns the length in tokens of the whole prompt for `messages` and `tools`; starts the server."""
        return self.get_num_tokens(self.prompt(messages, tools))

    def prompt(self, messages: Sequence[BaseMessage], tools: Sequence[Tool] | None = None) -> str:
        """Returns the prompt text for `messages` and `tools`; starts the server."""
        body: dict[str, Any] = {"messages": convert_to_openai_messages(list(messages))}
        if tools:
            body["tools"] = [convert_to_openai_tool(tool) for tool in tools]
        return str(self._ask("/apply-template", body)["prompt"])

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        endpoint = self.start()
        answer = httpx.post(
            endpoint.url + path, headers=endpoint.headers, json=body, trust_env=False, timeout=60
        )
        answer.raise_for_status()
        result: dict[str, Any] = answer.json()
        return result

    # Every call of the model passes one of these four: the last moment to start the server.
    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.start()
        options = without_tool_choice(kwargs)
        for _ in self._open_prompt(messages, options.get("tools")):
            pass
        return super()._generate(messages, *args, **options)

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        await asyncio.to_thread(self.start)
        options = without_tool_choice(kwargs)
        opening = self._open_prompt(messages, options.get("tools"))
        while await asyncio.to_thread(next, opening, None):
            pass
        return await super()._agenerate(messages, *args, **options)

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[AIMessageChunk]:
        _ASKED.set(config)
        yield from super().stream(input, config, **kwargs)

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[AIMessageChunk]:
        _ASKED.set(config)
        async with aclosing(
            cast(AsyncGenerator[AIMessageChunk], super().astream(input, config, **kwargs))
        ) as come:
            async for chunk in come:
                yield chunk

    def _stream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        config = _take_config()
        self.start()
        options = without_tool_choice(kwargs)
        for read in self._open_prompt(messages, options.get("tools")):
            _tell(config, read)
            # Here the caller can end the call, and sees that the model is not silent.
            yield _nothing()
        for chunk in super()._stream(messages, *args, **options):
            if progress := _take_progress(chunk):
                _tell(config, progress)
            yield chunk

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        config = _take_config()
        await asyncio.to_thread(self.start)
        options = without_tool_choice(kwargs)
        opening = self._open_prompt(messages, options.get("tools"))
        while read := await asyncio.to_thread(next, opening, None):
            await _atell(config, read)
            yield _nothing()
        async for chunk in super()._astream(messages, *args, **options):
            if progress := _take_progress(chunk):
                await _atell(config, progress)
            yield chunk

    def _open_prompt(self, messages: Sequence[BaseMessage], tools: Any) -> Iterator[tuple[int, int]]:
        if self._share.server.keeps_prompts:
            opening = self._opening(messages, tools)
            if len(opening) >= _WORTH_KEEPING:
                yield from self._share.server.open_prompt(opening)

    def _opening(self, messages: Sequence[BaseMessage], tools: Any) -> str:
        """Returns the beginning of the prompt, before its first message: it does not depend on the task."""
        first = list(messages[:1]) if messages and isinstance(messages[0], SystemMessage) else []
        prompts = [self.prompt([*first, HumanMessage(text)], tools) for text in ("A", "Z")]
        return os.path.commonprefix(prompts)  # noqa: RUF071  of texts, which are not paths

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], *args: Any
    ) -> ChatGenerationChunk | None:
        made = super()._convert_chunk_to_generation_chunk(chunk, *args)
        if made is not None and (progress := progress_in(chunk)):
            made.generation_info = {**(made.generation_info or {}), READING: progress}
        return made


# The model reads a shorter prompt in a few seconds.
_WORTH_KEEPING = 1000


# The config of the call that begins. LangChain does not pass it to `_stream`, which begins in the same step
# and takes it from here.
_ASKED: ContextVar[RunnableConfig | None] = ContextVar("_ASKED", default=None)


def _take_config() -> RunnableConfig:
    config = _ASKED.get()
    _ASKED.set(None)
    return config or {}


def _tell(config: RunnableConfig, read: tuple[int, int]) -> None:
    if config.get("callbacks"):
        manager = get_callback_manager_for_config(config)
        manager.on_custom_event(READING, _progress_notes(read), run_id=manager.parent_run_id)


async def _atell(config: RunnableConfig, read: tuple[int, int]) -> None:
    if config.get("callbacks"):
        manager = get_async_callback_manager_for_config(config)
        await manager.on_custom_event(READING, _progress_notes(read), run_id=manager.parent_run_id)


def _progress_notes(read: tuple[int, int]) -> dict[str, int]:
    return {"done": read[0], "total": read[1]}


def _take_progress(chunk: ChatGenerationChunk) -> tuple[int, int] | None:
    """Removes the prompt's progress from a chunk and returns it, so that it is not stored with the reply."""
    found: tuple[int, int] | None = (chunk.generation_info or {}).pop(READING, None)
    return found


def _nothing() -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(content=""))


def without_tool_choice(options: dict[str, Any]) -> dict[str, Any]:
    """Requests a tool in the only way that works here: by sending no other tool.

    The server treats a named `tool_choice` like "auto", and "required" may generate up to the maximum length.
    """
    choice = options.pop("tool_choice", None)
    if choice == "none":
        options.pop("tools", None)
    if isinstance(choice, dict):
        name = choice["function"]["name"]
        options["tools"] = [tool for tool in options["tools"] if tool["function"]["name"] == name]
    return options


def local_model(
    *,
    max_tokens: int = 1024,
    context: int = 8192,
    threads: int | None = None,
    on_progress: Progress | None = None,
) -> LocalChatModel:
    """Returns the embedded model: Qwen2.5-Coder-1.5B-Instruct on this machine's CPU, no key and no network.

    max_tokens: the longest reply. context: tokens of prompt and reply together. threads: CPU threads, None
    for one per physical core. With `on_progress` the model is loaded now and reports its progress; without,
    the first call loads it. Raises SetupError when it is loaded now and something is missing.
    """
    share = lease(ServerSettings(context=context, threads=threads))
    model = LocalChatModel(
        model=MODEL_NAME,
        temperature=0,
        max_tokens=max_tokens,
        profile=ModelProfile(
            name="Qwen2.5-Coder-1.5B-Instruct",
            open_weights=True,
            max_input_tokens=context - max_tokens,
            max_output_tokens=max_tokens,
            text_inputs=True,
            text_outputs=True,
            tool_calling=True,
        ),
        stream_usage=True,
        extra_body={"return_progress": True},
        # Placeholders: the transports insert the real port and key.
        base_url="http://127.0.0.1/v1",
        api_key=SecretStr("local"),
        organization="",
        openai_proxy=None,
        use_responses_api=False,
        http_client=sync_client(share.server),
        http_async_client=async_client(share.server),
        http_socket_options=(),
        timeout=600,
        stream_chunk_timeout=None,
        max_retries=1,
    )
    model._share = share
    if on_progress:
        model.start(on_progress)
    return model


_RULES = """\
Work with files in this order: look (read_file; list_files when you do not know which file), then change \
(edit_file, with old copied exactly from what you saw, without the line numbers), then check the result, \
then finish_task. A question is answered in the summary of finish_task and nothing is changed. Make one call \
in each reply, wait for its result, and write nothing else."""


def _call(name: str, **arguments: str) -> str:
    """Returns a reply with one call, as `chat.jinja` writes it."""
    return "[you]\n```json\n" + json.dumps({"name": name, "arguments": arguments}) + "\n```"


def _result(*lines: str) -> str:
    return "\n".join(["[result]", *lines])


def _example(task: str, *steps: str, summary: str) -> str:
    finish = [_call("finish_task", summary=summary), _result("Accepted. The task has ended.")]
    return "\n".join([f"[user]\n{task}", *steps, *finish])


_CHANGE_IN_SEVERAL_FILES = _example(
    "Rename the class Cat in pets.py to Animal",
    _call("read_file", path="pets.py"),
    _result("pets.py, lines 1 to 2 of 2:", "1|class Cat:", "2|    legs = 4"),
    _call("edit_file", path="pets.py", old="class Cat:", new="class Animal:"),
    _result("Edited pets.py. The lines there are now:", "1|class Animal:", "2|    legs = 4"),
    _call("search_files", pattern="Cat"),
    _result('zoo.py:3:     return Cat("Tom")', "1 matching line in 1 file."),
    _call("edit_file", path="zoo.py", old='return Cat("Tom")', new='return Animal("Tom")'),
    _result("Edited zoo.py. The lines there are now:", "1|", "2|def first():", '3|    return Animal("Tom")'),
    summary="Renamed the class Cat to Animal: its definition in pets.py and its use in line 3 of zoo.py.",
)
_ADDED_LINE = _example(
    "Add Eve to the end of guests.txt",
    _call("read_file", path="guests.txt"),
    _result("guests.txt, lines 1 to 2 of 2:", "1|Ada", "2|Bob"),
    _call("edit_file", path="guests.txt", old="Bob", new="Bob\nEve"),
    _result("Edited guests.txt. The lines there are now:", "1|Ada", "2|Bob", "3|Eve"),
    summary="Added the line Eve at the end of guests.txt, after the line Bob: it is line 3 there now.",
)
_QUESTION = _example(
    "How long may a guest stay?",
    _call("list_files", path="."),
    _result("guests.txt (12 bytes)", "rules.py (41 bytes)"),
    _call("read_file", path="rules.py"),
    _result("rules.py, lines 1 to 3 of 3:", "1|GUESTS = 12", "2|NIGHTS = 7", "3|PETS = True"),
    summary="A guest may stay for 7 nights: NIGHTS is 7 in line 2 of rules.py.",
)
_HEAD = ('1|"""Colours of the pages."""', "2|", '3|BODY = "black"')
_CHANGE_IN_A_FILE = _example(
    "Make the title colour in theme.py green",
    _call("read_file", path="theme.py"),
    _result("theme.py, lines 1 to 5 of 5:", *_HEAD, '4|TITLE = "navy"', '5|LINK = "blue"'),
    _call("edit_file", path="theme.py", old='TITLE = "navy"', new='TITLE = "green"'),
    _result("Edited theme.py. The lines there are now:", *_HEAD, '4|TITLE = "green"', '5|LINK = "blue"'),
    summary='Changed TITLE in theme.py from "navy" to "green": line 4 there is now TITLE = "green".',
)

WORKED_EXAMPLES = "\n".join(
    [
        f"{_RULES}\n\n<examples>",
        _CHANGE_IN_SEVERAL_FILES,
        _ADDED_LINE,
        _QUESTION,
        _CHANGE_IN_A_FILE,
        "</examples>",
    ]
)
"""For the system prompt of the local model: how to work with files, and four short transcripts."""
