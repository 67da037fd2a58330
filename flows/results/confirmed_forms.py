"""The forms that an issuer's links have, as persons confirmed them.

What a form means for a link is decided in `links`; forms are learned in `learned_forms`.
"""

from flows.results.links import LinkRules
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.decisions import FORM, decisions
from schemas.link_form import LinkForm
from schemas.records import FormDecision


def confirmed_forms(adapters: Adapters, issuer: str) -> dict[LinkForm, FormDecision]:
    """Return the forms that are confirmed and not taken back, with the record of each."""
    standing = decisions(adapters, issuer, FORM, FormDecision, standing=True)
    forms = [(LinkForm.parse(decision.form), decision) for decision in standing]
    return {form: decision for form, decision in forms if form is not None}


def link_rules(context: IssuerContext) -> LinkRules:
    """Return what the links of an issuer are judged by now."""
    forms = confirmed_forms(context.adapters, context.issuer.issuer)
    return LinkRules(context.issuer.portal.allowed_hosts, tuple(forms))
