"""Text to tokens, as cel-go's grammar defines them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kubesched.api.cel.errors import Issue, Source

_ESCAPE = (
    r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}"
    r"|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
)
# The longest match wins: triple quotes are tried before single ones.
_STRING = rf"""(?:
    [rR](?:\"\"\"(?s:.*?)\"\"\"|'''(?s:.*?)'''|\"[^\"\n\r]*\"|'[^'\n\r]*')
  | \"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"
  | '''(?:{_ESCAPE}|[^\\])*?'''
  | \"(?:{_ESCAPE}|[^\\\"\n\r])*\"
  | '(?:{_ESCAPE}|[^\\'\n\r])*'
)"""
_TOKEN = re.compile(
    rf"""
    (?P<space>[\t\ \r\n\f]+|//[^\n]*)
  | (?P<BYTES>[bB]{_STRING})
  | (?P<STRING>{_STRING})
  | (?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"""
    rf"""|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<NUM_UINT>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
  | (?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)
  | (?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<ESC_IDENTIFIER>`[A-Za-z0-9_.\-/\ ]+`)
  | (?P<operator>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])
    """,
    re.VERBOSE,
)
_UNFINISHED = {
    '"': re.compile(rf"(?:{_ESCAPE}|[^\\\"\n\r])*\\?"),
    "'": re.compile(rf"(?:{_ESCAPE}|[^\\'\n\r])*\\?"),
    "`": re.compile(r"[A-Za-z0-9_.\-/ ]*"),
}
_KEYWORDS = frozenset({"in", "true", "false", "null"})

END = "<EOF>"


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is the grammar's token name, or the text itself for operators and keywords."""

    kind: str
    text: str
    offset: int


@dataclass(slots=True)
class Tokens:
    """Every token of a text, ending with an end-of-file token, and the unreadable positions."""

    tokens: list[Token] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    """Offsets of characters that belong to no token."""


def tokenize(source: Source) -> Tokens:
    text = source.text
    result = Tokens()
    tokens = result.tokens
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            end = _unreadable_end(text, at)
            unreadable = escaped(text[at:end])
            message = f"Syntax error: token recognition error at: '{unreadable}'"
            result.issues.append(source.issue(at, message))
            result.unreadable.extend(range(at, end))
            at = end
            continue
        kind = match.lastgroup or ""
        word = match.group()
        if kind == "operator" or word in _KEYWORDS:
            tokens.append(Token(word, word, at))
        elif kind != "space":
            tokens.append(Token(kind, word, at))
        at = match.end()
    tokens.append(Token(END, END, len(text)))
    return result


def _unreadable_end(text: str, at: int) -> int:
    """Where reading continues: after the first character that cannot continue a token."""
    first = text[at]
    if first in "=&|":
        return min(at + 2, len(text))
    if first not in "\"'`":
        return at + 1
    readable = _UNFINISHED[first].match(text, at + 1)
    end = readable.end() if readable is not None else at + 1
    return min(end + 1, len(text))


def escaped(text: str) -> str:
    """Escapes text to a single line."""
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
