"""From the text of a condition to its tree. A flat chain of thousands of terms is one node; depth is bounded."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn

from dagkit.errors import ConditionError
from dagkit.model.expression import Aggregate, And, Comparison, Display, Expression, Literal, Not, Or, Reference
from dagkit.model.patterns import is_pattern
from dagkit.model.problems import shown

__all__ = ["Parsed", "parse"]

MAX_LENGTH: Final = 4_000_000
MAX_DEPTH: Final = 100
_MAX_HEIGHT: Final = 2 * MAX_DEPTH

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>0[xXoObB][0-9a-fA-F_]+
      | (?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9][0-9_]*)?)
  | (?P<text>[rRuU]?(?:"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'))
  | (?P<name>[^\W\d]\w*)
  | (?P<symbol>==|!=|<=|>=|:=|\*\*|//|<<|>>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SIMPLE_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\n": "",
                          "\\": "\\", "'": "'", '"': '"'}  # fmt: skip
_CONSTANTS: Final = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_ARGUMENTS: Final = {"all": 1, "any": 1, "count": 1, "almost_all": 2}
_ORDER_SYMBOLS: Final = frozenset({"==", "!=", "<", "<=", ">", ">="})
_WORDS: Final = frozenset({"and", "or", "not", "in"})


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    glued: bool
    """Whether it follows the token before it without a space."""


@dataclass(slots=True)
class Parsed:
    """A condition's tree and what it mentions, in order of first appearance."""

    root: Expression
    references: dict[str, None] = field(default_factory=dict)
    patterns: dict[str, None] = field(default_factory=dict)
    aggregate_sizes: list[int] = field(default_factory=list)
    has_negative_number: bool = False


def parse(text: str) -> Parsed:
    """The tree. `ConditionError` says what is not allowed, and where."""
    if len(text) > MAX_LENGTH:
        raise ConditionError(text[:200], f"has {len(text):,} characters, over the {MAX_LENGTH:,} a condition may have")
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0
        self.aggregate: str | None = None
        self.seen_patterns: dict[str, None] | None = None
        self.parsed = Parsed(Literal(None))

    def parse(self) -> Parsed:
        self.parsed.root = self._disjunction()
        if self._peek().kind != "end":
            self._unexpected()
        if not self.parsed.references and not self.parsed.patterns:
            self._fail('looks at no dependency; write inputs.NAME or inputs["NAME"]')
        return self.parsed

    # --- tokens

    def _peek(self, ahead: int = 0) -> _Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def _is(self, text: str, ahead: int = 0) -> bool:
        token = self._peek(ahead)
        return token.text == text and token.kind in ("symbol", "name")

    def _take(self, text: str) -> bool:
        if self._is(text):
            self.at += 1
            return True
        return False

    def _expect(self, text: str, why: str) -> None:
        if not self._take(text):
            self._unexpected(f"; {why}")

    def _fail(self, message: str, token: _Token | None = None) -> NoReturn:
        where = f" (character {token.start + 1})" if token else ""
        raise ConditionError(self.text, message + where, token.start if token else None)

    def _unexpected(self, why: str = "") -> NoReturn:
        token = self._peek()
        if token.kind == "end":
            self._fail(f"ends too early{why}", token)
        self._fail(f"{_complaint(token)}{why}", token)

    # --- grammar, loosest first

    def _disjunction(self) -> Expression:
        alternatives: list[Expression] = []
        terms: list[Expression] = []
        while True:
            terms.append(self._negation())
            if self._take("and"):
                continue
            alternatives.append(self._joined(And, terms))
            terms = []
            if not self._take("or"):
                return self._joined(Or, alternatives)

    def _joined(
        self, node: Callable[[tuple[Expression, ...], int, int], Expression], items: list[Expression]
    ) -> Expression:
        if len(items) == 1:
            return items[0]
        return self._bounded(node(tuple(items), *_measure(items)))

    def _negation(self) -> Expression:
        negations = 0
        while self._take("not"):
            negations += 1
        left = self._operand()
        links = []
        while symbol := self._comparison_symbol():
            links.append((symbol, self._operand()))
        node = left
        if links:
            node = self._bounded(Comparison(left, tuple(links), *_measure([left, *(right for _, right in links)])))
        if not negations:
            return node
        negated: Expression = Not(node, *_measure([node]))
        return self._bounded(negated if negations % 2 else Not(negated, *_measure([negated])))

    def _comparison_symbol(self) -> str | None:
        if self._peek().kind == "symbol" and self._peek().text in _ORDER_SYMBOLS:
            self.at += 1
            return self._peek(-1).text
        if self._take("in"):
            return "in"
        if self._is("not") and self._is("in", 1):
            self.at += 2
            return "not in"
        return None

    def _operand(self) -> Expression:
        token = self._peek()
        if token.kind == "number" or self._is("-"):
            return self._number()
        if token.kind == "text":
            self.at += 1
            return Literal(self._text(token))
        if token.kind == "name" and token.text not in _WORDS:
            return self._named(token)
        if not (self._is("(") or self._is("[")):
            self._unexpected()
        return self._nested(self._parenthesis if token.text == "(" else self._list)

    def _nested(self, inner: Callable[[], Expression]) -> Expression:
        if self.depth >= MAX_DEPTH:
            self._fail(f"is nested more than {MAX_DEPTH} deep", self._peek())
        self.depth += 1
        node = inner()
        self.depth -= 1
        return self._bounded(node)

    def _bounded(self, node: Expression) -> Expression:
        if node.height > _MAX_HEIGHT:
            self._fail(f"is nested more than {MAX_DEPTH} deep")
        return node

    def _parenthesis(self) -> Expression:
        self.at += 1
        if self._take(")"):
            return Display(())
        node = self._disjunction()
        if self._take(")"):
            return node
        self._expect(",", "a parenthesis is not closed")
        return Display((node, *self._items(")")))

    def _list(self) -> Expression:
        self.at += 1
        return Display(tuple(self._items("]")))

    def _items(self, end: str) -> list[Expression]:
        items: list[Expression] = []
        while not self._take(end):
            items.append(self._disjunction())
            if not self._is(end):
                self._expect(",", f"a list needs commas between its items and {end} at its end")
        return items

    # --- operands

    def _number(self) -> Expression:
        is_negative = self._take("-")
        token = self._peek()
        if token.kind != "number":
            self._fail("a minus sign may only stand before a number", token)
        self.at += 1
        following = self._peek()
        if following.glued and following.kind in ("name", "number", "text"):
            self._fail(f"{shown(token.text + following.text[:20])} is no number", token)
        value = self._numeric(token)
        self.parsed.has_negative_number |= is_negative
        return Literal(-value if is_negative else value)

    def _numeric(self, token: _Token) -> float:
        is_float = not re.fullmatch("0[xXoObB].*|[0-9_]+", token.text)
        try:
            value = float(token.text) if is_float else int(token.text, 0)
        except ValueError:
            self._fail(f"{shown(token.text)} is no number", token)
        if value == float("inf"):
            self._fail(f"{shown(token.text)} is too large", token)
        return value

    def _text(self, token: _Token) -> str:
        prefix, body = token.text[0].lower(), token.text[1 + (token.text[0] in "rRuU") : -1]
        if prefix == "r":
            return body
        text = _ESCAPE.sub(lambda match: self._unescape(match, token), body) if "\\" in body else body
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            self._fail("a text contains half a surrogate pair", token)
        return text

    def _unescape(self, match: re.Match[str], token: _Token) -> str:
        octal, simple = match[1], match[5]
        if octal:
            return chr(int(octal, 8))
        if simple in ("x", "u", "U", "N"):
            self._fail(f"{shown(match[0])} is no complete escape", token)
        if simple:
            return _SIMPLE_ESCAPES.get(simple, match[0])
        code = int(match[2] or match[3] or match[4], 16)
        if code > 0x10FFFF:
            self._fail(f"{shown(match[0])} is no character", token)
        return chr(code)

    def _named(self, token: _Token) -> Expression:
        self.at += 1
        if token.text in _CONSTANTS:
            return Literal(_CONSTANTS[token.text])
        if token.text == "inputs":
            return self._reference(token)
        if not self._is("("):
            self._fail(_bare_name(token.text), token)
        if token.text not in _ARGUMENTS:
            self._fail(f"{token.text} is not a function here; allowed: {', '.join(_ARGUMENTS)}", token)
        return self._nested(lambda: self._aggregate(token))

    def _reference(self, token: _Token) -> Expression:
        name = self._input_name(token)
        steps: list[str | int] = []
        while (step := self._step()) is not None:
            steps.append(step)
        if self._is("-"):
            self._fail('there is no arithmetic; a name with a dash needs brackets: inputs["a-b"]', self._peek())
        if not is_pattern(name):
            self.parsed.references[name] = None
            return Reference(name, tuple(steps))
        if self.seen_patterns is None:
            self._fail(f"the pattern {shown(name)} may only stand in {', '.join(_ARGUMENTS)}", token)
        self.seen_patterns[name] = self.parsed.patterns[name] = None
        return Reference(name, tuple(steps), is_pattern=True)

    def _input_name(self, token: _Token) -> str:
        if self._is(".") and self._is("*", 1):
            self.at += 2
            return "*"
        name = self._step()
        if not isinstance(name, str):
            self._fail('inputs needs a dependency: inputs.NAME or inputs["NAME"]', token)
        return name

    def _step(self) -> str | int | None:
        """`.field`, `["field"]` or `[index]`; None if none of them follows."""
        if self._take("."):
            token = self._peek()
            if token.kind != "name" or keyword.iskeyword(token.text):
                self._fail('after a dot comes a field name; others need brackets: ["any name"]', token)
            self.at += 1
            return token.text
        if not self._take("["):
            return None
        index = self._operand() if self._peek().kind in ("text", "number") or self._is("-") else Literal(None)
        value = index.value(None) if isinstance(index, Literal) else None  # type: ignore[arg-type]
        if type(value) not in (str, int):
            self._fail('brackets take a text or a whole number: ["field"], [0]', self._peek())
        self._expect("]", "brackets take one text or whole number")
        return value

    def _aggregate(self, token: _Token) -> Expression:
        kind = token.text
        if self.aggregate:
            self._fail(f"{kind}() may not stand inside {self.aggregate}()", token)
        self.aggregate, self.seen_patterns = kind, {}
        self.at += 1
        arguments: list[Any] = []
        while not self._take(")"):
            arguments.append(self._disjunction())
            if len(arguments) == 1:
                pattern, self.seen_patterns = list(self.seen_patterns or ()), None
            if not self._is(")"):
                self._expect(",", f"{kind}() is not closed")
        self.aggregate = self.seen_patterns = None
        if len(arguments) != _ARGUMENTS[kind]:
            takes = (
                "one argument, an expression" if _ARGUMENTS[kind] == 1 else "two arguments, an expression and a number"
            )
            self._fail(f"{kind}() takes exactly {takes}", token)
        if len(pattern) != 1:
            found = f", found {', '.join(map(shown, pattern))}" if pattern else ""
            self._fail(f'{kind}() needs exactly one pattern such as inputs["train-*"]{found}', token)
        self.parsed.aggregate_sizes.append(arguments[0].size)
        return Aggregate(kind, pattern[0], *arguments)


def _measure(items: list[Expression]) -> tuple[int, int]:
    """(height, size) of a node over these."""
    return 1 + max(item.height for item in items), 1 + sum(item.size for item in items)


def _tokens(text: str) -> list[_Token]:
    tokens, glued = [], False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind != "space":
            tokens.append(_Token(kind, match[0], match.start(), glued))
        glued = kind != "space"
    tokens.append(_Token("end", "", len(text), False))
    return tokens


def _complaint(token: _Token) -> str:
    if token.text in ('"', "'"):
        return "a text is not closed"
    if token.text == "=":
        return "= is not a comparison; use =="
    if token.text in ("+", "-", "*", "/", "%", "**", "//", "<<", ">>", "@"):
        return f"there is no arithmetic ({token.text})"
    if keyword.iskeyword(token.text) and token.text not in _WORDS:
        return _bare_name(token.text)
    return f"unexpected {shown(token.text)}"


def _bare_name(name: str) -> str:
    if name == "is":
        return "there is no `is`; use == null"
    if keyword.iskeyword(name):
        return f"there is no `{name}` in conditions"
    return f"{name} is unknown; outputs are inputs.NAME, and texts need quotes"
