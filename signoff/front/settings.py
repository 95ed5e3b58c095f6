"""The settings of a thread: from the command line, its last run, the environment, and `signoff.toml`.

The first of them that has a value decides. The user's file is read from the user's configuration folder, or
from a path that a person names: never from the workspace, where the model could write it.
"""

import os
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, get_args
from urllib.parse import urlsplit, urlunsplit

from platformdirs import user_config_dir
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from signoff import Kind, Limits, SetupError
from signoff.front.text import cut, shell_command
from signoff.graph.foreign import users_folder
from signoff.graph.foreign_files import NotRegular, open_regular, read_regular
from signoff.graph.limits import MODEL_SECONDS, MODEL_TRIES
from signoff.nodes.model.providers import EMBEDDED, SCRIPTED
from signoff.text import label, valid_text

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

TOOL_GROUPS = ("files", "shell", "python", "python-write")
PROTOCOLS = ("tools", "tagged")
NO_CONFIG = "none"
"""The value that names no settings file."""
CONFIG_VARIABLE = "SIGNOFF_CONFIG"
_VARIABLES = {"base_url": ("SIGNOFF_BASE_URL", "OPENAI_BASE_URL")}
_KEY = "settings"
_MOST_BYTES = 100_000
_MOST_TEXT = 1_000_000
_MOST_SHOWN = 60
# What a valid value is, by the type of the option.
_WANTED: Mapping[Any, str] = {
    int: "a whole number from 1 on",
    float: "a number above 0",
    bool: "true or false",
    str: "a text",
    Path: "a path",
}


def _option(
    metavar: str | None, description: str, *names: str, kind: Any = None, least: float | None = None
) -> Any:
    """Returns a field that is an option.

    names: its short name, or its full name if that differs from the field's. kind: its type on the command
    line, if that differs from the field's. least: the minimum of a number.
    """
    extra = {"metavar": metavar, "names": list(names), "kind": kind, "least": least}
    number: dict[str, Any] = {} if least is None else {"ge": least}
    if isinstance(least, float):
        number["allow_inf_nan"] = False
    return Field(default=None, description=description, json_schema_extra=extra, **number)


def _listed(value: Any) -> Any:
    """Returns the names of a list, or of a text with commas, without duplicates; `none` is the empty list."""
    if not isinstance(value, str) and not _are_texts(value):
        return value
    given = value.split(",") if isinstance(value, str) else value
    names = tuple(dict.fromkeys(name.strip() for name in given if name.strip()))
    if not names and given:
        raise ValueError("is empty; name something, or none.")
    return () if names == ("none",) else names


def _commands(value: Any) -> Any:
    given = [value] if isinstance(value, str) else value
    if not _are_texts(given):
        return value
    if list(given) == ["none"]:
        return ()
    if not all(command.strip() for command in given):
        raise ValueError("is empty; name a command, such as 'pytest -q', or none.")
    return tuple(dict.fromkeys(valid_text(command).strip() for command in given))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


class RunOptions(BaseModel):
    """The options of a run; None for an option that was not set. The descriptions are the help texts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace: Path | None = _option(
        "FOLDER", "Folder to work in (default: the thread's own, else the current one).", "-w"
    )
    model: str | None = _option(
        "NAME",
        "Model of an OpenAI-compatible server (key: OPENAI_API_KEY), `PROVIDER:NAME` for one that LangChain "
        "knows (anthropic:…, google_genai:…, ollama:…), `local` for the embedded one, or `scripted:FILE.py` "
        "for tests (default: the thread's own, else SIGNOFF_MODEL, else `local`).",
        "-m",
    )
    base_url: str | None = _option("URL", "Address of that server (default: OPENAI_BASE_URL, else OpenAI).")
    turns: int | None = _option("N", "At most this many turns of the model (default: 30).", least=1)
    tokens: int | None = _option(
        "N",
        "At most this many tokens, input and output (default: the thread's own, else no limit).",
        least=1,
    )
    seconds: float | None = _option(
        "S",
        "At most this many seconds of work; waiting for you does not count (default: the thread's own, "
        "else no limit).",
        least=0.001,
    )
    cost: float | None = _option(
        "X",
        "At most this cost of the tokens, in dollars, by the prices of genai-prices (default: the thread's "
        "own, else no limit).",
        least=0.000001,
    )
    model_seconds: float | None = _option(
        "S",
        "The model may be silent for at most this many seconds, before its reply and within it "
        f"(default: the thread's own, else {MODEL_SECONDS:g}).",
        least=0.001,
    )
    model_tries: int | None = _option(
        "N",
        "Call the model at most this many times when its provider fails temporarily, with increasing "
        f"waits; 1 for no retry (default: the thread's own, else {MODEL_TRIES}).",
        least=1,
    )
    talk_turns: int | None = _option(
        "N", "At most this many replies in a row without a call (default: 5).", least=1
    )
    tools: Annotated[tuple[str, ...], BeforeValidator(_listed)] | None = _option(
        "LIST",
        "What the model works with: any of files, shell and python, or none; python-write may also change "
        "the workspace (default: the thread's own, else files,shell; files for the embedded model).",
        kind=str,
    )
    approve: Annotated[tuple[str, ...], BeforeValidator(_listed)] | None = _option(
        "LIST",
        "Ask you before calls of these tools or kinds (read, write, terminal); none for never "
        "(default: the thread's own, else never).",
        kind=str,
    )
    protocol: str | None = _option(
        "NAME",
        "How the model works: tools; or tagged, a text protocol of plans and Python code for models "
        "without tool calling, with the tools python and files, in a workspace that Python may change, and "
        "10 turns (default: the thread's own, else tools).",
    )
    constitution: Path | None = _option(
        "FILE",
        "A text file with the principles of the work, for --protocol tagged (default: the thread's own, "
        "else a few short ones).",
    )
    rounds: bool | None = _option(
        None,
        "Plan, execute, think: after each batch of calls the model thinks before the next one (default: the "
        "thread's own, else not).",
        "--rounds/--no-rounds",
    )
    checks: Annotated[tuple[str, ...], BeforeValidator(_commands)] | None = _option(
        "COMMAND",
        "Run this command in the workspace before a “done” is accepted; a failure goes back to the model. "
        "May be repeated; none for no check (default: the thread's own, else no check).",
        "--check",
        kind=list[str],
    )
    system_prompt: str | None = _option("TEXT|@FILE", "The text before the rules of the loop.")

    @field_validator(
        "turns", "tokens", "seconds", "cost", "model_seconds", "model_tries", "talk_turns", mode="before"
    )
    @classmethod
    def _is_a_number(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError(f"is {str(value).lower()}; write a number.")
        return value

    @field_validator("tools")
    @classmethod
    def _are_groups(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            if name not in TOOL_GROUPS:
                raise ValueError(f"names {name!r}; use {', '.join(TOOL_GROUPS)}, or none.")
        return names

    @field_validator("approve")
    @classmethod
    def _can_be_approved(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if Kind.CONTROL in (names or ()):
            raise ValueError("cannot name control: those calls end, ask or think, and change nothing.")
        return names

    @field_validator("protocol")
    @classmethod
    def _is_a_protocol(cls, name: str | None) -> str | None:
        if name not in (None, *PROTOCOLS):
            raise ValueError(f"is {name!r}; use {' or '.join(PROTOCOLS)}.")
        return name


class Given(RunOptions):
    """The options of one command. config: the user's file, if it is to be read.

    Raises SetupError for an option with a wrong value.
    """

    config: Path | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _checked(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(values)
        except ValidationError as error:
            raise _refusal(error, flag) from error

    @property
    def options(self) -> dict[str, Any]:
        """Returns the options that were set. An empty name counts as not set."""
        found = self.model_dump(exclude={"config"}, exclude_none=True)
        return {name: value for name, value in found.items() if value != "" or name == "system_prompt"}


class Options(BaseSettings, RunOptions):
    """The options of all sources: for each option the value of the first source that has it."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", case_sensitive=True)

    database: str | None = _option(
        "FILE|URL",
        "Where threads are stored: a SQLite file, or postgresql://… (default: SIGNOFF_DATABASE, else a "
        "file in your data folder).",
        "-d",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *args: PydanticBaseSettingsSource,
        **kwargs: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        assert isinstance(init_settings, InitSettingsSource)
        places = init_settings.init_kwargs["places"]
        return tuple(InitSettingsSource(settings_cls, dict(place.values)) for place in places)


@dataclass(frozen=True)
class Source:
    """A source of options. called: returns how a person knows an option there."""

    values: Mapping[str, Any]
    called: Callable[[str], str]


def read_options(places: Sequence[Source]) -> Options:
    """Returns the options of these sources. Raises SetupError that names the source of a wrong value."""
    try:
        from_places: dict[str, Any] = {"places": places}
        return Options(**from_places)
    except ValidationError as error:
        raise _refusal(error, lambda name: place_of(name, places).called(name)) from error


def place_of(name: str, places: Sequence[Source]) -> Source:
    """Returns the source whose value of the option counts."""
    return next(place for place in places if name in place.values)


def flag(name: str) -> str:
    """Returns the option as it is typed on a command line."""
    names = option_extra(name)["names"] if name in Options.model_fields else ()
    full = [one for one in names if one.startswith("--")]
    return full[0].partition("/")[0] if full else f"--{name.replace('_', '-')}"


def variables(name: str) -> Sequence[str]:
    """Returns the environment variables for this option; the first that is set counts."""
    return _VARIABLES.get(name, (f"SIGNOFF_{name.upper()}",))


def environment(env: Mapping[str, str]) -> Source:
    """Returns the options in `env`. An empty variable counts as not set."""
    named = {name: next(filter(env.get, variables(name)), "") for name in Options.model_fields}
    return Source({name: env[variable] for name, variable in named.items() if variable}, named.__getitem__)


def option_extra(name: str) -> dict[str, Any]:
    """Returns how the command line writes an option, as passed to `_option`."""
    extra = Options.model_fields[name].json_schema_extra
    assert isinstance(extra, dict), "every option is made by `_option`"
    return extra


def _refusal(error: ValidationError, called: Callable[[str], str]) -> SetupError:
    """Returns the first error as a sentence."""
    found = error.errors()[0]
    name = str(found["loc"][0])
    if found["type"] == "extra_forbidden":
        return SetupError(f"{called(name)} is not a setting; use one of: {', '.join(Options.model_fields)}.")
    if found["type"] == "value_error":
        return SetupError(f"{called(name)} {found['ctx']['error']}")
    kinds = get_args(Given.model_fields.get(name, Options.model_fields["database"]).annotation)
    wanted = next((_WANTED[kind] for kind in kinds if kind in _WANTED), "a list of texts")
    return SetupError(f"{called(name)} is {cut(repr(found['input']), _MOST_SHOWN)}; write {wanted}.")


def config_file(named: str | None, env: Mapping[str, str]) -> Path | None:
    """Returns the path of the user's file.

    It is the one named by the option or SIGNOFF_CONFIG, else the one in the user's configuration folder, if
    it exists. Raises SetupError if a named file does not exist.
    """
    given = env.get(CONFIG_VARIABLE) or None if named is None else named
    if given == NO_CONFIG:
        return None
    if given == "":
        raise SetupError("--config is empty; name a file, or none.")
    if given is None:
        folder = users_folder(user_config_dir)
        return folder / "signoff.toml" if folder and os.path.exists(folder / "signoff.toml") else None
    path = Path(given).expanduser().absolute()
    if not os.path.exists(path):
        by = CONFIG_VARIABLE if named is None else "--config"
        raise SetupError(f"There is no file {path}, which {by} names.")
    return path


def user_file(path: Path | None) -> Source:
    """Returns the options in the user's file. Raises SetupError if it cannot be read, or if others may write
    it.
    """
    if path is None:
        return Source({}, str)

    def called(name: str) -> str:
        return f"{name} in {path}"

    try:
        table = tomllib.loads(_read(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise SetupError(
            f"{path} is not valid TOML ({error}); write one line for each setting, such as: turns = 20"
        ) from error
    return Source({name: _absolute(value, called(name), name) for name, value in table.items()}, called)


def _read(path: Path) -> bytes:
    try:
        with open_regular(path, follow=True) as file:
            _check_owner(path, os.fstat(file.fileno()))
            data = file.read(_MOST_BYTES + 1)
    except NotRegular as error:
        raise SetupError(f"{path} is not a file; name one with settings, or none.") from error
    except OSError as error:
        raise SetupError(f"The settings in {path} cannot be read ({error.strerror}).") from error
    if len(data) > _MOST_BYTES:
        raise SetupError(
            f"{path} has more than {_MOST_BYTES:,} bytes; name a file that contains only settings."
        )
    return data


def _check_owner(path: Path, found: os.stat_result) -> None:
    if os.name != "posix":
        return
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        how = shell_command(["chmod", "go-w", str(path)])
        raise SetupError(f"Other users may change the settings in {path}; forbid that with: {how}")
    if found.st_uid not in (0, os.getuid()):
        raise SetupError(f"The settings in {path} belong to another user; copy them to a file of your own.")


def _absolute(value: Any, called: str, name: str) -> Any:
    """Returns the value, with a path made absolute: a relative one would change with the current folder."""
    before = {"system_prompt": "@", "model": SCRIPTED}.get(name, "")
    is_path = name in ("workspace", "constitution") or (name == "database" and "://" not in str(value))
    if not isinstance(value, str) or not (is_path or (before and value.startswith(before))):
        return value
    path = os.path.expanduser(value.removeprefix(before))
    if not os.path.isabs(path):
        raise SetupError(f"{called} is {value!r}; write the full path, beginning with / or ~.")
    return before + path


class Settings(BaseModel):
    """The settings of a thread. They never hold a key: keys stay in the environment.

    workspace: the folder. model: as `choose_model` takes it. base_url: None for OpenAI's own address. turns,
    tokens, seconds, cost, talk_turns: limits of one task. tools: groups of tools. approve: tools and kinds
    whose calls a person must approve. model_seconds: how long the model may be silent. model_tries: how often
    it is called when its provider fails. constitution: the principles of an agent that works by text; None
    for those of `TaggedText`. checks: commands that a claim of "done" must pass, run in the workspace.
    approve_by: the source of a new value of `approve`; None when it is unchanged.
    """

    model_config = ConfigDict(frozen=True)

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
    cost: float | None = None
    protocol: str = "tools"
    """`tools`: the model calls them; `tagged`: it works by text, for models without tool calling."""
    rounds: bool = False
    model_seconds: float = MODEL_SECONDS
    model_tries: int = MODEL_TRIES
    constitution: str | None = None
    checks: tuple[str, ...] = ()
    approve_by: str | None = Field(default=None, exclude=True)

    @property
    def python_writes(self) -> bool:
        """Whether `run_python` may change the workspace: an agent that works by text acts by nothing else."""
        return "python-write" in self.tools or (self.protocol == "tagged" and "python" in self.tools)

    @property
    def limits(self) -> Limits:
        return Limits(
            turns=self.turns,
            talk_turns=self.talk_turns,
            tokens=self.tokens,
            seconds=self.seconds,
            cost=self.cost,
        )


def settle(given: Given, before: Settings | None, env: Mapping[str, str]) -> Settings:
    """Returns the settings of a run.

    Each is taken from the options, else the thread's last run, else the environment, else the user's file,
    else the default. A new model does not use the remembered address, which belongs to another model. A new
    protocol has its own default tools and turns. Raises SetupError for values that do not fit together.
    """
    same = before if before and (given.protocol or before.protocol) == before.protocol else None
    command_line, thread = (
        Source(given.options, flag),
        Source(_settings_to_remember(given, before, same), _of_the_thread),
    )
    places = (command_line, thread, environment(env), user_file(given.config))
    options = read_options(places)
    protocol = options.protocol or PROTOCOLS[0]
    limits = _limits(protocol)
    model, base_url = _model(given, before, options)
    workspace = _workspace(options.workspace or Path.cwd())
    _check_outside(given.config, workspace)
    prompt = options.system_prompt if given.system_prompt is not None or before is None else None
    approved = options.approve is not None and place_of("approve", places)
    return Settings(
        workspace=str(workspace),
        model=model,
        base_url=base_url,
        turns=options.turns or limits.turns,
        talk_turns=options.talk_turns or limits.talk_turns,
        system_prompt=_prompt(prompt) if prompt is not None else before.system_prompt if before else "",
        tools=_default_tools(model, protocol) if options.tools is None else options.tools,
        approve=options.approve or (),
        tokens=options.tokens,
        seconds=options.seconds,
        cost=options.cost,
        protocol=protocol,
        rounds=bool(options.rounds),
        model_seconds=options.model_seconds or MODEL_SECONDS,
        model_tries=options.model_tries or MODEL_TRIES,
        constitution=_constitution(given, same, options, protocol),
        checks=options.checks or (),
        approve_by=approved.called("approve") if approved and approved is not thread else None,
    )


def _limits(protocol: str) -> Limits:
    if protocol != "tagged":
        return Limits()
    from signoff.models import TAGGED_LIMITS

    return TAGGED_LIMITS


def _of_the_thread(name: str) -> str:
    return f"The thread's {name}"


def options_of(given: Given, before: Settings | None) -> Given:
    """Returns the options for a thread of a server: those of the server are for new threads; one that has
    begun keeps its own. Of the address, the part that could be a secret is not remembered.
    """
    if before is None:
        return given
    same = given.base_url is not None and _bare(given.base_url) == before.base_url
    return Given(config=given.config, base_url=given.base_url if same else None)


def _settings_to_remember(given: Given, before: Settings | None, same: Settings | None) -> dict[str, Any]:
    """Returns what a thread remembers of its last run, also that it had no limit. Texts from files are not
    here.
    """
    if before is None:
        return {}
    left = {"system_prompt", "constitution", "approve_by"}
    left |= {"model", "base_url"} if given.model else set()
    left |= set() if same else {"tools", "turns"}
    return before.model_dump(exclude=left)


def _model(given: Given, before: Settings | None, options: Options) -> tuple[str, str | None]:
    model = options.model or EMBEDDED
    if not given.model and before is not None:
        return model, options.base_url
    if model.startswith(SCRIPTED):
        model = SCRIPTED + str(Path(model.removeprefix(SCRIPTED)).absolute())
    elif model == EMBEDDED:
        if given.base_url:
            raise SetupError("--base-url needs the name of a model there: add --model.")
        return model, None
    return model, options.base_url


def _workspace(folder: Path) -> Path:
    real = folder.expanduser().absolute()
    if not real.is_dir():
        raise SetupError(
            f"The workspace {real} is not an existing folder; create it or name another one with --workspace."
        )
    return real


def _check_outside(config: Path | None, workspace: Path) -> None:
    if config is None:
        return
    # This excludes the file and every link to it.
    places = (config.resolve(), config.parent.resolve() / config.name)
    if any(place.is_relative_to(workspace.resolve()) for place in places):
        raise SetupError(
            f"The settings in {config} are in the workspace, where the model could change them; use another "
            "workspace, or --config with a file elsewhere, or --config none."
        )


def _prompt(given: str) -> str:
    return _text_of("system prompt", Path(given[1:])) if given.startswith("@") else valid_text(given)


def _text_of(what: str, file: Path) -> str:
    try:
        data = read_regular(file.expanduser(), _MOST_TEXT + 1, follow=True)
        if len(data) > _MOST_TEXT:
            raise SetupError(f"{file} has more than {_MOST_TEXT:,} bytes; name a shorter {what}.")
        return data.decode().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"The {what} cannot be read from {file} ({error}).") from error


def _constitution(given: Given, same: Settings | None, options: Options, protocol: str) -> str | None:
    if given.constitution is None and same:
        return same.constitution
    if protocol != "tagged":
        if given.constitution is None:
            return None
        raise SetupError("--constitution is for a model that works by text: add --protocol tagged.")
    file = options.constitution
    return None if file is None else valid_text(_text_of("constitution", file)).strip()


def _default_tools(model: str, protocol: str) -> tuple[str, ...]:
    # More tools would confuse a model as small as the embedded one.
    if protocol == "tagged":
        return ("python",) if model == EMBEDDED else ("python", "files")
    return ("files",) if model == EMBEDDED else ("files", "shell")


def remember(store: "BaseStore", thread_id: str, settings: Settings) -> None:
    """Stores the settings with the thread, without anything in the address that could be a secret."""
    kept = settings.model_copy(update={"base_url": settings.base_url and _bare(settings.base_url)})
    store.put(_place(thread_id), _KEY, kept.model_dump())


def recall(store: "BaseStore", thread_id: str) -> Settings | None:
    """Returns the settings of the thread's last run; None when another program created the thread.

    Raises StorageError when they cannot be read.
    """
    # Reading the options of a command does not need LangGraph.
    from signoff.session.status import readable

    with readable(thread_id):
        item = store.get(_place(thread_id), _KEY)
        return None if item is None else Settings.model_validate(item.value)


def _bare(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _place(thread_id: str) -> tuple[str, ...]:
    return ("signoff", "threads", label(thread_id))
