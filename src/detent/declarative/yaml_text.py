"""YAML with line numbers, and without its surprises.

Plain words are read by the rules of JSON: `on`, `12:30`, `2026-01-31` and `01` are text, and only `true`, `false`,
`null` and JSON's numbers are not. Keys are text and unique. Anchors, aliases and the merge key `<<` work; tags other
than for plain values are refused.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from detent.declarative.located import MAX_ALIASED, MAX_DEPTH, LocatedValue, Path, Unreadable
from detent.domain.text import visible

_TAG = "tag:yaml.org,2002:"
_NULL = re.compile(r"null|~|")
_BOOL = re.compile(r"true|false")
_INT = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_FIRST = {"null": ["n", "~", ""], "bool": list("tf"), "int": list("-0123456789"), "float": list("-0123456789")}
MERGE = "<<"
_OPENING = "[{:-?"  # every collection begins with one of these
MAX_DIGITS = 4000  # what Python reads


class _Loader(yaml.CSafeLoader):
    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - as the base declares it


class _Dumper(yaml.SafeDumper):
    """Quotes text that these rules, or other YAML readers, would not read as text."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {  # noqa: RUF012 - as the base declares it
        first: list(rules) for first, rules in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _name, _pattern in (("null", _NULL), ("bool", _BOOL), ("int", _INT), ("float", _FLOAT)):
    whole = re.compile(rf"(?:{_pattern.pattern})$")
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(_TAG + _name, whole, _FIRST[_name])


def _text(dumper: yaml.SafeDumper, text: str) -> ScalarNode:
    style = "|" if "\n" in text else None
    if visible(text, "\n") != text:
        style = '"'  # the only one in which every character can be spelled out
    return dumper.represent_scalar(f"{_TAG}str", text, style=style)


_Dumper.add_representer(str, _text)


def write(document: Any) -> str:
    """The document as YAML that reads back as the same."""
    written: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    # Text with unseen characters is in double quotes, see _text: there YAML has the same escapes.
    return visible(written)


def read_yaml(text: str) -> list[LocatedValue]:
    """Every document of the text."""
    try:
        _check_depth(text)
        # Without aliases a text has fewer values than characters.
        expansion = _Expansion(len(text) + MAX_ALIASED)
        return [_read(node, expansion) for node in yaml.compose_all(text, Loader=_Loader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Unreadable(mark.line + 1 if mark else 1, _syntax(error, text)) from None
    except yaml.YAMLError as error:
        raise Unreadable(1, f"This is not YAML ({' '.join(str(error).split())}): save it as UTF-8 text.") from None


def _syntax(error: yaml.MarkedYAMLError, text: str) -> str:
    reason = error.problem or error.context or "it cannot be read"
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines()
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if re.search(r":\s*[*@%]", line):
        return 'A value that begins with *, @ or % is not YAML: put it in quotes, such as "*/5 * * * *".'
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "The line begins with a tab: indent YAML with spaces."
    return f"This is not YAML ({reason}): check this line and the one before it."


def _check_depth(text: str) -> None:
    """Check the depth before the nodes are built, because that recurses in C without a limit."""
    if sum(map(text.count, _OPENING)) <= MAX_DEPTH:
        return
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH + 1:
                raise _too_deep(event.start_mark.line + 1 if event.start_mark else 1)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _too_deep(line: int) -> Unreadable:
    return Unreadable(line, f"This is nested deeper than {MAX_DEPTH} levels: make it flatter.")


def _read(node: Node, expansion: _Expansion) -> LocatedValue:
    reader = _Reader(expansion)
    return LocatedValue(reader.value(node, ()), reader.lines, reader.faults)


class _Expansion:
    """How many values of a text were read, with those of aliases and merges, and how deep merges are inside each
    other."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.values = 0
        self.merges = 0

    def check(self, node: Node, path: Path) -> None:
        self.values += 1
        if len(path) + self.merges > MAX_DEPTH:
            raise _too_deep(_line(node))
        if self.values > self.most:
            raise Unreadable(_line(node), "The aliases expand to too many values: write them out, or split the file.")


class _Reader:
    def __init__(self, expansion: _Expansion) -> None:
        self.lines: dict[Path, int] = {}
        self.faults: list[tuple[int, str]] = []
        self._expansion = expansion

    def value(self, node: Node, path: Path) -> Any:
        self._expansion.check(node, path)
        self.lines.setdefault(path, _line(node))
        match node:
            case MappingNode():
                self._expect(node, "map")
                return self._mapping(node, path)
            case SequenceNode():
                self._expect(node, "seq")
                return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            case _:
                return self._scalar(node)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        made: dict[str, Any] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key == MERGE and not key_node.style:
                merged.append(value_node)
            elif key in made:
                self._fault(key_node, f"The key {key!r} is given twice: keep one of the two.")
            else:
                self.lines[(*path, key)] = _line(key_node)
                made[key] = self.value(value_node, (*path, key))
        for source in merged:
            self._merge(source, path, made)
        return made

    def _merge(self, node: Node, path: Path, made: dict[str, Any]) -> None:
        """Merge, where the mapping's own keys win."""
        for part in node.value if isinstance(node, SequenceNode) else [node]:
            if not isinstance(part, MappingNode):
                self._fault(node, "<< takes a mapping or a list of mappings: write `<<: *name`.")
                return
            inner = _Reader(self._expansion)
            self._expansion.merges += 1
            merged = inner.value(part, path)
            self._expansion.merges -= 1
            for key, value in merged.items():
                if key not in made:
                    made[key] = value
                    whole = (*path, key)
                    self.lines.update({at: line for at, line in inner.lines.items() if at[: len(whole)] == whole})

    def _key(self, node: Node) -> str:
        key = self._scalar(node) if isinstance(node, ScalarNode) else None
        if isinstance(key, str):
            return key
        shown = str(node.value) if isinstance(node, ScalarNode) else "this"
        self._fault(node, f"The key {shown} is not text: put it in quotes.")
        return shown

    def _scalar(self, node: Node) -> Any:
        text = str(node.value)
        kind = str(node.tag).removeprefix(_TAG)
        match kind:
            case "null" if _NULL.fullmatch(text):
                return None
            case "bool" if _BOOL.fullmatch(text):
                return text == "true"
            case "int" if _INT.fullmatch(text) and len(text) < MAX_DIGITS:
                return int(text)
            case "float" if _FLOAT.fullmatch(text):
                return float(text)
            case "null" | "bool" | "int" | "float":
                self._fault(node, f"{text[:40]!r} is not of the type !!{kind}: write it as JSON would, or in quotes.")
            case _:
                self._expect(node, "str")
        return text

    def _expect(self, node: Node, kind: str) -> None:
        if node.tag != _TAG + kind:
            shown = str(node.tag).replace(_TAG, "!!")
            self._fault(node, f"The tag {shown} is not allowed: write plain text, numbers, lists and mappings.")

    def _fault(self, node: Node, message: str) -> None:
        self.faults.append((_line(node), message))


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1
