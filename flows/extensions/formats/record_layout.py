"""Where the fields of a record are, by its copybook: first byte, size, and how they are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from flows.extensions.formats.copybook import CopybookError, Item, Picture, read_copybook

MOST_DIGITS: Final = 31
MOST_BINARY: Final = 18
LONGEST: Final = 1 << 20  # bytes of a record
MOST_FIELDS: Final = 20_000


class Field(NamedTuple):
    """A field: its name, first byte from 0 and size, and how it is written.

    `kind` is text, zoned, packed, binary, native, or opaque, which is not read. One that is
    `shared` has its bytes in common with another, so what cannot be read in it may be the other.
    `segment`: the kind of record that has it, "" for all.
    """

    name: str
    start: int
    size: int
    kind: str
    digits: int = 0
    decimals: int = 0
    signed: bool = False
    sign: str = ""
    shared: bool = False
    segment: str = ""

    @property
    def end(self) -> int:
        """The byte after its last one."""
        return self.start + self.size


class Layout(NamedTuple):
    """The fields of a record, and its size in bytes."""

    fields: tuple[Field, ...]
    size: int

    def of(self, segment: str) -> tuple[Field, ...]:
        """Return the fields that records of a segment have."""
        return tuple(field for field in self.fields if field.segment in ("", segment))

    def named(self, name: str) -> Field | None:
        """Return the field of that name, in any case; of several at one place the first."""
        plain = name.upper()
        for field in self.fields:
            if field.name == plain:
                return field
        namesakes = [field for field in self.fields if field.name.endswith(f".{plain}")]
        places = {(field.start, field.size, field.kind) for field in namesakes}
        return namesakes[0] if len(places) == 1 else None


def read_layout(text: str, segments: Collection[str] = ()) -> Layout:
    """Return the layout of a copybook; `segments` are the groups that only some records have.

    Raises CopybookError.
    """
    records = read_copybook(text)
    placing = _Placing({name.upper() for name in segments})
    size = placing.place_all(_as_alternatives(records), _Place(0))
    missing = placing.segments - placing.placed
    if missing:
        problem = "no 01 record, and no group that redefines another or is redefined"
        raise CopybookError(f"{', '.join(sorted(missing))}: {problem}")
    if size > LONGEST or len(placing.fields) > MOST_FIELDS:
        raise CopybookError(
            f"its record is longer than {LONGEST:,} bytes or {MOST_FIELDS:,} fields"
        )
    return Layout(tuple(_named(placing.fields)), size)


def _as_alternatives(records: Sequence[Item]) -> tuple[Item, ...]:
    """Return several records of a file as what they are: each redefines the first."""
    first, *others = records
    return (first, *(record._replace(redefines=first.name) for record in others))


class _Place(NamedTuple):
    """Where an item is: its first byte, the names above it, and which of its kind it is."""

    start: int
    path: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    shared: bool = False
    segment: str = ""
    hidden: bool = False  # its bytes are those of segments


class _Placed(NamedTuple):
    """A field with the names of the groups above it, the nearest last."""

    path: tuple[str, ...]
    field: Field


class _Placing:
    """Places items one after another."""

    def __init__(self, segments: set[str]) -> None:
        self.segments = segments
        self.placed: set[str] = set()
        self.fields: list[_Placed] = []
        self._open_end = ""  # the table before it whose size another field says

    def place_all(self, items: Sequence[Item], place: _Place) -> int:
        """Place the items of a group; return its size."""
        starts: dict[str, int] = {}
        families = _families(items)
        end = place.start
        for item in items:
            start = end
            if item.redefines:
                if item.redefines not in starts:
                    raise _error(item, f"it redefines {item.redefines}, which is not before it")
                start = starts[item.redefines]
                self._open_end = ""
            starts[item.name] = start
            own_place = self._within(item, place._replace(start=start), families[item.name])
            end = max(end, start + self._place(item, own_place))
        return end - place.start

    def _within(self, item: Item, place: _Place, family: Collection[str]) -> _Place:
        """Return the place of an item whose bytes are also those of the others of its family."""
        is_record = not place.path
        if item.name in self.segments and (len(family) > 1 or is_record):
            self.placed.add(item.name)
            return place._replace(segment=item.name)
        is_hidden = not self.segments.isdisjoint(family)
        is_shared = place.shared or len(family) > 1
        return place._replace(shared=is_shared, hidden=place.hidden or is_hidden)

    def _place(self, item: Item, place: _Place) -> int:
        """Place an item as often as it occurs; return its size."""
        size = 0
        for number in range(1, item.times + 1):
            numbers = (*place.numbers, number) if item.times > 1 or item.depends else place.numbers
            size += self._place_once(
                item, place._replace(start=place.start + size, numbers=numbers)
            )
            if size > LONGEST or len(self.fields) > MOST_FIELDS:
                break
        if item.depends:
            self._open_end = item.name
        return size

    def _place_once(self, item: Item, place: _Place) -> int:
        if item.items:
            return self.place_all(item.items, place._replace(path=(*place.path, item.name)))
        if self._open_end:
            problem = f"it follows {self._open_end}, whose number of times another field says"
            raise _error(item, problem)
        field = _field(item, place)
        if item.name != "FILLER" and not place.hidden:
            self.fields.append(_Placed(place.path, field))
        return field.size


def _families(items: Sequence[Item]) -> dict[str, set[str]]:
    """Return, by the name of each item, the names of those that have the same bytes."""
    families: dict[str, set[str]] = {}
    for item in items:
        own_family = families.get(item.redefines) if item.redefines else None
        family = {item.name} if own_family is None else own_family
        family.add(item.name)
        families[item.name] = family
    return families


def _field(item: Item, place: _Place) -> Field:
    picture = item.picture
    if picture is None or item.usage in ("float", "double"):
        size = 4 if item.usage == "float" else 8
        field = Field(item.name, place.start, size, "opaque")
    elif not picture.is_number:
        if item.usage != "display":
            raise _error(item, "only a number can be COMP")
        field = Field(item.name, place.start, picture.places, "text")
    else:
        field = _number(item, picture, place.start)
    numbers = ",".join(map(str, place.numbers))
    name = f"{item.name}({numbers})" if numbers else item.name
    return field._replace(name=name, shared=place.shared, segment=place.segment)


def _number(item: Item, picture: Picture, start: int) -> Field:
    digits = picture.places
    most = MOST_BINARY if item.usage in ("binary", "native") else MOST_DIGITS
    if digits > most:
        raise _error(item, f"it has {digits} digits; the limit is {most}")
    match item.usage:
        case "packed":
            kind = "packed"
            size = digits // 2 + 1
        case "binary" | "native":
            kind = item.usage
            size = next(size for limit, size in ((4, 2), (9, 4), (18, 8)) if digits <= limit)
        case _:
            kind = "zoned"
            size = digits + ("separate" in item.sign)
    return Field(item.name, start, size, kind, digits, picture.decimals, picture.signed, item.sign)


def _named(placed: Sequence[_Placed]) -> Iterator[Field]:
    """Yield the fields, those of the same name with as many of their groups as tell them apart."""
    longest = max((len(each.path) for each in placed), default=0)
    names = [each.field.name for each in placed]
    for depth in range(1, longest + 1):
        times = Counter(names)
        names = [
            name if times[name] == 1 else ".".join((*each.path[-depth:], each.field.name))
            for name, each in zip(names, placed, strict=True)
        ]
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise CopybookError(f"{repeated[0]}: two fields of the same group have this name")
    for name, each in zip(names, placed, strict=True):
        yield each.field._replace(name=name)


def _error(item: Item, problem: str) -> CopybookError:
    return CopybookError(f"line {item.line}, {item.name}: {problem}")
