"""One link for one cardholder, now: a row prepared exactly as in a run, requested once, recorded
before and after.
"""

from __future__ import annotations

import csv
import secrets
from collections.abc import Callable, Mapping
from datetime import date
from io import BytesIO, StringIO
from typing import Any, Final

import polars as pl
from pydantic import ValidationError

from flows import steps
from flows.errors import CardlinkError, OperatorError, TryAgainError
from flows.extracts.decode import Readable
from flows.extracts.opening import open_extract
from flows.partner_api.service import (
    AnswerLostError,
    Linking,
    LinkRequestError,
    NoServiceError,
    StrangeAnswerError,
)
from flows.redaction import hiding, redact, shows_card
from flows.reports.cardholder import SINGLE, Attempt
from flows.reports.cardholder_trace import trace
from flows.reports.rebuild import rebuild_lasting
from flows.resend.corrections import by_row, cells_of
from flows.resend.selected_run import reopen_source
from flows.results.attribution import allowed
from flows.results.lineage import newest_first
from flows.results.read import day_in
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.documents import committed, read_ledger, refuse_purged
from flows.runs.errors import NoSuchRowError
from flows.runs.events import record_event
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys, keys_of, prompted_prefix
from flows.runs.single_links import SingleLink, answer_key, singles
from flows.runs.stored_run import StoredRun
from flows.steps import REASON, Option, Sentence, Step
from flows.submissions.gates import WrongCardsError
from flows.submissions.row_scope import PICK, RowScope, SelectedRows
from flows.submissions.scan import Scan
from schemas.issuer import SourceSettings
from schemas.ledger import AWAITING
from schemas.manifest import SourceIdentity
from schemas.partner_api.card_link import CardLink, CardLinkRequest, Refusal
from schemas.partner_api.service import ServiceSettings
from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    NICKNAME,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
    columns,
)
from schemas.records import LINKED, REFUSED, UNSENT, SingleAnswered, SingleAsked

_CARDHOLDER: Final = {
    "cuid": CUID,
    "first_name": FIRST_NAME,
    "last_name": LAST_NAME,
    "email": EMAIL,
}
_ADDRESS: Final = {
    "address1": ADDRESS1, "address2": ADDRESS2, "city": CITY, "subnational": SUBNATIONAL, "postal_code": POSTAL_CODE,
    "country": COUNTRY, "phone_number": PHONE, "email": EMAIL,
}  # fmt: skip
_CARD: Final = {
    "pan": PAN, "expiration_month": MONTH, "expiration_year": YEAR, "name_on_card": NAME_ON_CARD,
    "nickname": NICKNAME, "cvv": CVV,
}  # fmt: skip
_MISSING: Final = frozenset({"missing", "string_too_short", "none_not_allowed"})

# a request requires them, the upload file does not (2.6, 2.8)
SUPPLIED: Final = (PHONE, NAME_ON_CARD)
NOT_ALLOWED: Final = "link.url.not_allowed"
DEFAULT_LIFE: Final = "2mo"  # interface.md 8

Supply = Callable[[str], str]  # a column's name to what is typed in for it, "" for nothing


def link_request(
    row: Mapping[str, str | None], expiration: Mapping[str, str] | None = None
) -> CardLinkRequest:
    """Return the request for the link of a refined row (columns of 2.6); its hash of a CVV has no
    place in it.

    A nickname, which 2.8 requires and 2.6 does not, is made of the last four digits. Raises
    LinkRequestError, which names entity, property and kind, never a value.
    """
    card = _taken(row, _CARD)
    if "pan" in card:
        card.setdefault("nickname", f"Card ending in {card['pan'][-4:]}")
    primary = {"is_primary": row.get(IS_PRIMARY) == "TRUE"} if row.get(IS_PRIMARY) else {}
    return checked_request(
        {
            "cardholder": _taken(row, _CARDHOLDER),
            "address": {**_taken(row, _ADDRESS), **primary},
            "card": {"reference": None, **card},
            **({"expiration": dict(expiration)} if expiration else {}),
        }
    )


def checked_request(plain: Mapping[str, object]) -> CardLinkRequest:
    """Return the request of these objects; LinkRequestError with a code per broken rule."""
    try:
        return CardLinkRequest.model_validate(plain)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        codes = [_code(fault["loc"], fault["type"]) for fault in faults]
    raise LinkRequestError(codes=", ".join(dict.fromkeys(codes)))


def _taken(row: Mapping[str, str | None], names: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, column in names.items() if (value := row.get(column))}


def _code(place: tuple[int | str, ...], kind: str) -> str:
    """Name a broken rule as `entity.property.kind`; an unknown property is not quoted."""
    reported = kind if kind == "unknown" else "missing" if kind in _MISSING else "format"
    if kind == "extra_forbidden":
        place, reported = (*place[:-1], "property"), "unknown"
    entity, name = (*map(str, place), "record")[:2]
    return f"{entity}.{name}.{reported}"


class CardTakenError(OperatorError):
    """The card has a link or awaits one."""

    message = "No link was requested: {reason}."
    next_step = Sentence(
        "{trace} shows the history. To request another one anyway: {override}.",
        trace=Step("trace", steps.CUID),
        override=Option("--override", REASON, of="link"),
    )


class SingleUnderWayError(TryAgainError):
    """Another command is requesting the same link."""

    message = "This link is already being requested: {key} exists."
    next_step = "Run {same_command} again: it shows the outcome."


def link_row(
    context: IssuerContext,
    linking: Linking,
    run: str,
    row: int,
    *,
    override: str = "",
    supply: Supply = lambda _: "",
) -> SingleLink:
    """Ask for one link for a row (from 1) of a run's source, read and refined again, and count it
    in the run's report.

    Raises NoServiceError, LedgerPurgedError, NoSuchRowError, SourceGoneError, LinkRequestError,
    CardTakenError, and what the service's client raises.
    """
    keys, manifest = keys_of(run), committed(context.adapters.store, run)
    # without its ledger it is unknown whether the card has a link
    refuse_purged(context.adapters.store, keys)
    records = read_ledger(context.adapters.store, keys, manifest.ledger, ["row"])
    if not any((part["row"] == row).any() for part in records):
        raise NoSuchRowError(place=run, rows=row)
    entry, source = reopen_source(context, run, manifest.source)
    picked = SelectedRows(
        pl.DataFrame({"row": [row], "origin": [row]}, PICK), by_row(cells_of(context, manifest))
    )
    with open_extract(context, entry, source) as stream:
        fields = _refined(context, stream, source, RowScope(picked, keep_cells=True))
    known = [one for one in singles(context.adapters.store, keys) if one.asked.row == row]
    if any(one.state == LINKED for one in known):  # killed before it was counted?
        _report(context, run)
    key = f"{keys.singles}{row:09d}-{len(known) + 1}.json"
    done = _Asking(context, linking, key, keys, row).ask(fields, override, supply)
    if done.state == LINKED:
        _report(context, run)
    return done


def _report(context: IssuerContext, run: str) -> None:
    """Count a single link in the report of its run, and of those that this one repeats."""
    for affected in newest_first([StoredRun.by_id(context.adapters.store, run)]):
        rebuild_lasting(context, affected)


def link_typed(
    context: IssuerContext, linking: Linking, typed: Mapping[str, str], *, override: str = ""
) -> SingleLink:
    """Ask for one link of typed-in fields, under the portal's column names; they pass every rule an
    extract's row does.

    Without a cuid one is made that has nothing to do with the card. Raises as `link_row` does.
    """
    plain = context.issuer.model_copy(
        update={"source": SourceSettings(), "columns": {}, "filter": {}, "full_portfolio": False}
    )
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [columns(), [typed.get(name, "") for name in columns()]]
    )
    built = SourceIdentity(key="typed.csv", version="", size=0, sha256=secrets.token_hex(32))
    stream = BytesIO(text.getvalue().encode())
    fields = _refined(context._replace(issuer=plain), stream, built, RowScope(keep_cells=True))
    key = f"{prompted_prefix(context.issuer.issuer)}{context.adapters.now():%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}.json"
    return _Asking(context, linking, key).ask(fields, override, lambda _: "")


def _refined(
    context: IssuerContext, stream: Readable, source: SourceIdentity, scope: RowScope
) -> dict[str, Any]:
    """Return the one valid row of a source; LinkRequestError says why there is none."""
    issuer = context.issuer
    scan = Scan(context, stream, source, local_day(context.adapters.now(), issuer.time_zone), scope)
    pieces = list(scan)
    good = [
        row for piece in pieces for chunk in piece.chunks for row in chunk.iter_rows(named=True)
    ]
    reported = (
        pl.concat([piece.others for piece in pieces])["reasons"]
        .explode()
        .drop_nulls()
        .str.split("|")
        .list.last()
    )
    if not good:
        raise LinkRequestError(
            codes=", ".join(reported.unique(maintain_order=True)) or "row.record.missing"
        )
    if issuer.test and scan.route.other_cards:
        raise WrongCardsError(extract=source.key, count=1, kind="real", test="true")
    if not issuer.test and scan.route.test_cards:
        raise WrongCardsError(extract=source.key, count=1, kind="test", test="false")
    return good[0]


class _Asking:
    """One attempt: where it is recorded, and for whom."""

    def __init__(
        self,
        context: IssuerContext,
        linking: Linking,
        key: str,
        keys: RunKeys | None = None,
        row: int | None = None,
    ) -> None:
        if context.issuer.service is None:
            raise NoServiceError(issuer=context.issuer.issuer)
        self._context, self._linking, self._key, self._keys, self._row = (
            context,
            linking,
            key,
            keys,
            row,
        )
        self._settings: ServiceSettings = context.issuer.service
        self._today = local_day(context.adapters.now(), context.issuer.time_zone)

    def ask(self, fields: dict[str, Any], override: str, supply: Supply) -> SingleLink:
        """Record, request once, record again."""
        given = {column: supply(column) for column in SUPPLIED if not fields.get(column)}
        request = link_request({**fields, **given})
        asked = SingleAsked(
            row=self._row,
            cuid=fields[CUID],
            last_4=fields["last_4"],
            expiration=fields["expiration"],
            at=self._context.adapters.now(),
            by=redact(self._context.adapters.actor),
            override=redact(override.strip()),
        )
        if not asked.override:
            self._refuse_taken(asked)
        if not self._context.adapters.store.create(self._key, canonical(asked)):
            raise SingleUnderWayError(key=self._key)
        with hiding(request.card.pan, request.card.cvv):  # a refusal may repeat them
            answered = self._judged(self._send(request), asked.last_4)
        self._record(answered)
        return SingleLink(self._key, asked, answered)

    def _send(self, request: CardLinkRequest) -> CardLink | Refusal:
        try:
            return self._linking.create_link(request)
        except (
            AnswerLostError,
            StrangeAnswerError,
        ):  # the link may exist: the outcome stays unknown
            raise
        except CardlinkError as error:
            kind = type(error).__name__
            self._record(
                SingleAnswered(outcome=UNSENT, at=self._context.adapters.now(), reasons=(kind,))
            )
            raise

    def _judged(self, reported: CardLink | Refusal, last_4: str | None) -> SingleAnswered:
        """Check the response as a result row is checked: a link points to an allowed host and
        contains no card.
        """
        now = self._context.adapters.now()
        if isinstance(reported, Refusal):
            codes, message = (
                tuple(reported.codes.split(", ")),
                redact(reported.message, foreign=True),
            )
            return SingleAnswered(outcome=REFUSED, at=now, reasons=codes, message=message)
        url = reported.url or self._settings.url_of(reported.cardholder_long_token)
        if url is None:
            raise StrangeAnswerError(
                place=f"POST {self._settings.link_path}",
                problem="a link without a URL; see [service] link_url",
            )
        link_id, raw = (
            redact(text) if text else text
            for text in (reported.id or self._settings.id_of(url), reported.expires_raw)
        )
        hosts = self._context.issuer.portal.allowed_hosts
        if (
            shows_card(url, last_4)
            or not pl.DataFrame({"url": [url]}).select(allowed("url", hosts)).item()
        ):
            return SingleAnswered(outcome=REFUSED, at=now, link_id=link_id, reasons=(NOT_ALLOWED,))
        return SingleAnswered(
            outcome=LINKED,
            at=now,
            link_id=link_id,
            url=url,
            expires_on=self._ends(raw),
            expires_raw=raw,
        )

    def _ends(self, raw: str | None) -> date:
        """Return the day a link expires: from its record, else two months from now."""
        usual = pl.lit(self._today).dt.offset_by(DEFAULT_LIFE)
        reported = pl.DataFrame({"expires": [raw]}, {"expires": pl.String}).select(
            pl.coalesce(day_in("expires"), usual).alias("day")
        )
        day: date = reported.item()
        return day

    def _record(self, answered: SingleAnswered) -> None:
        self._context.adapters.store.create(answer_key(self._key), canonical(answered))
        if self._keys is not None:
            number = self._key.rpartition("/")[2].removesuffix(".json")
            record_event(
                self._context.adapters,
                self._keys,
                "single",
                attempt=number,
                outcome=answered.outcome,
            )

    def _refuse_taken(self, asked: SingleAsked) -> None:
        """Raise CardTakenError if the card has an active link or awaits one, from any run or a
        single link.
        """
        for one in trace(self._context.adapters, self._context.issuer.issuer, asked.cuid).attempts:
            if one.last_4 == asked.last_4 and (one.active(self._today) or one.state == AWAITING):
                where = (
                    f"row {one.row} of {one.run}" if one.run else "what was typed in for this card"
                )
                raise CardTakenError(reason=f"{where} {_how(one)}")


def _how(attempt: Attempt) -> str:
    if attempt.state == LINKED:
        return "has a link"
    if attempt.sent == SINGLE:
        return "was asked for by itself and has no answer: it is under way, or was lost, which the partner can tell"
    return "is sent and not answered"
