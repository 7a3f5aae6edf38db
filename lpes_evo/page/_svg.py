"""SVG of a matplotlib figure, as an element that can stand inside an HTML page."""

import io
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_REFERENCE = re.compile(r"url\(#")


def to_svg(figure: "Figure", name: str, title: str, description: str) -> Markup:
    """Return a figure as an SVG element that refers to nothing outside it; equal figures give equal elements.

    Text is drawn as outlines, so that it looks the same without the font. Every name within the element begins with
    ``name``, so that several elements can stand in one page.

    Args:
        figure: The figure.
        name: A word that no other element of the page has.
        title: Title of the figure.
        description: Description for readers who cannot see the figure.

    Returns:
        The element.
    """
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", dpi=150, metadata={"Date": None})

    # The text comes from matplotlib, so that it can be parsed safely.
    root = ElementTree.fromstring(buffer.getvalue())  # noqa: S314
    _make_own(root, name)

    for number, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(tag, id=f"{name}-{tag}")
        element.text = text
        root.insert(number, element)

    # The figure is as wide as the page allows, within limits that keep its text readable beside that of the page.
    width = float(root.attrib.pop("width").removesuffix("pt"))
    del root.attrib["height"]
    root.attrib.update(
        {
            "role": "img",
            "aria-labelledby": f"{name}-title {name}-desc",
            "style": f"min-width: {0.9 * width:.0f}px; max-width: {1.5 * width:.0f}px",
        }
    )
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # noqa: S704


def _make_own(root: ElementTree.Element, name: str) -> None:
    """Drop what concerns a whole document, and put ``name`` before every name and every reference to a name."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)

    for element in root.iter():
        # The parser has put a namespace before tags and attributes.
        element.tag = element.tag.rpartition("}")[2]
        attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        for key, value in attributes.items():
            if key == "id":
                attributes[key] = f"{name}-{value}"
            elif key == "href" and value.startswith("#"):
                attributes[key] = f"#{name}-{value[1:]}"
            else:
                attributes[key] = _REFERENCE.sub(f"url(#{name}-", value)

        element.attrib.clear()
        element.attrib.update(attributes)
