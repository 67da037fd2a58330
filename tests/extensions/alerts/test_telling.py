"""What people are told: a real mail server and a real webhook get each thing once."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.policy import default
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from flows.extensions.alerts.channels import apprise_url, open_channel, ping
from flows.extensions.alerts.notices import Channel, ChannelError, write_notice
from flows.extensions.alerts.telling import tell
from flows.operations.matters import watch
from tests.night import BANK, NOON, Bench, local_bench
from tests.servers import free_port

LATER = timedelta(minutes=15)
WANTS = {"nights": ["mail", "hook"], "mornings": ["mail"]}


class Mailbox:
    """What a mail server took."""

    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_RCPT(
        self, _server: Any, _session: Any, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address.startswith("nobody"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        self.mails.append(message_from_bytes(envelope.content, policy=default))
        return "250 OK"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a certificate for the loopback address, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mail")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "mail.pem"
    pem = serialization.Encoding.PEM
    file.write_bytes(
        signed.public_bytes(pem)
        + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return file


@contextmanager
def mail_server(**options: Any) -> Iterator[tuple[Mailbox, int]]:
    box = Mailbox()
    port = free_port()
    controller = Controller(box, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield box, port
    finally:
        controller.stop()


@contextmanager
def webhook(port: int = 0, status: int = 200) -> Iterator[tuple[list[Any], int]]:
    posts: list[Any] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    server = HTTPServer(("127.0.0.1", port), Hook)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield posts, server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def mail(port: int, to: str = "ops@bank.example", **more: str) -> Channel:
    query = "".join(f"&{name}={value}" for name, value in more.items())
    return open_channel("mail", f"smtp://127.0.0.1:{port}/?from=link@bank.example&to={to}{query}")


def hook(port: int) -> Channel:
    return open_channel("hook", f"http://127.0.0.1:{port}/hook")


def night(folder: Path) -> Bench:
    bench = local_bench(folder, channels=WANTS)
    bench.submit(bench.drop(5))
    return later(bench, LATER)


def later(bench: Bench, span: timedelta) -> Bench:
    moment = bench.now() + span
    return replace(bench, now=lambda: moment)


def look(bench: Bench, *channels: Channel) -> list[str]:
    """Watch and tell as the flow does; return the changes of alerts."""
    untold = watch(bench.context)
    tell(bench.context, channels)
    return [f"{matter.kind} {matter.ended is None}" for matter in untold]


def test_a_night_and_its_answers_are_told_once_however_many_watches_look(tmp_path: Path) -> None:
    bench = night(tmp_path)

    with mail_server() as (box, port), webhook() as (posts, hook_port):
        channels = [mail(port, starttls="no"), hook(hook_port)]
        checked = [channel.check() for channel in channels]
        for _ in range(2):
            look(bench, *channels)
        bench.answer()
        bench.ingest()
        for span in (timedelta(0), LATER, LATER):
            look(later(bench, span), *channels)

    assert 2 == len(checked)
    titles = [str(letter["Subject"]) for letter in box.mails]
    texts = [letter.get_content() for letter in box.mails]
    assert ["night", "morning"] == [title.split(": ")[1].split()[0] for title in titles]
    assert "0 of 5 cardholders have a link" in texts[0]
    assert 'cardlink upload bank --to "FOLDER"' in texts[0]
    assert "cardlink worklist bank" in texts[1]
    assert [titles[0]] == [post["subject"] for post in posts]
    assert posts[0]["text"].splitlines() == texts[0].splitlines()


def test_a_refused_extract_is_told_with_its_reason(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, channels=WANTS, limits={"max_reject_rate": 0.01})
    with pytest.raises(Exception, match="rejected"):
        bench.submit(bench.drop(50, bad=0.3))

    with webhook() as (posts, port):
        tell(later(bench, LATER).context, [hook(port)])

    assert ["1 run, 1 refused"] == [post["subject"].split(": ")[-1] for post in posts]
    assert "was refused" in posts[0]["text"]


def test_a_channel_that_is_down_is_an_alert_to_the_others_and_gets_it_once_it_works(
    tmp_path: Path,
) -> None:
    bench = night(tmp_path)
    dead = free_port()

    with mail_server() as (box, port):
        channels = [mail(port, starttls="no"), hook(dead)]
        looks = [look(later(bench, timedelta(minutes=n)), *channels) for n in (0, 5)]
        with webhook(dead) as (posts, _):
            looks.append(look(later(bench, timedelta(minutes=30)), *channels))
            looks.append(look(later(bench, timedelta(minutes=35)), *channels))

    assert "failing channels True" in looks[1]
    assert "failing channels False" in looks[3]
    subjects = [str(letter["Subject"]) for letter in box.mails]
    assert 1 == len([subject for subject in subjects if "night of" in subject])
    assert 1 == len([post for post in posts if "night of" in post["subject"]])
    assert 1 == len([subject for subject in subjects if subject.endswith("bank: failing channels")])


class Killed(BaseException):
    """The process ends here."""


class Killing:
    """A channel that takes a notice and does not live to say so."""

    name = "hook"

    def __init__(self, inner: Channel) -> None:
        self.inner = inner

    def send(self, notice_id: str, title: str, text: str) -> None:
        """Send it, and end."""
        self.inner.send(notice_id, title, text)
        raise Killed

    def check(self) -> str:
        """Return what works of it."""
        return self.inner.check()


def test_where_a_process_was_killed_while_sending_it_is_sent_again_under_the_same_id(
    tmp_path: Path,
) -> None:
    bench = night(tmp_path)

    with webhook() as (posts, port):
        with pytest.raises(Killed):
            tell(bench.context, [Killing(hook(port))])
        tell(later(bench, timedelta(minutes=5)).context, [hook(port)])  # it may still live
        before = len(posts)
        tell(later(bench, timedelta(minutes=11)).context, [hook(port)])

    assert (1, 2) == (before, len(posts))
    assert posts[0] == posts[1]


def test_a_switch_outside_is_pinged_and_one_that_is_away_is_an_alert(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)

    with webhook() as (_, port):
        tell(bench.context, [], lambda: ping(f"http://127.0.0.1:{port}/"))
        looks = [look(bench)]
    tell(bench.context, [], lambda: ping(f"http://127.0.0.1:{port}/"))
    looks.append(look(bench))

    assert ["failing channels True" in changes for changes in looks] == [False, True]


def test_a_channel_that_nobody_has_an_address_of_is_an_alert(tmp_path: Path) -> None:
    bench = night(tmp_path)

    looks = [look(bench), look(bench)]

    assert "failing channels True" in looks[1]


def test_no_card_number_leaves(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    bench.adapters.database.act(
        BANK,
        lambda connection: write_notice(
            connection, BANK, "alert", NOON, "a title", "4111111111111111 and CVV 592"
        ),
    )

    with webhook() as (posts, port):
        tell(bench.context, [hook(port)])

    assert "[masked] and CVV [masked]" == posts[0]["text"]


def login(_server: Any, _session: Any, _envelope: Any, _kind: str, data: Any) -> AuthResult:
    is_right = data == LoginPassword(b"link", b"s3cret")
    return AuthResult(success=is_right, handled=is_right)


def secured(certificate: Path) -> dict[str, Any]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return {"tls_context": context, "require_starttls": True, "authenticator": login}


def test_mail_goes_over_starttls_with_a_login(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    address = (
        "smtp://link:s3cret@127.0.0.1:{port}/?from=link@bank.example&to=a@b.example,c@b.example"
    )

    with mail_server(**secured(certificate)) as (box, port):
        channel = open_channel("mail", address.format(port=port))
        checked = channel.check()
        channel.send("bank/summaries/000001", "a title", "a text")

    assert "the mail server takes sender and receivers" == checked
    assert ["a@b.example, c@b.example"] == [letter["To"] for letter in box.mails]
    assert "@bank.example>" in box.mails[0]["Message-ID"]


@pytest.mark.parametrize(
    ("trust", "user", "to", "trouble"),
    [
        (False, "link:s3cret", "a@b.example", "SSLCertVerificationError"),
        (True, "link:other", "a@b.example", "SMTPAuthenticationError, SMTP 535"),
        (True, "link:s3cret", "nobody@b.example", "refused"),
    ],
)
def test_what_a_mail_server_refuses_is_said_without_any_secret(
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    trust: bool,
    user: str,
    to: str,
    trouble: str,
) -> None:
    if trust:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    with mail_server(**secured(certificate)) as (_, port):
        address = f"smtp://{user}@127.0.0.1:{port}/?from=link@bank.example&to={to}"
        with pytest.raises(ChannelError, match=trouble) as raised:
            open_channel("mail", address).check()

    assert user.partition(":")[2] not in str(raised.value)


# the library under Apprise's notifications imports it
APPRISE = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")


@APPRISE
@pytest.mark.parametrize(
    ("address", "trouble"),
    [
        ("smtp://127.0.0.1:1/", "ConnectionRefusedError"),
        ("http://127.0.0.1:1/x", "ConnectionRefusedError"),
        ("nosuch://x", "none that is known"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_sentence(address: str, trouble: str) -> None:
    with pytest.raises(ChannelError, match=trouble):
        open_channel("ops", address).check()


@APPRISE
def test_chats_are_channels_and_mail_is_written_as_apprise_writes_it() -> None:
    slack = "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
    flow = f"https://prod-1.eastus.logic.azure.com:443/workflows/{'b' * 32}/triggers/manual"
    teams = f"{flow}/paths/invoke?api-version=2016-06-01&sp=%2Frun&sv=1.0&sig={'s' * 43}"

    chats = [open_channel("chat", address).check() for address in (slack, teams)]

    assert [True, True] == ["Slack:" in chats[0], "MSTeams" in chats[1]]
    assert (
        "mailtos://u:p@mail.example:587?from=a%40b.example&to=c%40d.example&mode=starttls"
        "&smtp=mail.example"
    ) == apprise_url("smtp://u:p@mail.example/?from=a@b.example&to=c@d.example")
