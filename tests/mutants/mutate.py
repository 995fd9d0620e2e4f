"""Small changes of behaviour in one file: another comparison, a condition turned round, a step left out.

Each is one that a person could have made by mistake. What is left alone cannot be told from outside or does not
matter: logs, texts, annotations, assertions.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OFF_BY_ONE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
"""Of counts alone: a time or a share that was measured never meets its threshold exactly."""

_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_COUNT_MAX = (
    10  # one more of a larger number, or of what is measured, is no change that anybody means
)
_LOGS = ("_log.", "log(", "print(")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: bytes `begin` to `end` of a file become `now`."""

    line: int
    was: str  # the piece, in one line
    now: str
    begin: int
    end: int

    def planted(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.begin] + self.now.encode() + source[self.end :]


def mutants(source: bytes) -> list[Mutant]:
    """Every change that is known here, in the order of the file. Each leaves a file that compiles."""
    found = dict.fromkeys(_Finder(source).all())
    return sorted(found, key=lambda each: (each.begin, each.end, each.now))


class _Finder:
    def __init__(self, source: bytes) -> None:
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def all(self) -> Iterator[Mutant]:
        tree = ast.parse(self._source)
        for statement in tree.body:
            yield from self._doubled(statement)
        yield from self._below(tree)

    def _doubled(self, statement: ast.stmt) -> Iterator[Mutant]:
        """A threshold: half as much again would hardly be noticed by anybody."""
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            value, name = statement.value.value, ast.unparse(statement.targets[0])
            a_number = isinstance(value, int | float) and not isinstance(value, bool)
            # A version is of a form: what writes it and what reads it change alike.
            if a_number and not name.endswith("VERSION"):
                yield self._changed(statement.value, repr(value * 2 or 1))

    def _below(self, node: ast.AST) -> Iterator[Mutant]:
        decorators = getattr(node, "decorator_list", [])
        for child in ast.iter_child_nodes(node):
            if _left_alone(child) or child in decorators:
                continue
            if isinstance(node, ast.Module) and isinstance(child, ast.Assign | ast.AnnAssign):
                continue  # thresholds, above, and tables of texts
            yield from self._of(child)
            yield from self._below(child)

    def _of(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.stmt():
                yield from self._of_statement(node)
            case ast.Compare(ops=[op]):
                for others in (_TURNED, _OFF_BY_ONE if _is_count(node) else {}):
                    if type(op) in others:
                        other = ast.Compare(node.left, [others[type(op)]()], node.comparators)
                        yield self._changed(node, f"({ast.unparse(other)})")
            case ast.BoolOp():
                yield from self._of_condition(node)
            case ast.BinOp(op=op) if type(op) in _OPERATORS and not _is_text(node):
                changed = ast.BinOp(node.left, _OPERATORS[type(op)](), node.right)
                yield self._changed(node, f"({ast.unparse(changed)})")
            case _:
                yield from self._of_word(node)

    def _of_condition(self, node: ast.BoolOp) -> Iterator[Mutant]:
        turned = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield self._changed(node, f"({ast.unparse(ast.BoolOp(turned, node.values))})")
        for left_out in node.values:
            rest = [each for each in node.values if each is not left_out]
            fewer = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            yield self._changed(node, f"({ast.unparse(fewer)})")

    def _of_word(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.UnaryOp(op=ast.Not()):
                yield self._changed(node, f"({ast.unparse(node.operand)})")
            case ast.Constant(value=bool()):
                yield self._changed(node, repr(not node.value))
            case ast.Constant(value=int() | float() as number):
                more = number + 1 if isinstance(number, int) and number < _COUNT_MAX else number * 2
                if more:  # nothing of what is measured has no other that anybody means
                    yield self._changed(node, repr(more))
            case ast.Call(func=ast.Name(id=name)) if name in _NAMES:
                yield self._changed(node.func, _NAMES[name])

    def _of_statement(self, node: ast.stmt) -> Iterator[Mutant]:
        match node:
            case ast.Continue():
                yield self._changed(node, "break")
            case ast.Break():
                yield self._changed(node, "continue")
            case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Delete():
                yield self._changed(node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self._changed(node, "pass")
            case ast.If(test=test) | ast.While(test=test):
                if not isinstance(test, ast.Compare | ast.UnaryOp | ast.Constant):
                    yield self._changed(test, f"(not ({ast.unparse(test)}))")
            case ast.Return(value=ast.Name() | ast.Attribute() | ast.Call()):
                yield self._changed(node, "return None")

    def _changed(self, node: ast.expr | ast.stmt, now: str) -> Mutant:
        begin = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        was = " ".join(self._source[begin:end].decode().split())
        return Mutant(node.lineno, was, now, begin, end)


def _left_alone(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.arg() | ast.Assert() | ast.pattern() | ast.Import():
            return True
        case ast.Expr(value=ast.Constant() | ast.Yield() | ast.YieldFrom()):
            return True
        case ast.Call(func=ast.Name(id="Field")):  # settings: what they default to is a table
            return True
        case ast.Expr():
            return ast.unparse(node).removeprefix("await ").startswith(_LOGS)
        case ast.AnnAssign(value=None):
            return True
        case ast.keyword(
            arg="strict" | "frozen" | "defer_build"
        ):  # what raises where there is a defect already
            return True
        case ast.If():
            return ast.unparse(node.test) == "TYPE_CHECKING"
    return False


def _is_count(node: ast.Compare) -> bool:
    sides = (node.left, *node.comparators)
    if any(isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult) for side in sides):
        return False  # a share of something
    for side in sides:
        match side:
            case ast.Call(func=ast.Name(id="len" | "sum")) | ast.Constant(value=int()):
                return True
    return False


def _is_text(node: ast.BinOp) -> bool:
    """Is it a text that is put together, or a type that is one of several?"""
    sides = (node.left, node.right)
    if isinstance(node.op, ast.BitOr):
        return any(ast.unparse(each) == "None" or isinstance(each, ast.Name) for each in sides)
    return any(isinstance(each, ast.JoinedStr) or isinstance(getattr(each, "value", 0), str) for each in sides)  # fmt: skip
