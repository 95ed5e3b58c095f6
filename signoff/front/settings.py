"""What a thread runs with, and how it is remembered from one command to the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from langgraph.store.base import BaseStore
from pydantic import BaseModel, ConfigDict, ValidationError

from signoff.graph.errors import SetupError
from signoff.graph.limits import Limits
from signoff.models.choose import EMBEDDED, SCRIPTED
from signoff.models.tagged import TAGGED_LIMITS
from signoff.nodes.kit import MODEL_SECONDS
from signoff.nodes.record import label
from signoff.session.standing import readable
from signoff.tools.kinds import Kind
from signoff.tools.output import valid_text

TOOL_GROUPS = ("files", "shell", "python")
PROTOCOLS = ("tools", "tagged")
_KEY = "settings"


class Settings(BaseModel):
    """What a thread runs with. Never a key: those stay in the environment.

    workspace: the folder. model: as `choose_model` takes it. base_url: None for OpenAI's own address.
    turns, tokens, seconds, talk_turns: limits of one task. tools: groups of tools. approve: tools and kinds
    whose calls a person must approve. model_seconds: how long the model may be silent. constitution: the
    principles of an agent that works by text; None for those of `TaggedText`. checks: commands that a claim
    of "done" must pass, run in the workspace.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    workspace: str
    model: str
    base_url: str | None = None
    turns: int
    talk_turns: int
    system_prompt: str = ""
    tools: tuple[str, ...] = ("files",)
    approve: tuple[str, ...] = ()
    tokens: int | None = None
    seconds: float | None = None
    protocol: str = "tools"
    """`tools`: the model calls them; `tagged`: it works by text, for models without tool calling."""
    rounds: bool = False
    model_seconds: float = MODEL_SECONDS
    constitution: str | None = None
    checks: tuple[str, ...] = ()

    @property
    def limits(self) -> Limits:
        return Limits(turns=self.turns, talk_turns=self.talk_turns, tokens=self.tokens, seconds=self.seconds)


@dataclass(frozen=True)
class Given:
    """The options of one command; None where an option was not given."""

    workspace: Path | None = None
    model: str | None = None
    base_url: str | None = None
    turns: int | None = None
    talk_turns: int | None = None
    system_prompt: str | None = None
    tools: str | None = None
    approve: str | None = None
    tokens: int | None = None
    seconds: float | None = None
    protocol: str | None = None
    rounds: bool | None = None
    model_seconds: float | None = None
    constitution: Path | None = None
    checks: Sequence[str] | None = None


def settle(given: Given, before: Settings | None, env: Mapping[str, str]) -> Settings:
    """What was given, else what the thread had before, else the environment, else the defaults.

    A model that is given brings its own address: the one remembered belongs to another model. Another
    protocol brings its own tools and turns.
    """
    model, base_url = _model(given, before, env)
    protocol = _protocol(given.protocol, before)
    same = before if before and before.protocol == protocol else None
    limits = TAGGED_LIMITS if protocol == "tagged" else Limits()
    return Settings(
        workspace=str(_workspace(given.workspace or (Path(before.workspace) if before else Path.cwd()))),
        model=model,
        base_url=base_url,
        turns=given.turns or (same.turns if same else limits.turns),
        talk_turns=given.talk_turns or (before.talk_turns if before else limits.talk_turns),
        system_prompt=_prompt(given.system_prompt, before),
        tools=_tools(given.tools, same, model, protocol),
        approve=_approve(given.approve, before),
        tokens=given.tokens or (before.tokens if before else limits.tokens),
        seconds=given.seconds or (before.seconds if before else limits.seconds),
        protocol=protocol,
        rounds=given.rounds if given.rounds is not None else bool(before and before.rounds),
        model_seconds=given.model_seconds or (before.model_seconds if before else MODEL_SECONDS),
        constitution=_constitution(given.constitution, same, protocol),
        checks=_checks(given.checks, before),
    )


def _model(given: Given, before: Settings | None, env: Mapping[str, str]) -> tuple[str, str | None]:
    if given.model is None and before is not None:
        return before.model, given.base_url or before.base_url
    model = given.model or env.get("SIGNOFF_MODEL") or EMBEDDED
    if model.startswith(SCRIPTED):
        model = SCRIPTED + str(Path(model.removeprefix(SCRIPTED)).absolute())
    elif model == EMBEDDED:
        if given.base_url:
            raise SetupError("--base-url needs the name of a model there: add --model.")
        return model, None
    return model, given.base_url or env.get("OPENAI_BASE_URL") or None


def _workspace(folder: Path) -> Path:
    real = folder.expanduser().absolute()
    if not real.is_dir():
        raise SetupError(
            f"The workspace {real} is not an existing folder; create it or name another one with --workspace."
        )
    return real


def _prompt(given: str | None, before: Settings | None) -> str:
    if given is None:
        return before.system_prompt if before else ""
    return _text_of("system prompt", Path(given[1:])) if given.startswith("@") else valid_text(given)


def _text_of(what: str, file: Path) -> str:
    try:
        return file.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"The {what} cannot be read from {file} ({error}).") from error


def _constitution(given: Path | None, same: Settings | None, protocol: str) -> str | None:
    if given is None:
        return same.constitution if same else None
    if protocol != "tagged":
        raise SetupError("--constitution is for a model that works by text: add --protocol tagged.")
    return valid_text(_text_of("constitution", given)).strip()


def _protocol(given: str | None, before: Settings | None) -> str:
    protocol = given or (before.protocol if before else PROTOCOLS[0])
    if protocol not in PROTOCOLS:
        raise SetupError(f"--protocol is {protocol!r}; use {' or '.join(PROTOCOLS)}.")
    return protocol


def _tools(given: str | None, before: Settings | None, model: str, protocol: str) -> tuple[str, ...]:
    if given is None and before is None and protocol == "tagged":
        return ("python",) if model == EMBEDDED else ("python", "files")
    if given is None:
        # More tools confuse a model as small as the embedded one.
        return before.tools if before else ("files",) if model == EMBEDDED else ("files", "shell")
    names = _listed("--tools", given)
    for name in names:
        if name not in TOOL_GROUPS:
            raise SetupError(f"--tools names {name!r}; use {', '.join(TOOL_GROUPS)}, or none.")
    return names


def _approve(given: str | None, before: Settings | None) -> tuple[str, ...]:
    if given is None:
        return before.approve if before else ()
    names = _listed("--approve", given)
    if Kind.CONTROL in names:
        raise SetupError("--approve cannot name control: those calls end, ask or think, and change nothing.")
    return names


def _checks(given: Sequence[str] | None, before: Settings | None) -> tuple[str, ...]:
    if given is None:
        return before.checks if before else ()
    if list(given) == ["none"]:
        return ()
    if not all(command.strip() for command in given):
        raise SetupError("--check is empty; name a command, such as 'pytest -q', or none.")
    return tuple(dict.fromkeys(valid_text(command).strip() for command in given))


def _listed(option: str, text: str) -> tuple[str, ...]:
    """The names of a list with commas, each once; `none` is the empty list."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise SetupError(f"{option} is empty; name something, or none.")
    return () if names == ("none",) else names


def remember(store: BaseStore, thread_id: str, settings: Settings) -> None:
    """Keeps the settings beside the thread, without anything in the address that could be a secret."""
    kept = settings.model_copy(update={"base_url": settings.base_url and _bare(settings.base_url)})
    store.put(_place(thread_id), _KEY, kept.model_dump())


def recall(store: BaseStore, thread_id: str) -> Settings | None:
    """The settings that the thread last ran with; None when it was made by another program."""
    with readable(thread_id):
        item = store.get(_place(thread_id), _KEY)
    if item is None:
        return None
    try:
        return Settings.model_validate(item.value)
    except ValidationError:
        # Written by another version: the options and defaults stand in.
        return None


def _bare(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _place(thread_id: str) -> tuple[str, ...]:
    return ("signoff", "threads", label(thread_id))
