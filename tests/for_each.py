"""One test over many things that are alike: it names all that fail, where a case for each would fill the screen."""

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def for_each(things: Mapping[str, T]) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """Make a test of a check that takes one thing; `things` by the names that a failure tells."""

    def decorate(check: Callable[[T], None]) -> Callable[[], None]:
        def test() -> None:
            assert things
            failed = {}
            for name, thing in things.items():
                try:
                    check(thing)
                except AssertionError as error:
                    failed[name] = str(error)
            assert not failed, "\n".join(f"{name}: {why}" for name, why in failed.items())

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate
