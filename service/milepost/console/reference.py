"""The contract as one page without a script: operations by what they are about, then schemas."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import yaml

from milepost.console.prose import line, prose
from milepost.console.schema_shown import kind, members, row, shown

METHODS = ("get", "post", "put", "patch", "delete")

# Python alone takes seconds for what libyaml reads in a fifth of one.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
    '<link rel="icon" href="console/icon.svg"><link rel="stylesheet" href="console/palette.css">'
    '<link rel="stylesheet" href="console/reference.css">'
)


@dataclass(frozen=True, slots=True)
class Operation:
    """What can be asked for; `described` is as the contract has it, references included."""

    method: str
    path: str
    described: Mapping[str, Any]
    parameters: tuple[Mapping[str, Any], ...]

    @property
    def id(self) -> str:
        """Its name, unique in the contract."""
        return str(self.described["operationId"])


def reference(contract: bytes) -> str:
    """Return the page of a contract."""
    document = yaml.load(contract, _LOADER)  # noqa: S506 - safe in both forms
    told = document["info"]
    title = f"{escape(told['title'])} {escape(told['version'])}"
    by_tag = {tag["name"]: list(_operations(document, tag["name"])) for tag in document["tags"]}
    sections = "".join(
        f'<section><h2 id="tag-{escape(tag["name"])}">{escape(tag["name"])}</h2>'
        f"{prose(tag['description'])}"
        f"{''.join(_operation(document, each) for each in by_tag[tag['name']])}</section>"
        for tag in document["tags"]
    )
    return (
        f"{_HEAD}<title>{title}: API reference</title></head><body>"
        f"<nav aria-label=Contents>{_contents(by_tag)}</nav><main><h1>{title}</h1>"
        '<p>The same for programs: <a href="openapi.yaml">openapi.yaml</a>. For people at work:'
        ' <a href="./">the console</a>.</p>'
        f"{prose(told['description'])}{sections}{_schemas(document)}</main></body></html>"
    )


def _operations(document: Mapping[str, Any], tag: str) -> Iterator[Operation]:
    """Yield the operations that are about this first of all."""
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item and item[method]["tags"][0] == tag:
                listed = (*item.get("parameters", ()), *item[method].get("parameters", ()))
                parameters = tuple(_looked_up(document, each) for each in listed)
                yield Operation(method.upper(), path, item[method], parameters)


def _contents(by_tag: Mapping[str, list[Operation]]) -> str:
    groups = "".join(
        f'<li><a href="#tag-{escape(tag)}">{escape(tag)}</a><ul>'
        + "".join(
            f'<li><a href="#{escape(each.id)}">{line(each.described["summary"])}</a></li>'
            for each in operations
        )
        + "</ul></li>"
        for tag, operations in by_tag.items()
    )
    return f'<ul>{groups}<li><a href="#schemas">schemas</a></li></ul>'


def _operation(document: Mapping[str, Any], operation: Operation) -> str:
    described = operation.described
    open_to_all = (
        '<p class="bounds">Asks for no key.</p>' if described.get("security") == [] else ""
    )
    return (
        f'<article id="{escape(operation.id)}"><h3>{line(described["summary"])}</h3>'
        f'<p class="call"><b class="{operation.method.lower()}">{operation.method}</b>'
        f" <code>{escape(operation.path)}</code></p>"
        f"{prose(described.get('description', ''))}{open_to_all}"
        f"{_parameters(operation)}{_body(described.get('requestBody'))}"
        f"{_responses(document, described['responses'])}</article>"
    )


def _parameters(operation: Operation) -> str:
    rows = "".join(
        row(
            each["name"],
            each.get("schema", {}),
            required=bool(each.get("required")),
            said=f"In the {each['in']}. {each.get('description', '')}",
        )
        for each in operation.parameters
    )
    return (
        f'<h4>Parameters</h4><div class="wide"><table><tbody>{rows}</tbody></table></div>'
        if rows
        else ""
    )


def _body(body: Mapping[str, Any] | None) -> str:
    if body is None:
        return ""
    must = "" if body.get("required") else " (optional)"
    return f"<h4>Body{must}</h4>{prose(body.get('description', ''))}{_content(body['content'])}"


def _responses(document: Mapping[str, Any], responses: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th scope=row><code>{escape(str(status))}</code></th>"
        f"<td>{_response(_looked_up(document, answer))}</td></tr>"
        for status, answer in responses.items()
    )
    return f'<h4>Answers</h4><div class="wide"><table><tbody>{rows}</tbody></table></div>'


def _response(answer: Mapping[str, Any]) -> str:
    headers = ", ".join(f"<code>{escape(name)}</code>" for name in answer.get("headers", ()))
    told = f'<p class="bounds">Headers: {headers}</p>' if headers else ""
    return f"{prose(answer['description'])}{_content(answer.get('content', {}))}{told}"


def _content(content: Mapping[str, Any]) -> str:
    return "".join(
        f"<div class=kind><code>{escape(media)}</code> {kind(body.get('schema', {}))}</div>"
        f"{members(body.get('schema', {}))}{_examples(body)}"
        for media, body in content.items()
    )


def _examples(body: Mapping[str, Any]) -> str:
    return "".join(
        f"<figure><figcaption>{escape(name)}</figcaption>"
        f"<pre>{escape(_json(example.get('value')))}</pre></figure>"
        for name, example in body.get("examples", {}).items()
    )


def _schemas(document: Mapping[str, Any]) -> str:
    articles = "".join(
        f'<article id="schema-{escape(name)}"><h3>{escape(name)}</h3>{shown(schema)}</article>'
        for name, schema in document["components"]["schemas"].items()
    )
    return f'<section><h2 id="schemas">schemas</h2>{articles}</section>'


def _looked_up(document: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a reference to one of the components means."""
    if "$ref" not in part:
        return part
    group, name = str(part["$ref"]).split("/")[-2:]
    found: Mapping[str, Any] = document["components"][group][name]
    return found


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
