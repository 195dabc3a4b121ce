"""Tokens to a syntax tree, by precedence climbing; macros are expanded on the way.

Messages are those of cel-go's generated parser. That parser repairs some mistakes and continues;
this one repairs only what needs one token less and otherwise stops at the first syntax error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kubesched.api.cel import literals
from kubesched.api.cel.errors import CompileError, Issue, Source, in_order
from kubesched.api.cel.lexer import END, Token, Tokens, escaped, tokenize
from kubesched.api.cel.macros import Macro, MacroError
from kubesched.api.cel.syntax import (
    Call,
    Entry,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    ObjectNode,
    Select,
)
from kubesched.api.cel.values import Value

MAX_CODE_POINTS = 100_000
MAX_NESTING = 250
"""Maximum nesting of brackets, and length of a chain of operators or selections."""
MAX_DEPTH = 300
"""Height of a syntax tree after macro expansion. Bounds recursion; upstream has no such limit."""

_RESERVED = re.compile(
    "as|break|const|continue|else|false|for|function|if|import|in|let|loop|package|namespace|null"
    "|return|true|var|void|while"
)
_PRECEDENCE = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}
_OPERATOR_NAMES = {"in": "@in", **{op: f"_{op}_" for op in _PRECEDENCE if op != "in"}}

_LITERAL_TOKENS = ("true", "false", "null", "NUM_FLOAT", "NUM_INT", "NUM_UINT", "STRING", "BYTES")
# Expected tokens are listed in the order of the grammar.
_TOKEN_ORDER = [*"[]{}().,-!?:+*/%", *_LITERAL_TOKENS, "IDENTIFIER", "ESC_IDENTIFIER"]
_OPERAND = frozenset([*"[{(.-!", *_LITERAL_TOKENS, "IDENTIFIER"])
_ELEMENT = _OPERAND | {"?"}
_FIELD = frozenset(("IDENTIFIER", "ESC_IDENTIFIER"))

_LITERALS: dict[str, Callable[[str], Value]] = {
    "NUM_INT": literals.int_value,
    "NUM_UINT": literals.uint_value,
    "NUM_FLOAT": literals.double_value,
    "STRING": literals.string_value,
    "BYTES": literals.bytes_value,
}
_SIGNED = ("NUM_INT", "NUM_FLOAT")
_CONSTANTS = {"true": True, "false": False, "null": None}


class _SyntaxError(Exception):
    """Parsing cannot continue; the issue is recorded."""


def parse(source: Source, macros: Mapping[tuple[str, int, bool], Macro]) -> Node:
    """The syntax tree of an expression; raises CompileError."""
    if len(source.text) > MAX_CODE_POINTS:
        message = (
            f"expression code point size exceeds limit: size: {len(source.text)}, "
            f"limit {MAX_CODE_POINTS}"
        )
        raise CompileError([Issue(message, -1, -1)], source.text)
    parser = _Parser(source, tokenize(source), macros)
    node: Node | None = None
    try:
        node = parser.parse_all()
    except _SyntaxError:
        pass  # recorded among the issues
    except RecursionError:
        parser.report(-1, f"expression recursion limit exceeded: {MAX_NESTING}")
    if parser.issues or node is None:
        raise CompileError(in_order(parser.issues), source.text)
    return node


class _Parser:
    def __init__(
        self,
        source: Source,
        read: Tokens,
        macros: Mapping[tuple[str, int, bool], Macro],
    ) -> None:
        self.source = source
        self.tokens = read.tokens
        self.issues = read.issues
        self.unreadable = frozenset(read.unreadable)
        self.macros = macros
        self.at = 0
        self.follows: list[frozenset[str]] = []
        """For every expression being parsed, the tokens that may follow it."""

    # -- problems ----------------------------------------------------------------------------------

    def report(self, offset: int, message: str) -> None:
        self.issues.append(self.source.issue(offset, message))

    def fail(self, token: Token, message: str) -> _SyntaxError:
        self.report(token.offset, f"Syntax error: {message}")
        return _SyntaxError()

    def no_alternative(self, first: Token, last: Token) -> str:
        """Message: no grammar alternative starts with the text from `first` to `last`."""
        between = range(first.offset, last.offset)
        text = "".join(self.source.text[at] for at in between if at not in self.unreadable)
        text += "" if last.kind == END else last.text
        return f"no viable alternative at input '{escaped(text)}'"

    def check_nesting(self, depth: int, limit: int = MAX_NESTING) -> None:
        if depth > limit:
            self.report(-1, f"expression recursion limit exceeded: {MAX_NESTING}")
            raise _SyntaxError

    # -- tokens ------------------------------------------------------------------------------------

    def take(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != END:
            self.at += 1
        return token

    def peek(self, ahead: int = 0) -> Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def require(self, expected: frozenset[str]) -> None:
        """Checks that the next token is expected, dropping one token if that is enough."""
        token = self.peek()
        if token.kind in expected:
            return
        shown = _shown(expected)
        if self.peek(1).kind in expected and token.kind != END:
            self.report(
                token.offset, f"Syntax error: extraneous input '{token.text}' expecting {shown}"
            )
            self.at += 1
            return
        raise self.fail(token, f"mismatched input '{token.text}' expecting {shown}")

    def require_operand_of(self, sign: Token) -> None:
        """Checks that an operand follows `!` or `-`, each of which has its own messages."""
        following = self.peek()
        if following.kind in _OPERAND:
            return
        if sign.kind == "!" and self.peek(1).kind not in _OPERAND:
            raise self.fail(
                following, f"extraneous input '{following.text}' expecting {_shown(_OPERAND)}"
            )
        if sign.kind == "-":
            last_sign = self.tokens[self.at - 1]
            message = self.no_alternative(last_sign, following)
            self.report(following.offset, f"Syntax error: {message}")
        self.require(_OPERAND)

    def close(self, bracket: str, *, expected: frozenset[str] | None = None) -> None:
        """Consumes a closing bracket; reports it missing if the next token could follow it."""
        token = self.peek()
        closed = bracket in (token.kind, self.peek(1).kind)
        follows = _CONTINUATIONS | (self.follows[-1] if self.follows else frozenset())
        if not closed and expected is None and token.kind in follows:
            self.report(token.offset, f"Syntax error: missing '{bracket}' at '{token.text}'")
            return
        self.require(expected or frozenset((bracket,)))
        self.at += 1

    def colon(self) -> Token:
        """Consumes a colon; reports it missing if the next token could follow it."""
        token = self.peek()
        if token.kind in _OPERAND and self.peek(1).kind != ":":
            self.report(token.offset, f"Syntax error: missing ':' at '{token.text}'")
            return token
        self.require(_COLON)
        return self.take()

    # -- the grammar -------------------------------------------------------------------------------

    def parse_all(self) -> Node:
        node = self.expression(frozenset((END,)))
        token = self.peek()
        if token.kind != END:
            kind = "extraneous" if self.peek(1).kind == END else "mismatched"
            raise self.fail(token, f"{kind} input '{token.text}' expecting <EOF>")
        return node

    def expression(self, follow: frozenset[str], also: frozenset[str] = frozenset()) -> Node:
        """A whole expression, followed by one of `follow`.

        `also` lists other tokens that are possible here, for the message.
        """
        self.follows.append(follow)
        self.check_nesting(len(self.follows))
        self.require(_OPERAND | also)
        node = self.binary(1)
        if self.peek().kind == "?":
            question = self.take()
            self.require(_OPERAND)
            self.follows[-1] = _COLON
            then = self.binary(1)
            self.colon()
            otherwise = self.expression(follow)
            node = self.built(Call(question.offset, "_?_:_", [node, then, otherwise]))
        self.follows.pop()
        return node

    def binary(self, lowest: int) -> Node:
        """A chain of operators of precedence `lowest` or higher."""
        left = self.unary()
        chain = 0
        while True:
            operator = self.peek()
            precedence = _PRECEDENCE.get(operator.kind, 0)
            if precedence < lowest:
                return left
            if precedence <= 2:
                left = self.logical(left, operator.kind, precedence)
                continue
            chain += 1
            self.check_nesting(chain)
            self.at += 1
            self.require(_OPERAND)
            right = self.binary(precedence + 1)
            left = self.built(Call(operator.offset, _OPERATOR_NAMES[operator.kind], [left, right]))

    def logical(self, first: Node, operator: str, precedence: int) -> Node:
        """`a && b && c` as a balanced tree, so that long conjunctions stay shallow."""
        terms, offsets = [first], []
        while self.peek().kind == operator:
            offsets.append(self.take().offset)
            self.require(_OPERAND)
            terms.append(self.binary(precedence + 1))
        return self.built(_balanced(_OPERATOR_NAMES[operator], terms, offsets))

    def unary(self) -> Node:
        """An operand with its `!` or `-` signs, selections, calls and indexes."""
        token = self.peek()
        if token.kind not in "!-" or (token.kind == "-" and self.peek(1).kind in _SIGNED):
            return self.member()
        count = 0
        while self.peek().kind == token.kind:
            self.at += 1
            count += 1
        self.require_operand_of(token)
        following = self.peek()
        signed = following.kind == "-" and self.peek(1).kind in _SIGNED
        if following.kind in ("!", "-") and not (token.kind == "!" and signed):
            raise self.fail(following, self.no_alternative(self.tokens[self.at - 1], following))
        operand = self.member()
        if count % 2 == 0:
            return operand
        return self.built(Call(token.offset, f"{token.kind}_", [operand]))

    def member(self) -> Node:
        node = self.primary()
        chain = 0
        while True:
            token = self.peek()
            if token.kind == ".":
                node = self.selection(node)
            elif token.kind == "[":
                self.at += 1
                optional = self.optional_mark()
                index = self.expression(_INDEX_END, frozenset() if optional else frozenset("?"))
                self.close("]")
                function = "_[?_]" if optional else "_[_]"
                node = self.built(Call(token.offset, function, [node, index]))
            else:
                return node
            chain += 1
            self.check_nesting(chain)

    def selection(self, operand: Node) -> Node:
        dot = self.take()
        optional = self.optional_mark()
        name = self.field_name(dot, optional=optional)
        field = name.text
        if name.kind == "ESC_IDENTIFIER":
            self.report(name.offset, "unsupported syntax: '`'")
        if optional:
            literal = Literal(name.offset, field)
            return self.built(Call(dot.offset, "_?._", [operand, literal]))
        if self.peek().kind == "(" and name.kind == "IDENTIFIER":
            bracket = self.take()
            args = self.arguments()
            return self.call_or_macro(bracket.offset, field, args, operand)
        return self.built(Select(dot.offset, operand, field))

    def field_name(self, dot: Token, *, optional: bool) -> Token:
        name = self.peek()
        if name.kind in _FIELD:
            return self.take()
        if optional:
            if self.peek(1).kind in _FIELD:
                self.require(_FIELD)
                return self.take()
            failure = self.fail(name, f"mismatched input '{name.text}' expecting {_shown(_FIELD)}")
            self.report(name.offset, "unsupported ident kind")
            raise failure
        if name.kind in _CONSTANTS and name.offset == dot.offset + 1:
            raise self.fail(name, f"mismatched input '{name.text}' expecting IDENTIFIER")
        raise self.fail(name, self.no_alternative(dot, name))

    def primary(self) -> Node:
        token = self.take()
        if token.kind in _CONSTANTS:
            return Literal(token.offset, _CONSTANTS[token.kind])
        if token.kind == "-":
            number = self.take()
            return self.literal(token.offset, number.kind, f"-{number.text}")
        if token.kind in _LITERALS:
            return self.literal(token.offset, token.kind, token.text)
        if token.kind == "(":
            node = self.expression(frozenset(")"))
            self.close(")")
            return node
        if token.kind == "[":
            return self.list_literal(token)
        if token.kind == "{":
            return self.built(MapNode(token.offset, self.map_entries()))
        return self.name(token)

    def literal(self, offset: int, kind: str, text: str) -> Node:
        try:
            return Literal(offset, _LITERALS[kind](text))
        except literals.LiteralError as error:
            self.report(offset, str(error))
            return Literal(offset, None)

    def name(self, token: Token) -> Node:
        """An identifier, a call, or the name of a type before `{`."""
        prefix, start = "", token.offset
        if token.kind == ".":
            if self.peek().kind != "IDENTIFIER":
                raise self.fail(self.peek(), self.no_alternative(token, self.peek()))
            prefix = "."
            token = self.take()
        if self.begins_object():
            return self.object_literal(prefix + token.text)
        if _RESERVED.fullmatch(token.text):
            self.report(start, f"reserved identifier: {token.text}")
        if self.peek().kind == "(":
            bracket = self.take()
            return self.call_or_macro(bracket.offset, prefix + token.text, self.arguments(), None)
        return Ident(token.offset, prefix + token.text)

    def begins_object(self) -> bool:
        ahead = 0
        while self.peek(ahead).kind == "." and self.peek(ahead + 1).kind == "IDENTIFIER":
            ahead += 2
        return self.peek(ahead).kind == "{"

    def object_literal(self, name: str) -> Node:
        while self.peek().kind == ".":
            self.at += 1
            name += f".{self.take().text}"
        bracket = self.take()
        entries: list[Entry] = []
        while self.peek().kind != "}":
            optional = self.optional_mark()
            self.require(_FIELD if entries or optional else _FIELD | _MAP_END | {"?"})
            if self.peek().kind in _MAP_END:
                break
            field = self.take()
            colon = self.colon()
            entries.append(
                Entry(colon.offset, field.text, self.expression(_MAP_END), optional=optional)
            )
            if not self.comma(_FIELD | {"?"}):
                break
        self.close("}", expected=None if self.tokens[self.at - 1].kind == "," else _MAP_END)
        return self.built(ObjectNode(bracket.offset, name, entries))

    def arguments(self) -> list[Node]:
        """The arguments of a call, and the closing bracket."""
        args: list[Node] = []
        self.require(_OPERAND | {")"})
        if self.peek().kind == ")":
            self.at += 1
            return args
        args.append(self.expression(_ARGUMENT_END))
        while self.peek().kind == ",":
            self.at += 1
            args.append(self.expression(_ARGUMENT_END))
        self.close(")")
        return args

    def list_literal(self, bracket: Token) -> Node:
        elements: list[Node] = []
        optional: set[int] = set()
        also = frozenset(("]", ",", "?"))
        if self.peek().kind == "," and self.peek(1).kind == "]":
            self.at += 1
        while self.peek().kind != "]":
            if self.optional_mark():
                optional.add(len(elements))
                also = frozenset()
            elements.append(self.expression(_LIST_END, also))
            also = frozenset("?")
            if not self.comma():
                break
        self.close("]", expected=None if self.tokens[self.at - 1].kind == "," else _LIST_END)
        return self.built(ListNode(bracket.offset, elements, frozenset(optional)))

    def map_entries(self) -> list[Entry]:
        entries: list[Entry] = []
        also = frozenset(("}", ",", "?"))
        if self.peek().kind == "," and self.peek(1).kind == "}":
            self.at += 1
        while self.peek().kind != "}":
            optional = self.optional_mark()
            key = self.expression(_COLON, frozenset() if optional else also)
            also = frozenset("?")
            colon = self.colon()
            value = self.expression(_MAP_END)
            entries.append(Entry(colon.offset, key, value, optional=optional))
            if not self.comma():
                break
        self.close("}", expected=None if self.tokens[self.at - 1].kind == "," else _MAP_END)
        return entries

    def comma(self, begins: frozenset[str] = _ELEMENT) -> bool:
        """Consumes a comma; False if the next token does not begin another entry."""
        if self.peek().kind != ",":
            return False
        self.at += 1
        return self.peek().kind in begins

    def optional_mark(self) -> bool:
        if self.peek().kind != "?":
            return False
        self.at += 1
        return True

    def call_or_macro(
        self, offset: int, function: str, args: list[Node], target: Node | None
    ) -> Node:
        macro = self.macros.get((function, len(args), target is not None))
        if macro is not None:
            try:
                expanded = macro.expand(offset, target, args)
            except MacroError as error:
                self.report(error.offset, str(error))
                return Literal(offset, None)
            if expanded is not None:
                return self.built(expanded)
        return self.built(Call(offset, function, args, target))

    def built(self, node: Node) -> Node:
        self.check_nesting(node.depth, MAX_DEPTH)
        return node


_LIST_END = frozenset(("]", ","))
_MAP_END = frozenset(("}", ","))
_INDEX_END = frozenset("]")
_ARGUMENT_END = frozenset((")", ","))
_COLON = frozenset(":")
# Tokens that may follow any operand.
_CONTINUATIONS = frozenset((*_PRECEDENCE, ".", "[", "?"))


def _balanced(function: str, terms: list[Node], offsets: list[int]) -> Node:
    """The tree that cel-go builds; its operator positions determine the position of messages."""
    if not offsets:
        return terms[0]
    middle = len(offsets) // 2
    left = _balanced(function, terms[: middle + 1], offsets[:middle])
    right = _balanced(function, terms[middle + 1 :], offsets[middle + 1 :])
    return Call(offsets[middle], function, [left, right])


def _shown(expected: frozenset[str]) -> str:
    names = [
        token if token[0].isupper() else f"'{token}'" for token in _TOKEN_ORDER if token in expected
    ]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
