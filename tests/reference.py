"""Where the reference pages of `deploy/` come from: settings, commands and reasons, written from
models and entries, and the page of the interface, from its table of tests.

`python -m tests.reference` writes anew what is derived: the pages, `sample_data`, and the
transcript of the demo in `README.md`. Tests compare each with what is there.
"""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
import typing
from collections.abc import Collection, Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import Final

import click

from flows.cli.main import COMMANDS as ENTRIES
from flows.cli.main import command_of
from flows.cli.sections import GROUPS
from flows.commands.entry import Entry
from flows.commands.form import Form
from flows.extensions.deliveries.formats import AcknowledgementFile, DeliveryEvent
from flows.extensions.partner_api.profile import NAMES
from flows.install import schedules
from schemas import portal, rules
from schemas.challenges import ANSWERS
from schemas.database import METADATA
from schemas.issuer import Issuer, RuleSettings
from schemas.reasons import LETTERS, LINES, PARTNER, ROWS, reason
from schemas.reference import BY_NAME, every_key, tables
from schemas.rule import SEVERITY_SETTINGS
from schemas.views import COLUMNS as COLUMNS_OF_VIEWS
from schemas.views import VIEWS
from tests import sample_bank, transcript
from tests.interface_table import interface_page
from tests.man_page import man_page
from tests.tables_picture import design_page

DEPLOY: Final = Path(__file__).parent.parent / "deploy"
MADE: Final = "<!-- Written by `python -m tests.reference`. -->\n"

# An example of each step of a mapped column, a text, and what it becomes.
STEPS: Final = {
    "strip_prefix": ('{ from = "ID", strip_prefix = "CUST-" }', "CUST-17", "17"),
    "strip_suffix": ('{ from = "ID", strip_suffix = "-X" }', "17-X", "17"),
    "split": ('{ from = "NAME", split = ";", part = 2 }', "Smith; Ann", "Ann"),
    "slice": ('{ from = "ID", slice = [-4, -1] }', "AB-0017", "0017"),
    "pad": ('{ from = "ZIP", pad = 5 }', "2108", "02108"),
    "format": ('{ from = "EXP", format = "DD-MON-YYYY" }', "30-Nov-2027", "2027"),
    "lookup": ('{ from = "TYPE", lookup = { P = "TRUE", S = "FALSE" } }', "P", "TRUE"),
}
SETTINGS: Final = f"""# Settings

{MADE}
One TOML file per issuer, named after it. Unknown keys are errors. `cardlink settings` prints this
page's tables, and `cardlink settings KEY` one of their keys. `cardlink --json check ISSUER` shows
every setting with its value and where it comes from: the file, a default or the environment. The
first line that `cardlink init` writes names the JSON Schema beside the file: editors complete and
check by it (VS Code with Even Better TOML, others with taplo).
"""

SAMPLE_HEAD: Final = """\
# Deployments of the sample issuer, for `prefect deploy --all` or `prefect deploy -n nightly-sample-bank` in the root of
# a checkout. Written by `python -m tests.reference` from deploy/prefect.yaml, which `cardlink install` deploys for
# issuers of yours.

"""

COLUMNS: Final = """
### `[columns]`

Not needed where the extract has the portal's own header, in our names or those of
`portal.template`. Otherwise, one key per portal column: a source column, a list of which the first
that exists counts, or a table: exactly one of `from`, `at`, `constant`, `join` and `first`, then
steps. Steps are applied in the order below, however they are written; where another order is
needed, `from` is a table itself. `cardlink init ISSUER --from EXTRACT` writes a first mapping, with
`"undecided"` for a column of which nobody answered a question: the question is above it, the
answers are below, and nothing is sent until one of them is in its place.

```toml
[columns]
"cardholder.cuid" = "CUSTOMER_ID"
"service_card.pan" = ["CARD_NO", "PAN"]
"service_card.expiration_month" = { from = "EXP", format = "MMYY" }
"service_card.address.country" = { constant = "US" }
"service_card.address.postal_code" = { from = "ZIP", pad = 5 }
"service_card.address.address1" = { join = ["HOUSE_NO", "STREET"] }
"service_card.address.last_name" = { from = "NAME", format = "LAST, FIRST" }
"service_card.address.phone_number" = { first = ["MOBILE", "PHONE"] }
"service_card.address.is_primary" = { first = [
  { constant = "FALSE", when = { TYPE = "2" } },
  { constant = "TRUE" },
] }
```
"""

STATUS: Final = """
### `[status]`

Which rows count. One key per source column whose values decide: a table of the keys below,
`"undecided"` (a person still has to say: nothing is sent until then, which is what `cardlink init`
writes for every column that may say so), or `"ignored"` (every row counts, whatever it says). Where
several columns decide, a card is sent only if all of them send its row; if one deletes, it is
deleted. In fixed format the key is any name, with `at`.

Rows that are left out are suppressed as `row.filter.excluded`; where the extract is a full
portfolio, their cards have left. In any other, a card with a link keeps it, but no older row of the
card is sent by `renew` or `resubmit` until a later extract has it again (`card.extract.excluded`).

Deleted rows are suppressed as `card.row.deleted` and close the card of this cuid and last four
digits: nobody waits for it, and the next delivery withdraws its link. It is back when a later
extract sends it; in an extract that has it both ways it stays. A row whose cuid or card number
cannot be read closes nothing (`card.row.deleted_unreadable`). A value that no list names refuses
the extract, which says how often each was there; only codes of one or two characters and words of
status are shown. With `--open unknown-status` these rows are rejected (`row.status.unknown`) and
the others sent.

```toml
[status]
CARD_STATUS = { send = ["A", ""], leave_out = "P", delete = ["C", "L", "S"] }
BLOCK_CODE = { send = [""], delete = ["41", "43", "46", "83"] }
CLOSED_DT = { date = "YYYYMMDD" }
PRODUCT = { leave_out = "TEST", unknown = "send" }
BRANCH = "ignored"
```

"""

PORTAL: Final = """
## Portal columns

The columns of a chunk, in order. Where the portal uses other header names, `portal.template` takes
its own header row.

| column | accepts |
|---|---|
"""

ENVIRONMENT: Final = """
## Environment

Secrets come from the environment, or from files that it names; never from the TOML, and never
printed. Each part of an installation has a file of its own, made from a template in `deploy/env/`,
and no other's secrets.

| variable | meaning |
|---|---|
"""

# of a person's own shell: no part of an installation may have them
PERSONAL: Final = {
    "CARDLINK_PERSON_KEY_FILE",
    "CARDLINK_PERSON_PASSPHRASE_FILE",
    "CARDLINK_WITNESS_KEY_FILE",
}
VARIABLES: Final = {
    "CARDLINK_CONFIG": "folder of the issuers' TOML files; default: the current folder",
    "CARDLINK_DATABASE_URL": (
        "address of the database, or `..._FILE`: `postgresql://USER:PASSWORD@HOST/NAME`, "
        "or `sqlite:////FOLDER/NAME.db`, on a disk of this machine; default: "
        "`cardlink.db` in the issuers' folder"
    ),
    "CARDLINK_PRIVATE_KEY_FILE": (
        "our own private key, for extracts and results that are PGP-encrypted to us"
    ),
    "CARDLINK_PASSPHRASE_FILE": "its passphrase",
    "CARDLINK_ACTOR": "which worker acts, as the history records it; default: user@host",
    "CARDLINK_ACTORS": (
        "what a person's name (`--actor`) must match, as `anna|bert`; default: letters and digits"
    ),
    "CARDLINK_PERSON_KEY_FILE": (
        "your own private key, with which you sign requests and agree to them, where "
        "`[four_eyes] persons` names you; never in a worker"
    ),
    "CARDLINK_PERSON_PASSPHRASE_FILE": "its passphrase",
    "CARDLINK_WORK_POOL": "Prefect work pool of the deployments; default: `cardlink`",
    "CARDLINK_REPORTS_URL": (
        "address of the page server (`python -m flows.pages`), with its token, for browsers; "
        "https where a proxy stands before it"
    ),
    "PREFECT_UI_URL": (
        "address of Prefect's UI, as browsers reach it: the pages of reports then link to the forms"
    ),
    "CARDLINK_AUDIT_KEY_FILE": (
        "the secret of the workers that proves entries of the audit trail, at least 32 characters; "
        "old ones in the lines after it"
    ),
    "CARDLINK_WITNESS_KEY_FILE": (
        "of `audit witness` alone: the secret half of its key, as `audit witness-key` wrote it"
    ),
    "CARDLINK_PURGE_PROFILE": (
        "AWS profile whose role may delete; used by `cardlink purge` and `mend reseal` only"
    ),
    "CARDLINK_SERVICE_APP_NAME": (
        "credentials for `[service]`; each of the four can be given as `..._FILE` instead"
    ),
    "CARDLINK_SERVICE_APP_KEY": "",
    "CARDLINK_SERVICE_USERNAME": "",
    "CARDLINK_SERVICE_PASSWORD": "",
    "CARDLINK_WEBHOOK_SECRET_ISSUER_NAME": (
        "the secret that signs events for the receiver `[deliveries.NAME]` of ISSUER, `whsec_` and "
        "base64, both names in upper case, `_` for `-`; two with a space between while it is "
        "changed; or `..._FILE`"
    ),
    "CARDLINK_CHANNELS": (
        "channels that people are told by, one `name = URL` a line, or `..._FILE`: "
        "`smtp://USER:PASSWORD@HOST/?from=ADDRESS&to=ADDRESS,ADDRESS` (STARTTLS; `smtps://`: TLS), "
        "the URL of a webhook, to which JSON is posted, or any URL of "
        "[Apprise](https://github.com/caronc/apprise/wiki), Teams, Slack and PagerDuty among them; "
        "`[channels]` says which gets what"
    ),
    "CARDLINK_HEARTBEAT_URL": (
        "URL of a switch outside that each good watch pings, or `..._FILE`; `{issuer}` in it is the "
        "issuer, so that each has a switch of its own"
    ),
    "CARDLINK_LOGS": (
        "`json`: log lines, and what commands say on stderr, as one JSON object a line; for Prefect's own processes set "
        "`PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER=json`"
    ),
    "CARDLINK_TRACES": (
        "`otlp`: spans of the stages of each command, by OTLP over HTTP (`pip install 'cardlink[traces]'`); where to, with which headers: "
        "`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS` and the other standard variables"
    ),
    "AWS_*": (
        "boto3's own: region, endpoint, credentials; leave the credentials out where a role "
        "provides them"
    ),
    "PREFECT_API_URL": "the Prefect server",
    "NO_COLOR": "anything: nothing is shown in color, as by `--no-color`",
    "TMPDIR": (
        "folder of the private gpg homes; default: `/dev/shm` where there is room, else `/tmp`. Also "
        "of the sealed rows of two files that are joined; default: `/tmp`"
    ),
}

COMMANDS: Final = f"""# Commands

{MADE}
Every command takes `--help`, and before it or after it `--config FOLDER`, the folder of the
issuers' TOML files; `--json`, which prints one JSON object on stdout, also of a line that it cannot
understand; `--verbose`, the progress of a submit without a terminal; and `--no-color`, as does the
variable `NO_COLOR`. `outcome.schema.json` is the JSON Schema of what `--json` prints, command by
command. Results go to stdout, progress and the next step to stderr. Exit codes are in the README.

Every line after `next:` can be pasted. Placeholders are in capitals and in quotes, and are named
below it: `"WHY"` (the reason, kept in the audit trail), `"RECEIPT"` (of the receiving side),
`"FILE"`, `"FOLDER"`, `"EXTRACT"`, `"ISSUER"`, `"YOUR_NAME"`. Put the words between the quotes; a
placeholder that is still there is refused by every command and form.

A *form* is the same command as a Prefect flow: same checks, same help texts; `dry_run` is
preselected.
"""

REASONS: Final = f"""# Reasons

{MADE}
Every reason code that a report, `rejects.csv` or a correction template can show. The page is made
from the tables in `schemas/rules.py` and `schemas/reasons.py`.

`rejects.csv` can be sent to the issuer as it is. It says of each reject the physical `line` of the
extract, the `source` columns by their names there, what was `found` there, never the value but its
shape (in `shape A9(16)`, A is a letter and 9 a digit from 0 to 9, of which there are sixteen; ? is
any other, such as a digit of another script; a CVV has only its length), what is `expected` in the format of that column, and the `setting` that would take it,
where there is one.

*By default*: `reject` keeps the row back, `warn` sends it and reports it. Where a name stands
before it, that setting of `[rules]` decides: `reject`, `warn` or `off`. What a challenge at the
link asks for, by `challenges` of `[rules]`, must be there in any case. Of the rules that a cell
breaks, the first of the table is reported. *Who acts*: "fix at source" is for the issuer, "resubmit
as is" for the operator; "nothing" and "not
eligible" are for nobody.
"""
PARTNERS: Final = """\
The partner's messages are read as `entity.property.kind` too. The kinds are those above, which ask
for the same there, and these; what is accepted is what the column accepts."""


DATABASE: Final = f"""# The database

{MADE}
Which runs there are and how far each came, what was decided and answered, who did what, and where
each cardholder stands are in a relational database. `CARDLINK_DATABASE_URL` says where ([SETTINGS.md](SETTINGS.md)), and `cardlink
check ISSUER` shows it: on one machine a SQLite file, `/var/lib/cardlink/cardlink.db` or `cardlink.db`
in the issuers' folder; of several machines a PostgreSQL. Who needs it: [README.md](README.md). What
it has of a cardholder: [SECURITY.md](SECURITY.md); no card number, no CVV, no hash of either. Links
are in the tables `answer` and `single_link` alone. For analysts there are views, without links: [ANALYSTS.md](ANALYSTS.md).

## Tables

What each column means stands in `schemas/database.py`, and in PostgreSQL beside it (`\\d+ attempt`).

| table | a row is |
|---|---|
"""
RIGHTS: Final = """
## Rights

On PostgreSQL one role owns the tables and another one works. The owner makes and migrates them with the
first command after an upgrade (`cardlink worklist ISSUER`), then gives the workers their rights, but not
that to change or remove an entry of the journal: `psql --set workers=ROLE --file postgresql.sql DATABASE`.
"""
VIEWS_BEGIN: Final = "<!-- views: written by python -m tests.reference -->"
VIEWS_END: Final = "<!-- end of the views -->"


def settings_page() -> str:
    """Return every key of the issuer's TOML, the portal's columns and the environment."""
    models = tables()
    sections = [name for name in Issuer.model_fields if name in models]
    sections = list(chain.from_iterable(_with_tables_below(name, models) for name in sections))
    text = SETTINGS + "\n## Top level\n\n" + _keys("", sections) + "\n## Tables\n"
    for name in sections:
        if name == "columns":
            text += COLUMNS + "\n" + _keys(name) + _examples()
            continue
        if name == "status":
            text += STATUS + _keys(name)
            continue
        heading = f"{name}.NAME" if name in BY_NAME else name
        text += f"\n### `[{heading}]`\n\n{models[name]['description']}\n\n{_keys(name)}"
        if name == "service":
            text += _partners_names()
    columns = "".join(f"| `{name}` | {column.hint} |\n" for name, column in portal.COLUMNS.items())
    variables = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in VARIABLES.items())
    return text + PORTAL + columns + ENVIRONMENT + variables


def _partners_names() -> str:
    """Return our names for what a partner may call otherwise, with the interface's own."""
    text = "\n| name in `names` | by the interface | meaning |\n|---|---|---|\n"
    for name, named in NAMES.items():
        usual = ", ".join(f"`{place}`" for place in named.usual)
        text += f"| `{name}` | {usual} | {named.meaning} |\n"
    return text


def _with_tables_below(name: str, models: Collection[str]) -> list[str]:
    """Return a table and those within it."""
    return [name, *(below for below in models if below.startswith(f"{name}."))]


def commands_page() -> str:
    """Return every command with its arguments, options and form."""
    text = COMMANDS
    group = ""
    groups = list(dict.fromkeys(_group(entry) for entry in ENTRIES))
    for entry in sorted(ENTRIES, key=lambda entry: groups.index(_group(entry))):
        below = entry.name.rpartition(" ")[0]
        if below not in GROUPS:  # `practice people` stands beside `practice`
            below = ""
        if below and below != group:
            text += f"\n## cardlink {below}\n\n{GROUPS[below]}\n"
        group = below
        text += _command(entry, "###" if below else "##")
    return text


def _group(entry: Entry[...]) -> str:
    return entry.name.rpartition(" ")[0] or entry.name


def reasons_page() -> str:
    """Return every reason, what happens to the row by default, who acts, what is accepted."""
    return "\n".join(_reasons())


def _reasons() -> Iterator[str]:
    yield REASONS
    yield "## What a row must hold\n"
    yield "| code | column | by default | who acts | accepted |"
    yield "|---|---|---|---|---|"
    for rule in rules.RULES:
        _, _, action, hint = reason(rule.code)
        severity = _severity(rule.severity)
        challenges = [name for name, asked in ANSWERS.items() if rule.column in asked]
        if rule.is_answer and rule.severity in SEVERITY_SETTINGS:
            severity += f"; reject where `challenges` has {' or '.join(challenges)}"
        yield f"| `{rule.code}` | `{rule.column}` | {severity} | {action} | {hint} |"
    for title, entries in (
        ("What a line must be", LINES),
        ("Letters that were lost", LETTERS),
        ("Rows among others", ROWS),
    ):
        yield f"\n## {title}\n"
        yield "| code | by default | who acts | accepted |"
        yield "|---|---|---|---|"
        for entry in entries:
            hint = reason(entry.code).hint
            severity = _severity(entry.severity)
            yield f"| `{entry.code}` | {severity} | {entry.action} | {hint} |"
    yield f"\n## The partner's errors\n\n{PARTNERS}\n"
    yield "| kind | who acts |"
    yield "|---|---|"
    for kind, action in sorted(PARTNER.items()):
        yield f"| `{kind}` | {action} |"
    yield ""


def _severity(name: str) -> str:
    return f"`{name}`: {getattr(RuleSettings(), name)}" if name in SEVERITY_SETTINGS else name


def acknowledgement_schema() -> str:
    """Return the JSON Schema of acknowledgement.json."""
    schema = AcknowledgementFile.model_json_schema()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def analysts_page() -> str:
    """Return the page for analysts as it stands, with the views and their columns."""
    page = (DEPLOY / "ANALYSTS.md").read_text("utf-8")
    before, _, rest = page.partition(VIEWS_BEGIN)
    _, _, after = rest.partition(VIEWS_END)
    text = "\n| view | a row is | columns |\n|---|---|---|\n"
    for view in VIEWS:
        columns = ", ".join(f"`{name}`" for name in view.columns)
        text += f"| `{view.name}` | {view.about} | {columns} |\n"
    text += "\n| column | meaning |\n|---|---|\n"
    for meaning, names in groupby(COLUMNS_OF_VIEWS, COLUMNS_OF_VIEWS.__getitem__):
        text += f"| {', '.join(f'`{name}`' for name in names)} | {meaning} |\n"
    return f"{before}{VIEWS_BEGIN}\n{text}{VIEWS_END}{after}"


def delivery_schema() -> str:
    """Return the JSON Schema of a delivery's done marker, and of the event."""
    schema = DeliveryEvent.model_json_schema()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def database_page() -> str:
    """Return the tables of the database with what a row of each is."""
    rows = "".join(f"| `{table.name}` | {table.comment} |\n" for table in METADATA.tables.values())
    return DATABASE + rows + RIGHTS


PAGES: Final = {
    "ANALYSTS.md": analysts_page,
    "SETTINGS.md": settings_page,
    "COMMANDS.md": commands_page,
    "DATABASE.md": database_page,
    "REASONS.md": reasons_page,
    "INTERFACE.md": interface_page,
    "acknowledgement.schema.json": acknowledgement_schema,
    "cardlink.1": man_page,
    "delivery.schema.json": delivery_schema,
    "../DESIGN.md": design_page,
}


def sample_deployments() -> str:
    """Return `prefect.yaml` of the root: that of `deploy/`, filled in for the sample issuer.

    Prefect compares names before it fills in the environment, so `-n` finds only written ones.
    """
    sample = tomllib.loads((DEPLOY.parent / "sample_data" / "sample-bank.toml").read_text("utf-8"))
    issuer = Issuer.model_validate(sample)
    values = {
        "CARDLINK_ISSUER": issuer.issuer,
        **schedules(issuer),
        "CARDLINK_TIME_ZONE": issuer.time_zone,
        "CARDLINK_WORK_POOL": "cardlink",
    }
    template = (DEPLOY / "prefect.yaml").read_text("utf-8")
    _, _, rest = template.partition("\n\n")
    return SAMPLE_HEAD + re.sub(r"\{\{ \$(\w+) \}\}", lambda name: values[name[1]], rest)


def write(folder: Path = DEPLOY) -> None:
    """Write the pages anew."""
    for name, page in PAGES.items():
        (folder / name).write_text(page(), "utf-8")
    (folder.parent / "prefect.yaml").write_text(sample_deployments(), "utf-8")


def _examples() -> str:
    """Return the steps by example."""
    rows = (
        f"| `{name}` | `{example}` | `{text}` | `{result}` |\n"
        for name, (example, text, result) in STEPS.items()
    )
    return "\n| step | example | of | makes |\n|---|---|---|---|\n" + "".join(rows)


def _keys(table: str, without: Collection[str] = ()) -> str:
    text = "| key | value | default | meaning | example |\n|---|---|---|---|---|\n"
    for key in every_key():
        if key.table != table or key.name in without:
            continue
        cells = (
            f"`{key.name}`",
            _values(key.takes),
            _default(key.default),
            key.meaning,
            f"`{key.example}`",
        )
        escaped = [cell.replace("|", "\\|") for cell in cells]
        text += f"| {' | '.join(escaped)} |\n"
    return text


def _values(text: str) -> str:
    return re.sub(r'"[^"]*"|true|false', r"`\g<0>`", text)


def _default(text: str) -> str:
    return f"`{text}`" if text not in ("", "required") else text


def _command(entry: Entry[...], heading: str) -> str:
    command = command_of(entry)
    context = click.Context(command, info_name=f"cardlink {entry.name}")
    usage = " ".join(command.collect_usage_pieces(context))
    text = f"\n{heading} cardlink {entry.name}\n\n"
    text += f"`cardlink {entry.name} {usage}`\n\n{entry.summary}\n\n| | |\n|---|---|\n"
    for parameter, option in zip(entry.parameters, command.params, strict=True):
        text += f"| {_spelled(option, context)} | {parameter.help} |\n"
    text += "\n```sh\n" + "\n".join(entry.examples) + "\n```\n"
    if isinstance(entry.form, Form):
        return text + f"\nForm: `{entry.form.name}`.\n"
    return text + f"\nNo form: {entry.form}.\n"


def _spelled(shown: click.Parameter, context: click.Context) -> str:
    if isinstance(shown, click.Argument):
        return f"`{shown.make_metavar(context)}`"
    record = typing.cast(tuple[str, str], shown.get_help_record(context))
    return f"`{record[0]}`".replace("|", "\\|")


def main() -> None:
    """Write all that is derived; the transcript last, since the demo takes half a minute."""
    write()
    sample_bank.write()
    print("pages and sample_data are written; now the demo runs, for its transcript in README.md")
    with tempfile.TemporaryDirectory() as folder:
        transcript.write_transcript(transcript.run_demo(Path(folder) / "demo"))


if __name__ == "__main__":
    main()
