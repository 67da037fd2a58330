"""The number of a build, which the wheel carries: a release, or what comes after or before one.

Run at build time by hatchling (`[tool.hatch.version]` in pyproject.toml), and needs nothing but the
tree; the number of a wheel built from an sdist is that of the sdist.

    0.2.0                        the commit with the tag v0.2.0
    0.2.0.post12+g1a2b3c4        twelve commits after it
    0.2.0.dev2151+g1a2b3c4       before it, or in a clone without tags: so many commits
    0.2.0.dev2151+g1a2b3c4.c56…  with changes that are not committed
    0.2.0+c5678abcd              a tree without its history: by what is in it
"""

import hashlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent
SHIPPED = ("flows", "schemas", "sample_data", "deploy")
# what the wheel leaves out, and what an operator keeps
UNSHIPPED = {"__pycache__", "env", "issuers", "screenshots", "secrets"}


def number(root: Path = ROOT) -> str:
    """Return the number of a build of this tree."""
    module = (root / "flows" / "__init__.py").read_text("utf-8")
    release = module.partition('\n__version__ = "')[2].partition('"')[0]
    has_history = (root / ".git").exists()
    return release + (_history(root, release) if has_history else f"+{_content(root)}")


def _history(root: Path, release: str) -> str:
    """Return what git says of this tree: its place before or after a release, and its commit."""
    try:
        commit = _git(root, "rev-parse", "--short=8", "HEAD")
        tag = f"v{release}" if _git(root, "tag", "--list", f"v{release}", "--merged") else ""
        commits = _git(root, "rev-list", "--count", f"{tag}..HEAD" if tag else "HEAD")
        is_changed = bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return f"+{_content(root)}"
    if tag and commits == "0" and not is_changed:
        return ""
    changes = f".{_content(root)}" if is_changed else ""
    return f".{'post' if tag else 'dev'}{commits}+g{commit}{changes}"


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _content(root: Path) -> str:
    """Return a digest of all that a wheel of this tree would hold."""
    files = [root / "CHANGELOG.md", root / "pyproject.toml"]
    files += sorted(file for folder in SHIPPED for file in (root / folder).rglob("*"))
    whole = hashlib.sha256()
    for file in files:
        if file.is_file() and UNSHIPPED.isdisjoint(file.relative_to(root).parts):
            name, content = file.relative_to(root).as_posix().encode(), file.read_bytes()
            whole.update(b"%s %d %s" % (name, len(content), content))
    return f"c{whole.hexdigest()[:8]}"
