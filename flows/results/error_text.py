"""Read the partner's stringified error objects: always gives a reason, never raises.

Tried in turn (interface.md 2.7, 7): JSON, Python literals, node's util.inspect, each also without
the quoting around it (`error_trees`); then the result is walked for messages. Otherwise cuid and
messages are picked out of the text; at worst the text is the message.

The partner documents no form, so the file itself is kept as it came.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from flows.harmless import about, have_cvv_together, without_own
from flows.harmless_tokens import OWN
from flows.results.error_trees import nested, trees
from flows.results.masking import printable
from flows.results.partner_terms import PartnerReason, partner_reason, shape_of
from flows.secret_words import speaks_of_cvv

LONGEST = 20_000  # characters that are read: an error object has a few hundred
DEPTH = 12  # levels of nesting that are walked


class Fault(NamedTuple):
    """One message: the names above it (entities, properties), its text, the error's own name."""

    path: tuple[str, ...]
    message: str
    name: str = ""


class ErrorObject(NamedTuple):
    """An error cell: the cuid it names, if any, at least one reason, and its shape for grouping.

    In messages OWN stands for the cuid (`flows.harmless`).
    """

    cuid: str | None
    reasons: tuple[PartnerReason, ...]
    shape: str


_NAMED_CUID = re.compile(
    r"""\bcuid['"]?\s*:\s*['"](?P<cuid>[0-9A-Za-z_.-]*[0-9A-Za-z])['"]"""
    r"""(?=\s*(?:[,}\])]|$))"""  # else the quote is part of it, as in O'Brien
)


def parse_error(text: str, known: tuple[str, ...] = ()) -> ErrorObject:
    """Read one error cell: at least one reason, of messages what is harmless (interface.md 2.7).

    Errors that differ only in the cuid are read once, with OWN in its place. `known`: texts that
    are kept (`[errors]`).
    """
    text = without_own(text[:LONGEST])
    named = _NAMED_CUID.search(text)
    if named:
        start, end = named.span("cuid")
        cuid, faults = read_error(text[:start] + OWN + text[end:])
        if cuid == OWN:
            return _about(named["cuid"], faults, text, known)
    return _about(*read_error(text), text, known)


def _about(
    cuid: str | None, faults: Iterable[Fault], text: str, known: tuple[str, ...]
) -> ErrorObject:
    own = tuple(
        Fault(
            tuple(about(name, cuid) for name in fault.path),
            about(fault.message, cuid),
            about(fault.name, cuid),
        )
        for fault in faults
    )
    is_secret = speaks_of_cvv(about(text, cuid))
    return ErrorObject(cuid, *_judged(own, known, is_secret=is_secret))


@lru_cache(maxsize=1024)
def _judged(
    faults: tuple[Fault, ...], known: tuple[str, ...], *, is_secret: bool
) -> tuple[tuple[PartnerReason, ...], str]:
    """Return the reasons and the shape of an error object's faults.

    Where the object mentions a secret, or its messages have the digits of a CVV one by one, no
    digit of them is kept.
    """
    reasons = dict.fromkeys(
        partner_reason(*fault, secret=is_secret, known=known) for fault in faults
    )
    if len(reasons) > 1 and have_cvv_together(reason.message for reason in reasons):
        reasons = dict.fromkeys(partner_reason(*fault, secret=True) for fault in faults)
    return tuple(reasons), shape_of(tuple(reasons))


@lru_cache(maxsize=1024)  # many rows have the same error
def read_error(text: str) -> tuple[str | None, tuple[Fault, ...]]:
    """Return the cuid that an error cell names, if any, and its faults, at least one."""
    if "%22" in text or "%27" in text:
        text = unquote(text)
    text = printable(text)
    cuid, faults = _read_trees(text)
    faults = faults or list(_mentioned_faults(text)) or [Fault((), text)]
    return cuid or _mentioned_cuid(text), tuple(faults)


def _read_trees(text: str) -> tuple[str | None, list[Fault]]:
    """Return the cuid and the faults of the most certain readings of a text that have any."""
    cuid = None
    faults = list[Fault]()
    for tree in trees(text):
        cuid = cuid or _cuid_in(tree)
        faults = faults or list(_walk(tree)) or list(_walk(tree, inside=True))
        if cuid and faults:
            break
    return cuid, faults


# The walk through what a text was read as
# --------------------------------------------------------------------------------------------------

# Keys are compared in lower case, without anything but letters and digits.
_NAMES = ("name", "code", "keyword")
_MESSAGES = ("message", "msg", "errormessage", "description", "detail", "reason", "error")
_FIELDS = ("propertyname", "property", "field", "param", "path", "loc", "instancepath", "key")
_ENTITIES = ("entityname", "entity", "call")
_WRAPPERS = frozenset((
    "errors", "error", "messages", "message", "details", "detail", "issues", "violations",
    "validationerrors", "data", "response", "body", "result", "cause",
))  # fmt: skip
_CUIDS = frozenset(("cuid", "cardholdercuid", "externalcuid"))
# facts about an error, which say nothing of what is wrong
_ABOUT = frozenset((
    *_MESSAGES, *_FIELDS, *_ENTITIES, "name", "code", "index", "id", "status", "statuscode", "type",
    "kind", "stack", "value", "input", "rejectedvalue", "received", "location", "params", "keyword",
    "schemapath", "url", "timestamp", "requestid", "success",
))  # fmt: skip
_NOT_WALKED = _CUIDS | (_ABOUT - _WRAPPERS)


def _cuid_in(tree: object, depth: int = 0) -> str | None:
    """Find the first cuid, that of an object before those within it."""
    if depth > DEPTH:
        return None
    children: Iterable[object] = ()
    if isinstance(tree, dict):
        own = _own_cuid(tree)
        if own:
            return own
        children = tree.values()
    elif isinstance(tree, list | tuple):
        children = tree
    cuids = (_cuid_in(nested(child), depth + 1) for child in children)
    return next(filter(None, cuids), None)


def _own_cuid(fields: Mapping[object, object]) -> str | None:
    cuids = (_identifier(value) for key, value in fields.items() if _folded(str(key)) in _CUIDS)
    return next(filter(None, cuids), None)


def _identifier(value: object) -> str | None:
    """Return a text or number that may be a cuid."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    if isinstance(value, int) and abs(value) > 10**40:
        return None
    return printable(str(value)).strip() or None


def _walk(
    tree: object, path: tuple[str, ...] = (), depth: int = 0, *, inside: bool = False
) -> Iterator[Fault]:
    """Yield the messages of a tree, each with the names above it.

    `inside` errors and the like, every text is a message.
    """
    tree = nested(tree)
    if depth > DEPTH:
        return
    if isinstance(tree, str):
        if inside and tree.strip():
            yield Fault(path, tree)
    elif isinstance(tree, dict):
        fields = {str(key): value for key, value in tree.items()}
        yield from _walk_object(fields, path, depth, inside)
    elif isinstance(tree, list | tuple):
        for child in tree:
            yield from _walk(child, path, depth + 1, inside=True)


def _walk_object(
    fields: dict[str, object], path: tuple[str, ...], depth: int, inside: bool
) -> Iterator[Fault]:
    known = {_folded(key): value for key, value in reversed(fields.items())}
    name = _first_text(known, _NAMES)
    named = tuple(filter(None, (_first_text(known, _ENTITIES), _first_text(known, _FIELDS))))
    message = _first_text(known, _MESSAGES)
    if named and not message:
        message = name
    if message:
        yield Fault((*path, *named), message, name)
    for key, value in fields.items():
        folded = _folded(key)
        if value == message or folded in _NOT_WALKED:
            continue
        if folded in _WRAPPERS:
            yield from _walk(value, path, depth + 1, inside=True)
        else:
            yield from _walk(value, (*path, key), depth + 1, inside=inside)


def _first_text(fields: Mapping[str, object], keys: tuple[str, ...]) -> str:
    """Return the first key's value that is text; a path may be a list of names."""
    for key in keys:
        value = fields.get(key)
        if key in ("path", "loc") and isinstance(value, list | tuple):
            value = ".".join(map(str, value))
        if isinstance(value, str) and value.strip() and value.lstrip()[:1] not in ("{", "["):
            return value
    return ""


@lru_cache(maxsize=1024)
def _folded(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key.lower())


# Texts that cannot be read as a whole
# --------------------------------------------------------------------------------------------------

_MARKER = r"""(?:\\{0,15}["']|&quot;|&#39;|&#x27;)"""  # 15: escaped four times
_WORD = r"""[^\s,;}\]"'\\&<]+"""
_PAIR = re.compile(
    rf"{_MARKER}?\b(?P<key>message|msg|property_name|property|entity_name|name){_MARKER}?"
    rf"\s*[:=>]\s*(?:(?P<open>{_MARKER})(?P<quoted>.*?)(?:(?P=open)|$)"
    rf"|(?P<bare>{_WORD}(?:[ \t]+(?![\w.]+=){_WORD})*))",
    re.DOTALL,
)
_CUID_MENTION = re.compile(
    rf"(?:cuid|cardholder(?=\s+[\w-]*\d)){_MARKER}?"
    rf"\s*(?:=>|[:=#(>]|,(?=\s*[\"'])|is\b|of\b)?\s*{_MARKER}?"
    # also of O'Brien
    r"""(?P<cuid>(?:[^\s"'\\,;:{}()\[\]<>&]|(?<=\w)(?:\\{0,15}'|&#39;|&#x27;)(?=\w))+)""",
    re.IGNORECASE,
)
_APOSTROPHE = re.compile(r"\\+'|&#39;|&#x27;")


def _mentioned_cuid(text: str) -> str | None:
    """Return what stands behind the word cuid, if anything."""
    mention = _CUID_MENTION.search(text)
    if mention is None:
        return None
    return _APOSTROPHE.sub("'", mention["cuid"]).rstrip(".") or None


def _mentioned_faults(text: str) -> Iterator[Fault]:
    """Pick messages out of a text, each with the property and entity next to it."""
    for pairs in _grouped_pairs(text):
        message = pairs.get("message") or pairs.get("name")
        if message:
            names = (pairs.get(key) for key in ("entity_name", "property_name", "property"))
            yield Fault(tuple(filter(None, names)), message, pairs.get("name", ""))


def _grouped_pairs(text: str) -> list[dict[str, str]]:
    """Return keys and values of a text; a key that comes again begins a new group."""
    groups: list[dict[str, str]] = [{}]
    for pair in _PAIR.finditer(text):
        key = "message" if pair["key"] == "msg" else pair["key"]
        if key in groups[-1]:
            groups.append({})
        groups[-1][key] = pair["quoted"] or pair["bare"] or ""
    return groups
