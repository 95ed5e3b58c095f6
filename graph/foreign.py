"""Handles values and errors of foreign code: tools, models, validators, servers.

A tool may return anything: here it becomes valid text of bounded length, and the full text is kept
separately.

A tool may raise anything, including what is not an `Exception`: a Rust extension panics, a task group raises
a `BaseExceptionGroup`, a library calls `sys.exit`. If such an error got through, it would recur at each
resume, and the thread could never continue. But Ctrl-C and the exceptions of signal handlers do not belong to
the tool and must get through. Their types do not tell them apart, so this module looks at where they were
raised.

The full texts of long results are kept below the cache folder as long as their thread needs them, then
removed. Each thread has its own folder. When the thread ends, a mark is put into the folder, and removed if
the thread continues: only marked folders are cleared. A removed text is replaced by one line that says so.
"""

import asyncio
import dis
import functools
import hashlib
import os
import re
import reprlib
import secrets
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from traceback import walk_tb
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from pydantic import ValidationError

from signoff.graph import clock
from signoff.graph.errors import SetupError, quote_id
from signoff.graph.foreign_files import read_regular
from signoff.graph.inside.installing import install_hint

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

_RAISE = {dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"]}


def pauses(error: BaseException) -> bool:
    """Whether this is LangGraph's exception for a pause, or one that rejects an invalid answer so that it can
    be given again."""
    # Commands that run nothing import this module, too, and do not need LangGraph.
    from langgraph.errors import GraphBubbleUp, ParentCommand, is_invalid_resume

    # A graph run by foreign code may send a command to its parent graph: that is not a pause, and no state of
    # the machine can be its target.
    bubbles = isinstance(error, GraphBubbleUp) and not isinstance(error, ParentCommand)
    return bubbles or is_invalid_resume(error)


def gets_past(error: BaseException) -> bool:
    """Whether `error`, raised while foreign code ran, is a LangGraph pause or an interrupt of this
    process."""
    if isinstance(error, Exception):
        return pauses(error)
    # Python runs the handlers of signals in the main thread, and nowhere else.
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = set(_handlers())
    if any(frame.f_code in handlers for frame, _ in walk_tb(error.__traceback__)):
        return True
    # Python's own Ctrl-C handler has no frame: its exception is raised between two instructions or in a call.
    return isinstance(error, KeyboardInterrupt) and not _by_statement(error.__traceback__)


class NobodyToAsk(Exception):
    """Foreign code calls `interrupt` to ask a person, in a run that cannot wait for the answer."""


def unanswered(error: BaseException, *, can_ask: bool) -> BaseException:
    """`error`; or, for a pause that nobody could end, NobodyToAsk if the run cannot wait, and TypeError if
    the value cannot be saved."""
    # As in `pauses`.
    from langgraph.errors import GraphInterrupt

    if not isinstance(error, GraphInterrupt):
        return error
    if can_ask:
        return next(filter(None, map(_not_saved, error.args[0] if error.args else ())), error)
    return NobodyToAsk(
        "interrupt() asks a person, and this run cannot wait for the answer; build the graph with storage= "
        "(or a checkpointer)"
    )


def _not_saved(asked: Any) -> TypeError | None:
    """The error for an interrupt whose value cannot be saved in a checkpoint; None if it can."""
    try:
        strict_serde().dumps_typed(asked)
    except BaseException as error:
        # A custom value may raise anything while it is read.
        if gets_past(error):
            raise
        kind = type(getattr(asked, "value", None)).__name__
        return TypeError(f"interrupt() asks by a value that cannot be saved ({kind}); ask by plain values")
    return None


def being_ended(error: BaseException) -> bool:
    """Whether the coroutine that awaits foreign code is itself being cancelled or closed, so that the foreign
    code has raised nothing itself. Must be called from the function with the `await`."""
    trace = error.__traceback__
    if isinstance(error, GeneratorExit):
        # Raised by `close`: it has no deeper frame.
        return trace is None or trace.tb_next is None
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _handlers() -> Iterator[CodeType]:
    """The code objects of the current signal handlers."""
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        for found in (handler, getattr(type(handler), "__call__", None)):  # noqa: B004  its code is looked for
            code = getattr(found, "__code__", None)
            if isinstance(code, CodeType):
                yield code


def _by_statement(trace: TracebackType | None) -> bool:
    """Whether the traceback begins at a `raise` in Python code."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code.co_code
    # Compiled extensions create artificial frames without instructions.
    return 0 <= trace.tb_lasti < len(code) and code[trace.tb_lasti] in _RAISE


LIMIT = 20_000
"""The default maximum of characters that a model sees of one tool result."""

_UNSAFE = re.compile("[\ud800-\udfff\x00]")
# The note in a text that was already truncated in the middle.
_INCOMPLETE = re.compile(r"\[\.\.\. [\d,]+ (?:characters|bytes?)(?: of output)? left out")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def valid_text(text: str) -> str:
    """`text` with every lone surrogate and NUL replaced by U+FFFD.

    Encoders and databases reject these characters, and a result must be saved and sent.
    """
    return _UNSAFE.sub("\ufffd", text)


def words(value: Any) -> str:
    """`str(value)` as valid text; the name of its type when that raises."""
    try:
        return valid_text(str(value))
    except BaseException as error:
        # A custom `__str__` may raise anything.
        if gets_past(error):
            raise
        return f"<{type(value).__name__}>"


def count_noun(number: int, noun: str) -> str:
    """`number` and `noun` in words: "1 line", "2 lines"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def valid_values(value: Any) -> Any:
    """A JSON-like value with every string in it made valid; the same object if all of them are."""
    if isinstance(value, str):
        return valid_text(value) if _UNSAFE.search(value) else value
    if isinstance(value, Mapping):
        return {valid_values(key): valid_values(part) for key, part in value.items()}
    if isinstance(value, list):
        return [valid_values(part) for part in value]
    return value


def capped(text: str, *, limit: int = LIMIT, keep: Callable[[str], str] | None) -> str:
    """`text` as valid text of at most about `limit` characters.

    Longer text is truncated in the middle. A sentence there says how many characters were left out and where
    the full text is: `keep` stores it and returns its path. If `keep` fails (OSError, ToolException), only
    the copy is lost, never the result.
    """
    text = valid_text(text)
    if len(text) <= limit:
        return text
    where = _where(text, keep)
    room = max(limit - len(_gap(len(text), where)), 0)
    head = text[: room - room // 2]
    tail = text[len(text) - room // 2 :]
    return head + _gap(len(text) - room, where) + tail


def _where(text: str, keep: Callable[[str], str] | None) -> str:
    if keep is None:
        return "the full text was not kept"
    from langchain_core.tools import ToolException

    try:
        place = valid_text(keep(text))
        return f"{'what was kept of it' if _INCOMPLETE.search(text) else 'the full text'} is in {place}"
    except (OSError, ToolException) as error:
        return f"the full text could not be kept: {valid_text(str(error))}"


def _gap(count: int, where: str) -> str:
    return f"\n[... {count} characters left out; {where} ...]\n"


def file_name_of(name: str, text: str) -> str:
    """The file name for `text`; the same text with the same `name` gets the same file."""
    label = _NOT_IN_NAMES.sub("_", name)[:60] or "output"
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
    return f"{label}-{digest}.txt"


def keep_in(folder: str | os.PathLike[str], name: str) -> Callable[[str], str]:
    """A `keep` for `capped` that writes into `folder` (created if missing) and returns the file's path.

    For a folder that nobody else can write to. Inside a workspace use `Workspace.keep`, which does not follow
    links. Raises OSError when the file cannot be written.
    """

    def keep(text: str) -> str:
        target = Path(folder).resolve() / file_name_of(name, text)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".signoff-", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(valid_text(text).encode())
            os.replace(temporary, target)
        except OSError:
            os.unlink(temporary)
            raise
        return str(target)

    return keep


def explain(error: ValidationError) -> str:
    """A pydantic error as one sentence for the model: which argument, what is wrong."""
    return join_errors(error.errors())


def join_errors(errors: Iterable[Mapping[str, Any]]) -> str:
    """The individual errors of a pydantic error, as one sentence."""
    parts = [f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in errors]
    return "; ".join(parts) + "."


_MOST_ERRORS = 8
_MOST_CHARACTERS = 200


def schema_check(schema: Mapping[str, Any], what: str) -> Callable[[Any], str]:
    """A function that returns why a value does not match the schema; "" if it does.

    what: the setting that contains the schema, for error messages. Raises SetupError for an invalid JSON
    schema, and if the package for it is missing.
    """
    try:
        # Imported here, since it is slow and most graphs do not need it.
        from jsonschema import SchemaError  # type: ignore[import-untyped]  # the package has no stubs
        from jsonschema.validators import validator_for  # type: ignore[import-untyped]  # as above
    except ImportError as error:
        raise SetupError(f"A JSON schema as {what} needs a package: {install_hint('schema')}") from error
    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise SetupError(f"{what} is not a valid JSON schema: {error.message[:_MOST_CHARACTERS]}.") from error
    validator = kind(schema)

    def check(value: Any) -> str:
        return "; ".join([_describe(error) for error in validator.iter_errors(value)][:_MOST_ERRORS])

    return check


def _describe(error: Any) -> str:
    place = ".".join(map(str, error.absolute_path))
    message = error.message
    short = message if len(message) <= _MOST_CHARACTERS else f"{message[:_MOST_CHARACTERS]}…"
    return f"{place}: {short}" if place else str(short)


OLDEST_SECONDS = 30 * 86_400.0
"""How long a thread's texts are kept after its end."""

MOST_BYTES = 500_000_000
"""The maximum total size; above it, the texts of the threads that ended first are removed."""

# A thread that has just ended may continue at once, or its process may be killed before the end is saved.
_GRACE_SECONDS = 3_600.0
_MARK = ".ended"
_GONE = "This text is no longer kept: "


def users_folder(find: Callable[[str], str]) -> Path | None:
    """Signoff's folder by one of the functions of `platformdirs`; None for a user without a home, as in a
    container that runs with a bare number."""
    try:
        folder = Path(find("signoff"))
    except RuntimeError:
        return None
    # Older versions leave `~` as it is, and accept a relative XDG variable.
    return folder if folder.is_absolute() else None


def outputs_folder() -> Path:
    """Where full texts are kept, unless the tools have another place for them: in the cache of the user, else
    until the program ends."""
    # Imported here, since only code that builds a graph needs it.
    from platformdirs import user_cache_dir

    return (users_folder(user_cache_dir) or _folder_of_process()) / "outputs"


@functools.cache
def _folder_of_process() -> Path:
    name = f"signoff-{secrets.token_hex(16)}"  # nobody can have made a folder of this name before
    try:
        return Path(tempfile.gettempdir()) / name
    except OSError:
        # Nothing can be written anywhere: then no text is kept, which its result says.
        return Path(os.sep) / name


@dataclass(frozen=True)
class Outputs:
    """The texts of one thread. owner: the database and the thread; empty for a run without a thread, which
    counts as ended, since it cannot be continued."""

    folder: Path
    owner: str

    @classmethod
    def of(cls, folder: Path, saver: Any, thread_id: str | None) -> "Outputs":
        """The texts of a thread of this checkpointer, identified by its database."""
        database = getattr(getattr(saver, "database", None), "place", None)
        return cls(folder, f"{database or type(saver).__name__}\0{thread_id}" if saver and thread_id else "")

    @property
    def own(self) -> Path:
        """The folder of the thread."""
        label = hashlib.sha256(self.owner.encode()).hexdigest()[:24] if self.owner else "no-thread"
        return self.folder / label

    def keep(self, name: str) -> Callable[[str], str]:
        """A `keep` for `signoff.graph.foreign.capped`."""
        write = keep_in(self.own, name)

        def keep(text: str) -> str:
            where = write(text)
            if not self.owner:
                (self.own / _MARK).touch()
            return where

        return keep

    def ended(self) -> None:
        """Marks the thread as ended, and clears texts that are too old or too many."""
        with suppress(OSError):
            if self.own.is_dir():
                (self.own / _MARK).touch()
                clear(self.folder)

    def goes_on(self) -> None:
        """Removes that mark, so that the texts of the thread are kept."""
        if self.owner:
            with suppress(OSError):
                (self.own / _MARK).unlink()


@dataclass(frozen=True)
class _Text:
    path: Path
    ended: float
    size: int


def clear(folder: Path, now: float | None = None) -> None:
    """Clears the texts of ended threads that are too old or too many. Other files are left alone."""
    moment = clock.now() if now is None else now
    found = sorted(_texts(folder), key=lambda text: (text.ended, text.path))
    left = sum(text.size for text in found)
    for text in found:
        old = moment - text.ended > OLDEST_SECONDS
        if not old and (left <= MOST_BYTES or moment - text.ended <= _GRACE_SECONDS):
            continue
        age = f"its thread ended more than {OLDEST_SECONDS / 86_400:g} days ago"
        why = age if old else "there were too many"
        day = datetime.fromtimestamp(moment, UTC).date()
        with suppress(OSError):
            # Atomically: a reader sees either the whole text or the note that it was removed.
            temporary = text.path.with_suffix(".tmp")
            temporary.write_text(f"{_GONE}{why}, and it was removed on {day}. Do again what gave it.\n")
            os.replace(temporary, text.path)
            left -= text.size


def _texts(folder: Path) -> Iterator[_Text]:
    """The texts of ended threads that are not yet removed."""
    for own in folder.iterdir():
        with suppress(OSError):
            ended = (own / _MARK).stat().st_mtime
            for path in own.glob("*.txt"):
                size = path.lstat().st_size
                if size > 300 or not read_regular(path, size).startswith(_GONE.encode()):
                    yield _Text(path, ended, size)


# Plain values of LangChain's own that its middleware writes into channels: ModelRouterMiddleware its route.
_ALSO_KNOWN = [("langchain_core.decisions.types", "ChoiceAnswer")]


@functools.cache
def strict_serde() -> "SerializerProtocol":
    """The serializer: known types only (strict msgpack, no pickle), so that a crafted database cannot run
    code."""
    # Imported here, since most importers of this module save nothing.
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    return JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=_ALSO_KNOWN)


# A lone surrogate cannot be encoded, and databases end a text at NUL.
_UNUSABLE = re.compile("[\ud800-\udfff\0]")
# PostgreSQL's indexes cannot hold much more.
_LONGEST_ID = 512


def checked_thread_id(given: object) -> str:
    """`given`, if it is a valid thread id. Raises SetupError, with the same message everywhere."""
    if isinstance(given, str) and not _UNUSABLE.search(given) and 0 < len(given.encode()) <= _LONGEST_ID:
        return given
    quoted = quote_id(given) if isinstance(given, str) else reprlib.repr(given)
    raise SetupError(
        f"A thread id must be valid text without NUL, of 1 to {_LONGEST_ID} bytes in UTF-8, not {quoted}."
    )


OUTCOMES = "outcomes"
FIGURES = "figures"
RATINGS = "ratings"


@functools.lru_cache(1024)
def label(thread_id: str | None) -> str:
    """A thread id as one label of a store namespace, which must not contain a dot."""
    return (
        quote(thread_id or "", safe=" !#$&'()*+,/:;=?@[]", errors="surrogatepass").replace(".", "%2E") or "-"
    )


def thread_of(name: str) -> str:
    """The thread id of a label."""
    return unquote(name, errors="surrogatepass")


def pause_place(thread_id: str | None) -> tuple[tuple[str, ...], str]:
    """The namespace and key of the entry by which another process requests a pause."""
    return ("signoff", "requests", label(thread_id)), "pause"


def paused_place(thread_id: str | None) -> tuple[tuple[str, ...], str]:
    """The namespace and key of the entry that says at which checkpoint a person paused the thread."""
    return ("signoff", "requests", label(thread_id)), "paused"


def place(sort: str, thread_id: str | None, task: str) -> tuple[tuple[str, ...], str]:
    """The namespace and key of an entry. `sort`: OUTCOMES, FIGURES or RATINGS."""
    return ("signoff", sort, label(thread_id)), task or "-"
