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
# all that differs from the interface's own
SETTINGS = r"""
[service]
base_url = "ADDRESS"
fi_key = "fi-north"
follow_cardholders = true
link_id = "?k"

[service.auth]
token = "X-Placement-Token: {token}"

[service.signing]
type = "hmac"
key_encoding = "base64"
canonical = "{method}\n{target}\n{timestamp_ms}\n{body_sha256}"

[service.signing.headers]
X-Placement-Signature = "v1={signature_base64}"
X-Placement-Time = "{timestamp_ms}"

[service.names]
path.login = "/session/open"
path.create_link = "/cardLinks"
request.job_hydration = "include=credential_requests"
login.session_token = ["data.session.token"]
login.session_key = ["data.session.signingKey"]
login.credentials.app_name = ["client.name"]
login.credentials.app_key = ["client.key"]
login.credentials.username = ["user.login"]
login.credentials.password = ["user.password"]
request.fi_key = ["fiKey"]
request.safe_key = ["safeKey"]
channel.access_key = ["data.channelKey"]
link.record = ["data.cardLink"]
link.id = ["linkId"]
link.url = ["address"]
link.expiration_date = ["times.validUntilMs"]
link.opened_on = ["times.openedMs"]
link.card_id = ["card.cardId"]
link.cardholder_id = ["card.cardholder.holderId"]
link.cuid = ["card.cardholder.externalRef"]
message.type = ["body.type", "request.type"]
message.job_id = ["body.job_id", "request.job_id"]
message.message = ["body.message", "request.message"]
message.envelope_id = ["body.envelope_id", "request.envelope_id"]
message.account_link = ["body.account_link", "request.account_link"]
job.record = ["data.job"]
job.id = ["jobId"]
job.cardholder_id = ["holder.holderId"]
job.status = ["progress.status", "status"]
job.termination_type = ["progress.termination_type", "termination_type"]
job.percent_complete = ["progress.percent_complete", "percent_complete"]
job.auth_percent_complete = ["progress.auth_percent_complete", "auth_percent_complete"]
job.status_message = ["progress.status_message", "status_message"]
job.job_timeout = []
job.job_timeout_ms = ["job_timeout"]
job.merchant_site = ["merchant.hostname"]
report.cuid = ["External Ref"]
report.status = ["Result"]
report.completed_on = ["Transaction Time"]

[service.words]
status = { VERIFYING_DEVICE = "AUTH" }
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
