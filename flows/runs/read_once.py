"""A property that is read from the store once: what a stored run is made of."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class read_once(Generic[T]):
    """A property that is computed when it is first asked for, and kept.

    Unlike functools.cached_property before Python 3.12 it has no lock that all runs share: many are
    read side by side. Threads that ask for the same one at the same moment may each read it.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object | None, kind: type) -> Self | T:
        """Return the value; kept in the instance, it is found there from now on."""
        if owner is None:
            return self
        value = self._compute(owner)
        owner.__dict__[self._name] = value
        return value
