"""Where a command runs: the folder of the issuers' TOML files, a person at a terminal, who acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from flows.commands import on_first_use
from flows.configuration import issuers, require_folder
from flows.errors import BugError, CardlinkError, kind_and_place
from flows.steps import Text
from flows.wiring import wire

with on_first_use():
    from flows.runs import context as contexts
    from flows.runs import keys

if TYPE_CHECKING:
    from flows.submissions.build import OnProgress

    # the display of the progress over something named
    ProgressDisplay = Callable[[str], AbstractContextManager[OnProgress]]

T = TypeVar("T")


def _no_answer(*_: object, **__: object) -> str:
    raise KeyboardInterrupt


def _no_display(_name: str) -> AbstractContextManager[OnProgress]:
    return nullcontext(lambda _: None)


class Terminal(NamedTuple):
    """A person at a terminal; by default nobody: nothing is shown, and every prompt is left."""

    attended: bool = False  # a person can be prompted
    show: Callable[[Text], None] = lambda _: None  # a result before the command ends
    say: Callable[[Text], None] = lambda _: None  # a line that is no result
    # the label; `secret`, `default`, `show_default`: what is typed
    ask: Callable[..., str] = _no_answer


class Context(NamedTuple):
    """Where a command runs; by default nothing is shown, and every prompt is left.

    `folder` has the issuers' TOML files; `local_files` says whether the command may read files of
    this machine. `actor` is the person who acts, `options` what the options are set to that
    extensions add.
    """

    folder: Path
    progress: ProgressDisplay = _no_display
    terminal: Terminal = Terminal()
    local_files: bool = False
    actor: str = ""
    options: Mapping[str, str] = {}  # nobody writes to it

    def context_of(self, run: str, *, dry_run: bool = False) -> contexts.IssuerContext:
        """Return the context of a run's issuer, as `wire` does.

        UnknownRunError where the text is no run id.
        """
        return wire(self.folder, keys.keys_of(run).run.issuer, dry_run=dry_run)

    def context_of_target(self, target: str, *, dry_run: bool = False) -> contexts.IssuerContext:
        """Return the context of an issuer, or of a run's; UnknownRunError where it is neither."""
        issuer = self.issuer_of(target)
        if issuer:
            return wire(self.folder, issuer, dry_run=dry_run)
        return self.context_of(target, dry_run=dry_run)

    def issuer_of(self, target: str) -> str:
        """Return the issuer that a target is, "" where it is a run.

        UnknownRunError where it is neither.
        """
        if keys.RunId.parse(target) is None and target in issuers(self.folder):
            return target
        keys.keys_of(target)
        return ""

    def each(
        self, issuer: str, act: Callable[[str], list[T]]
    ) -> tuple[list[T], dict[str, CardlinkError]]:
        """Return what `act` returns for an issuer, for several with commas between, or for all.

        Of several, those that could not be read are returned with their errors.
        """
        names = issuer.split(",") if issuer else []
        if len(names) == 1:
            return act(issuer), {}
        require_folder(self.folder)
        results = list[T]()
        unread = dict[str, CardlinkError]()
        for name in names or issuers(self.folder):
            try:
                results += act(name)
            except CardlinkError as error:
                unread[name] = error
            # a document that nobody foresaw, of this issuer alone
            except Exception as error:  # noqa: BLE001
                unread[name] = BugError(place=name, kind=kind_and_place(error))
        return results, unread
