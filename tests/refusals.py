"""Refusals that show a command or an option: for each a store, and the line that is refused there.

`CASES` has them by the name of the error; where one has several, by the function that raises it too,
and by what is refused there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests import refused
from tests.refused import EXTRACT, Refusal, done_before, known, raised, submitting, with_service
from tests.test_dry_runs import answered, sent

# the refused line is refused again, since what is shown is done in its place
INSTEAD = {
    "CommittedError": "what was sent cannot be abandoned: what is left of it is cancelled",
    "NotFoundError": "shows what there is",
    "AnswersUnreadableError": "the file is filled in once more",
    "NothingToProbeError": "asks for what there is",
}
NO_RUN = "bank-20261120-01234567"
RESULT = "card-links-{run}"
CASES: dict[str, Callable[[Path], Refusal]] = {
    "SidecarError": refused.other_sidecar,
    "RejectRateError": refused.rejects,
    "IneligibleRateError": refused.ineligible,
    "SeenBeforeError": refused.seen_before,
    "UnknownStatusError": refused.unknown_status,
    "SettingsNotAgreedError": refused.not_agreed,
    "NobodyError": refused.nobody,
    "ApprovalError": refused.own_request,
    "RequestChangedError": refused.edited_request,
    "SettingsLostError": refused.settings_lost,
    "OtherJournalError": refused.other_journal,
    "AbandonedError": refused.abandoned,
    "UnsealedCardError": refused.unsealed,
    "SettingsChangedError": refused.other_settings,
    "OtherChunkError": refused.sealed_again,
    "CorrectionsUnreadableError": refused.unreadable,
    "CorrectionsNotFoundError": refused.corrections_not_there,
    "SourceGoneError": refused.source_gone,
    "LastFourError": refused.other_digits,
    "AnswersUnreadableError": refused.no_answers,
    "ListChangedError": refused.listed,
    "DuplicateExtractError": refused.copied,
    "ChangedExtractError": refused.changed,
    "DismissedError": refused.dismissed,
    "EmptyExtractError": refused.empty,
    "NoIssuerError": known("cardlink check nobody"),
    "ActorError": known("cardlink outbox hold {run} 1 {why} --actor a/b", actor="Jo"),
    "NoSettingError": known("cardlink settings limit.x"),
    "CopybookAloneError": known("cardlink init other --copybook nothing.cpy"),
    "CardholderUnnamedError": known("cardlink person erase {run} {why}", prepare=answered, N="1"),
    "OneWayError": with_service(answered, "cardlink link {run}"),
    "OtherIssuerError": with_service(answered, "cardlink placements bank other-20261120-01234567"),
    "NoReasonError": known("cardlink outbox hold {run} 1 --reason ' '", reason="ticket 7"),
    "UnknownRunError": known(f"cardlink report {NO_RUN}"),
    "SentTwiceError": known(submitting(more="--new-run 'the portal lost it'")),
    "OneRunError": known("cardlink resubmit bank --row 1 {why}", prepare=answered),
    "ChunkStateError": known("cardlink outbox hold {run} 1 {why}", prepare=answered),
    "UnansweredError": known("cardlink person erase {run} --row 1 {why}"),
    "NoSuchLinkError": known(
        "cardlink person erase bank --single 20261120T120000000000-ab12cd34 {why}"
    ),
    "OtherRowsError": known("cardlink outbox hold {run} --rows 7 {why}"),
    "NoCardsNamedError": known("cardlink mend give-up bank {why}"),
    "LinkFormError": known("cardlink link-form bank https://other.example.com/a {why}"),
    "RowSettledError": refused.settled,
    "CommittedError: remediation.abandon": known("cardlink mend abandon {run} {why}"),
    "CommittedError: remediation.dismiss": known(f"cardlink dismiss bank {EXTRACT} {{why}}"),
    "StandingRowsError": known("cardlink resubmit {run} --row 1 --row 2 --row 3 {why}"),
    "NothingToSendError": known("cardlink resubmit {run} --errors {why}"),
    "CardTakenError": with_service(sent, "cardlink link {run} 1"),
    "CardReferenceError": with_service(answered, "cardlink link {run} 1 --by-reference"),
    "NoLinksError": with_service(sent, "cardlink placements bank {run}"),
    "NothingToProbeError": with_service(answered, "cardlink record {run} 99"),
    "DaysReversedError": known("cardlink backfill bank --from 2026-11-20 --to 2026-11-19"),
    "NoKeyGivenError": refused.no_key,
    "ClaimedError": done_before("mend take-over", submitting()),
    "ConfigurationError": refused.wrong_setting,
    "LedgerPurgedError": raised("LedgerPurgedError", run="{run}", date="2026-11-20", setting="x"),
    "NotCommittedError": raised("NotCommittedError", run="{run}", issuer="bank", state="refused"),
    "StoreFullError": raised("StoreFullError", place="store", code="ENOSPC"),
    "DatabaseDeniedError": raised("DatabaseDeniedError", place="x", code="SQLITE_CANTOPEN"),
    "ConflictError": raised("ConflictError", key="bank/x"),
    "RowsDifferError": raised("RowsDifferError", run="{run}", count=1, rows="1"),
    "WitnessKeyError": raised("WitnessKeyError", place="x"),
    "NotFoundError: matters.by_number": known("cardlink show bank 77"),
    "NotFoundError: outbox.select_chunks": known("cardlink outbox hold {run} 9 {why}"),
    "NotFoundError: outbox._refuse_numbers": known("cardlink outbox uploaded bank 1"),
    "NotFoundError: audit.accept": known("cardlink audit accept bank bank/x {why}"),
    "NotFoundError: break_decisions._chosen": known("cardlink mend close {run} OTHER_CARD {why}"),
    "NotFoundError: break_decisions._chosen: closed": known(
        "cardlink mend reopen {run} RESULT_SHORT {why}"
    ),
    "NotFoundError: break_decisions.runs_to_close": known("cardlink mend close bank OTHER {why}"),
    "NotFoundError: break_decisions._refuse_unless_offered": known(
        "cardlink mend close {run} RESULT_SHORT --decision link {why}"
    ),
    "NotFoundError: handover.confirm_handed": known("cardlink deliver bank --confirm 9 {why}"),
    "NotFoundError: handover.confirm_handed: of another": refused.other_receiver,
    "NotFoundError: handover.confirm_handed: of the issuer": known(
        "cardlink acknowledge bank --confirm 9 {why}"
    ),
    "NotFoundError: giving_up._to_decide": known("cardlink mend give-up bank --cuid nobody {why}"),
    "NotFoundError: giving_up._to_decide: undo": known(
        "cardlink mend give-up {run} --row 1 --undo {why}"
    ),
    "NotFoundError: keeping_links.keep_links": known("cardlink mend keep-link {run} --row 1 {why}"),
    "NotFoundError: keeping_links.keep_links: undo": known(
        "cardlink mend keep-link {run} --row 1 --undo {why}"
    ),
    "NotFoundError: link_form.decide_form": known(
        "cardlink link-form bank https://links.example.com/{{hex:9}} --undo {why}"
    ),
    "NotFoundError: remediation.take_over": known("cardlink mend take-over {run} {why}"),
    "NotFoundError: remediation.dismiss": known(f"cardlink dismiss bank {EXTRACT} --undo {{why}}"),
    "NotFoundError: remediation._dismiss_day": known("cardlink dismiss bank 2026-11-20 {why}"),
    "NotFoundError: remediation._dismiss_day: undo": known(
        "cardlink dismiss bank 2026-11-23 --undo {why}"
    ),
    "NotFoundError: renewal._latest_extract": refused.no_portfolio,
    "FetchUnnamedError": refused.copied_before,
    "NothingFetchedError": refused.not_copied,
    "RowJumpError": refused.more_rows,
    "RowFallError": refused.fewer_rows,
    "DriftError": refused.other_cells,
    "OneValueError": refused.one_phone,
    "LeaversError": refused.other_portfolio,
    "NewcomersError": refused.grown_portfolio,
    "UndecidedError": refused.undecided,
}
# cases that cost most, or of a kind of which others are in `make test`
SLOW = {
    "SentTwiceError",
    "CardTakenError",
    "CorrectionsUnreadableError",
    "OtherChunkError",
    "ListChangedError",
    "RowsDifferError",
    "NotFoundError: break_decisions._chosen",
    "CommittedError: remediation.abandon",
    "DuplicateExtractError",
    "SeenBeforeError",
    "SidecarError",
    "NoSettingError",
    "NothingFetchedError",
    "RequestChangedError",
    "NothingToProbeError",
    "NothingToSendError",
    "RowSettledError",
    "NoLinksError",
    "NoCardsNamedError",
    "CardholderUnnamedError",
    "OtherIssuerError",
    "NotFoundError: outbox._refuse_numbers",
    "NotFoundError: handover.confirm_handed: of the issuer",
    "NotFoundError: audit.accept",
    "NotFoundError: break_decisions._chosen: closed",
    "NotFoundError: break_decisions.runs_to_close",
    "NotFoundError: handover.confirm_handed: of another",
    "NotFoundError: giving_up._to_decide",
    "NotFoundError: giving_up._to_decide: undo",
    "NotFoundError: keeping_links.keep_links",
    "NotFoundError: keeping_links.keep_links: undo",
    "NotFoundError: link_form.decide_form",
    "NotFoundError: remediation.take_over",
    "NotFoundError: remediation.dismiss",
    "NotFoundError: remediation._dismiss_day",
    "NotFoundError: remediation._dismiss_day: undo",
    "RowJumpError",
    "RowFallError",
    "DriftError",
    "LeaversError",
    "NewcomersError",
    "OneWayError",
    "SourceGoneError",
    "CorrectionsNotFoundError",
    "CardReferenceError",
    "SettingsLostError",
    "IneligibleRateError",
    "UnknownStatusError",
    "AbandonedError",
    "LastFourError",
    "NoKeyGivenError",
    "StandingRowsError",
    "NoIssuerError",
}


class Elsewhere(NamedTuple):
    """Why an error has no case here, and the file that tests it: by name, or by what it shows."""

    why: str
    file: str
    shown: str = ""


SERVES = "practice serves until it is stopped"
ELSEWHERE = {
    "RowChangedError": Elsewhere(
        "needs a copy of the database", "extensions/governance/test_changed_rows.py"
    ),
    "DatabaseDamagedError": Elsewhere(
        "needs a copy of it", "operations/test_recovery.py", 'recover "ISSUER"'
    ),
    "ChangedMatterError": Elsewhere(
        "others come after it was shown", "cli/test_shown_rows.py", "when it was shown"
    ),
    "IssuerNameError": Elsewhere("shows an option of all", "cli/test_keys_and_names.py"),
    "WhichReceiverError": Elsewhere(
        "its option was given", "extensions/deliveries/test_receivers.py"
    ),
    "NotADemoError": Elsewhere("a demo runs everything", "test_demo.py"),
    "NoPracticeError": Elsewhere(SERVES, "cli/test_practice_people.py"),
    "NoPracticeServiceError": Elsewhere(SERVES, "simulator/test_answer_at_service.py"),
    "PortTakenError": Elsewhere(SERVES, "simulator/service/test_serving.py"),
    "PartialRunError": Elsewhere("needs a gpg that fails", "submissions/test_faulty_gpg.py"),
    "FollowingStoppedError": Elsewhere(
        "of a job", "extensions/partner_api/test_job_command.py", "To follow it again: "
    ),
    "WatchingStoppedError": Elsewhere(
        "of a job", "extensions/partner_api/test_job_command.py", "To watch it again: "
    ),
    "ServerFailsError": Elsewhere(
        "install needs a Prefect server", "ops/test_faulty_prefect.py", "cardlink install"
    ),
    "NotDeployedError": Elsewhere(
        "install needs a Prefect server", "arrivals/test_looks.py", "no deployment "
    ),
}
