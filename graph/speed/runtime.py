"""The runtime of a run, copied with less ado.

LangGraph copies it three times for each super-step, the execution info in it twice, by `dataclasses.replace`,
which reads the fields of the class and checks the names anew each time: a twentieth of what a turn costs.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.runtime import ExecutionInfo, Runtime
from langgraph.store.base import BaseStore

from signoff.graph.private import RUNTIME

_T = TypeVar("_T")
_OF_RUNTIME = tuple(field.name for field in fields(Runtime))
_OF_INFO = tuple(field.name for field in fields(ExecutionInfo))


class LightRuntime(Runtime[Any]):
    """LangGraph's runtime; only how it is copied differs."""

    __slots__ = ()

    def merge(self, other: Runtime[Any]) -> Runtime[Any]:
        merged = super().merge(other)
        return LightRuntime(**{name: getattr(merged, name) for name in _OF_RUNTIME})

    def override(self, **overrides: Any) -> Runtime[Any]:
        return _copied(self, _OF_RUNTIME, overrides)

    def patch_execution_info(self, **overrides: Any) -> Runtime[Any]:
        if self.execution_info is None:
            return super().patch_execution_info(**overrides)
        if all(getattr(self.execution_info, name) == value for name, value in overrides.items()):
            # It never changes, so that it need not be copied either: nearly every node runs at its first try.
            return self
        info = _copied(self.execution_info, _OF_INFO, overrides)
        return _copied(self, _OF_RUNTIME, {"execution_info": info})


def with_light_runtime(config: RunnableConfig | None, store: BaseStore | None) -> RunnableConfig:
    """`config` of a run with a runtime of this kind to begin with, unless it has, or inherits, one."""
    given = config or RunnableConfig()
    configurable, around = given.get("configurable", {}), var_child_runnable_config.get()
    inherited = around.get("configurable", {}) if around else {}
    if RUNTIME is None or RUNTIME in configurable or RUNTIME in inherited:
        return given
    return {**given, "configurable": {**configurable, RUNTIME: LightRuntime(store=store)}}


def _copied(value: _T, names: tuple[str, ...], changes: Mapping[str, Any]) -> _T:
    made: _T = object.__new__(type(value))
    for name in names:
        object.__setattr__(made, name, changes[name] if name in changes else getattr(value, name))
    return made
