"""What `practice` says of settings that the practice service does not speak by."""

from __future__ import annotations

from flows.simulator.practice import unspoken_tables
from schemas.partner_api.service import ServiceSettings
from tests.partner_api.liberal_partner import settings

ADDRESS = "https://service.example.com"


def test_the_tables_of_a_profile_that_is_not_practised_are_named() -> None:
    own = ServiceSettings.model_validate(settings(ADDRESS))
    usual = ServiceSettings(base_url=ADDRESS, prefix="card", login_path="/in")

    assert [] == unspoken_tables(usual)
    assert ["auth", "job", "link", "message", "paginator", "paths", "signing"] == [
        table.removeprefix("[service.").removesuffix("]") for table in unspoken_tables(own)
    ]
