"""The commands that practise: generate an extract, and let the simulated portal answer."""

from __future__ import annotations

import csv
from datetime import date
from pathlib import Path

from flows.cli.answer import Answer
from flows.core.errors import OperatorError
from flows.wiring import now, read_file, wire


class NoKeyGivenError(OperatorError):
    """What is sealed for the portal can be opened with its secret key only."""

    says = "Chunks are sealed for the portal, and its secret key was not given."
    then = "Name the simulated portal's key with --secret-key FILE."


def generate_extract(file: Path, rows: int, bad: float, seed: int, day: date | None) -> Answer:
    """Write an extract of test cards."""
    from flows.simulator.extract import write_sample

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        write_sample(out, rows, bad=bad, seed=seed, as_of=day or now().date())
    facts = {"file": str(file), "rows": rows, "bytes": file.stat().st_size}
    lines = [f"{file}: {rows:,} rows, {facts['bytes']:,} bytes, test cards only"]
    return Answer(facts, lines, "put it below <root>/<issuer>/extracts/ and run cardlink submit ISSUER")


def answer_chunks(
    folder: Path,
    name: str,
    secret_key: Path | None,
    fail_share: float,
    shuffle: bool,
    seed: int,
    today: date | None = None,
    expires: date | None = None,
) -> Answer:
    """Let the simulated portal answer every committed chunk that has no result yet."""
    if secret_key is None:
        raise NoKeyGivenError
    from flows.edge.pgp import GpgOpener
    from flows.simulator.answer import answer_store
    from flows.simulator.portal import Portal

    edges = wire(folder, name)
    with GpgOpener([read_file(secret_key, "--secret-key")]) as opener:
        portal = Portal(
            opener,
            host=edges.issuer.portal.allowed_hosts[0],
            header=next(csv.reader([edges.header.line.decode()])),
            fail_share=fail_share,
            shuffle=shuffle,
            seed=seed,
            today=today or now().date(),
            expires=expires,
        )
        done = answer_store(edges.edges.store, name, portal)
    facts = {
        "issuer": name,
        "files": len(done.delivered),
        "linked": done.linked,
        "errors": done.errors,
        "refused": [list(one) for one in done.refused],
    }
    lines = [f"{len(done.delivered)} result files: {done.linked:,} links, {done.errors:,} errors"]
    lines += [f"refused {chunk}: {why}" for chunk, why in done.refused]
    return Answer(facts, lines, f"cardlink ingest {name}", 2 if done.refused else 0)
