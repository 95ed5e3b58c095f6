"""Properties that are worked out once, when they are first asked for."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

_T = TypeVar("_T")


class lazy(Generic[_T]):
    """`functools.cached_property` without the lock that it takes before Python 3.12, which costs more than
    most of these properties do. Two threads may work out the same value twice."""

    def __init__(self, work: Callable[[Any], _T]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | _T:
        if instance is None:
            return self
        value = self._work(instance)
        # From now on the instance's own attribute is found first. Not by `vars`, which makes a dict of each
        # instance, nor by the instance's own class, which may be frozen.
        object.__setattr__(instance, self._name, value)
        return value
