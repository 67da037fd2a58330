"""The command line as an operator meets it: a whole night as processes, everything else in this
one.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli.main import COMMANDS, main
from flows.cli.sections import SECTIONS
from flows.configuration import ConfigurationError, FileUnreadableError, load_issuer
from schemas.mapping import Cell
from schemas.portal import CUID, PAN, columns
from tests import keys
from tests.builders import portal_rows
from tests.night import portal_csv
from tests.published_outcomes import SCHEMA, SHARED

ROOT = Path(__file__).parent.parent
TOML = """
issuer = "bank"
root = "store"
test = true
[limits]
max_reject_rate = 0.5
max_error_rate = 0.5
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
"""


def cardlink(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process."""
    with chdir(folder):
        done = CliRunner().invoke(main, arguments)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a process of a machine without Prefect."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    starter = [
        sys.executable,
        "-c",
        "import sys; sys.modules['prefect'] = None; from flows.cli.__main__ import run; run()",
    ]
    return subprocess.run(
        [*starter, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    (tmp_path / "store" / "bank" / "extracts").mkdir(parents=True)
    (tmp_path / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint))
    (tmp_path / "portal.asc").write_bytes(keys.sound().public)
    (tmp_path / "secret.asc").write_bytes(keys.sound().secret)
    return tmp_path


def drop(folder: Path, content: bytes, name: str = "bank-20261120.csv") -> None:
    (folder / "store" / "bank" / "extracts" / name).write_bytes(content)


@pytest.mark.slow
def test_a_night_by_hand_goes_through_without_prefect_and_each_command_says_what_to_type_next(
    bank: Path,
) -> None:
    extract = "store/bank/extracts/bank-20261120.csv"

    done = [
        process(bank, "sample", extract, "--rows", "300", "--bad", "0.1", "--date", "2026-11-20"),
        process(bank, "check", "bank", "bank-20261120.csv"),
        process(bank, "submit", "bank"),
        process(
            bank, "simulate", "bank", "--secret-key", "secret.asc", "--fail", "0.1", "--shuffle"
        ),
        process(bank, "ingest", "bank"),
    ]

    assert [one.returncode for one in done] == [0, 0, 0, 0, 0]
    assert all("next: " in one.stderr for one in done)
    assert "balanced" in done[-1].stdout


def test_a_night_under_the_portals_own_template_goes_through(bank: Path) -> None:
    drop(bank, GOOD)
    theirs = [name.replace("service_card", "acme_card") for name in reversed(columns())]
    (bank / "template.csv").write_text(",".join(theirs) + "\n")
    (bank / "bank.toml").write_text(
        (bank / "bank.toml").read_text() + 'template = "template.csv"\n'
    )
    cardlink(bank, "submit", "bank")

    answered = cardlink(bank, "simulate", "bank", "--secret-key", "secret.asc", "--fail", "0")
    ingested = cardlink(bank, "ingest", "bank")

    assert (answered.returncode, ingested.returncode) == (0, 0)
    assert "balanced" in ingested.stdout


def test_json_is_one_object_on_stdout_with_the_exit_code(bank: Path) -> None:
    cardlink(
        bank,
        "sample",
        "store/bank/extracts/bank-20261120.csv",
        "--rows",
        "30",
        "--date",
        "2026-11-20",
    )

    submitted = cardlink(bank, "--json", "submit", "bank")
    missing = cardlink(bank, "--json", "submit", "nobody")

    facts, error = json.loads(submitted.stdout), json.loads(missing.stdout)
    assert (facts["runs"][0]["counts"]["submitted"], facts["exit_code"]) == (30, 0)
    assert (error["error"], error["exit_code"], missing.returncode) == ("NoIssuerError", 2, 2)


GOOD = portal_csv(portal_rows({}))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "empty"),
        (GOOD.replace(b"service_card.pan", b"service_card.pam"), PAN),
        (GOOD.replace(b"service_card.nickname", b"favourite_colour"), "favourite_colour"),
        (b"PK\x03\x04 and so on", "bank-20261120.csv"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
        (b"\x00\x01\x02\x03" * 50, "bank-20261120.csv"),
    ],
)
def test_an_extract_that_cannot_be_read_is_one_clear_error_and_exit_2(
    bank: Path, content: bytes, named: str
) -> None:
    drop(bank, content)

    done = cardlink(bank, "submit", "bank")

    assert done.returncode == 2
    assert named.lower() in done.stderr.lower()
    assert len(done.stderr.strip().splitlines()) == 1
    assert "4242" not in done.stderr
    assert not list((bank / "store").rglob("*.pgp"))


def test_a_result_row_that_fits_no_sent_row_is_a_named_break_and_exit_4(bank: Path) -> None:
    drop(bank, GOOD)
    cardlink(bank, "submit", "bank")
    results = bank / "store" / "bank" / "results"
    results.mkdir()
    link = "https://links.example.com/l/x"
    (results / "result.csv").write_text(
        f"cuid,last_4,url,expiration_date,error\nc-1,4242,{link},2027-01-20,\nghost,4242,{link},2027-01-20,\n"
    )

    done = cardlink(bank, "ingest", "bank")

    assert done.returncode == 4
    assert "UNKNOWN_CUID" in done.stdout
    said = "bank: 1 new result file, 2 rows; 1 open break; 1 file not fully matched"
    assert said == done.stdout.splitlines()[0]
    assert ["ineligible", "0"] in [line.split() for line in done.stdout.splitlines()]

    idle = cardlink(bank, "ingest", "bank")

    assert (0, "bank: nothing new; 1 file not fully matched") == (
        idle.returncode,
        idle.stdout.splitlines()[0],
    )


def test_a_page_saved_as_a_result_stops_nothing_and_says_what_it_is(bank: Path) -> None:
    drop(bank, GOOD)
    cardlink(bank, "submit", "bank")
    results = bank / "store" / "bank" / "results"
    results.mkdir()
    link = "https://links.example.com/l/x"
    (results / "a.csv").write_text(f"<!DOCTYPE html><title>Session expired</title>{'x' * 150_000}")
    (results / "b.csv").write_text(
        f"cuid,last_4,url,expiration_date,error\nc-1,4242,{link},2027-01-20,\n"
    )

    done = cardlink(bank, "ingest", "bank")

    assert done.returncode == 4
    assert (
        "a.csv: it looks like a login page (file.looks.a_login_page). Log in to the portal"
        in done.stdout
    )
    assert "balanced" in done.stdout


def test_errors_of_the_partner_above_the_limit_exit_3(bank: Path) -> None:
    drop(bank, GOOD)
    cardlink(bank, "submit", "bank")
    cardlink(bank, "simulate", "bank", "--secret-key", "secret.asc", "--fail", "1")

    done = cardlink(bank, "ingest", "bank")

    assert done.returncode == 3


def test_one_extract_that_is_refused_leaves_the_others_and_the_exit_code_says_so(
    bank: Path,
) -> None:
    drop(bank, b"", "a-20261119.csv")
    drop(bank, GOOD, "b-20261120.csv")

    done = cardlink(bank, "submit", "bank")

    assert done.returncode == 2
    assert "1 submitted" in done.stdout
    assert "refused: bank/extracts/a-20261119.csv" in done.stdout


def test_a_new_run_that_would_send_cards_twice_is_refused_until_the_old_chunks_are_cancelled(
    bank: Path,
) -> None:
    drop(bank, GOOD)
    run = json.loads(cardlink(bank, "--json", "submit", "bank").stdout)["runs"][0]["run"]
    again = ["submit", "bank", "--extract", "bank-20261120.csv", "--new-run", "the upload was lost"]

    early = cardlink(bank, *again)
    cardlink(bank, "outbox", "cancel", run, "1", "--reason", "the upload was lost")
    late = cardlink(bank, *again)

    assert (early.returncode, late.returncode) == (2, 0)
    assert f"{run}-r2" in late.stdout


def test_an_unknown_key_in_the_toml_is_an_error_that_names_it(bank: Path) -> None:
    (bank / "bank.toml").write_text((bank / "bank.toml").read_text() + 'colour = "blue"\n')

    done = cardlink(bank, "submit", "bank")

    assert done.returncode == 2
    assert "portal.colour" in done.stderr


def test_a_folder_of_issuers_that_this_user_may_not_search_is_named(bank: Path) -> None:
    user = os.geteuid()
    bank.chmod(0o600)
    if user == 0:
        os.seteuid(10001)
    try:
        with pytest.raises(FileUnreadableError, match=r"bank.toml.*Permission denied"):
            load_issuer(bank, "bank")
    finally:
        os.seteuid(user)
        bank.chmod(0o700)


def test_init_writes_a_toml_that_loads_and_overwrites_nothing(tmp_path: Path) -> None:
    first, second = cardlink(tmp_path, "init", "new-bank"), cardlink(tmp_path, "init", "new-bank")

    assert (first.returncode, second.returncode) == (0, 2)
    assert "already exists" in second.stderr


def test_check_writes_nothing_but_the_object_that_shows_that_it_can(bank: Path) -> None:
    drop(bank, GOOD)

    done = cardlink(bank, "check", "bank", "bank-20261120.csv")

    assert done.returncode == 0
    files = [path for path in (bank / "store").rglob("*") if path.is_file()]
    assert ["bank-20261120.csv", "check"] == sorted(path.name for path in files)


def test_a_module_that_a_command_uses_is_loaded_with_those_it_imports_before_threads_run() -> None:
    code = """
from types import ModuleType
import flows.registry
from flows.commands.overview import across
across.survey
imported = {name: type(one) for name, one in vars(across).items() if isinstance(one, ModuleType)}
print([name for name, kind in imported.items() if kind is not ModuleType], len(imported) > 2)
"""

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert "[] True\n" == done.stdout


def test_help_waits_for_none_of_the_heavy_packages() -> None:
    script = """
import sys
from flows.cli.main import main
main(["--help"], standalone_mode=False)
print(*{"boto3", "pandera", "polars", "prefect", "pydantic"} & sys.modules.keys())
"""

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120
    )

    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "")


def test_without_prefect_everything_but_the_flow_files_imports() -> None:
    script = """
import importlib, pkgutil, sys
sys.modules["prefect"] = None
import flows
names = ("forms", "install", "nightly", "watch", "extensions.arrivals.starts")
flow_files = {f"flows.{name}" for name in names}
for found in pkgutil.walk_packages(flows.__path__, "flows."):
    if found.name not in flow_files:
        importlib.import_module(found.name)
"""

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120
    )

    assert done.stderr == ""


def shown_commands() -> list[str]:
    """Return the commands and groups of help: without earlier names."""
    return [name for name, command in main.commands.items() if not command.hidden]


def test_every_command_has_help_and_stands_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")

    unknown = [name for name in shown_commands() if f"cardlink {name}" not in readme]
    silent = [name for name, command in main.commands.items() if not command.help]

    assert (unknown, silent) == ([], [])


def test_help_has_every_command_in_one_section() -> None:
    arranged = [name for names in SECTIONS.values() for name in names]

    assert sorted(shown_commands()) == sorted(arranged)


def test_the_published_schema_has_the_outcome_of_each_command() -> None:
    names = [shape["$ref"].removeprefix("#/$defs/") for shape in SCHEMA["anyOf"]]

    published = {name: SCHEMA["$defs"][name]["properties"].get("command") for name in names}

    own = {entry.name.replace(" ", "-"): {"const": entry.name} for entry in COMMANDS}
    assert own | dict.fromkeys(SHARED) == published


def test_every_cardlink_command_of_the_readme_is_one_there_is() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = "".join(re.findall(r"```sh\n(.*?)```", readme, re.DOTALL))

    named = set(re.findall(r"^cardlink ([a-z-]+)", shown, re.MULTILINE)) | set(
        re.findall(r"`cardlink ([a-z-]+)", readme)
    )

    assert named == {name.partition(" ")[0] for name in shown_commands()}


def test_the_portals_columns_stand_in_order_in_the_settings_page() -> None:
    page = (ROOT / "deploy" / "SETTINGS.md").read_text("utf-8")

    places = [page.find(f"| `{name}` |") for name in columns()]

    assert -1 not in places
    assert places == sorted(places)


def test_what_no_submit_can_settle_is_listed_dismissed_and_taken_back(bank: Path) -> None:
    drop(bank, GOOD)
    cardlink(bank, "submit", "bank")
    drop(bank, GOOD, "copy.csv")
    drop(bank, portal_csv(portal_rows({}, {CUID: "c-2", PAN: "4111111111111111"})))

    dry, wet = cardlink(bank, "submit", "bank", "--dry-run"), cardlink(bank, "submit", "bank")
    before = cardlink(bank, "worklist", "bank", "--all")
    tried = cardlink(bank, "dismiss", "bank", "copy.csv", "--reason", "dropped twice", "--dry-run")
    cardlink(bank, "dismiss", "bank", "copy.csv", "--reason", "dropped twice")
    opened = cardlink(bank, "submit", "bank", "--open", "changed-extract")
    after = json.loads(cardlink(bank, "--json", "worklist", "bank", "--all").stdout)["extracts"]
    undone = cardlink(bank, "dismiss", "bank", "copy.csv", "--undo", "--reason", "it was right")

    # the worst counts: a file that repeats another is refused, the other waits at a gate
    assert [2, 2, 0, 0, 0] == [one.returncode for one in (dry, wet, tried, opened, undone)]
    assert all("1 row is the same, 1 new, 0 gone" in one.stdout for one in (dry, wet))
    assert all(
        "refused: bank/extracts/copy.csv has the same bytes" in one.stdout for one in (dry, wet)
    )
    table = [re.split(" {2,}", line)[:2] for line in before.stdout.splitlines()]
    assert [
        ["bank-20261120.csv", "committed"],
        ["bank-20261120.csv", "held back"],
        ["copy.csv", "repeated"],
    ] == [cells for cells in table if cells[0].endswith(".csv")]
    assert "dry run, nothing was changed: bank/extracts/copy.csv: dismissed" in tried.stdout
    assert ["committed", "committed", "dismissed"] == [one["state"] for one in after]
    assert ["dropped twice"] == [one["reason"] for one in after[-1]["dismissals"]]


def test_a_sample_of_published_cards_goes_through_a_portal_that_is_not_sealed(bank: Path) -> None:
    (bank / "bank.toml").write_text(
        'issuer = "bank"\nroot = "store"\ntest = true\n'
        '[portal]\nsealed = false\nallowed_hosts = ["links.example.com"]\n'
    )
    sample = (
        "sample",
        "store/bank/extracts/bank-20261120.csv",
        "--rows",
        "60",
        "--date",
        "2026-11-20",
    )

    done = [
        cardlink(bank, *one)
        for one in ((*sample, "--published"), ("submit", "bank"), ("simulate", "bank"))
    ]

    assert [0, 0, 0] == [one.returncode for one in done], done
    assert "1 result file" in done[2].stdout


def test_a_lookup_may_be_a_file_beside_the_toml_and_its_wrong_lines_are_named_by_number(
    bank: Path,
) -> None:
    settings = (bank / "bank.toml").read_text()
    spec = '"service_card.address.city" = { from = "BRANCH", lookup = "cities.csv" }'
    (bank / "bank.toml").write_text(f"{settings}\n[columns]\n{spec}\n")
    (bank / "cities.csv").write_text("\ufeff017,Boston\n018, Austin \n", "utf-8")

    [cell] = load_issuer(bank, "bank").columns.values()
    (bank / "cities.csv").write_text("017,Boston\n017,Austin\n")
    with pytest.raises(ConfigurationError, match=r"cities.csv: line 2 .* a second time"):
        load_issuer(bank, "bank")

    assert isinstance(cell, Cell)
    assert {"017": "Boston", "018": "Austin"} == cell.lookup


def test_a_wrong_format_in_the_toml_is_one_sentence_with_the_nearest_right_one(bank: Path) -> None:
    settings = (bank / "bank.toml").read_text()
    spec = '"service_card.expiration_year" = { from = "EXP", format = "YYYYM" }'
    (bank / "bank.toml").write_text(f"{settings}\n[columns]\n{spec}\n")

    with pytest.raises(ConfigurationError) as caught:
        load_issuer(bank, "bank")

    assert 1 == str(caught.value).count("columns.")
    assert "did you mean 'YYYYMM'" in str(caught.value)
