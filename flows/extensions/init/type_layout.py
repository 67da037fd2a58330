"""How records of several types are laid out, and which key may join them: for `init`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from flows.extensions.init.fixed_width import Span, type_spans
from flows.extensions.init.typed_lines import ALIKE, Fields, RecordTypes

FIELD: Final = "TYPE"
OVERLAP: Final = 0.5  # share of the rows whose key is in records of another type
NEEDED: Final = 0.9
MOST_KEYS: Final = 3


class SegmentKey(NamedTuple):
    """A place of a field in each type, and of each other type the share of rows that it has."""

    places: dict[str, int]
    shares: dict[str, float]


class Layout(NamedTuple):
    """The settings of the types' columns, their names by type, and the keys that may join them."""

    source: dict[str, Any]
    names: dict[str, list[str]]
    keys: list[SegmentKey]


def delimited(types: RecordTypes) -> Layout:
    """Return the columns of types whose fields a delimiter parts."""
    names = {}
    for kind, rows in types.fields.items():
        [(size, _)] = Counter(map(len, rows)).most_common(1)
        names[kind] = [FIELD, *(f"column_{place}" for place in range(2, size + 1))]
    sized = {
        kind: [fields for fields in rows if len(fields) == len(names[kind])]
        for kind, rows in types.fields.items()
    }
    source = {"delimiter": types.delimiter, "segments": names}
    return Layout(source, names, _keys(sized, types.row))


def in_fixed_columns(types: RecordTypes) -> Layout:
    """Return the columns of types by their places; a key has the same place in all of them."""
    texts = {kind: ["".join(fields) for fields in rows] for kind, rows in types.fields.items()}
    size = len(types.row)
    spans = {kind: _spans(rows, size) for kind, rows in texts.items()}
    shared = [span for span in spans[types.row] if _joins(span, texts, types.row)]
    spans = {kind: _cut(own, shared) for kind, own in spans.items()}
    names = {kind: _span_names(own) for kind, own in spans.items()}
    fields = {kind: _cells(texts[kind], own) for kind, own in spans.items()}
    segments = {
        kind: dict(zip(names[kind], map(list, own), strict=True)) for kind, own in spans.items()
    }
    source: dict[str, Any] = {"format": "fixed", "segments": segments}
    keys = [key for key in _keys(fields, types.row) if len(_key_names(key, names)) == 1]
    return Layout(source, names, keys)


def _span_names(spans: Sequence[Span]) -> list[str]:
    return [FIELD, *(f"at_{span.first}_{span.last}" for span in spans[1:])]


def _cells(texts: Sequence[str], spans: Sequence[Span]) -> list[Fields]:
    return [[text[span.first - 1 : span.last].strip() for span in spans] for text in texts]


def _key_names(key: SegmentKey, names: Mapping[str, Sequence[str]]) -> set[str]:
    return {names[kind][place] for kind, place in key.places.items()}


def _spans(texts: Sequence[str], size: int) -> list[Span]:
    """Return the fields of the records of a type, the type itself first, up to their end."""
    [(width, _)] = Counter(map(len, texts)).most_common(1)
    spans = type_spans([text for text in texts if len(text) == width])
    cut = _cut(spans, [Span(1, size)])
    return [*cut[:-1], cut[-1]._replace(last=width)]


def _cut(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """Return spans that begin and end, too, where the others do."""
    starts = {span.first for span in (*spans, *others)} | {span.last + 1 for span in others}
    end = spans[-1].last
    edges = [*sorted(start for start in starts if start <= end), end + 1]
    return [Span(first, after - 1) for first, after in pairwise(edges)]


def _joins(span: Span, texts: Mapping[str, Sequence[str]], row: str) -> bool:
    """Return whether what is at a place is a key of all types."""
    cells = {
        kind: [["", text[span.first - 1 : span.last].strip()] for text in rows]
        for kind, rows in texts.items()
    }
    return bool(_keys(cells, row))


def _keys(fields: Mapping[str, Sequence[Fields]], row: str) -> list[SegmentKey]:
    """Return the places that may join all other types to the rows, the best first."""
    keys = []
    for place in range(1, len(fields[row][0])):
        own = {record[place] for record in fields[row] if record[place]}
        places = {row: place}
        shares = {}
        for kind in fields.keys() - {row}:
            share, other = _best_place(fields[kind], own)
            if len(own) > 1 and share >= OVERLAP / 5:
                places[kind] = other
                shares[kind] = share
        if len(places) == len(fields) and max(shares.values()) >= OVERLAP:
            keys.append(SegmentKey(places, shares))
    return sorted(keys, key=lambda key: max(key.shares.values()), reverse=True)[:MOST_KEYS]


def _best_place(rows: Sequence[Fields], own: set[str]) -> tuple[float, int]:
    """Return the place whose values are different, and in most rows; and in what share of them."""
    shares = [(0.0, 0)]
    for place in range(1, len(rows[0])):
        values = [record[place] for record in rows]
        different = set(values)
        if len(different) >= ALIKE * len(values):
            shares.append((len(different & own) / max(1, len(own)), -place))
    share, place = max(shares)
    return share, -place


def keyed(key: SegmentKey, layout: Layout, types: RecordTypes) -> dict[str, Any]:
    """Return the settings by which a key joins the types."""
    names = {kind: layout.names[kind][place] for kind, place in key.places.items()}
    is_same = len(set(names.values())) == 1
    optional = [kind for kind, share in key.shares.items() if share < NEEDED]
    keyed: dict[str, Any] = {"segment_key": names[types.row] if is_same else names}
    return keyed | ({"segment_optional": sorted(optional)} if optional else {})
