"""Extension of Griffe: the public names of a package are those of its stub, and docstrings become Markdown.

A package of lpes-evo loads its names on first use and lists them in ``__init__.pyi``. Griffe reads the stub, but takes
the names for imports like any other. Here they become the exports of the package, so that its page shows them.
"""

import ast
import re
from typing import Any

import griffe


class PublicNames(griffe.Extension):
    """Exports of packages from their stubs, and code blocks of docstrings in the form of Markdown."""

    def on_object(self, *, obj: griffe.Object, **_kwargs: Any) -> None:
        """Take the second colon from a line in front of a code block."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"::$", ":", obj.docstring.value, flags=re.MULTILINE)

    def on_package(self, *, pkg: griffe.Module, **_kwargs: Any) -> None:
        """Set the exports of a package and of the packages in it."""
        _export(pkg)


def _export(module: griffe.Module) -> None:
    for member in module.members.values():
        if isinstance(member, griffe.Module):
            _export(member)

    path = module.filepath
    if isinstance(path, list) or path.name != "__init__.py" or not path.with_suffix(".pyi").is_file():
        return
    stub = ast.parse(path.with_suffix(".pyi").read_text(encoding="utf-8"))
    module.exports = [
        name.asname or name.name
        for line in stub.body
        if isinstance(line, ast.ImportFrom)
        for name in line.names
    ]
