"""Refusals that show a command or an option: for each a store, and the line that is refused there.

`CASES` has them by the name of the error; behind a colon stands what is refused, where one error
has several.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests import refused
from tests.refused import EXTRACT, Refusal, done_before, known, raised, submitting, with_service
from tests.test_dry_runs import answered, sent
from tests.torture.acts import TAKEN_BACK

# the refused line is refused again, since what is shown is done in its place
INSTEAD = {
    "CommittedError": "what was sent cannot be abandoned: what is left of it is cancelled",
    "NotFoundError": "shows what there is",
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
    "AbandonedError": refused.abandoned,
    "UnsealedCardError": refused.unsealed,
    "ErasureKeyGoneError": refused.erasure_key_gone,
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
    "ActorError": known("cardlink outbox hold {run} {why} --actor a/b", actor="Jo"),
    "NoSettingError": known("cardlink settings limit.x"),
    "CopybookAloneError": known("cardlink init other --copybook nothing.cpy"),
    "CardholderUnnamedError": known("cardlink person erase {run} {why}", prepare=answered, N="1"),
    "OneWayError": with_service(answered, "cardlink link {run}"),
    "OtherIssuerError": with_service(answered, "cardlink placements bank other-20261120-01234567"),
    "NoReasonError": known("cardlink outbox hold {run} --reason ' '", reason="ticket 7"),
    "UnknownRunError": known(f"cardlink report {NO_RUN}"),
    "SentTwiceError": known(submitting(more="--new-run 'the portal lost it'")),
    "OneRunError": known("cardlink resubmit bank --row 1 {why}", prepare=answered),
    "ChunkStateError": known("cardlink outbox release {run} 1 {why}"),
    "UnansweredError": known("cardlink person erase {run} --row 1 {why}"),
    "NoSuchLinkError": known(
        "cardlink person erase bank --single 20261120T120000000000-ab12cd34 {why}"
    ),
    "NoCardsNamedError": known("cardlink mend give-up bank {why}"),
    "LinkFormError": known("cardlink link-form bank https://other.example.com/a {why}"),
    "RowSettledError": refused.settled,
    "CommittedError": known("cardlink mend abandon {run} {why}"),
    "CommittedError: dismiss": known(f"cardlink dismiss bank {EXTRACT} {{why}}"),
    "StandingRowsError": known("cardlink resubmit {run} --row 1 --row 2 --row 3 {why}"),
    "NothingToSendError": known("cardlink resubmit {run} --errors {why}"),
    "CardTakenError": with_service(sent, "cardlink link {run} 1"),
    "CardReferenceError": with_service(answered, "cardlink link {run} 1 --by-reference"),
    "NoLinksError": with_service(sent, "cardlink placements bank {run}"),
    "NothingToProbeError": with_service(answered, "cardlink record {run} 99"),
    "DaysReversedError": known("cardlink backfill bank --from 2026-11-20 --to 2026-11-19"),
    "NoKeyGivenError": refused.no_key,
    "ClaimedError": done_before("mend take-over", submitting(), prepared=TAKEN_BACK),
    "ConfigurationError": refused.wrong_setting,
    "LedgerPurgedError": raised("LedgerPurgedError", run="{run}", date="2026-11-20", setting="x"),
    "StoreFullError": raised("StoreFullError", place="store", code="ENOSPC"),
    "StoreUnsafeError": raised("StoreUnsafeError", place="store", problem="x"),
    "ConflictError": raised("ConflictError", key="bank/x"),
    "RowsDifferError": raised("RowsDifferError", run="{run}", count=1, rows="1"),
    "WitnessKeyError": raised("WitnessKeyError", place="x"),
    "NotFoundError: chunk": known("cardlink outbox hold {run} 9 {why}"),
    "NotFoundError: acknowledgement": known("cardlink acknowledge bank --confirm 9 {why}"),
    "NotFoundError: finding": known("cardlink audit accept bank bank/x {why}"),
    "NotFoundError: break": known("cardlink mend close {run} OTHER_CARD {why}"),
    "NotFoundError: delivery": known("cardlink deliver bank --confirm 9 {why}"),
    "NotFoundError: card": known("cardlink mend give-up {run} --row 1 --undo {why}"),
    "NotFoundError: link": known("cardlink mend keep-link {run} --row 1 {why}"),
    "NotFoundError: form": known(
        "cardlink link-form bank https://links.example.com/{{hex:9}} --undo {why}"
    ),
    "NotFoundError: claim": known("cardlink mend take-over {run} {why}"),
    "NotFoundError: dismissal": known(f"cardlink dismiss bank {EXTRACT} --undo {{why}}"),
}
# cases that cost most, or of a kind of which others are in `make test`
SLOW = {
    "SeenBeforeError",
    "SidecarError",
    "NoSettingError",
    "RequestChangedError",
    "NothingToProbeError",
    "NothingToSendError",
    "RowSettledError",
    "NoLinksError",
    "NoCardsNamedError",
    "CardholderUnnamedError",
    "OtherIssuerError",
    "NotFoundError: card",
    "NotFoundError: link",
    "NotFoundError: form",
    "NotFoundError: claim",
    "NotFoundError: finding",
    "NotFoundError: dismissal",
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
# what is shown and tried by other tests, or is no way on for a machine
ELSEWHERE = {
    "RowJumpError": "a gate that needs nights before it: tests/submissions/test_gates.py",
    "RowFallError": "a gate that needs nights before it: tests/submissions/test_gates.py",
    "DriftError": "a gate that needs nights before it: tests/submissions/test_drift.py",
    "IssuerNameError": "shows --config alone, an option of every command",
    "WhichReceiverError": "shows an option that was given",
    "NotADemoError": "the demo is run by tests/test_demo.py",
    "NoPracticeError": "practice serves until it is stopped: tests/cli/test_practice_people.py",
    "NoPracticeServiceError": "practice serves until it is stopped: tests/cli/test_practice.py",
    "PartialRunError": "needs a gpg that fails: tests/submissions/test_rerun.py",
    "UndecidedStatusError": "of a first draft: tests/extracts/test_marked_exports.py",
    "PortTakenError": "practice serves until it is stopped: tests/cli/test_practice.py",
    "FollowingStoppedError": "of a job at the service: tests/cli/test_follow.py",
    "WatchingStoppedError": "of a job at the service: tests/cli/test_follow.py",
    "NotDeployedError": "install needs a Prefect server: tests/ops/test_operating.py",
}
