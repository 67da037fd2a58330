"""The partner on loopback, and the settings with which cardlink follows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import uvicorn

from tests.other_partner.service import Partner
from tests.other_partner.sessions import Credentials, Sessions
from tests.other_partner.wire import ROOT
from tests.other_partner.world import Clock, World

CREDENTIALS = Credentials("north-bank", "app-key-1", "operator", "pass-word-1")
ENVIRONMENT = {
    f"CARDLINK_SERVICE_{name.upper()}": value for name, value in CREDENTIALS._asdict().items()
}
# all that differs from the interface's own: 51 settings
SETTINGS = r"""
[service]
base_url = "ADDRESS"
login_path = "/session/open"
session_field = "data.session.token"
link_path = "/cardLinks"
fi_key = "fi-north"
fi_key_property = "fiKey"
safe_key_property = "safeKey"
access_key_fields = ["data.channelKey"]
job_hydration = "include=credential_requests"
follow_cardholders = true
link_id_from = "parameter"
link_id_parameter = "k"

[service.auth]
type = "api_key"
name = "X-Placement-Token"
login_fields = { app_name = "client.name", app_key = "client.key", username = "user.login", password = "user.password" }

[service.signing]
type = "hmac"
key_field = "data.session.signingKey"
key_encoding = "base64"
canonical = "{method}\n{target}\n{timestamp}\n{body_sha256}"
signature_header = "X-Placement-Signature"
signature_format = "v1={signature}"
signature_encoding = "base64"
timestamp_header = "X-Placement-Time"
timestamp_format = "milliseconds"

[service.link]
data_selector = ["data.cardLink"]
id = ["linkId"]
url = ["address"]
expires = ["times.validUntilMs"]
opened = ["times.openedMs"]
card_id = ["card.cardId"]
cardholder_id = ["card.cardholder.holderId"]
cuid = ["card.cardholder.externalRef"]

[service.message]
type = ["body.type", "request.type"]
job_id = ["body.job_id", "request.job_id"]
message = ["body.message", "request.message"]
envelope_id = ["body.envelope_id", "request.envelope_id"]
account_link = ["body.account_link", "request.account_link"]

[service.job]
data_selector = ["data.job"]
id = ["jobId"]
cardholder_id = ["holder.holderId"]
status = ["progress.status", "status"]
termination_type = ["progress.termination_type", "termination_type"]
percent_complete = ["progress.percent_complete", "percent_complete"]
auth_percent_complete = ["progress.auth_percent_complete", "auth_percent_complete"]
status_message = ["progress.status_message", "status_message"]
job_timeout_unit = "milliseconds"
merchant_site = ["merchant.hostname"]

[service.words]
status = { VERIFYING_DEVICE = "AUTH" }

[service.report]
cuid = ["External Ref"]
status = ["Result"]
completed_on = ["Transaction Time"]
"""


class Served(NamedTuple):
    """A partner that answers: its addresses, itself, and the clock that it goes by."""

    address: str  # of its API
    portal: str
    partner: Partner
    clock: Clock

    @property
    def settings(self) -> str:
        """The tables of the issuer's TOML."""
        return SETTINGS.replace("ADDRESS", self.address)


@contextmanager
def other_partner() -> Iterator[Served]:
    """Serve on loopback until the block ends."""
    clock = Clock()
    partner = Partner(World(clock), Sessions(CREDENTIALS), "fi-north")
    config = uvicorn.Config(partner.app(), host="127.0.0.1", port=0, log_config=None, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        host = f"http://127.0.0.1:{port}"
        yield Served(f"{host}{ROOT}", f"{host}/portal", partner, clock)
    finally:
        server.should_exit = True
        thread.join(60)
