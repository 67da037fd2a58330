"""What tables of receivers and of acknowledgements may not say together."""

from typing import Any

from schemas.handover import BY_HAND

TABLES: dict[str, Any] = {}


def validate(issuer: Any) -> None:
    """Raise ValueError where receivers share a place, or deliver without a second person."""
    receivers = issuer.deliveries
    places = [receiver.to for receiver in receivers.values() if receiver.to]
    if len(set(places)) < len(places):
        raise ValueError("two tables of [deliveries] have one place `to`: give each its own")
    by_itself = [name for name, receiver in receivers.items() if receiver.schedule != BY_HAND]
    if by_itself and "deliver" in issuer.four_eyes.acts:
        raise ValueError(
            f"[four_eyes] acts names deliver, so nothing is delivered without two persons: "
            f'[deliveries.{by_itself[0]}] needs schedule = "by-hand"'
        )
