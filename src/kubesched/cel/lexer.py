"""Text to tokens, as cel-go's grammar defines them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kubesched.cel.errors import Issue
from kubesched.cel.source import Source

_ESCAPE = (
    r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}"
    r"|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
)
# Where several match, the longest wins: triple quotes are tried before single ones.
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
  | (?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
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


def tokenize(source: Source) -> tuple[list[Token], list[Issue]]:
    """Every token, an end-of-file token last, and the places where none could be read."""
    text = source.text
    tokens: list[Token] = []
    issues: list[Issue] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            end = _unreadable_end(text, at)
            unreadable = _shown(text[at:end])
            message = f"Syntax error: token recognition error at: '{unreadable}'"
            issues.append(source.issue(at, message))
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
    return tokens, issues


def _unreadable_end(text: str, at: int) -> int:
    """Where reading continues: behind the first character that no token could go on with."""
    first = text[at]
    if first in "=&|":
        return min(at + 2, len(text))
    if first not in "\"'`":
        return at + 1
    readable = _UNFINISHED[first].match(text, at + 1)
    end = readable.end() if readable is not None else at + 1
    return min(end + 1, len(text))


def _shown(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
