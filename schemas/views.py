"""The views for analysts: what the tables of `schemas/database.py` say, in plain names.

A view says facts, not where somebody stands: that depends on a day and on what people decided, and
is worked out in one place (`flows/book/`). No view has a link, a checksum of a name or address, or
what a cardholder is known by, and none looks at a clock. They are made anew whenever the tables
are; deploy/ANALYSTS.md shows the same columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from flows.extensions import modules

STATES: Final = ("linked", "error", "awaiting", "cancelled", "rejected")
# A name means the same in each view that has it.
COLUMNS = {
    "issuer": "the issuer, as its TOML file is named",
    "run": "id of the run",
    "business_date": "business date of the run",
    "kind": "`extract`: a whole one; `renewal`: of ending links; `resubmission`: of rows of a run",
    "file": "key of the extract in the store",
    "ended": "`committed` or `abandoned`; null: planned, or another run stands in its place",
    "committed_at": "when it was committed, UTC",
    "week": "the Monday of a week of business dates",
    "runs": "runs with rows that were sent, refused, or tell a change",
    "cardholders": "cardholders of whom a row was sent",
    "cuid": "the cardholder reference, as it was sent; of a cardholder that of the newest row",
    "last_4": "last four digits of the card; null: its number cannot be read",
    "cards": "different last four digits among the cardholder's rows",
    "extract_row": "row of the extract, from 1",
    "chunk": "number of its chunk; null: it was not sent in one",
    "state": (
        "`linked`; `error`: refused by the partner; `awaiting`: the answer; `cancelled`: before "
        "the upload; `rejected`: by us; `changed`, `reverted`: it tells only that name or address "
        "changed, or changed back. Of a cardholder that of the newest row; of the last three only "
        "where there is no other"
    ),
    "reason": "code of the first reason of that refusal (REASONS.md)",
    "trouble": "the break of an answer that settled nothing",
    "waits_for": (
        "while it is awaited: `waiting` for its upload, `held`, `uploaded`, `answered`: its chunk, "
        "without it; `single`: a single link"
    ),
    "since": "since when it waits (of a chunk, the first row), or when its answer came, UTC",
    "is_repeat": "it repeats a row of an earlier run, perhaps corrected",
    "is_renewal": "it was sent because a link was about to end",
    "is_lost": "an operator decided that no usable answer comes",
    "link_until": "last day of its link; of a cardholder of the one that lasts longest; null: none",
    **dict.fromkeys(("first_date", "last_date"), "business dates of the first and the last row"),
    "sent": "rows that were sealed and not cancelled, or for which a link was requested singly",
    **dict.fromkeys(STATES, "rows that are in the `state` of this name now"),
    "troubled": "of those that wait, rows with an answer that settled nothing",
    "left_on": "since when the issuer's extracts have none of the cards any more; null: they have",
}
# the Monday of a day, in the words of each database
_MONDAY: Final = {
    "sqlite": "date({day}, 'weekday 0', '-6 days')",
    "postgresql": "{day} - (CAST(extract(isodow FROM {day}) AS integer) - 1)",
}


class View(NamedTuple):
    """A view: what a row of it is, its columns as SQL by name (COLUMNS), and what follows FROM."""

    name: str
    about: str
    columns: Mapping[str, str]
    source: str

    def statements(self, dialect: str) -> Iterator[str]:
        """Yield what makes it in a database, with what it means."""
        query = _query(self.columns, self.source)
        query = query.replace("MONDAY", _MONDAY[dialect].format(day="a.as_of"))
        yield f"CREATE VIEW {self.name} AS -- {self.about}\n{query}"
        if dialect == "postgresql":
            yield f"COMMENT ON VIEW {self.name} IS {_quoted(self.about)}"
            for name in self.columns:
                yield f"COMMENT ON COLUMN {self.name}.{name} IS {_quoted(COLUMNS[name])}"


def _query(columns: Mapping[str, str], source: str) -> str:
    selected = ",\n  ".join(f"{sql} AS {name}" for name, sql in columns.items())
    return f"SELECT\n  {selected}\nFROM {source}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def same(alias: str, *names: str) -> dict[str, str]:
    """Return columns that are named as those of the table."""
    return {name: f"{alias}.{name}" for name in names}


def _counts(*names: str) -> dict[str, str]:
    """Return how many rows are in each of these states."""
    return {name: f"count(*) FILTER (WHERE a.state = '{name}')" for name in names}


# The newest row of a cardholder is the one with the largest number that ends in turn and place:
# sorting the rows of each takes three times as long.
_PLACES: Final = 10**10
_TURNS: Final = 10**18
_AGE: Final = (
    "CASE WHEN a.state IN ('changed', 'reverted') THEN 0 WHEN a.state = 'cancelled' THEN 1 "
    f"ELSE 2 END * {_TURNS} + a.turn * {_PLACES} + a.place"
)
_NEWEST: Final = (
    "JOIN attempt a ON a.issuer = c.issuer "
    f"AND a.turn = c.newest % {_TURNS} / {_PLACES} AND a.place = c.newest % {_PLACES}"
)
_LEFT: Final = (
    "LEFT JOIN (SELECT issuer, holder, count(last_4) AS cards, max(since) AS since "
    "FROM departure WHERE since IS NOT NULL GROUP BY issuer, holder) d "
    "ON d.issuer = c.issuer AND d.holder = c.holder"
)
_PER_RUN: Final = _query(
    {
        **same("a", "issuer", "turn"),
        "as_of": "max(a.as_of)",
        "sent": "sum(a.sendings)",
        **_counts(*STATES),
    },
    "attempt a GROUP BY a.issuer, a.turn",
)
_PER_HOLDER: Final = _query(
    {
        **same("a", "issuer", "holder"),
        "newest": f"max({_AGE})",
        "cards": "count(DISTINCT a.last_4)",
        "first_date": "min(a.as_of)",
        "last_date": "max(a.as_of)",
        "sent": "sum(a.sendings)",
        **_counts(*STATES),
        "link_until": "max(a.expires_on)",
    },
    "attempt a WHERE a.holder IS NOT NULL GROUP BY a.issuer, a.holder",
)

VIEWS: Sequence[View] = (
    View(
        "cardholders",
        "A cardholder of whom a row was sent or refused. It does not say where the cardholder "
        "stands: not whether the card was given up or reissued, or a link is kept as it is.",
        {
            "issuer": "c.issuer",
            "cuid": "a.cuid",
            **same("c", "cards", "first_date", "last_date", "sent", *STATES, "link_until"),
            **same("a", "state", "reason"),
            "left_on": "CASE WHEN d.cards = c.cards THEN d.since END",
        },
        f"({_PER_HOLDER}) c {_NEWEST} {_LEFT}",
    ),
    View(
        "attempts",
        "A row that was sent or refused, or tells a change: an attempt to get a card its link. "
        "Rows that were double, or suppressed without a change, are in the ledgers alone.",
        {
            **same("a", "issuer", "run"),
            "business_date": "a.as_of",
            "extract_row": 'a."row"',
            **same("a", "chunk", "cuid", "last_4", "state", "reason", "trouble"),
            "waits_for": "a.wait",
            "since": "a.since",
            "is_repeat": "a.origin IS NOT NULL",
            "is_renewal": "a.renewal",
            "is_lost": "a.decided",
            "link_until": "a.expires_on",
        },
        "attempt a",
    ),
    View(
        "runs",
        "A run, with its rows by state; null where the run is not committed or its ledger is "
        "purged.",
        {
            **same("r", "issuer", "run"),
            "business_date": "r.as_of",
            "kind": "CASE WHEN r.selection = '' THEN 'extract' WHEN d.is_renewal THEN 'renewal' "
            "WHEN r.state = 'committed' THEN 'resubmission' END",
            "file": "r.source_key",
            "ended": "CASE WHEN r.state IN ('committed', 'abandoned') THEN r.state END",
            "committed_at": "r.committed_at",
            **same("a", "sent", *STATES),
        },
        "run r LEFT JOIN read_run d ON d.issuer = r.issuer AND d.run = r.run "
        f"LEFT JOIN ({_PER_RUN}) a ON a.issuer = r.issuer AND a.turn = r.turn",
    ),
    View(
        "outstanding",
        "A chunk, or the single links of a run, with rows that wait for an answer: also where all "
        "of them are given up.",
        {
            **same("a", "issuer", "run"),
            "business_date": "min(a.as_of)",
            "chunk": "a.chunk",
            "waits_for": "a.wait",
            "since": "min(a.since)",
            "awaiting": "count(*)",
            "troubled": "count(a.trouble)",
        },
        "attempt a WHERE a.state = 'awaiting' GROUP BY a.issuer, a.run, a.chunk, a.wait",
    ),
    View(
        "weeks",
        "A week of business dates, with what became of its rows until now.",
        {
            "issuer": "a.issuer",
            "week": "MONDAY",
            "runs": "count(DISTINCT a.run)",
            "cardholders": "count(DISTINCT a.holder) FILTER (WHERE a.sendings > 0)",
            "sent": "sum(a.sendings)",
            **_counts(*STATES),
        },
        "attempt a GROUP BY a.issuer, MONDAY",
    ),
)

for module in modules("views"):
    VIEWS = (*VIEWS, *module.VIEWS)
    COLUMNS |= module.COLUMNS
