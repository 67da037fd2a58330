"""Read the partner's stringified error objects: never raises, always gives a reason (interface.md
2.7, 7).

Tried in turn: JSON, Python literals, node's util.inspect, each also without the quoting around it;
then the result is walked for messages. Otherwise cuid and messages are picked out of the text; at
worst the text is the message.
"""

import ast
import builtins
import html
import json
import re
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple
from urllib.parse import unquote

from flows.results.masking import mask, printable

LONGEST = 20_000  # characters that are read: an error object has a few hundred
DEPTH = 12  # levels of nesting that are walked


# The partner's words for entities, properties and faults as reason codes `entity.property.kind`:
# change these where it words its errors differently.

_PROPERTIES = {
    "card": "pan expiration expiration_year expiration_month name_on_card cvv cvv_hash nickname customer_key last_4",
    "address": "address1 address2 city subnational country postal_code email phone_number first_name last_name "
    "is_primary",
    "cardholder": "cuid",
}
_ENTITY_OF = {name: entity for entity, names in _PROPERTIES.items() for name in names.split()}
_SPELLINGS = {
    "postal_code": "zip zip_code zipcode postal postcode",
    "pan": "card_number",
    "subnational": "state province",
    "phone_number": "phone",
    "address1": "street",
    "expiration": "expiry expiration_date",
    "cvv": "cvv2 cvc",
    "cuid": "external_cuid",
}
_ALIASES = {
    spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings.split()
}
_LONGEST_FIRST = sorted({*_ENTITY_OF, *_ALIASES} - {"cuid", "postal"}, key=len, reverse=True)
_MENTIONED = re.compile(
    rf"(?:^|_)({'|'.join(_LONGEST_FIRST)}|cuid(?=_(?:is|must|can|has|was|already|too)))(?:_|$)"
)
_ENTITY_WORDS = {
    "card": "card",
    "cards": "card",
    "address": "address",
    "addresses": "address",
} | dict.fromkeys(("cardholder", "cardholders", "holder", "person"), "cardholder")

# In this order: temporary faults first, so that "timeout: invalid response" is resent.
KINDS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (
            "unavailable",
            r"time.?d? ?out|unavailable|try again|temporar|internal (?:server )?error|econn|network|"
            r"rate limit|too many requests|\b50[0234]\b",
        ),
        ("expired", r"expired|in the past"),
        ("exists", r"already|duplicate|exists\b|not unique|must be unique"),
        (
            "missing",
            r"requir|missing|not provided|"
            r"(?:can.?t|cannot|must not|may not|should not|is|not be) (?:be )?(?:blank|empty|null|undefined)",
        ),
        ("luhn", r"luhn|check ?(?:digit|sum)"),
        ("unsupported", r"support|not allowed|not (?:accepted|permitted)|not eligible"),
        ("length", r"too (?:long|short)|length|at most|at least|maximum|minimum|characters"),
        ("unknown", r"not found|unknown|does not exist|no such|not one of|must be one of"),
        ("format", r"valid|must be|format|match|malformed|incorrect|wrong|\bbad\b"),
    )
)
OTHER = "other"
UNREADABLE = "unreadable"
_OBJECT = re.compile(r"^(?:(?:\[object \w+\],?)+|\{\s*\}|\[\s*\]|\"\"|''|)$")


class PartnerReason(NamedTuple):
    """One objection of the partner; the message is masked."""

    entity: str
    property: str
    kind: str
    message: str

    @builtins.property  # the field above hides the plain name
    def code(self) -> str:
        """The reason code `entity.property.kind`, as in schemas/reasons.py."""
        return f"{self.entity}.{self.property}.{self.kind}"


@lru_cache(maxsize=4096)  # one night has few different faults, and the cuids are not in these texts
def partner_reason(path: tuple[str, ...], message: str, name: str = "") -> PartnerReason:
    """Classify one fault by the names on its path, its message and the error's own name."""
    text = mask(html.unescape(message))
    if _OBJECT.match(text):
        return PartnerReason("partner", "error", UNREADABLE, text or "(no text)")
    names = [
        snake(part)
        for step in reversed(path)
        for part in reversed(re.split(r"[.\[\]/]", step))
        if part
    ]
    kind = next((kind for kind, pattern in KINDS if pattern.search(f"{text} {name}")), OTHER)
    found = _MENTIONED.search(snake(text, alias=False))
    mentioned = _ALIASES.get(found[1], found[1]) if found else ""
    named = next((name for name in names if name in _ENTITY_OF), mentioned)
    words = (word for name in (*names, snake(text)) for word in name.split("_"))
    entity = _ENTITY_OF.get(named) or next(
        (_ENTITY_WORDS[word] for word in words if word in _ENTITY_WORDS), ""
    )
    if kind == "expired" and entity == "card":
        named = "expiration"
    if not entity:
        return PartnerReason("partner", "error", kind, text)
    return PartnerReason(entity, named or "record", kind, text)


def snake(name: str, *, alias: bool = True) -> str:
    """Return a name in snake case, in our spelling where it is a known alias."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    folded = re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")
    return _ALIASES.get(folded, folded) if alias else folded


_BLANKS = (
    (re.compile(r"\[masked\]|\S*@\S+|https?://\S+"), "#"),
    (re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`"), "'#'"),
    (re.compile(r"\b[\w-]*\d[\w-]*\b"), "#"),
)


def shape_of(reasons: tuple[PartnerReason, ...]) -> str:
    """Return reasons as one text without ids, numbers and quoted values: same kind of error, same
    shape.
    """
    return " | ".join(dict.fromkeys(f"{one.code}: {_blank(one.message)}" for one in reasons))


@lru_cache(maxsize=4096)
def _blank(message: str) -> str:
    for pattern, blank in _BLANKS:
        message = pattern.sub(blank, message)
    return message


# Reading
# ------------------------------------------------------------------------------------------------------


# the names above it: entities, properties; its message; its own name
_Fault = tuple[tuple[str, ...], str, str]


class ErrorObject(NamedTuple):
    """An error cell: the cuid it names, if any, at least one reason, and its shape for grouping."""

    cuid: str | None
    reasons: tuple[PartnerReason, ...]
    shape: str


_NAMED = re.compile(r"""\bcuid['"]?\s*:\s*['"](?P<cuid>[0-9A-Za-z_.-]*[0-9A-Za-z])['"]""")


def parse_error(text: str) -> ErrorObject:
    """Read one error cell; never raises, gives at least one reason, messages masked (interface.md
    2.7).

    Errors that differ only in the cuid are read once, with a Q for each of its characters. That
    reading is used if the text has no other Q, and Qs come out of it as the cuid and nowhere else.
    """
    text = text[:LONGEST]
    if "Q" not in text and (named := _NAMED.search(text)):
        stand_in = "Q" * len(named["cuid"])
        cuid, faults = read_error(
            text[: named.start("cuid")] + stand_in + text[named.end("cuid") :]
        )
        if cuid == stand_in and "Q" not in str(faults):
            return ErrorObject(named["cuid"], *_judged(faults))
    cuid, faults = read_error(text)
    return ErrorObject(cuid, *_judged(faults))


@lru_cache(maxsize=1024)
def _judged(faults: tuple[_Fault, ...]) -> tuple[tuple[PartnerReason, ...], str]:
    """Return the reasons and the shape of an error object's faults."""
    reasons = tuple(dict.fromkeys(partner_reason(*fault) for fault in faults))
    return reasons, shape_of(reasons)


@lru_cache(maxsize=1024)  # many rows have the same error
def read_error(text: str) -> tuple[str | None, tuple[_Fault, ...]]:
    """Return the cuid that an error cell names, if any, and its faults, at least one."""
    text = printable(unquote(text) if "%22" in text or "%27" in text else text)
    cuid, faults = None, list[_Fault]()
    for tree in _trees(text):
        cuid = cuid or _cuid(tree, 0)
        faults = faults or list(_walk(tree)) or list(_walk(tree, inside=True))
        if cuid and faults:
            break
    faults = faults or _scavenge(text) or [((), text, "")]
    found = None if cuid else _CUID_IN_TEXT.search(text)
    scavenged = _APOSTROPHE.sub("'", found["cuid"]).rstrip(".") or None if found else None
    return cuid or scavenged, tuple(faults)


# The rungs
# ----------------------------------------------------------------------------------------------------

_BROKEN = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


def _trees(text: str) -> Iterator[object]:
    """Yield what the text can be read as, the most certain reading first."""
    for variant in _variants(text):
        if "{" not in variant and "[" not in variant:
            continue
        trees = (read(variant) for read in (_json, _literal))
        yield from islice((tree for tree in trees if isinstance(tree, dict | list | tuple)), 1)


def _variants(text: str) -> Iterator[str]:
    """Yield the text, then the text without one or two layers of quoting."""
    seen = {text.strip()}
    yield text.strip()
    strips: tuple[Callable[[str], str], ...] = (html.unescape, _unescape, _undouble_quotes, _inner)
    for first in strips:
        once = first(text)
        for variant in (once, *(second(once) for second in strips)):
            if variant.strip() not in seen:
                seen.add(variant.strip())
                yield variant.strip()


def _undouble_quotes(text: str) -> str:
    return text.strip().removeprefix('"').removesuffix('"').replace('""', '"')


def _unescape(text: str) -> str:
    bare = text.strip().strip('"')
    return bare.replace('\\"', '"').replace("\\'", "'").replace("\\n", " ").replace("\\\\", "\\")


def _inner(text: str) -> str:
    """Return the object within words, as in `Error creating card: {...} (code 7)`."""
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    return text[min(starts) : max(text.rfind("}"), text.rfind("]")) + 1] if starts else text


def _json(text: str) -> object:
    for _ in range(4):  # JSON in JSON in JSON
        try:
            tree = json.loads(text, strict=False)
        except _BROKEN:
            return None
        if not isinstance(tree, str):
            return tree
        text = tree
    return None


# Quoted texts match first, so that nothing inside them counts as a key or a word of JavaScript. One
# that never closes extends to the end, so any text is scanned only once.
_INSPECTED = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*(?:'|\\?\Z)|"(?:[^"\\]|\\.)*(?:"|\\?\Z)|`(?:[^`\\]|\\.)*(?:`|\\?\Z))"""
    r"""|(?P<key>(?<![\w$])[A-Za-z_$][\w$]*)(?=\s*:)"""
    r"""|(?P<word>\[(?:Object|Array|Function|Getter|Circular)[^\]]*\]|\b(?:undefined|null|NaN|true|false)\b)"""
    r"""|(?P<noise><ref \*\d+>|\b[A-Z]\w*(?:\(\d+\))?\s+(?=[{\[])|\.\.\. \d+ more items?)""",
    re.DOTALL,
)


def _literal(text: str) -> object:
    """Read a Python literal, or node's util.inspect: bare keys, single quotes and backticks,
    undefined, [Object].
    """
    python = _INSPECTED.sub(_as_python, re.sub(r"'\s*\+\n\s*'", "", text)).strip()
    if python[:1] not in ("{", "[", "(", "'", '"'):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd escapes in the partner's text
        try:
            tree: object = ast.literal_eval(python)
        except _BROKEN:
            return None
    return _json(tree) if isinstance(tree, str) else tree


def _as_python(found: re.Match[str]) -> str:
    if found["key"]:
        return f"'{found['key']}'"
    if found["word"]:
        return {"true": "True", "false": "False"}.get(found["word"], "None")
    if found["text"]:
        quoted = found["text"]
        return repr(quoted[1:-1]) if quoted.startswith("`") else quoted.replace("\n", " ")
    return ""


# The walk
# -----------------------------------------------------------------------------------------------------

# Keys are compared in lower case, without anything but letters and digits.
_MESSAGES = ("message", "msg", "errormessage", "description", "detail", "reason", "error")
_FIELDS = ("propertyname", "property", "field", "param", "path", "loc", "instancepath", "key")
_ENTITIES = ("entityname", "entity", "call")
_WRAPPERS = frozenset((
    "errors", "error", "messages", "message", "details", "detail", "issues", "violations", "validationerrors",
    "data", "response", "body", "result", "cause",
))  # fmt: skip
_ABOUT = frozenset((
    *_MESSAGES, *_FIELDS, *_ENTITIES, "name", "code", "index", "id", "status", "statuscode", "type", "kind",
    "stack", "value", "input", "rejectedvalue", "received", "location", "params", "keyword", "schemapath",
    "url", "timestamp", "requestid", "success",
))  # fmt: skip
_CUIDS = frozenset(("cuid", "cardholdercuid", "externalcuid"))


def _cuid(tree: object, depth: int) -> str | None:
    """Find the cuid nearest to the top."""
    if depth > DEPTH:
        return None
    if isinstance(tree, dict):
        for key, value in tree.items():
            if _fold(str(key)) in _CUIDS and (text := _id(value)):
                return text
    below = (
        tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    )
    return next((found for one in below if (found := _cuid(_nested(one), depth + 1))), None)


def _id(value: object) -> str | None:
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) > 10**40):
        return None
    return printable(str(value)).strip() or None if isinstance(value, str | int) else None


def _nested(value: object) -> object:
    """Return the object inside a text, if there is one."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        return _json(value) or _literal(value) or value
    return value


def _walk(
    tree: object, path: tuple[str, ...] = (), depth: int = 0, *, inside: bool = False
) -> Iterator[_Fault]:
    """Yield the messages of a tree, each with the names above it; `inside` errors and the like,
    every text is one.
    """
    tree = _nested(tree)
    if depth > DEPTH:
        return
    if isinstance(tree, str):
        if inside and tree.strip():
            yield path, tree, ""
    elif isinstance(tree, dict):
        yield from _walk_object(
            {str(key): value for key, value in tree.items()}, path, depth, inside
        )
    elif isinstance(tree, list | tuple):
        for below in tree:
            yield from _walk(below, path, depth + 1, inside=True)


def _walk_object(
    fields: dict[str, object], path: tuple[str, ...], depth: int, inside: bool
) -> Iterator[_Fault]:
    known = {_fold(key): value for key, value in reversed(fields.items())}
    name = _first(known, ("name", "code", "keyword"))
    named = tuple(text for keys in (_ENTITIES, _FIELDS) if (text := _first(known, keys)))
    message = _first(known, _MESSAGES) or (name if named else "")
    if message:
        yield (*path, *named), message, name
    for key, value in fields.items():
        folded = _fold(key)
        wrapper = folded in _WRAPPERS
        if value == message or folded in _CUIDS or (folded in _ABOUT and not wrapper):
            continue
        yield from _walk(
            value, path if wrapper else (*path, key), depth + 1, inside=inside or wrapper
        )


def _first(fields: dict[str, object], keys: tuple[str, ...]) -> str:
    """Return the first key's value that is text; a path may be a list of names."""
    for key in keys:
        if not (value := fields.get(key)):
            continue
        if key in ("path", "loc") and isinstance(value, list | tuple):
            value = ".".join(map(str, value))
        if isinstance(value, str) and value.strip() and value.lstrip()[:1] not in ("{", "["):
            return value
    return ""


@lru_cache(maxsize=1024)
def _fold(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key.lower())


# The last rung: texts that cannot be read as a whole
# -------------------------------------------------------------

_MARKER = r"""(?:\\{0,15}["']|&quot;|&#39;|&#x27;)"""  # 15: escaped four times
_WORD = r"""[^\s,;}\]"'\\&<]+"""
_PAIR = re.compile(
    rf"{_MARKER}?\b(?P<key>message|msg|property_name|property|entity_name|name){_MARKER}?\s*[:=>]\s*"
    rf"(?:(?P<open>{_MARKER})(?P<quoted>.*?)(?:(?P=open)|$)|(?P<bare>{_WORD}(?:[ \t]+(?![\w.]+=){_WORD})*))",
    re.DOTALL,
)
_CUID_IN_TEXT = re.compile(
    rf"(?:cuid|cardholder(?=\s+[\w-]*\d)){_MARKER}?\s*(?:=>|[:=#(>]|,(?=\s*[\"'])|is\b|of\b)?\s*{_MARKER}?"
    # also of O'Brien
    r"""(?P<cuid>(?:[^\s"'\\,;:{}()\[\]<>&]|(?<=\w)(?:\\{0,15}'|&#39;|&#x27;)(?=\w))+)""",
    re.IGNORECASE,
)
_APOSTROPHE = re.compile(r"\\+'|&#39;|&#x27;")


def _scavenge(text: str) -> list[_Fault]:
    """Pick messages out of a text, each with the property and entity next to it."""
    groups: list[dict[str, str]] = [{}]
    for found in _PAIR.finditer(text):
        key = "message" if found["key"] == "msg" else found["key"]
        if key in groups[-1]:
            groups.append({})
        groups[-1][key] = found["quoted"] or found["bare"] or ""
    return [
        (
            tuple(one[key] for key in ("entity_name", "property_name", "property") if one.get(key)),
            message,
            one.get("name", ""),
        )
        for one in groups
        if (message := one.get("message") or one.get("name"))
    ]
