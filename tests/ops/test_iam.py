"""The IAM policies, on a server that enforces them with their conditions: enough for the work of
each role, no more.

Policies are tested by what is used: the server lets a whole run through and notes which statement
allowed which action, and the notes must equal what the policy grants. Create-only is a condition of
the pipeline's policy and of the bucket's own, so the owner is refused too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import boto3.session
import polars as pl
import pytest
from botocore.exceptions import ClientError

from flows.adapters.s3 import S3Store
from flows.extensions.alerts.metrics import write_metrics
from flows.extensions.arrivals.looks import IssuerWatch
from flows.extensions.deliveries.acknowledgement import acknowledgements
from flows.extensions.deliveries.delivered import deliveries
from flows.extensions.deliveries.delivery import deliver
from flows.extensions.deliveries.receivers import confirm
from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.partner_api.placements import transactions
from flows.extensions.privacy.erasure import OfRows, erase
from flows.operations.matters import watch
from flows.operations.purge import purge
from flows.pages import site
from flows.reports.across import reconcile_runs
from flows.reports.programme_report import programme_of, read_issuer, write_programme
from flows.reports.rebuild import rebuild
from flows.resend.resubmission import Request
from flows.resend.resubmission_run import resubmit
from flows.resend.selection import RowSelection
from flows.runs.keys import (
    ALL_ISSUERS,
    corrections,
    extracts,
    journal,
    keys_of,
    metrics,
    programme,
    results,
    runs,
)
from flows.runs.store import StoreDeniedError, VerdictAwaitedError, ensure_usable
from flows.runs.stored_journal import flush_journal
from schemas.portal import CITY
from schemas.settings import StoreSettings
from tests import servers
from tests.builders import portal_rows
from tests.night import BANK, Bench, issuer, portal_csv
from tests.pages import TOKEN, served_pages
from tests.resend.test_corrections import fill

pytestmark = pytest.mark.slow  # a server of its own that enforces policies, and a whole run on it

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
NAMES = ("", "purge-", "reports-", "drop-", "programme-", "analysts-", "arrivals-")
PIPELINE, PURGE, REPORTS, DROP, PROGRAMME, ANALYSTS, ARRIVALS = (
    DEPLOY / f"iam-{name}policy.json" for name in NAMES
)
KEY = "arn:aws:kms:us-east-1:123456789012:key/KEY"
STRICT = StoreSettings(
    kms_key=KEY,
    owner="123456789012",
    lock_mode="GOVERNANCE",
    lock_days=1,
    verdict_tag="Scan",
    verdict_clean="CLEAN",
)
PART = "part-00001.parquet"  # of a ledger
Rights = set[tuple[str, str]]


def text_of(file: Path) -> str:
    """Return a policy file for the issuer's folder of the bucket of these tests."""
    return (
        file.read_text()
        .replace("BUCKET", "locked")
        .replace("PREFIX", "nightly")
        .replace("ISSUER", BANK)
    )


def granted(file: Path) -> Rights:
    """Return what a policy allows: Sid and action."""
    allowed = [one for one in json.loads(text_of(file))["Statement"] if one["Effect"] == "Allow"]
    actions = [(one["Sid"], one["Action"]) for one in allowed]
    return {
        (sid, one) for sid, some in actions for one in ([some] if isinstance(some, str) else some)
    }


class Place(NamedTuple):
    """A guarded server with a bucket that can lock, and what the account's owner and the pipeline
    do there.
    """

    server: servers.S3Server
    owner: Bench
    log: Path

    def client(self, name: str, *files: Path) -> Any:
        """Return the client of a new user with these policies."""
        root = boto3.session.Session("test", "test", region_name="us-east-1").client(
            "iam", endpoint_url=self.server.endpoint
        )
        root.create_user(UserName=name)
        for file in files:
            root.put_user_policy(UserName=name, PolicyName=file.stem, PolicyDocument=text_of(file))
        key = root.create_access_key(UserName=name)["AccessKey"]
        session = boto3.session.Session(
            key["AccessKeyId"], key["SecretAccessKey"], region_name="us-east-1"
        )
        return session.client("s3", endpoint_url=self.server.endpoint)

    def bench(self, client: Any, prefix: str = "nightly") -> Bench:
        """Return a bench that acts by a client, with every setting of a strict bucket."""
        return replace(self.owner, store=S3Store("locked", prefix, client, settings=STRICT))

    def judge_clean(self) -> None:
        """Tag everything that was dropped as clean, as the bank's scanner does."""
        client = servers.client(self.server.endpoint)
        for folder in (
            extracts(BANK),
            results(BANK),
            corrections(BANK),
            transactions(BANK),
            deliveries(BANK),
        ):
            for entry in self.owner.store.keys(folder):
                tags = {"TagSet": [{"Key": "Scan", "Value": "CLEAN"}]}
                client.put_object_tagging(Bucket="locked", Key=f"nightly/{entry.key}", Tagging=tags)

    def used(self) -> Rights:
        """Return the rights that were used since the last call."""
        lines = self.log.read_text().splitlines()
        self.log.write_text("")
        return {(sid, action) for sid, action in map(json.loads, lines)}


def report_programme(bench: Bench, folder: str) -> None:
    """Write the programme's report below a folder."""
    report = programme_of([read_issuer(bench.context)], bench.now(), weeks=4)
    write_programme(bench.store, folder, report)


class Whole(NamedTuple):
    """The work of some days by the pipeline's role: its bench, its run, the rights it used."""

    bench: Bench
    run: str
    rights: Rights


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    log = tmp_path_factory.mktemp("iam") / "used.jsonl"
    log.write_text("")
    with servers.guarded_moto(log) as server:
        client = servers.client(server.endpoint)
        client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
        client.put_bucket_policy(Bucket="locked", Policy=text_of(DEPLOY / "bucket-policy.json"))
        bench = Bench(S3Store("locked", "nightly", client), issuer(), now=lambda: datetime.now(UTC))
        yield Place(server, bench, log)


@pytest.fixture(scope="module")
def whole(place: Place) -> Whole:
    """Work through a run by the pipeline's role: submit, ingest, correct, deliver, report, watch,
    follow, purge.
    """
    bench = place.bench(place.client("pipeline", PIPELINE))
    owner, client = place.owner, servers.client(place.server.endpoint)
    rows = [{CITY: None} if at == 2 else {} for at in range(1, 13)]
    extract = owner.drop_bytes(portal_csv(portal_rows(*rows)))
    place.judge_clean()
    run = bench.submit(extract).manifest.run
    client.create_multipart_upload(
        Bucket="locked", Key=f"nightly/{keys_of(run).report('dead.csv')}"
    )
    owner.answer()
    place.judge_clean()
    place.used()

    bench.ingest()
    request = Request(run, RowSelection(), "corrected", corrections="fix.csv")
    filled = fill(owner, run, {(2, CITY): "Salem"})
    with pytest.raises(VerdictAwaitedError):  # what a person filled in is scanned too
        resubmit(bench.context, request, content=filled)
    place.judge_clean()
    resubmit(bench.context, request, content=filled)
    deliver(bench.context)
    confirm(bench.context, 1, "received")
    rebuild(bench.context, bench.stored(run))
    reconcile_runs(bench.context)
    report = f"cuid,status,completed_on\n{owner.ledger(run)['cuid'][0]},SUCCESSFUL,\n"
    owner.store.replace(f"{transactions(BANK)}t.csv", [report.encode()])
    place.judge_clean()
    follow_links(bench.context, None, "")
    report_programme(bench, programme(BANK))
    watch(bench.context)
    write_metrics(bench.context)
    flush_journal(bench.adapters, BANK)
    ensure_usable(bench.store, f"{metrics(BANK)}check")
    return Whole(bench, run, place.used())


def test_a_whole_run_passes_and_uses_every_right_that_the_policy_gives(whole: Whole) -> None:
    statements = {sid for sid, _ in granted(PIPELINE)}

    used = {(sid, action) for sid, action in whole.rights if sid in statements}

    assert used == granted(PIPELINE)


def test_what_is_written_once_cannot_be_written_over_by_the_pipeline_or_by_the_owner(
    place: Place, whole: Whole
) -> None:
    keys, store = keys_of(whole.run), whole.bench.store
    segment = next(store.keys(journal(BANK))).key

    for key in (segment, keys.ledger + PART, keys.chunks + keys.chunk_name(1)):
        for one in (store, place.owner.store):
            with pytest.raises(StoreDeniedError):
                one.replace(key, [b"other"])
            assert not one.create(key, b"other")
    for name in ("fix.csv", "another.csv"):
        with pytest.raises(StoreDeniedError):
            store.replace(corrections(BANK) + name, [b"other"])


def test_nothing_beyond_the_issuers_own_folder_can_be_listed_read_or_written(
    place: Place, whole: Whole
) -> None:
    place.owner.store.create("other-bank/runs/x/ledger/part-00001.parquet", b"{}")
    client: Any = whole.bench.store._client  # type: ignore[attr-defined]

    for prefix in ("", "nightly/", "nightly/other-bank/", f"nightly/{BANK}"):
        with pytest.raises(ClientError, match="AccessDenied"):
            client.list_objects_v2(Bucket="locked", Prefix=prefix)
    with pytest.raises(ClientError, match="AccessDenied"):
        client.list_objects_v2(Bucket="locked")
    for beyond in (place.bench(client, "elsewhere"), whole.bench):
        with pytest.raises(StoreDeniedError):
            beyond.store.create("other-bank/runs/x/chunks/1", b"x")
        with pytest.raises(StoreDeniedError):
            beyond.store.open("other-bank/runs/x/ledger/part-00001.parquet")


@pytest.mark.parametrize(
    "folder",
    [
        extracts(BANK),
        results(BANK),
        transactions(BANK),
        f"{deliveries(BANK)}000001/",
        f"{acknowledgements(BANK)}000001/",
    ],
)
def test_what_others_drop_cannot_be_written_by_the_pipeline(whole: Whole, folder: str) -> None:
    is_answered = folder.startswith((deliveries(BANK), acknowledgements(BANK)))
    name = "received" if is_answered else "x.csv"

    with pytest.raises(StoreDeniedError):
        whole.bench.store.create(folder + name, b"x")


def test_the_pipeline_deletes_nothing(whole: Whole) -> None:
    store: Any = whole.bench.store

    for key in (
        keys_of(whole.run).ledger + PART,
        keys_of(whole.run).report("report.html"),
        f"{extracts(BANK)}x",
    ):
        with pytest.raises(StoreDeniedError):
            store.delete(key)


@pytest.mark.slow
def test_a_purge_deletes_with_a_role_of_its_own_that_can_do_nothing_else(
    place: Place, whole: Whole
) -> None:
    purger = place.bench(place.client("purger", PURGE))
    old = replace(whole.bench, now=lambda: datetime.now(UTC) + timedelta(days=9))
    dead = f"nightly/{keys_of(whole.run).report('dead.csv')}"
    before = place.owner.snapshot().keys()
    servers.client(place.server.endpoint).create_multipart_upload(Bucket="locked", Key=dead)

    with pytest.raises(StoreDeniedError):  # told before a record says that anything went
        purge(old.context, old.store)  # type: ignore[arg-type]  # the pipeline's own store, which may not delete
    assert old.stored(whole.run).purged("chunks") is None
    place.used()
    due = purge(old.context, purger.store)  # type: ignore[arg-type]  # a store of S3 is a cleaner too
    used = {one for one in place.used() if one in granted(PURGE)}

    gone = before - place.owner.snapshot().keys()
    assert {keys_of(whole.run).chunks + keys_of(whole.run).chunk_name(1)} <= gone
    assert gone == {entry.key for lot in due.lots for entry in lot.entries}
    assert used == granted(PURGE)
    segment = next(place.owner.store.keys(journal(BANK))).key
    for key in (f"{extracts(BANK)}x", f"{results(BANK)}x", segment):
        with pytest.raises(StoreDeniedError):
            purger.store.delete(key)  # type: ignore[attr-defined]
    with pytest.raises(StoreDeniedError):
        purger.store.open(segment)


@pytest.mark.slow
def test_an_erasure_deletes_by_the_role_of_a_purge_and_writes_by_that_of_the_pipeline(
    place: Place, whole: Whole
) -> None:
    eraser = place.bench(place.client("eraser", PURGE))
    store: Any = eraser.store
    linked = pl.concat(whole.bench.stored(whole.run).rows(["row", "url"]))
    row = linked.drop_nulls("url")["row"][0]

    denied: Any = whole.bench.store
    with pytest.raises(StoreDeniedError):  # before anything is recorded
        erase(whole.bench.context, denied, OfRows(whole.run, [row]), "request 1")
    erase(whole.bench.context, store, OfRows(whole.run, [row]), "request 1")

    assert whole.bench.ledger(whole.run).filter(row=row)["cuid"].to_list() == [None]


def test_the_page_server_shows_pages_by_a_role_that_reads_nothing_else(
    place: Place, whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = place.bench(place.client("reports", REPORTS)).store
    monkeypatch.setattr(site, "open_store", lambda *_: reader)
    monkeypatch.setattr(site, "issuers", lambda _: [BANK])
    monkeypatch.setattr(site, "load_issuer", lambda *_: whole.bench.issuer)
    monkeypatch.setattr(site, "open_store", lambda *_: reader)
    monkeypatch.setattr(site, "issuers", lambda _: [BANK])
    monkeypatch.setattr(site, "load_issuer", lambda *_: whole.bench.issuer)
    keys = keys_of(whole.run)
    place.used()

    with served_pages(tmp_path) as base:
        shown = urlopen(f"{base}/{TOKEN}/{keys.report('report.html')}").read()
        scraped = urlopen(f"{base}/{TOKEN}/metrics").read()
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{base}/{TOKEN}/{keys.ledger}{PART}")

    assert b"<html" in shown
    assert b"cardlink_runs{" in scraped
    assert place.used() & granted(REPORTS) == granted(REPORTS)
    for key in (
        keys.report("links.csv"),
        keys.ledger + PART,
        keys.chunks + keys.chunk_name(1),
        f"{extracts(BANK)}x",
    ):
        with pytest.raises(StoreDeniedError):
            reader.open(key)
    with pytest.raises(StoreDeniedError):
        list(reader.keys(f"{BANK}/runs/"))
    with pytest.raises(StoreDeniedError):
        reader.create(keys.report("x.html"), b"x")


def test_analysts_list_runs_and_read_ledgers_and_nothing_else(place: Place, whole: Whole) -> None:
    store = place.bench(place.client("analyst", ANALYSTS)).store
    keys = keys_of(whole.run)
    place.used()

    listed = [entry.key for entry in store.keys(runs(BANK))]
    ledger = [key for key in listed if key.startswith(keys.ledger)]
    for key in ledger:
        with store.open(key):
            pass

    assert ledger
    assert place.used() & granted(ANALYSTS) == granted(ANALYSTS)
    chunk = keys.chunks + keys.chunk_name(1)
    for key in (chunk, keys.report("links.csv"), f"{extracts(BANK)}x"):
        with pytest.raises(StoreDeniedError):
            store.open(key)
    with pytest.raises(StoreDeniedError):
        store.create(f"{keys.ledger}x", b"x")
    with pytest.raises(StoreDeniedError):
        list(store.keys(results(BANK)))


def test_arrivals_list_what_is_dropped_and_beat_by_a_role_that_reads_nothing(
    place: Place, whole: Whole
) -> None:
    bench = place.bench(place.client("arrivals", ARRIVALS))
    store = bench.store
    started = list[str]()
    watch = IssuerWatch(bench.issuer, store, started.append)
    place.judge_clean()
    place.used()

    watch.look()
    watch.look()

    assert {f"nightly/nightly-{BANK}", f"ingest/ingest-{BANK}"} == set(started)
    assert place.used() & granted(ARRIVALS) == granted(ARRIVALS)
    dropped = next(place.owner.store.keys(extracts(BANK))).key
    for key in (dropped, keys_of(whole.run).ledger + PART, f"{BANK}/metrics/runs.json"):
        with pytest.raises(StoreDeniedError):
            store.open(key)
        with pytest.raises(StoreDeniedError):
            store.replace(key, [b"x"])
    with pytest.raises(StoreDeniedError):
        list(store.keys(f"{BANK}/runs/"))


def test_the_page_of_all_issuers_needs_a_policy_of_its_own_and_the_page_server_shows_it(
    place: Place, whole: Whole
) -> None:
    place.used()

    report_programme(place.bench(place.client("manager", PIPELINE, PROGRAMME)), ALL_ISSUERS)

    assert place.used() & granted(PROGRAMME) == granted(PROGRAMME)
    with pytest.raises(StoreDeniedError):
        report_programme(whole.bench, ALL_ISSUERS)
    reader = place.bench(place.client("reader", REPORTS)).store
    for folder in (ALL_ISSUERS, programme(BANK)):
        with reader.open(f"{folder}report.html"):
            pass


def test_whoever_works_at_the_portal_fetches_chunks_and_drops_results_and_no_more(
    place: Place, whole: Whole
) -> None:
    client = place.client("desk", DROP)
    store = place.bench(client).store
    owner, keys = place.owner, keys_of(whole.run)
    chunk = keys.chunks + keys.chunk_name(7)
    owner.store.create(chunk, b"sealed")
    place.used()

    listed = [entry.key for entry in store.keys(keys.chunks)]
    with store.open(chunk), store.open(keys.report("chunks.csv")):
        pass
    for folder in (results(BANK), corrections(BANK), transactions(BANK)):
        store.create(f"{folder}desk.csv", b"x")
    store.create(f"{deliveries(BANK)}000001/received", b"x")

    assert chunk in listed
    assert place.used() & granted(DROP) == granted(DROP)
    for key in (
        f"{extracts(BANK)}x",
        f"{journal(BANK)}x.json",
        keys.ledger + "x",
    ):
        with pytest.raises(StoreDeniedError):
            store.create(key, b"x")
        with pytest.raises(StoreDeniedError):
            store.open(key)


@pytest.mark.parametrize("name", ["pipeline", "purge-", "reports-", "drop-", "the owner"])
def test_nobody_speaks_to_the_bucket_in_the_clear(place: Place, whole: Whole, name: str) -> None:
    files = {"pipeline": PIPELINE, "purge-": PURGE, "reports-": REPORTS, "drop-": DROP}
    client = (
        place.client(f"clear-{name}", files[name])
        if name in files
        else servers.client(place.server.endpoint)
    )
    client.meta.events.register(
        "before-send.s3", lambda request, **_: request.headers.update({"X-In-The-Clear": "1"})
    )

    for act in (
        client.list_objects_v2,
        client.list_multipart_uploads,
        client.get_bucket_versioning,
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            act(Bucket="locked")
    with pytest.raises(ClientError, match="AccessDenied"):
        client.get_object(
            Bucket="locked", Key=f"nightly/{keys_of(whole.run).report('report.html')}"
        )


@pytest.mark.slow
def test_whoever_may_read_an_object_but_not_use_its_key_gets_nothing(
    place: Place, whole: Whole
) -> None:
    statements = [
        one
        for one in json.loads(text_of(REPORTS))["Statement"]
        if not one["Sid"].startswith("UseTheKey")
    ]
    file = place.log.parent / "bare.json"
    file.write_text(json.dumps({"Version": "2012-10-17", "Statement": statements}))

    with pytest.raises(StoreDeniedError):
        place.bench(place.client("bare", file)).store.open(keys_of(whole.run).report("report.html"))
