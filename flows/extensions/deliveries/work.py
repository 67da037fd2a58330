"""The kinds of lines of the worklist about deliveries of links and acknowledgements."""

from flows.reports.work_kinds import CARDHOLDERS, ISSUER, OPERATOR, Choice, Kind
from flows.steps import RECEIPT, WHY, Slot, Step

TO_DELIVER = Kind(
    "links to deliver",
    OPERATOR,
    "New, or ended, since the last delivery",
    Step("deliver", Slot("issuer")),
    noun="",
    rows="link",
    several=True,
)
WITHDRAWALS = Kind(
    "withdrawals to decide",
    ISSUER,
    "Their cards left, and so many links are not withdrawn without a decision",
    Step("deliver", Slot("issuer"), open="withdrawals", reason=WHY, dry_run=True),
    (
        "See what it would withdraw, and ask the issuer whether these cardholders left. Where "
        "they did not, an extract that names them again keeps their links."
    ),
    (
        Choice(
            "withdraw",
            "They left: the receivers are told not to use their links.",
            Step("deliver", Slot("issuer"), open="withdrawals", reason=WHY),
        ),
    ),
    noun="",
    rows="link",
    of_one_run=True,
)
_CONFIRM = Step("deliver", Slot("issuer"), Slot("receiver"), confirm=Slot("number"), reason=RECEIPT)
UNCONFIRMED = Kind(
    "links to confirm",
    OPERATOR,
    "Delivered, and the receiving side has not confirmed it",
    _CONFIRM,
    "Confirm it with the receipt of the receiving side.",
    noun="delivery",
    rows="link",
    of_one_run=True,  # each receiver has a line of its own
)
NOT_HANDED_OVER = Kind(
    "receivers to reach",
    OPERATOR,
    "Links have not come to their receiver; it is tried again by itself",
    Step("deliver", Slot("issuer"), Slot("receiver")),
    "Ask the receiver, or correct its table in the TOML; the first step tries now.",
    (
        Choice(
            "confirm",
            "The receiver has these links in another way.",
            _CONFIRM,
            widest="issuer",
        ),
    ),
    noun="delivery",
    rows="link",
    of_one_run=True,
)
UNFINISHED_DELIVERY = Kind(
    "deliveries to finish",
    OPERATOR,
    "Recorded, and the command ended before all of its files were written",
    Step("deliver", Slot("issuer"), Slot("receiver")),
    "The next delivery finishes it.",
    noun="delivery",
    rows="link",
    of_one_run=True,
)
HALF_TOLD = Kind(
    "acknowledgements to finish",
    OPERATOR,
    "Recorded, and the command ended before the issuer could take it",
    Step("acknowledge", Slot("issuer")),
    "The next command that tells the issuer finishes it.",
    noun="acknowledgement",
    of_one_run=True,
)
NOT_RECEIVED = Kind(
    "acknowledgements to confirm",
    ISSUER,
    "Handed to the issuer, and no receipt has come",
    Step("acknowledge", Slot("issuer")),  # which takes in a receipt that has come
    "Ask the issuer whether it takes its acknowledgements.",
    (
        Choice(
            "confirm",
            "The issuer has the newest, and those before it.",
            Step("acknowledge", Slot("issuer"), confirm=Slot("number"), reason=RECEIPT),
            widest="issuer",
        ),
    ),
    noun="acknowledgement",
)
ERASURES = Kind(
    "forgotten cardholders",
    OPERATOR,
    "Forgotten, and deliveries still name them: the withdrawal of their links is not confirmed",
    Step("deliver", Slot("issuer")),
    "Once the receiving side has confirmed the withdrawal, the next purge ends it.",
    (Choice("end it", "Confirmed: deliveries name them no more.", Step("purge", Slot("issuer"))),),
    noun="erasure",
    rows=CARDHOLDERS,
    of_one_run=True,
)
KINDS = (
    TO_DELIVER,
    WITHDRAWALS,
    UNCONFIRMED,
    NOT_HANDED_OVER,
    UNFINISHED_DELIVERY,
    HALF_TOLD,
    NOT_RECEIVED,
    ERASURES,
)
