"""What a Prefect server that does not do what it is asked is said to have done."""

import httpx

FAILURES = (httpx.HTTPError, ValueError)  # of a client: a status, no answer, no answer of Prefect's


def reason_of(error: Exception) -> str:
    """Return in a few words what a server did in place of answering, without its text."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"it answers {error.response.status_code}"
    if isinstance(error, httpx.HTTPError):
        return f"it cannot be reached ({type(error).__name__})"
    return "what answers there is no Prefect server"


def is_refusal(error: Exception) -> bool:
    """Return whether a server understood, and refuses who asks."""
    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code in (401, 403)
