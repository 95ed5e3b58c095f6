"""Imports run one way, and never in a circle."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib import import_module

import pytest

from docs.hooks.reference import PUBLIC
from tests.support.sources import sources

# From the bottom up, each with its modules. A module belongs to the layer with the longest name that fits,
# and imports only from its own layer or one below.
LAYERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "the machine and its types",
        (
            "signoff.graph.arguments",
            "signoff.graph.clock",
            "signoff.graph.errors",
            "signoff.graph.foreign",
            "signoff.graph.foreign_files",
            "signoff.graph.values",
            "signoff.graph.inside.installing",
            "signoff.graph.inside.private",
            "signoff.graph.inside.speed",
            "signoff.graph.kinds",
            "signoff.graph.limits",
            "signoff.graph.machine",
            "signoff.graph.messages",
            "signoff.graph.schemas",
            "signoff.graph.state",
            "signoff.graph.texts",
            "signoff.public",
        ),
    ),
    ("reading the history", ("signoff.graph.history",)),
    ("deciding, and what the model is shown", ("signoff.graph",)),
    ("tools", ("signoff.tools",)),
    ("nodes", ("signoff.nodes",)),
    (
        "build",
        (
            "signoff.graph.build",
            "signoff.graph.compiled",
            "signoff.graph.inside.nodes",
            "signoff.graph.policy",
        ),
    ),
    (
        "storage, session, models and guards",
        ("signoff", "signoff.storage", "signoff.session", "signoff.models", "signoff.guards"),
    ),
    (
        "workers, statistics, model checking",
        ("signoff.workers", "signoff.stats", "signoff.records", "signoff.verify"),
    ),
    ("what the fronts share", ("signoff.front",)),
    (
        "fronts",
        (
            "signoff.cli",
            "signoff.page",
            "signoff.acp",
            "signoff.mcp",
            "signoff.web",
            "signoff.server",
            "signoff.graph.studio",
            "signoff.studio",
            # Programs of their own: they open what the command line shows.
            "signoff.models.local.__main__",
            "signoff.tools.sandbox.__main__",
        ),
    ),
)
# They share what is in `signoff.front`, and do not import each other.
NEIGHBOURS = (
    "signoff.cli",
    "signoff.page",
    "signoff.acp",
    "signoff.mcp",
    "signoff.web",
    "signoff.server",
    "signoff.graph.studio",
)
# The one way from a neighbour to another, at the moment when a command is to write a page.
LATE = {("signoff.cli.threads", "signoff.page")}
# The one way upwards, when a graph is built: it is given a storage, or opens the one at an address.
OPENS = {
    "signoff.graph.build": {"signoff.storage.threads"},
    "signoff.graph.compiled.settings": {"signoff.storage.postgres", "signoff.storage.sqlite"},
}


def imported(source: str, modules: Mapping[str, object]) -> Iterator[str]:
    """The modules of ours that the source text imports, wherever the statement stands."""
    tree = ast.parse(source)
    # What a module runs as a program of its own is no import of the module.
    tree.body = [node for node in tree.body if not ast.unparse(node).startswith("if __name__ == '__main__'")]
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else str(node.module) for name in submodules]
        yield from (name for name in names if name.split(".")[0] == "signoff")


def layer(module: str) -> int:
    fits = [
        (len(prefix), height)
        for height, (_, prefixes) in enumerate(LAYERS)
        for prefix in prefixes
        if f"{module}.".startswith(f"{prefix}.")
    ]
    return max(fits)[1]


SOURCES = sources()
IMPORTS = {
    name: set(imported(path.read_text("utf-8"), SOURCES)) - OPENS.get(name, set())
    for name, path in SOURCES.items()
}


@pytest.mark.parametrize("module", sorted(SOURCES))
def test_a_module_imports_only_what_exists_at_its_height_or_below(module: str) -> None:
    assert IMPORTS[module] <= set(SOURCES)
    assert [name for name in sorted(IMPORTS[module]) if layer(name) > layer(module)] == []


def neighbour(module: str) -> str | None:
    return next((name for name in NEIGHBOURS if f"{module}.".startswith(f"{name}.")), None)


def test_the_command_line_the_application_and_the_page_do_not_know_each_other() -> None:
    across = {
        (module, neighbour(name))
        for module, names in IMPORTS.items()
        for name in names
        if neighbour(module) and neighbour(name) not in (None, neighbour(module))
    }
    assert across == LATE
    for module, _ in LATE:
        body = ast.parse(SOURCES[module].read_text("utf-8")).body
        at_once = "\n".join(ast.unparse(one) for one in body if isinstance(one, ast.Import | ast.ImportFrom))
        assert not {neighbour(name) for name in imported(at_once, SOURCES)} - {None, neighbour(module)}


def test_no_circle() -> None:
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as circle:
        pytest.fail(" imports ".join(reversed(circle.args[1])))


PARENTS = {name.rpartition(".")[0] for name in SOURCES}
PACKAGES = sorted(name for name, path in SOURCES.items() if path.stem == "__init__" and name != "signoff")


LAZY = ("signoff", "signoff.tools", "signoff.models", "signoff.session", "signoff.storage", "signoff.verify")


@pytest.mark.parametrize("package", LAZY)
def test_what_a_package_offers_is_imported_when_it_is_used(package: str) -> None:
    body = ast.parse(SOURCES[package].read_text("utf-8")).body
    (block,) = (node for node in body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    (offered,) = (node.value for node in body if ast.unparse(node).startswith("__getattr__"))  # type: ignore[attr-defined]
    names = {name: module for module, each in ast.literal_eval(offered.args[1]).items() for name in each}
    assert {alias.name: node.module for node in imports for alias in node.names} == names
    loaded = import_module(package)
    assert set(names) == set(loaded.__all__)
    assert [name for name in names if not hasattr(loaded, name)] == []
    assert not hasattr(loaded, "no_such_name")


@pytest.mark.parametrize("module", PACKAGES)
def test_a_package_file_only_re_exports(module: str) -> None:
    def allowed(statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Expr):
            return isinstance(statement.value, ast.Constant)
        if isinstance(statement, ast.Assign):
            return ast.unparse(statement.targets[0]) in ("__all__", "__version__", "__getattr__")
        if isinstance(statement, ast.If):
            return ast.unparse(statement.test) == "TYPE_CHECKING" and all(map(allowed, statement.body))
        return isinstance(statement, ast.Import | ast.ImportFrom)

    statements = ast.parse(SOURCES[module].read_text("utf-8")).body
    assert [ast.unparse(statement) for statement in statements if not allowed(statement)] == []


def test_every_layer_holds_something_and_they_lie_in_this_order() -> None:
    assert {layer(name) for name in SOURCES} == set(range(len(LAYERS)))
    one_each = [
        "signoff.graph.machine",
        "signoff.graph.history.task",
        "signoff.graph.rules",
        "signoff.tools.files",
        "signoff.nodes.decide",
        "signoff.graph.build",
        "signoff.session.session",
        "signoff.stats.records",
        "signoff.front.cards",
        "signoff.graph.studio",
    ]
    assert [layer(name) for name in one_each] == list(range(len(LAYERS)))


def test_every_module_is_in_exactly_one_layer() -> None:
    listed = [prefix for _, prefixes in LAYERS for prefix in prefixes]
    assert len(set(listed)) == len(listed)
    assert [prefix for prefix in listed if prefix not in SOURCES and prefix not in PARENTS] == []
    # Not only because everything lies in `signoff`: that is the name of the modules of its own folder.
    own = {name for name in SOURCES if name.count(".") <= 1}
    covered = [prefix for prefix in listed if prefix != "signoff"]
    left = {name for name in SOURCES if not any(f"{name}.".startswith(f"{prefix}.") for prefix in covered)}
    assert left <= own


# Nothing but public names is imported by what stands upon them.
FACES = (
    "signoff.workers",
    "signoff.stats",
    "signoff.otel",
    "signoff.front",
    "signoff.cli",
    "signoff.page",
    "signoff.acp",
    "signoff.mcp",
    "signoff.web",
    "signoff.server",
    "signoff.graph.studio",
)
# What they import beyond that, by what will remove it. This list only shrinks.
BEYOND: Mapping[str, frozenset[str]] = {
    "Session.status and storage.threads": frozenset(
        {
            "signoff.session.status.config_of",
            "signoff.session.status.deps_of",
            "signoff.session.status.is_guarded",
            "signoff.session.status.look",
            "signoff.session.status.read_status",
            "signoff.session.status.readable",
            "signoff.session.status.reading_graph",
        }
    ),
    "commands and decisions by Session alone": frozenset(
        {
            "signoff.graph.compiled.going_on.GoOn",
            "signoff.graph.compiled.going_on.Undo",
            "signoff.graph.compiled.going_on.instruction_of",
            "signoff.graph.compiled.graph.JournalledGraph",
            "signoff.graph.compiled.graph.busy",
            "signoff.graph.compiled.graph.in_thread",
            "signoff.graph.compiled.graph.runner",
            "signoff.graph.compiled.inputs.is_repeated",
            "signoff.session.as_test.as_test",
            "signoff.session.commands.meant",
            "signoff.session.drive.was_handed_out",
            "signoff.session.expiring.expire_all",
            "signoff.session.replay.Replay",
            "signoff.session.replay.replay",
            "signoff.session.tracing.tracing",
        }
    ),
    "one module of safe text, and the records of a thread": frozenset(
        {
            "signoff.graph.foreign.FIGURES",
            "signoff.graph.foreign.OUTCOMES",
            "signoff.graph.foreign.RATINGS",
            "signoff.graph.foreign.checked_thread_id",
            "signoff.graph.foreign.join_errors",
            "signoff.graph.foreign.place",
            "signoff.graph.foreign.users_folder",
            "signoff.graph.foreign.words",
        }
    ),
    "storage.swap": frozenset(
        {
            "signoff.nodes.requests.Swap",
        }
    ),
    "the choice of a model, made public": frozenset(
        {
            "signoff.models.choose.Chosen",
            "signoff.models.choose.check_model",
            "signoff.models.choose.choose_model",
            "signoff.models.local.install.ModelInfo",
            "signoff.models.local.install.install",
            "signoff.models.local.install.is_installed",
            "signoff.models.local.install.model_info",
            "signoff.models.local.local_model",
            "signoff.models.local.weights.Progress",
            "signoff.models.local.weights.STAGE_WORDS",
            "signoff.models.local.weights.Stage",
            "signoff.models.local.weights.ensure_weights",
        }
    ),
    "the drawing's parts in signoff.machine": frozenset(
        {
            "signoff.graph.drawing.diagram.Line",
            "signoff.graph.drawing.diagram.lines",
            "signoff.graph.drawing.diagram.mermaid",
            "signoff.graph.drawing.diagram.round_path",
            "signoff.graph.drawing.diagram.svg",
            "signoff.graph.drawing.layout.BOXES",
            "signoff.graph.drawing.layout.Box",
            "signoff.graph.drawing.layout.DOORS",
            "signoff.graph.drawing.layout.END_AT",
            "signoff.graph.drawing.layout.HEIGHT",
            "signoff.graph.drawing.layout.MAIN_PATH",
            "signoff.graph.drawing.layout.PAUSES",
            "signoff.graph.drawing.layout.Point",
            "signoff.graph.drawing.layout.ROUTES",
            "signoff.graph.drawing.layout.Route",
            "signoff.graph.drawing.layout.START_AT",
            "signoff.graph.drawing.layout.WIDTH",
        }
    ),
    "the errors of a face by the nine names": frozenset(
        {
            "signoff.graph.errors.ApprovalWarning",
            "signoff.graph.errors.IllegalEvent",
            "signoff.graph.errors.Unreadable",
            "signoff.graph.errors.unknown_thread",
        }
    ),
    "the events of a session, written anew": frozenset(
        {
            "signoff.nodes.journal.recorded",
            "signoff.nodes.model.providers.EMBEDDED",
            "signoff.nodes.model.providers.READING",
            "signoff.nodes.model.providers.SCRIPTED",
            "signoff.nodes.model.trying.RETRYING",
        }
    ),
    "the read model of one thread": frozenset(
        {
            "signoff.graph.history.task.phases_of",
            "signoff.session.below.ChildThread",
            "signoff.session.below.children",
            "signoff.session.history.Chapter",
            "signoff.session.history.chapters",
            "signoff.session.history.read_conversation",
            "signoff.session.path.steps",
        }
    ),
    "the records of a thread": frozenset({"signoff.graph.finish.recorded.Figures"}),
    "the sentences of the states in signoff.machine": frozenset(
        {
            "signoff.graph.machine.FIRST",
            "signoff.graph.machine.LAST",
            "signoff.graph.machine.WHAT_IT_DOES",
        }
    ),
    "the settings, written anew": frozenset(
        {
            "signoff.graph.arguments.describe",
            "signoff.graph.blocks.as_json",
            "signoff.graph.foreign_files.NotRegular",
            "signoff.graph.foreign_files.open_regular",
            "signoff.graph.foreign_files.read_regular",
            "signoff.graph.inside.installing.install_hint",
            "signoff.graph.kinds.SENT_BACK",
            "signoff.graph.limits.MODEL_SECONDS",
            "signoff.graph.limits.MODEL_TRIES",
            "signoff.graph.messages.marks",
            "signoff.graph.state.Output",
            "signoff.graph.texts.FINISH_NAME",
        }
    ),
    "the storage, written anew": frozenset(
        {
            "signoff.storage.base.FORK_MARK",
            "signoff.storage.base.SaverInThreads",
            "signoff.storage.base.fork_mark",
            "signoff.storage.base.short_version",
            "signoff.storage.base.version_mark",
            "signoff.storage.base.version_number",
            "signoff.storage.deleting.lock_of",
            "signoff.storage.entries.entry_reader",
            "signoff.storage.postgres_address.Address",
            "signoff.storage.postgres_address.aconfigure",
            "signoff.storage.postgres_pool.SharedDatabase",
            "signoff.storage.postgres_tables.alone",
            "signoff.storage.postgres_tables.swap_in",
        }
    ),
    "the tools of the command line, written anew": frozenset(
        {
            "signoff.tools.approvals.DECISIONS",
            "signoff.tools.approvals.Rule",
            "signoff.tools.processes.held.OpenResources",
            "signoff.tools.processes.helpers.isolated",
            "signoff.tools.processes.helpers.program_text",
            "signoff.tools.pty.bash.ShellEnded",
            "signoff.tools.pty.processes",
            "signoff.tools.pty.shell.OnOutput",
            "signoff.tools.sandbox.tool.SandboxKind",
            "signoff.tools.terminal.RunShell",
            "signoff.tools.terminal.observed",
        }
    ),
}


def is_face(module: str) -> bool:
    return any(f"{module}.".startswith(f"{face}.") for face in FACES)


def beyond_the_door(source: str) -> Iterator[str]:
    """The names of ours that the source text imports, and that are neither public nor of a face."""
    offered = {f"{module}.{name}" for module in PUBLIC for name in import_module(module).__all__}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "signoff":
            names = [f"{node.module}.{alias.name}" for alias in node.names if not is_face(str(node.module))]
            yield from (name for name in names if name not in offered and not is_face(name))


def test_what_stands_upon_the_door_imports_public_names_alone_but_for_a_list_that_shrinks() -> None:
    found = {
        name
        for module, path in SOURCES.items()
        if is_face(module)
        for name in beyond_the_door(path.read_text("utf-8"))
    }
    assert found == frozenset[str]().union(*BEYOND.values())


def test_an_import_from_the_inside_is_found() -> None:
    lines = (
        "from signoff import Session",
        "from signoff.graph.rules import decide",
        "from signoff.cli import app",
    )
    assert [*beyond_the_door("\n".join(lines))] == ["signoff.graph.rules.decide"]
