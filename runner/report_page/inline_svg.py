"""SVG documents inside a page: ids that are the page's only ones, links, and colours that follow the page."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ET.register_namespace("", SVG)
ET.register_namespace("xlink", XLINK)


def inline(svg: str, prefix: str, colours: Mapping[str, str] | None = None, links: Mapping[str, str] | None = None):
    """The text of the element, without its style sheets, which would be the whole page's.

    prefix: stands before every id. colours: a colour of the file -> what the page has for it. links: id of a group in
    the file -> id of the page that it leads to.
    """
    root = ET.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}style", f"{{{SVG}}}metadata"):
                parent.remove(child)
    for element in root.iter():
        for key, value in element.attrib.items():
            element.set(key, moved(key, value, prefix))
    for id, target in (links or {}).items():
        link(root, f"{prefix}{id}", target)
    text = ET.tostring(root, encoding="unicode")
    for light, own in (colours or {}).items():
        text = text.replace(light, own)
    return text


def moved(key: str, value: str, prefix: str) -> str:
    """An attribute with the ids that it has or names under the prefix."""
    if key == "id":
        return prefix + value
    if key in ("href", f"{{{XLINK}}}href") and value.startswith("#"):
        return f"#{prefix}{value[1:]}"
    return re.sub(r"url\(#([^)]*)\)", rf"url(#{prefix}\1)", value)


def link(root: ET.Element, id: str, target: str) -> None:
    """Puts the group with the id inside a link; its tooltip is what the link is called."""
    for parent in root.iter():
        for index, child in enumerate(parent):
            if child.get("id") == id:
                anchor = ET.Element(f"{{{SVG}}}a", {"href": f"#{target}"})
                parent.remove(child)
                anchor.append(child)
                parent.insert(index, anchor)
                return
