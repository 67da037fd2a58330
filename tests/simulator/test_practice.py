"""What `practice` says of settings that the practice service does not speak by."""

from __future__ import annotations

from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.simulator.practice import asked_challenges, unspoken_tables
from tests.extensions.partner_api.liberal_partner import settings
from tests.night import issuer

ADDRESS = "https://service.example.com"


def test_the_tables_of_a_profile_that_is_not_practised_are_named() -> None:
    own = ServiceSettings.model_validate(settings(ADDRESS))
    usual = ServiceSettings(base_url=ADDRESS, prefix="card", names={"path.login": ("/in",)})

    assert [] == unspoken_tables(usual.model_dump(exclude_defaults=True))
    unspoken = unspoken_tables(own.model_dump(exclude_defaults=True))
    assert ["service.auth", "service.signing"] == unspoken[:2]
    assert {"service.names.path.link", "service.names.link.id"} <= set(unspoken)
    assert {"service.names.path.login", "service.names.request.fi_key"}.isdisjoint(unspoken)


def test_a_link_asks_what_the_institution_has_configured_and_else_what_is_usual() -> None:
    configured = issuer(rules={"challenges": ["PAN Last 4", "Expiration Date"]})

    assert ("PAN Last 4", "Expiration Date") == asked_challenges(configured)
    assert ("CVV", "ZIP Code") == asked_challenges(issuer()) == asked_challenges(None)
