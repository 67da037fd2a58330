"""Receivers of links: each has a chain, a form, a key, a place and an event of its own, and gets
what it lacks once it can be reached.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any, cast

import polars as pl
import pytest

from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.gpg_sealer import GpgSealer
from flows.adapters.local import LocalStore
from flows.book.book import read_book
from flows.extensions.deliveries import webhook
from flows.extensions.deliveries.delivered import (
    delivery_folder,
    line_of,
    read_changes,
    standing_links,
)
from flows.extensions.deliveries.delivery import deliver, owes_withdrawal
from flows.extensions.deliveries.formats import DeliveryEvent
from flows.extensions.deliveries.handover import last_handed
from flows.extensions.deliveries.reaching import (
    Outcome,
    deliver_after_ingest,
    deliver_to,
    events,
    hand_over,
    retry_receivers,
)
from flows.extensions.deliveries.receivers import (
    NoReceiverError,
    WhichReceiverError,
    confirm,
    only_one,
    receivers_of,
    without_table,
)
from flows.extensions.deliveries.settings import Receiver
from flows.extensions.deliveries.webhook import Webhook, WebhookSecretError
from flows.extensions.governance.settings import FourEyes
from flows.extensions.privacy.erasure import OfRows, erase, finish_erasures
from flows.operations.break_decisions import close_break
from flows.operations.giving_up import Which, give_up
from flows.reports.across import reconcile_runs
from flows.runs.context import IssuerContext
from flows.runs.erased import NamedPeople
from schemas.breaks import CONFLICTING_RESULT, LINK
from tests import keys
from tests.builders import quick
from tests.extensions.deliveries.test_delivery import Killed, Mortal, answer, bench_of, linked
from tests.extensions.privacy.test_erasure import cleaner
from tests.late import late
from tests.night import BANK, NOON, Bench, issuer

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes, ok").decode()
FIRST_ROWS = [linked(1, "a"), linked(2, "b")]


class Hook:
    """A webhook on loopback: what it was posted, and how it answers."""

    def __init__(self) -> None:
        self.status = 204
        self.headers: dict[str, str] = {}
        self.posted: list[tuple[Mapping[str, str], bytes]] = []
        self.address = ""

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.posted]


@contextmanager
def hook() -> Iterator[Hook]:
    receiving = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiving.posted.append((dict(self.headers.items()), body))
            self.send_response(receiving.status)
            for name, value in receiving.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        receiving.address = f"http://127.0.0.1:{server.server_port}/links"
        yield receiving
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def webhook_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every receiver have the same secret."""
    monkeypatch.setattr(webhook, "secret", lambda _: SECRET)


def with_receivers(bench: Bench, **tables: Mapping[str, Any]) -> Bench:
    """Let a bench have these receivers."""
    built = {name: Receiver.model_validate(table) for name, table in tables.items()}
    bench.issuer = bench.issuer.model_copy(update={"deliveries": built})
    return bench


def reached(bench: Bench, place: Path | None = None) -> IssuerContext:
    """Return the context of a bench that reaches places and keys."""
    own = keys.sound()
    return bench.context._replace(
        place_of=lambda _: LocalStore(place) if place else None,
        sealer_to=lambda *_: GpgSealer(
            [own.public], [own.fingerprint], armor=False, compression="zip", today=NOON.date()
        ),
    )


def everybody(context: IssuerContext, *, at_once: bool = True) -> list[Outcome]:
    return list(deliver_to(context, receivers_of(context), at_once=at_once))


def rows(bench: Bench, receiver: str, number: int) -> list[tuple[str, str]]:
    """Return url and change of each row of a delivery, as we keep it."""
    content = bench.content(delivery_folder(BANK, number, receiver) + "links.parquet")
    changes = pl.read_parquet(BytesIO(content)).select("url", "change").rows()
    return [(url.rpartition("/")[2], change) for url, change in changes]


def test_each_receiver_has_a_chain_of_its_own_and_a_link_is_withdrawn_from_whoever_had_it(
    tmp_path: Path,
) -> None:
    bench, run = bench_of(tmp_path)
    with_receivers(bench, one={}, two={})
    answer(bench, *FIRST_ROWS)
    deliver(bench.context, "one")
    confirm(bench.context, 1, "receipt", "one")
    answer(bench, linked(2, "b2"), linked(3, "c"))  # the portal's corrected file
    close_break(bench.context, run, CONFLICTING_RESULT, "", "ticket 1", LINK, rows=[2])

    outcomes = everybody(bench.context)

    assert [("one", 2), ("two", 1)] == [(each.receiver, each.delivered.number) for each in outcomes]
    withdrawn = [("b", "withdrawn"), ("b2", "replaced")]
    assert withdrawn == [row for row in rows(bench, "one", 2) if row[0].startswith("b")]
    assert [("b2", "new")] == [row for row in rows(bench, "two", 1) if row[0].startswith("b")]


def test_the_default_receiver_stays_beside_named_ones_once_it_has_links(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, *FIRST_ROWS)
    before = receivers_of(bench.context)
    deliver(bench.context)
    confirm(bench.context, 1, "receipt")

    with_receivers(bench, marketing={})

    assert ["default"] == before
    assert ["default", "marketing"] == receivers_of(bench.context)
    with pytest.raises(NoReceiverError):
        receivers_of(bench.context, "sales")


def test_of_several_receivers_the_one_that_confirms_is_named(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    with_receivers(bench, one={}, two={})

    with pytest.raises(WhichReceiverError) as refused:
        only_one(bench.context, "")

    assert {"issuer": BANK, "receivers": "one, two"} == refused.value.fields
    assert "two" == only_one(bench.context, "two")


def test_confirmed_out_of_order_the_newest_counts_and_the_older_may_have_come_after_it(
    tmp_path: Path,
) -> None:
    bench, _ = bench_of(tmp_path)
    with_receivers(bench, one={})
    answer(bench, *FIRST_ROWS)
    deliver(bench.context, "one")
    give_up(bench.context, Which(cuids=frozenset({"c-2"})), "the account is closed")
    deliver(bench.context, "one")

    confirm(bench.context, 2, "receipt of the second", "one")
    confirm(bench.context, 1, "receipt of the first, which came later", "one")
    third = deliver(bench.context, "one")

    assert 2 == (third.record.after if third.record else 0)
    assert [("b", "withdrawn")] == rows(bench, "one", 3)


@pytest.mark.parametrize("form", quick(1, ["jsonl", "csv", "parquet"]))
def test_a_receiver_gets_its_format_its_columns_and_its_dates(form: str, tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    columns = {"cuid": "customer", "change": "what", "url": "link", "expires_on": "until"}
    settings = {"format": form, "columns": columns, "date_format": "YYYYMMDD", "rows_per_file": 1}
    with_receivers(bench, one=settings)
    answer(bench, *FIRST_ROWS)

    done = deliver(bench.context, "one")

    names = done.record.names if done.record else []
    content = BytesIO(bench.content(delivery_folder(BANK, 1, "one") + names[0]))
    read: Any = {"csv": pl.read_csv, "jsonl": pl.read_ndjson, "parquet": pl.read_parquet}[form]
    frame = read(content)
    assert [f"links-0000{number}.{form}" for number in (1, 2)] == names
    assert ["customer", "what", "link", "until"] == frame.columns
    assert ("c-1", "new", "20270120") == tuple(
        str(cell).replace("-", "") if name == "until" else cell
        for name, cell in frame.row(0, named=True).items()
        if name != "link"
    )


def test_files_are_sealed_to_the_receivers_key_and_the_marker_is_written_last_and_lists_them(
    tmp_path: Path,
) -> None:
    own = keys.sound()
    place = tmp_path / "inbox"
    place.mkdir()
    bench, _ = bench_of(tmp_path)
    sealing = {"key_file": "one.asc", "fingerprint": own.fingerprint}
    with_receivers(bench, one={**sealing, "to": "inbox", "done_marker": "_SUCCESS"})
    answer(bench, *FIRST_ROWS)
    context = reached(bench, place)

    everybody(context)
    again = everybody(context)

    folder = place / BANK / "one" / "000001"
    notice = json.loads((folder / "_SUCCESS").read_bytes())
    sealed = (folder / "links.csv.pgp").read_bytes()
    assert {"_SUCCESS", "links.csv.pgp"} == {path.name for path in folder.iterdir()}
    assert [["links.csv.pgp", hashlib.sha256(sealed).hexdigest(), len(sealed)]] == [
        [file["name"], file["sha256"], file["bytes"]] for file in notice["files"]
    ]
    assert (1, False) == (again[0].delivered.number, again[0].delivered.fresh)
    with GpgOpener([own.secret]) as opener:
        opened = opener.open(sealed, 1 << 20)
    assert b"cuid,last_4,url,expires_on,change,why" == opened.splitlines()[0]
    (folder / "received").write_bytes(hashlib.sha256(opened).hexdigest().encode())
    assert [Outcome("one")] == everybody(context)  # confirmed by its receipt


def test_an_event_is_signed_as_standard_webhooks_has_it_and_confirms_where_that_is_wanted(
    tmp_path: Path,
) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, *FIRST_ROWS)

    with hook() as webhook:
        with_receivers(bench, one={"webhook": webhook.address, "confirmed_by": "event"})
        outcomes = [*everybody(reached(bench)), *everybody(reached(bench))]

    [(headers, body)] = webhook.posted
    stamp = headers["webhook-timestamp"]
    signed = f"{headers['webhook-id']}.{stamp}.".encode() + body
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert f"v1,{expected}" == headers["webhook-signature"]
    assert ("bank.one.000001", str(int(NOON.timestamp()))) == (headers["webhook-id"], stamp)
    assert 2 == DeliveryEvent.model_validate_json(body).data.new
    assert b"links.example.com" not in body
    assert ["", ""] == [each.problem for each in outcomes]
    assert Outcome("one") == outcomes[1]


@pytest.mark.slow
def test_a_receiver_that_is_down_for_two_nights_gets_everything_once_it_is_back(
    tmp_path: Path,
) -> None:
    bench, _ = bench_of(tmp_path)
    with hook() as webhook:
        with_receivers(bench, down={"webhook": webhook.address}, up={})
        context = reached(bench)
        webhook.status = 503
        answer(bench, *FIRST_ROWS)
        first = everybody(context, at_once=False)
        bench.now = lambda: NOON + timedelta(minutes=4)
        retry_receivers(reached(bench))  # too soon: it is left alone
        early = list(webhook.ids)
        bench.now = lambda: NOON + timedelta(days=1)
        answer(bench, linked(1, "a"), linked(3, "c"), name="later.csv")
        second = everybody(reached(bench), at_once=False)
        alerts = [alert for alert in late(reached(bench)) if alert.kind == "receivers to reach"]
        work = [line for line in worklist(bench) if line["kind"] == "receivers to reach"]
        webhook.status = 200
        bench.now = lambda: NOON + timedelta(days=2)
        retry_receivers(reached(bench))

    assert (["the webhook answered 503", ""], ["bank.down.000001"]) == (
        [each.problem for each in first],
        early,
    )
    assert ["the webhook answered 503", ""] == [each.problem for each in second]
    assert ["down 000002"] == [alert.subject for alert in alerts]
    assert ["cardlink deliver bank down"] == [line["first"] for line in work]
    assert ["bank.down.000001", "bank.down.000002", "bank.down.000002"] == webhook.ids
    assert [] == [alert for alert in late(reached(bench)) if alert.kind == "receivers to reach"]
    last = last_handed(bench.adapters, line_of(BANK, "down"))
    assert last is not None
    assert (2, NOON + timedelta(days=2)) == (last.number, last.row["taken_at"])


def worklist(bench: Bench) -> list[dict[str, Any]]:
    """Return the lines of the worklist."""
    lines: list[dict[str, Any]] = reconcile_runs(
        reached(bench),
    )["worklist"]
    return lines


def test_a_receiver_says_when_it_wants_to_be_asked_again(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, *FIRST_ROWS)
    with hook() as webhook:
        with_receivers(bench, one={"webhook": webhook.address})
        webhook.status = 429
        webhook.headers = {"retry-after": "7200"}
        everybody(reached(bench))
        bench.now = lambda: NOON + timedelta(hours=1, minutes=59)
        retry_receivers(reached(bench))
        waiting = list(webhook.ids)
        by_hand = hand_over(reached(bench), "one", at_once=True)

    assert (1, "the webhook answered 429", 2) == (len(waiting), by_hand, len(webhook.ids))


def test_a_place_or_a_webhook_that_is_not_there_fails_no_ingest(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    answer(bench, *FIRST_ROWS)
    with_receivers(bench, gone={"webhook": "http://127.0.0.1:9/"}, one={"to": "nowhere"})

    outcomes = deliver_after_ingest(reached(bench, tmp_path / "store" / "commits.txt"))

    assert [True, True] == [bool(each.problem) for each in outcomes]
    assert [1, 1] == [each.delivered.number for each in outcomes]


def test_a_process_that_died_after_the_record_is_finished_by_the_next(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    own = keys.sound()
    with_receivers(bench, one={"key_file": "one.asc", "fingerprint": own.fingerprint})
    answer(bench, *FIRST_ROWS)
    with pytest.raises(Killed):
        deliver(reached(replace(bench, store=cast(Any, Mortal(bench.store, 0)))), "one")

    [outcome] = everybody(reached(bench))

    assert (1, False, "") == (outcome.delivered.number, outcome.delivered.fresh, outcome.problem)
    folder = delivery_folder(BANK, 1, "one")
    assert {"done.json", "links.csv.pgp", "links.parquet"} == {
        entry.key.removeprefix(folder) for entry in bench.store.keys(folder)
    }


def test_a_retired_receiver_loses_all_of_its_links_and_gets_no_new_ones(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    with_receivers(bench, one={})
    answer(bench, *FIRST_ROWS)
    deliver(bench.context, "one")
    confirm(bench.context, 1, "receipt", "one")

    with_receivers(bench)
    orphans = without_table(bench.context)
    with_receivers(bench, one={"retired": True})
    answer(bench, linked(3, "c"), name="later.csv")
    done = deliver(bench.context, "one")

    assert (["one"], 0) == (orphans, done.record.living if done.record else -1)
    assert [("a", "withdrawn"), ("b", "withdrawn")] == rows(bench, "one", 2)


def test_prefect_is_told_of_a_delivery_once(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    with_receivers(bench, one={"prefect_event": True}, two={})
    answer(bench, *FIRST_ROWS)
    everybody(bench.context)

    emitted = list(events(bench.context))

    assert [("cardlink.delivery.bank.one", 1)] == [(one.resource, one.number) for one in emitted]
    assert [] == list(events(bench.context))


def test_the_book_has_a_link_as_delivered_while_any_receiver_has_it(tmp_path: Path) -> None:
    bench, _ = bench_of(tmp_path)
    with_receivers(bench, one={}, two={})
    answer(bench, *FIRST_ROWS)
    everybody(bench.context)
    confirm(bench.context, 1, "receipt", "one")

    with_receivers(bench, one={"retired": True}, two={})
    deliver(bench.context, "one")

    with bench.database.snapshot() as connection:
        changes = read_changes(connection, BANK)
    assert ["c-1", "c-2"] == sorted(read_book(bench.adapters, BANK).stages.delivered["cuid"])
    assert ["c-1", "c-2"] == sorted(standing_links(changes)["cuid"])
    assert ["c-1", "c-2"] == sorted(standing_links(changes.filter(receiver="two"))["cuid"])
    assert standing_links(changes.filter(receiver="one")).is_empty()


def first_about_the_forgotten(bench: Bench) -> str:
    """Return the first step of the line about the forgotten, "" where there is none."""
    firsts = [line["first"] for line in worklist(bench) if line["kind"] == "forgotten cardholders"]
    return next(iter(firsts), "")


def test_a_receiver_that_is_served_by_hand_has_a_line_while_another_has_the_links_already(
    tmp_path: Path,
) -> None:
    bench, _ = bench_of(tmp_path)
    with_receivers(bench, one={}, two={"schedule": "by-hand"})
    answer(bench, *FIRST_ROWS)
    deliver(bench.context, "one")

    def by_hand() -> list[tuple[int, str]]:
        lines = [line for line in worklist(bench) if line["kind"] == "links to deliver by hand"]
        return [(line["rows"], line["first"]) for line in lines]

    before = by_hand()
    deliver(bench.context, "two")

    assert [(2, "cardlink deliver bank two")] == before
    assert [] == by_hand()


@pytest.mark.slow
def test_an_erasure_waits_until_every_receiver_has_confirmed_the_withdrawal(tmp_path: Path) -> None:
    bench, run = bench_of(tmp_path)
    with_receivers(bench, one={}, two={"format": "jsonl"})
    answer(bench, *FIRST_ROWS)
    everybody(bench.context)
    for receiver in ("one", "two"):
        confirm(bench.context, 1, "receipt", receiver)
    erase(bench.context, cleaner(bench), OfRows(run, (1,)), "request 1")
    person = NamedPeople(frozenset({"c-1"}))

    firsts = [first_about_the_forgotten(bench)]
    everybody(bench.context)
    firsts += [first_about_the_forgotten(bench)]
    confirm(bench.context, 2, "receipt", "one")
    half = finish_erasures(bench.context, cleaner(bench))
    owed = owes_withdrawal(bench.context, person)
    firsts += [first_about_the_forgotten(bench)]
    confirm(bench.context, 2, "receipt", "two")
    firsts += [first_about_the_forgotten(bench)]
    whole = finish_erasures(bench.context, cleaner(bench))

    assert (False, True, True) == (half, owed, whole)
    assert [
        "cardlink deliver bank",
        'cardlink deliver bank one --confirm 2 --reason "RECEIPT"',
        'cardlink deliver bank two --confirm 2 --reason "RECEIPT"',
        "cardlink purge bank",
    ] == firsts
    assert "" == first_about_the_forgotten(bench)
    left = [key for key, content in bench.snapshot().items() if b"c-1" in content]
    assert [] == [key for key in left if "/deliveries/" in key]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not set"),
        ("a word", "does not begin with whsec_"),
        ("whsec_short", "is not 24 bytes or more in base64 after whsec_"),
    ],
)
def test_a_secret_that_is_none_is_refused_without_being_shown(text: str, problem: str) -> None:
    with pytest.raises(WebhookSecretError) as error:
        Webhook.of("https://hooks.example.com", "SECRET", text, lambda: NOON)

    assert {"variable": "SECRET", "problem": problem} == error.value.fields


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"webhook": "http://hooks.example.com/x"}, "posted by https"),
        ({"webhook": "https://user:word@hooks.example.com"}, "credentials"),
        ({"confirmed_by": "event"}, "needs a webhook"),
        ({"columns": {"cuid": "a", "url": "b"}}, "cuid, url and change"),
        ({"fingerprint": "A" * 40}, "go together"),
        ({"schedule": "at night"}, "schedule"),
    ],
)
def test_a_table_that_cannot_be_right_is_refused(table: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        issuer(deliveries={"one": table})


def test_what_needs_two_persons_is_not_delivered_by_itself() -> None:
    with pytest.raises(ValueError, match="by-hand"):
        issuer(deliveries={"one": {}}, four_eyes=FourEyes(acts=("deliver",)).model_dump())
