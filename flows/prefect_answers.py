"""A Prefect server that does not do what it is asked, as our errors."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from flows.errors import OperatorError, TryAgainError
from flows.steps import Sentence, Step


class NoServerError(OperatorError):
    """No Prefect server is named: Prefect would start one that ends with the process."""

    message = "PREFECT_API_URL names no Prefect server. Nothing was done."
    next_step = (
        "Set it (http://127.0.0.1:4200/api for `prefect server start` here), "
        "then run {same_command} again."
    )


class ServerFailsError(TryAgainError):
    """The Prefect server did not answer, or with an error of its own."""

    message = "The Prefect server does not do what it is asked: {reason}."
    next_step = Sentence(
        "Once it answers, arrivals go on by themselves, and {install} can be run again: nothing is "
        "doubled.",
        install=Step("install"),
    )


class ServerRefusesError(OperatorError):
    """The Prefect server does not accept who asks."""

    message = "The Prefect server refuses what it is asked: {reason}."
    next_step = "Correct PREFECT_API_URL or PREFECT_API_AUTH_STRING, then run {same_command} again."


def require_server() -> None:
    """Refuse to work where no server is named, by the environment or a profile of Prefect's."""
    from prefect.settings import PREFECT_API_URL

    if not PREFECT_API_URL.value():
        raise NoServerError


@contextmanager
def answering() -> Iterator[None]:
    """Raise ServerFailsError or ServerRefusesError instead of the errors of Prefect's client."""
    try:
        yield
        return
    except (httpx.HTTPError, ValueError) as error:  # a status, no answer, no answer of Prefect's
        reason = _reason_of(error)
        kind = ServerRefusesError if _is_refusal(error) else ServerFailsError
    raise kind(reason=reason)


def _reason_of(error: Exception) -> str:
    """Return in a few words what a server did in place of answering, without its text."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"it answers {error.response.status_code}"
    if isinstance(error, httpx.HTTPError):
        return f"it cannot be reached ({type(error).__name__})"
    return "what answers there is no Prefect server"


def _is_refusal(error: Exception) -> bool:
    """Return whether a server understood, and refuses who asks."""
    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code in (401, 403)
