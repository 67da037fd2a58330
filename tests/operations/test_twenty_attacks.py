"""Twenty attacks on requests and the journal, by who can write to store and database, or is one of
two.

Each is refused or found; the table says by which test that is shown. `found`: `audit verify` names
it; `refused`: the act does not take place.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import Executable, delete, update

from flows.extensions.privacy.erasure import OfRows, erase
from flows.operations.audit import verify
from flows.operations.audit_journal import CHANGED, REMOVED
from flows.runs.decisions import ERASURE
from schemas.database import DECISION
from tests.extensions.privacy.test_erasure import cleaner, delivered, row_of, trailed
from tests.night import BANK

TESTS = Path(__file__).parents[1]


class Attack(NamedTuple):
    """What somebody does, what becomes of it, and the test that does it: file and name."""

    deed: str
    outcome: str
    file: str
    test: str


COVERS = "operations/test_trail_covers.py"
SETTINGS = "extensions/governance/test_settings_in_force.py"
TWO = "extensions/governance/test_two_persons.py"
ACTS = "extensions/governance/test_acts_of_two.py"
SIGNED = "extensions/governance/test_signed_persons.py"
WITNESS = "operations/test_checkpoints.py"
PROOF = "operations/test_trail_proof.py"
AUDIT = "operations/test_audit.py"
FOUR_EYES = "extensions/governance/test_requests.py"
OWN = "operations/test_twenty_attacks.py"
ATTACKS = (
    # who can write to store and database
    Attack(
        "swap the links of two cardholders: outcomes, report, lists, deliveries",
        "found",
        COVERS,
        "test_links_of_two_cardholders_that_are_swapped_are_found_where_it_was_done",
    ),
    Attack(
        "put a result that nobody ingested beside the others",
        "found",
        COVERS,
        "test_what_a_result_file_says_is_found_where_somebody_changed_it",
    ),
    Attack(
        "put back an earlier copy of what came of a result",
        "found",
        COVERS,
        "test_what_a_result_file_says_is_found_where_somebody_changed_it",
    ),
    Attack("remove results, claims or links", "found", COVERS, "test_what_was_removed_is_found"),
    Attack(
        "change, remove, swap or insert any record, chunk or ledger",
        "found",
        AUDIT,
        "test_every_mutation_of_a_random_kind_is_found_and_what_was_touched_is_named",
    ),
    Attack(
        "delete the journal and edit what it named",
        "found",
        AUDIT,
        "test_a_database_without_a_journal_is_a_finding_until_it_is_accepted_that_another_begins",
    ),
    Attack(
        "put the database back, cut the journal's end, or delete it",
        "found",
        WITNESS,
        "test_a_database_that_is_put_back_cut_or_deleted_is_found_and_not_signed",
    ),
    Attack(
        "write the whole journal anew",
        "found",
        WITNESS,
        "test_a_journal_that_was_written_anew_is_not_the_one_that_was_seen",
    ),
    Attack(
        "remove the database",
        "found",
        WITNESS,
        "test_by_the_commands_alone_a_witness_is_set_up_and_finds_a_database_that_was_removed",
    ),
    Attack(
        "make up a checkpoint of the witness",
        "refused",
        WITNESS,
        "test_a_checkpoint_that_the_witness_did_not_sign_is_refused",
    ),
    Attack(
        "add an entry to the journal without its key",
        "found",
        PROOF,
        "test_an_entry_that_was_added_without_the_key_is_found",
    ),
    Attack(
        "make up an entry's proof",
        "found",
        PROOF,
        "test_an_entry_with_a_proof_that_somebody_made_up_is_found",
    ),
    Attack(
        "change, remove or insert a row of a table",
        "found",
        AUDIT,
        "test_a_row_that_no_entry_wrote_so_is_found_and_accepted_as_it_is",
    ),
    Attack(
        "remove a record that a command has just written",
        "found",
        AUDIT,
        "test_a_record_that_was_written_is_removed_and_never_unfinished",
    ),
    Attack(
        "edit a request: its actor, its end",
        "refused",
        SETTINGS,
        "test_a_request_that_was_edited_in_the_database_is_refused_and_found",
    ),
    Attack(
        "put a request into the database in the name of another",
        "refused",
        SETTINGS,
        "test_a_request_put_into_the_database_in_the_name_of_another_is_refused_and_found",
    ),
    Attack(
        "forge a request with its entry in the journal, where persons have keys",
        "refused",
        SIGNED,
        "test_a_request_forged_with_its_entry_is_refused_because_nobody_signed_it",
    ),
    Attack(
        "remove that a request was used, to use it again",
        "refused",
        SETTINGS,
        "test_a_request_whose_use_was_removed_from_the_database_is_not_used_again",
    ),
    Attack(
        "change any of a request, empty, remove or insert one",
        "found",
        FOUR_EYES,
        "test_whatever_is_changed_of_a_request_is_refused_and_found",
    ),
    Attack(
        "remove the records of settings, so that others are taken as found",
        "refused",
        SETTINGS,
        "test_settings_whose_records_were_removed_are_not_recorded_anew",
    ),
    Attack(
        "remove or exchange what says who is forgotten, so that they get links again",
        "found",
        OWN,
        "test_who_is_forgotten_cannot_be_brought_back_unseen",
    ),
    # one of two persons
    Attack(
        "approve one's own request under another spelling",
        "refused",
        ACTS,
        "test_names_are_one_person_where_they_differ_in_case_punctuation_width_or_spaces",
    ),
    Attack(
        "request or approve as nobody, by a form or a schedule",
        "refused",
        ACTS,
        "test_nobody_is_no_person_neither_as_the_first_nor_as_the_second",
    ),
    Attack(
        "let another portal key, host or limit come between request and approval",
        "refused",
        SETTINGS,
        "test_an_approval_does_not_carry_over_to_another_portal_key",
    ),
    Attack(
        "use a copy of the TOML without `[four_eyes]`",
        "refused",
        SETTINGS,
        "test_four_eyes_cannot_be_taken_out_of_the_file_by_one_even_where_settings_are_not_named",
    ),
    Attack(
        "agree to one change of settings and type another after",
        "refused",
        SETTINGS,
        "test_who_agreed_to_one_change_did_not_agree_to_what_was_typed_after",
    ),
    Attack(
        "replace a file between request and approval",
        "refused",
        TWO,
        "test_a_file_that_was_replaced_meanwhile_is_not_what_was_agreed_to",
    ),
    Attack(
        "use a request twice, or after its hours",
        "refused",
        TWO,
        "test_a_request_is_used_once_and_not_after_its_hours",
    ),
    Attack(
        "do alone any other act that two are needed for",
        "refused",
        ACTS,
        "test_an_act_of_two_does_nothing_until_another_person_carries_it_out",
    ),
    Attack(
        "act under a name without that person's key",
        "refused",
        SIGNED,
        "test_a_name_without_its_persons_signature_neither_requests_nor_approves",
    ),
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.deed)
def test_every_attack_has_the_test_that_is_named(attack: Attack) -> None:
    tree = ast.parse((TESTS / attack.file).read_text("utf-8"))

    tests = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}

    assert attack.test in tests
    assert attack.outcome in ("found", "refused")


def test_there_are_twenty_attacks_and_more() -> None:
    assert 20 <= len({attack.deed for attack in ATTACKS})


@pytest.mark.slow
def test_who_is_forgotten_cannot_be_brought_back_unseen(tmp_path: Path) -> None:
    first, run = delivered(tmp_path)
    bench = trailed(first)
    erase(bench.context, cleaner(first), OfRows(run, [row_of(bench, run)]), "request 1")
    is_first = (DECISION.c.kind == ERASURE) & (DECISION.c.number == 1)

    def found(attack: Executable) -> set[tuple[str, str]]:
        with bench.database.rehearsal(BANK) as connection:
            connection.execute(attack)
            proof = verify(bench.adapters.within(connection), BANK)
        return {(each.key, each.what) for each in proof.findings}

    assert ("decision/1", REMOVED) in found(delete(DECISION).where(is_first))
    changed = update(DECISION).where(is_first)
    assert ("decision/1", CHANGED) in found(changed.values(reason="another"))
    for facts in ({"what": "forgotten", "key": "00"}, {"what": "no record"}):
        assert ("decision/1", CHANGED) in found(changed.values(facts=facts))
