"""Reference pages made from the code itself: the scenario's schema, and the commands with their options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]


def schema_page(schema: Schema) -> str:
    """Markdown for a document's JSON schema: a section for each part, a row for each key."""
    lines = ["# Scenario, key by key", "", "Made from the schema that checks every scenario.", ""]
    for title, part in (("Scenario", schema), *schema.get("$defs", {}).items()):
        if not part.get("properties"):
            continue
        lines += [
            f"## {title}",
            "",
            *_prose(part.get("description", "")),
            "",
            "| key | type | default |",
            "|---|---|---|",
        ]
        required = part.get("required", [])
        for key, value in part["properties"].items():
            default = "required" if key in required else _default(value)
            lines.append(f"| `{key}` | {_type(value)} | {default} |")
        lines.append("")
    return "\n".join(lines)


def _prose(description: str) -> Iterator[str]:
    """A docstring's text without the headings that Python tools read."""
    for line in description.replace("``", "`").split("\n"):
        if line.strip() == "Attributes:":
            yield from ("", "")
        else:
            entry = re.match(r"\s{4}(\w[\w, ]*): (.*)", line)
            yield f"- `{entry[1]}`: {entry[2]}" if entry else line.strip()


def _default(value: Schema) -> str:
    if "default" not in value:
        return "of the preset"
    default = value["default"]
    return "" if isinstance(default, dict | list) else f"`{'null' if default is None else str(default).lower()}`"


def _type(value: Schema) -> str:
    if "anyOf" in value:
        kinds = [_type(each) for each in value["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    kind = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    named = str(value.get("type", "anything"))
    found = kind.get(named, named)
    return found + _bounds(value)


def _bounds(value: Schema) -> str:
    low = f"from {value['minimum']:g}" if "minimum" in value else ""
    low = f"above {value['exclusiveMinimum']:g}" if "exclusiveMinimum" in value else low
    high = f"to {value['maximum']:,g}" if "maximum" in value else ""
    high = f"below {value['exclusiveMaximum']:,g}" if "exclusiveMaximum" in value else high
    return f", {low} {high}".rstrip() if low or high else ""


def commands_page(command: Any, name: str) -> str:
    """Markdown for a command line: every command with what its ``--help`` says."""
    lines = [f"# Commands of {name}", "", "Made from the command line itself.", ""]
    for path, each in _walk(command, [name]):
        lines += [f"## {' '.join(path)}", "", *_help(each), "", *_parameters(each)]
    return "\n".join(lines)


def _walk(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    children: Mapping[str, Any] = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from _walk(child, [*path, name])


def _help(command: Any) -> Iterator[str]:
    """Text as it is; lines that are commands as code."""
    for paragraph in (command.help or "").split("\n\n"):
        text = " ".join(paragraph.split())
        yield from ("", f"    {text}" if text.startswith("servecast ") else text)


def _parameters(command: Any) -> Iterator[str]:
    rows = []
    for parameter in command.params:
        if parameter.name in ("help", "install_completion", "show_completion"):
            continue
        flag = getattr(parameter, "is_flag", False) or bool(parameter.secondary_opts)
        value = "" if flag else (parameter.metavar or "VALUE").replace("|", " or ")
        named = () if parameter.param_type_name == "argument" else (*parameter.opts, *parameter.secondary_opts)
        names = ", ".join(f"`{each} {value}`".replace(" `", "`") for each in named) or f"`{value}`"
        text = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "&#124;")
        rows.append(f"| {names} | {text} | {_standing(parameter)} |")
    if rows:
        yield from ("| option | does | default |", "|---|---|---|", *rows, "")


def _standing(parameter: Any) -> str:
    """The value that an option has where nobody gives one; nothing where its text says it."""
    default = parameter.default
    if parameter.required:
        return "required"
    if isinstance(default, bool):
        return f"`{(parameter.opts if default else parameter.secondary_opts)[0]}`" if parameter.secondary_opts else ""
    return f"`{default}`" if isinstance(default, int | float | str) and default != "" else ""
