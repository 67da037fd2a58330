"""How far links came, for analysts."""

from schemas.views import View, same

COLUMNS = {
    **dict.fromkeys(
        ("opened", "placed"),
        "the partner's service says that a link is opened, or its card placed; null: not known",
    ),
    "failed": "how placing the card ended, where that failed",
}
_HAS_ENDED = "NOT p.running AND p.placed_at IS NULL"
VIEWS = (
    View(
        "placements",
        "A link of which the partner's service says something; a card may have had several.",
        {
            **same("p", "issuer", "run"),
            "extract_row": 'p."row"',
            "last_4": "a.last_4",
            "opened": "p.opened",
            "placed": "CASE WHEN p.running IS NOT NULL THEN p.placed_at IS NOT NULL END",
            "failed": f"CASE WHEN {_HAS_ENDED} THEN p.termination_type END",
        },
        'placement p JOIN (SELECT issuer, run, "row", max(last_4) AS last_4 FROM attempt '
        'GROUP BY issuer, run, "row") a '
        'ON a.issuer = p.issuer AND a.run = p.run AND a."row" = p."row" '
        "WHERE p.opened IS NOT NULL OR p.running IS NOT NULL",
    ),
)
