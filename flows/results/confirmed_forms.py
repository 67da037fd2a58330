"""The forms that an issuer's links have, as persons confirmed them: a chain of records.

What a form means for a link is decided in `links`; forms are learned in `learned_forms`.
"""

from flows.results.links import LinkRules
from flows.runs.chains import records
from flows.runs.context import IssuerContext
from flows.runs.keys import link_forms
from flows.runs.store import ConflictError, Store
from schemas.link_form import LinkForm
from schemas.records import FormDecision


def confirmed_forms(store: Store, issuer: str) -> dict[LinkForm, FormDecision]:
    """Return the forms that are confirmed and not taken back, with the record of each.

    Raises ConflictError.
    """
    prefix = link_forms(issuer)
    confirmed = dict[LinkForm, FormDecision]()
    for decision in records(store, prefix, FormDecision):
        form = LinkForm.parse(decision.form)
        if form is None:
            raise ConflictError(key=prefix)
        confirmed.pop(form, None)
        if decision.what == "confirmed":
            confirmed[form] = decision
    return confirmed


def link_rules(context: IssuerContext) -> LinkRules:
    """Return what the links of an issuer are judged by now."""
    forms = confirmed_forms(context.adapters.store, context.issuer.issuer)
    return LinkRules(context.issuer.portal.allowed_hosts, tuple(forms))
