"""Hooks of the documentation site: pages that live at the root of the repository, and links to its other files.

The home page is the README, and the pages about contributing and changes are the files of the same names. Links in
them are written for the root of the repository. A link to a file that is no page of the site, such as a module or a
notebook, works on the page of a code host and would lead nowhere on the site, so the site shows its text alone.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT_PAGES = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
"""Pages of the site that are files at the root of the repository."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```[^\n]*$)", re.DOTALL | re.MULTILINE)
_OUTSIDE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|#)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that live at the root of the repository."""
    root = Path(config.docs_dir).parent
    for page, source in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=(root / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    name = page.file.src_uri
    folder = "" if name in ROOT_PAGES else posixpath.join("docs", posixpath.dirname(name))

    page_of = {source: root_page for root_page, source in ROOT_PAGES.items()}

    def site_link(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        if _OUTSIDE.match(target):
            return match[0]
        path, hash_sign, anchor = target.partition("#")
        in_repository = posixpath.normpath(posixpath.join(folder, path))
        if in_repository in page_of:
            on_site = page_of[in_repository]
        elif in_repository.startswith("docs/") and posixpath.splitext(in_repository)[1]:
            on_site = in_repository.removeprefix("docs/")
        else:
            return text
        relative = posixpath.relpath(on_site, posixpath.dirname(name) or ".")
        return f"{mark}[{text}]({relative}{hash_sign}{anchor})"

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(site_link, part) for part in parts)
