"""How far links came, for analysts."""

from schemas.views import View, same

COLUMNS = {
    **dict.fromkeys(
        ("opened", "placed"),
        "the partner's service says that a link is opened, or its card placed; null: not known",
    ),
    "failed": "how placing the card ended, where that failed",
}
VIEWS = (
    View(
        "placements",
        "A link of which the partner's service says something; a card may have had several.",
        {
            **same("p", "issuer", "run"),
            "extract_row": 'p."row"',
            **same("p", "last_4", "opened", "placed", "failed"),
        },
        "placement p",
    ),
)
