"""Confirm the form of the partner's links, or take that back.

Each decision stands with who, when and why. The next ingest judges by it, also result files that
wait.
"""

from collections.abc import Sequence

import polars as pl

from flows.errors import OperatorError
from flows.redaction import redact
from flows.reports.link_forms import count_links, departing_links, received_links
from flows.results.confirmed_forms import confirmed_forms
from flows.runs.context import IssuerContext
from flows.runs.decisions import FORM, decide, lift
from flows.runs.errors import NotFoundError
from flows.runs.journal import Act, enter
from flows.runs.stored_runs import StoredRuns
from flows.steps import ISSUER, Sentence, Step
from schemas.link_form import ALPHABETS, Constant, LinkForm
from schemas.records import FormDecision


class LinkFormError(OperatorError):
    """A text is no form of links; it is not repeated, since it may be a cardholder's link."""

    message = "This is no form of links: {problem}."
    next_step = Sentence(
        "{check} shows the forms that links have. What differs from link to link is in braces: "
        "{examples}. The alphabets are {alphabets}.",
        check=Step("check", ISSUER),
        examples="{hex:24}, {base62:10-12} or {en|fr}",
        alphabets=", ".join(ALPHABETS),
    )


def decide_form(
    context: IssuerContext, text: str, reason: str, *, undo: bool = False
) -> FormDecision:
    """Confirm a form of links, or take that back; return the record.

    Raises LinkFormError, NotFoundError, NoReasonError.
    """
    adapters = context.adapters
    issuer = context.issuer.issuer
    signed = adapters.signed(reason)
    form = _checked(text, context.issuer.portal.allowed_hosts)
    departing = pl.Series("url", departing_links(context), pl.String)
    links = pl.concat([received_links(StoredRuns(adapters, issuer)), departing])
    record = FormDecision(
        **signed,
        what="taken back" if undo else "confirmed",
        form=str(form),
        links=count_links(links, form),
    )

    def work(act: Act) -> FormDecision:
        standing = confirmed_forms(adapters.within(act.connection), issuer).get(form)
        if standing is None:
            if undo:
                raise NotFoundError(
                    place=issuer,
                    what="confirmed form that is the same",
                    command=Step("check", issuer),
                )
            decide(act, FORM, "", record, stands=record.form)
        elif undo:
            lift(act, FORM, "", record.form)
            decide(act, FORM, "", record)
        else:
            return standing
        return record

    return enter(adapters, issuer, f"link form {record.what}", work, reason=record.reason)


def _checked(text: str, hosts: Sequence[str]) -> LinkForm:
    """Return the form that a text shows; LinkFormError where it shows none."""
    form = LinkForm.parse(text)
    if form is None or redact(text) != text:
        raise LinkFormError(problem="it cannot be read as one")
    if form.host not in hosts:
        raise LinkFormError(problem="its host is not one of allowed_hosts")
    if all(isinstance(part, Constant) for part in form.parts):
        raise LinkFormError(problem="nothing in it differs from link to link")
    return form
