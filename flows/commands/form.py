"""How the Prefect form of a command differs from the command; `flows.forms` makes it."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple


class Choice(NamedTuple):
    """A field of a form that stands for parameters of the command: what each label sets.

    The first label is preselected.
    """

    name: str
    help: str
    sets: Mapping[str, Mapping[str, object]]


class Form(NamedTuple):
    """The Prefect form of an entry.

    Where several entries share it, `picks` is the field that selects the command.
    """

    name: str
    run_name: str  # of a flow run, with the form's fields; before it stands whether it is a dry run
    hours: float | None = None
    needs: Sequence[str] = ()  # parameters the form requires, though the command does not
    without: Sequence[str] = ()  # parameters the form leaves out: it has at most eight fields
    choices: Sequence[Choice] = ()
    picks: str = ""
    retries: Sequence[int] = ()  # seconds to wait before each retry after a TryAgainError
    says_result: bool = False  # its last state says first how many cardholders have a link
    # optional on a schedule; none changes nothing
    actor: Literal["required", "optional", "none"] = "required"
