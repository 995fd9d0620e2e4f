"""What a PromQL expression gives: in which unit its values are, and which labels its series have. Read off its tree.

The unit of a metric is the end of its name, as its metadata has it; arithmetic makes new ones of them.
"""

from dataclasses import dataclass

import promql_parser as promql

from tests.promql import FOREIGN, LABELS, SCRAPE_LABELS, names

COUNT, ANY, SECONDS, TIME, RATIO = "count", "any", "seconds", "unix time", "ratio"
MILLISECONDS = "unix milliseconds"
ENDINGS = {
    "_tokens_per_second": "tokens per second", "_per_second": "per second", "_timestamp_seconds": TIME,
    "_seconds": SECONDS, "_seconds_total": SECONDS, "_ratio": RATIO, "_bytes": "bytes", "_watts": "watts",
    "_celsius": "celsius", "_hertz": "hertz",
}  # fmt: skip
START = "process_start_time_seconds"  # prometheus_client's name for a Unix time
FILTERS = ("and", "unless")
MATHS = {"sum", "avg", "min", "max", "topk", "bottomk", "quantile"}


@dataclass(frozen=True)
class Shape:
    """`labels` None: whatever there is."""

    unit: str
    labels: frozenset[str] | None


def of(expr: str) -> Shape:
    """Raises ValueError for no PromQL, and for arithmetic whose units do not fit."""
    return _of(promql.parse(expr))


def _of(node: promql.Expr) -> Shape:
    match node:
        case promql.ParenExpr():
            return _of(node.expr)
        case promql.NumberLiteral():
            return Shape(ANY, frozenset())
        case promql.VectorSelector():
            return _selector(node)
        case promql.MatrixSelector():
            return _selector(node.vector_selector)
        case promql.Call():
            return _call(node)
        case promql.AggregateExpr():
            return _aggregate(node)
        case promql.BinaryExpr():
            return _binary(node)
    raise ValueError(f"a {type(node).__name__} is not known here")


def _selector(node: promql.VectorSelector) -> Shape:
    name, *others = names(node)
    own = set().union(*((LABELS | FOREIGN)[each] for each in (name, *others)))
    if name == START:
        unit = TIME
    else:
        unit = next((unit for end, unit in ENDINGS.items() if name.endswith(end)), COUNT)
    return Shape(unit, frozenset(own | SCRAPE_LABELS))


def _call(node: promql.Call) -> Shape:
    name = node.func.name
    if name == "time":
        return Shape(TIME, frozenset())
    inner = _of(node.args[-1])
    if name in ("rate", "irate"):
        return Shape(RATIO if inner.unit == SECONDS else "per second", inner.labels)
    if name in ("changes", "count_over_time"):
        return Shape(COUNT, inner.labels)
    return inner


def _aggregate(node: promql.AggregateExpr) -> Shape:
    inner, operator = _of(node.expr), str(node.op)
    unit = inner.unit if operator in MATHS else COUNT
    if operator in ("topk", "bottomk"):
        return Shape(unit, inner.labels)
    if node.modifier is None:
        return Shape(unit, frozenset())
    named = frozenset(node.modifier.labels)
    if node.modifier.type == promql.AggModifierType.By:
        if inner.labels is not None and not named <= inner.labels:
            raise ValueError(f"{sorted(named - inner.labels)} cannot be grouped by: {node}")
        return Shape(unit, named)
    return Shape(unit, None if inner.labels is None else inner.labels - named)


def _binary(node: promql.BinaryExpr) -> Shape:
    left, right, operator = _of(node.lhs), _of(node.rhs), str(node.op)
    _matched(node, left, right)
    if operator in FILTERS:
        return left
    if operator == "or":
        # 0 in place of nothing has no unit of its own.
        units = {left.unit, right.unit} - {ANY, COUNT} or {COUNT}
        if len(units) > 1:
            raise ValueError(f"{left.unit} or {right.unit}: {node}")
        return Shape(units.pop(), (left.labels or frozenset()) | (right.labels or frozenset()))
    labels = _joined(node, left, right)
    if operator in (">", "<", ">=", "<=", "==", "!="):
        said = node.modifier is not None and node.modifier.return_bool
        return Shape(COUNT if said else left.unit, labels)
    return Shape(_arithmetic(node, left.unit, right.unit), labels)


def _arithmetic(node: promql.BinaryExpr, left: str, right: str) -> str:
    operator = str(node.op)
    if operator == "*" and left == TIME and _is_thousand(node.rhs):
        return MILLISECONDS
    if operator == "/" and left == right:
        return RATIO
    if operator in "*/" and right in (ANY, COUNT):
        return left if left != ANY else right
    if operator == "*" and left in (ANY, COUNT):
        return right
    if operator == "-" and (left, right) == (TIME, TIME):
        return SECONDS
    if operator in "+-" and ANY in (left, right):
        return right if left == ANY else left
    if operator in "+-" and left == right:
        return left
    raise ValueError(f"{left} {operator} {right}: {node}")


def _is_thousand(node: promql.Expr) -> bool:
    return isinstance(node, promql.NumberLiteral) and node.val == 1000


def _matched(node: promql.BinaryExpr, left: Shape, right: Shape) -> None:
    """Labels on which two sides meet are there on both."""
    matching = node.modifier.matching if node.modifier is not None else None
    if matching is None or matching.type != promql.LabelModifierType.Include:
        return
    for side in (left, right):
        if side.labels is not None and not set(matching.labels) <= side.labels:
            raise ValueError(f"no {sorted(set(matching.labels) - side.labels)} to meet on: {node}")


def _joined(node: promql.BinaryExpr, left: Shape, right: Shape) -> frozenset[str] | None:
    """Those of the side of which there are many, and what it is given of the other."""
    if not left.labels:
        return right.labels
    card = node.modifier.card if node.modifier is not None else None
    if card != promql.VectorMatchCardinality.ManyToOne:
        return left.labels
    given = frozenset(node.modifier.group_labels or ())
    if right.labels is not None and not given <= right.labels:
        raise ValueError(f"{sorted(given - right.labels)} is not to be had on the right: {node}")
    return left.labels | given
