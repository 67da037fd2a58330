"""The partner's stringified error object (interface.md 2.7 and 7): a ladder that never raises and always gives a reason.

JSON, then Python literals, then the text unescaped or relaxed, then a walk over what was found; else the
cuid and messages are picked out of the text, and at worst the whole text is the message.
"""

from __future__ import annotations

import ast
import html
import json
import re
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

from flows.core.masking import mask

UNREADABLE = "partner.error.unreadable"


class PartnerReason(NamedTuple):
    """One thing the partner objects to; `code` is `entity.property.kind`, the message is masked."""

    entity: str
    property: str
    kind: str
    message: str

    @property
    def code(self) -> str:
        """The reason code, as in schemas/reasons.py."""
        return f"{self.entity}.{self.property}.{self.kind}"


class ErrorObject(NamedTuple):
    """What an error cell says: the failing cuid where it names one, at least one reason, and its shape for grouping."""

    cuid: str | None
    reasons: tuple[PartnerReason, ...]
    shape: str


def parse_error(text: str) -> ErrorObject:
    """Read one error cell; never raises, always at least one reason, messages masked (interface.md 2.7)."""
    cuid, raw = None, list[_Raw]()
    for tree in _trees(text):
        cuid = cuid or _cuid(tree, 0)
        raw = raw or list(_walk(tree, _Place()))
        if cuid and raw:
            break
    raw = raw or _scavenge(text) or [_Raw((), text)]
    reasons = tuple(dict.fromkeys(_reason(one) for one in raw))
    return ErrorObject(cuid or _scavenge_cuid(text), reasons, shape_of(reasons))


def shape_of(reasons: tuple[PartnerReason, ...]) -> str:
    """Return the reasons as one text with ids, numbers and quoted values blanked: same kind of error, same shape."""
    return " | ".join(dict.fromkeys(f"{one.code}: {_blank(one.message)}" for one in reasons))


class _Raw(NamedTuple):
    path: tuple[str, ...]
    message: str
    name: str = ""


class _Place(NamedTuple):
    path: tuple[str, ...] = ()
    depth: int = 0
    inside: bool = False  # below errors, _errors and the like: every text is a message


_DEPTH = 12
_WRAPPERS = frozenset(
    "errors _errors error messages message details detail issues violations validationerrors data response body result".split()
)
_MESSAGES = ("message", "msg", "errormessage", "error_message", "description", "detail", "reason", "error")
_PROPERTIES = ("property_name", "property", "propertyname", "field", "param", "path", "key")
_ENTITIES = ("entity_name", "entity", "entityname", "call")
_KEYS_OF_AN_ERROR = frozenset(
    (*_MESSAGES, *_PROPERTIES, *_ENTITIES, "name", "code", "index", "id", "status", "type", "cuid", "stack")
)
_CUID = frozenset(("cuid", "cardholdercuid", "externalcuid"))
_BROKEN = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


def _trees(text: str) -> Iterator[object]:
    """Yield what the text can be read as, the surest reading first."""
    for variant in _variants(text):
        for read in (_json, _literal, _relaxed):
            tree = read(variant)
            if isinstance(tree, dict | list | tuple):
                yield tree
                break


def _variants(text: str) -> Iterator[str]:
    """Yield the text, then the text with one layer of dressing taken off after another."""
    seen = {text.strip()}
    yield text.strip()
    strips: tuple[Callable[[str], str], ...] = (_undress, html.unescape, _unescape, _inner)
    for first in strips:
        for second in strips:
            variant = second(first(text)).strip()
            if variant not in seen:
                seen.add(variant)
                yield variant


def _undress(text: str) -> str:
    return text.replace('""', '"').strip().strip('"')


def _unescape(text: str) -> str:
    return text.replace('\\"', '"').replace("\\'", "'").replace("\\n", " ").replace("\\\\", "\\")


def _inner(text: str) -> str:
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


def _literal(text: str) -> object:
    if text[:1] not in "{[('\"":
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape in the partner's text is not our source code's
        try:
            tree: object = ast.literal_eval(text)
        except _BROKEN:
            return None
    return _json(tree) if isinstance(tree, str) else tree


_BARE_KEY = re.compile(r"([{,]\s*)([A-Za-z_$][\w$]*)\s*:")
_JS_WORD = re.compile(
    r"\[(?:Object|Array|Getter|Circular \*\d+)[^\]]*\]|\b(?:undefined|null|NaN|true|false)\b|<ref \*\d+>"
)
_JS_VALUES = {"true": "True", "false": "False", "<ref": ""}


def _relaxed(text: str) -> object:
    """Read what node's util.inspect prints: bare keys, single quotes, undefined."""
    if "{" not in text:
        return None
    words = _JS_WORD.sub(lambda found: _JS_VALUES.get(found[0].split(" ")[0], "None"), text)
    return _literal(_BARE_KEY.sub(r'\1"\2":', words).strip())


def _cuid(tree: object, depth: int) -> str | None:
    if depth > _DEPTH:
        return None
    if isinstance(tree, dict):
        for key, value in tree.items():
            if _fold(key) in _CUID and isinstance(value, str | int) and str(value).strip():
                return str(value).strip()
    for below in _below(tree):
        found = _cuid(_nested(below), depth + 1)
        if found:
            return found
    return None


def _below(tree: object) -> list[object]:
    if isinstance(tree, dict):
        return list(tree.values())
    return list(tree) if isinstance(tree, list | tuple) else []


def _nested(value: object) -> object:
    """Return the object a text holds, where it holds one."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        return _json(value) or _literal(value) or value
    return value


def _walk(tree: object, at: _Place) -> Iterator[_Raw]:
    """Yield the messages of a tree with the path of names that leads to each."""
    tree = _nested(tree)
    if at.depth > _DEPTH:
        return
    if isinstance(tree, str):
        if tree.strip() and (at.inside or not at.path):
            yield _Raw(at.path, tree)
    elif isinstance(tree, dict):
        yield from _walk_object(tree, at)
    elif isinstance(tree, list | tuple):
        for below in tree:
            yield from _walk(below, at._replace(depth=at.depth + 1, inside=True))


def _walk_object(tree: dict[object, object], at: _Place) -> Iterator[_Raw]:
    fields = {_key(key): value for key, value in tree.items()}
    message = _first_text(fields, _MESSAGES)
    if message is not None:
        named = tuple(text for key in (_ENTITIES, _PROPERTIES) if (text := _first_text(fields, key)))
        yield _Raw((*at.path, *named), message, str(fields.get("name") or fields.get("code") or ""))
    for key, value in fields.items():
        if _fold(key) in _CUID or (value is message) or (key in _KEYS_OF_AN_ERROR and key not in _WRAPPERS):
            continue
        wrapper = key in _WRAPPERS
        path = at.path if wrapper else (*at.path, key)
        yield from _walk(value, _Place(path, at.depth + 1, at.inside or wrapper))


def _first_text(fields: dict[str, object], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, str) and value.strip() and not isinstance(_nested(value), dict | list | tuple):
            return value
    return None


def _key(key: object) -> str:
    return str(key).strip()


def _fold(key: object) -> str:
    return re.sub(r"[^a-z0-9]", "", str(key).lower())


_PAIR = re.compile(
    r"""["']?\b(?P<key>message|msg|property_name|property|entity_name|name)\b\\*["']?\s*[:=]\s*"""
    r"""(?:\\*"(?P<double>[^"\\]*)|\\*'(?P<single>[^'\\]*)|(?P<bare>[^\s,;}\]"'\\]+))"""
)
_CUID_IN_TEXT = re.compile(
    r"""cuid\b[\\"'\s]*(?:&quot;)?\s*(?:[:=]|=>|\bis\b|\bof\b|#|\()?[\\"'\s(]*(?:&quot;)?(?P<cuid>[^\s"'\\,;:{}()\[\]<>&]+)""",
    re.IGNORECASE,
)


def _scavenge(text: str) -> list[_Raw]:
    """Pick messages out of a text that cannot be read as a whole."""
    groups: list[dict[str, str]] = [{}]
    for found in _PAIR.finditer(text):
        key = {"msg": "message"}.get(found["key"], found["key"])
        if key in groups[-1]:
            groups.append({})
        groups[-1][key] = found["double"] or found["single"] or found["bare"] or ""
    return [
        _Raw(
            tuple(one[key] for key in ("entity_name", "property_name", "property") if one.get(key)),
            one.get("message") or one.get("name") or "",
            one.get("name", ""),
        )
        for one in groups
        if one.get("message") or one.get("name")
    ]


def _scavenge_cuid(text: str) -> str | None:
    found = _CUID_IN_TEXT.search(text)
    return found["cuid"].rstrip(".") or None if found else None


_PROPERTY_OF = {
    "card": "pan expiration expiration_year expiration_month name_on_card cvv cvv_hash nickname customer_key last_4",
    "address": "address1 address2 city subnational country postal_code email phone_number is_primary",
    "cardholder": "cuid first_name last_name",
}
_ENTITY = {name: entity for entity, names in _PROPERTY_OF.items() for name in names.split()}
_ENTITY_WORDS = {"card": "card", "cards": "card", "servicecard": "card", "cardholder": "cardholder", "cardholders": "cardholder",
                 "address": "address", "addresses": "address", "billingaddress": "address"}  # fmt: skip
_ALIAS = {"zip": "postal_code", "zip_code": "postal_code", "zipcode": "postal_code", "postal": "postal_code",
          "card_number": "pan", "number": "pan", "state": "subnational", "phone": "phone_number", "street": "address1"}  # fmt: skip
_KINDS = (
    ("unavailable", r"time.?out|timed out|unavailable|try again|internal|econn|network|rate limit|too many requests|5\d\d\b"),
    ("expired", r"expired|in the past"),
    ("missing", r"required|missing|can.?t be (?:blank|empty|null)|must not be (?:blank|empty|null)|may not be|not provided|is (?:blank|empty|null)"),
    ("repeated", r"already|duplicate|exists|not unique|must be unique"),
    ("length", r"too (?:long|short)|length|at most|at least|maximum|minimum|characters"),
    ("unsupported", r"not supported|unsupported|not allowed|not (?:accepted|permitted)|not one of|must be one of"),
    ("luhn", r"luhn|check ?(?:digit|sum)"),
    ("format", r"invalid|not valid|must be|format|does not match|malformed|incorrect|wrong|bad "),
    ("unknown", r"not found|unknown|does not exist|no such"),
)  # fmt: skip
_KIND = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS)


def _reason(raw: _Raw) -> PartnerReason:
    names = [part for step in raw.path for part in re.split(r"[.\[\]/]", step) if part and not part.isdigit()]
    message = mask(html.unescape(raw.message)) or "(no text)"
    if message.startswith("[object "):
        return PartnerReason("partner", "error", "unreadable", message)
    folded = [_snake(name) for name in names]
    entity = next(
        (_ENTITY_WORDS[name.replace("_", "")] for name in reversed(folded) if name.replace("_", "") in _ENTITY_WORDS),
        "",
    )
    prop = next((name for name in reversed(folded) if name in _ENTITY), "") or _mentioned(message)
    kind = next((kind for kind, pattern in _KIND if pattern.search(f"{message} {raw.name}")), "other")
    if not entity and not prop:
        return PartnerReason("partner", "error", kind, message)
    return PartnerReason(_ENTITY.get(prop, "") or entity, prop or "record", kind, message)


def _mentioned(message: str) -> str:
    words = _snake(message)
    return next((name for name in (*_ENTITY, *_ALIAS) if re.search(rf"(?:^|_){name}(?:_|$)", words)), "")


def _snake(name: str) -> str:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    folded = re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")
    return _ALIAS.get(folded, folded)


_BLANKS = (
    (re.compile(r"\[masked\]|\S*@\S+|https?://\S+"), "#"),
    (re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`"), "'#'"),
    (re.compile(r"\b[\w-]*\d[\w-]*\b"), "#"),
)


def _blank(message: str) -> str:
    for pattern, blank in _BLANKS:
        message = pattern.sub(blank, message)
    return message
