"""The metrics of all issuers in one response: those that each issuer's watch kept last."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families

from flows.configuration import issuers, load_issuer
from flows.errors import CardlinkError
from flows.operations.metrics import TEXT, registry_of
from flows.runs.keys import metrics
from flows.runs.store import read
from flows.wiring import open_store


def exposed(folder: Path, accept: str) -> tuple[bytes, str]:
    """Return the metrics of a folder's issuers, and their media type: what a scraper accepts."""
    encode, media_type = choose_encoder(accept)
    return encode(registry_of(merged(_kept(folder)))), media_type


def merged(texts: Iterable[str]) -> list[Metric]:
    """Return the families of several texts, each once with the samples of all."""
    families: dict[str, Metric] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            families.setdefault(family.name, family)
            if families[family.name] is not family:
                families[family.name].samples += family.samples
    return list(families.values())


def _kept(folder: Path) -> Iterator[str]:
    for name in issuers(folder):
        with suppress(CardlinkError):  # not written yet, or its store is away: its age tells
            store = open_store(load_issuer(folder, name), folder)
            yield read(store, f"{metrics(name)}{TEXT}").decode()
