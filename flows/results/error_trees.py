"""What a text can be read as: JSON, a Python literal, node's util.inspect, under layers of quoting.

Nothing here raises. What the objects mean is decided in `error_text`.
"""

import ast
import html
import json
import re
import warnings
from collections.abc import Callable, Iterator

_MALFORMED = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)

# Quoted texts match first, so that nothing inside them counts as a key or a word of JavaScript. One
# that never closes extends to the end, so any text is scanned only once.
_INSPECTED = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*(?:'|\\?\Z)|"(?:[^"\\]|\\.)*(?:"|\\?\Z)"""
    r"""|`(?:[^`\\]|\\.)*(?:`|\\?\Z))"""
    r"""|(?P<key>(?<![\w$])[A-Za-z_$][\w$]*)(?=\s*:)"""
    r"""|(?P<word>\[(?:Object|Array|Function|Getter|Circular)[^\]]*\]"""
    r"""|\b(?:undefined|null|NaN|true|false)\b)"""
    r"""|(?P<noise><ref \*\d+>|\b[A-Z]\w*(?:\(\d+\))?\s+(?=[{\[])|\.\.\. \d+ more items?)""",
    re.DOTALL,
)
_PYTHON_WORDS = {"true": "True", "false": "False"}


def trees(text: str) -> Iterator[object]:
    """Yield the objects and lists that a text can be read as, the most certain reading first."""
    for variant in _variants(text):
        if "{" not in variant and "[" not in variant:
            continue
        for read in (_json, _literal):
            tree = read(variant)
            if isinstance(tree, dict | list | tuple):
                yield tree
                break


def nested(value: object) -> object:
    """Return the object inside a text, if there is one, else the value itself."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        return _json(value) or _literal(value) or value
    return value


def _variants(text: str) -> Iterator[str]:
    """Yield the text, then the text without one or two layers of quoting."""
    seen = {text.strip()}
    yield text.strip()
    strips: tuple[Callable[[str], str], ...] = (html.unescape, _unescape, _undouble_quotes, _inner)
    for outer in strips:
        stripped = outer(text)
        for variant in (stripped, *(inner(stripped) for inner in strips)):
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
    starts = [start for start in (text.find("{"), text.find("[")) if start >= 0]
    if not starts:
        return text
    end = max(text.rfind("}"), text.rfind("]"))
    return text[min(starts) : end + 1]


def _json(text: str) -> object:
    for _ in range(4):  # JSON in JSON in JSON
        try:
            tree = json.loads(text, strict=False)
        except _MALFORMED:
            return None
        if not isinstance(tree, str):
            return tree
        text = tree
    return None


def _literal(text: str) -> object:
    """Read a Python literal, or node's util.inspect.

    The latter has bare keys, single quotes and backticks, undefined, [Object].
    """
    python = _INSPECTED.sub(_as_python, re.sub(r"'\s*\+\n\s*'", "", text)).strip()
    if python[:1] not in ("{", "[", "(", "'", '"'):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd escapes in the partner's text
        try:
            tree: object = ast.literal_eval(python)
        except _MALFORMED:
            return None
    return _json(tree) if isinstance(tree, str) else tree


def _as_python(token: re.Match[str]) -> str:
    """Return one token of node's util.inspect as Python writes it."""
    if token["key"]:
        return f"'{token['key']}'"
    if token["word"]:
        return _PYTHON_WORDS.get(token["word"], "None")
    if token["noise"]:
        return ""
    quoted = token["text"]
    if quoted.startswith("`"):
        return repr(quoted[1:-1])
    return quoted.replace("\n", " ")
