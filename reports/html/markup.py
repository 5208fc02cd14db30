"""HTML and SVG put together so that no text of a user can become markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

_EMPTY = {"meta", "link", "br", "rect", "line", "path", "circle"}


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: object) -> Markup:
    """An element; children and attribute values are escaped unless they are `Markup`.

    ``class_`` is the attribute class, other underscores are hyphens; an attribute of None is left out.

    >>> tag("td", "a < b", class_="number", data_tip='"x"')
    '<td class="number" data-tip="&quot;x&quot;">a &lt; b</td>'
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY and not children:
        return Markup(f"<{name}{shown}/>")
    return Markup(f"<{name}{shown}>{join(children)}</{name}>")


def join(parts: Iterable[str | None]) -> Markup:
    """Parts after each other; plain text is escaped, None is nothing."""
    return Markup(
        "".join(
            part if isinstance(part, Markup) else html.escape(part, quote=False) for part in parts if part is not None
        )
    )


def table(header: Iterable[str], rows: Iterable[Iterable[str]], caption: str | None = None) -> Markup:
    """A table: the first column names its row, the others are numbers."""
    head = join(tag("th", name, scope="col") for name in header)
    body = []
    for row in rows:
        first, *rest = row
        body.append(tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in rest)))
    title = tag("caption", caption) if caption else None
    inner = tag("table", title, tag("thead", tag("tr", head)), tag("tbody", *body))
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption or "table")
