"""Arithmetic, read as a tree and worked out node by node: nothing that is written is executed."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Annotated

from milepost.core.errors import ToolError
from milepost.tools.decorator import tool

CHARS_MAX = 1_000
BITS_MAX = 4_096
DIGITS_MAX = 400  # beyond what a float has, and all that is rounded to is worked out

Number = int | float


def _round(number: Number, digits: Number = 0) -> Number:
    """Round like Python, but not to a million places before the point: that takes for ever."""
    if not -DIGITS_MAX <= digits <= DIGITS_MAX:
        raise ValueError(f"round() takes at most {DIGITS_MAX} digits")
    if not isinstance(digits, int):
        raise TypeError("round() takes a whole number of digits")
    return round(number, digits) if digits else round(number)


_CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau}
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "abs": abs, "round": _round, "min": min, "max": max, "floor": math.floor, "ceil": math.ceil,
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "log10": math.log10, "log2": math.log2,
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "atan": math.atan,
    "degrees": math.degrees, "radians": math.radians,
}  # fmt: skip
_OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_KNOWN = "numbers, + - * / // % **, parentheses, " + ", ".join((*_CONSTANTS, *_FUNCTIONS))


@tool(effect="read", blocking=False)
def calculator(
    expression: Annotated[str, "Such as (17.5 + 4) * 2**3, or sqrt(2) * pi"],
) -> int | float | str:
    """Work out an arithmetic expression. Whole numbers beyond 64 bits come as text."""
    if len(expression) > CHARS_MAX:
        raise ToolError(f"the expression has more than {CHARS_MAX} characters; split it up")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ToolError(f"{expression!r} cannot be worked out: {error}") from error
    except ZeroDivisionError as error:
        raise ToolError(f"{expression!r} divides by zero") from error
    except OverflowError as error:
        raise ToolError(f"{expression!r} is too large a number") from error
    if isinstance(value, float) and not math.isfinite(value):
        raise ToolError(f"{expression!r} is too large a number")
    return value if isinstance(value, float) or value.bit_length() < 64 else str(value)


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=bool() | complex()):
            pass  # Python takes them for numbers, and nobody who calculates means them.
        case ast.Constant(value=int() | float() as value):
            return _bounded(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _bounded(_OPERATORS[type(op)](_value(left), _value(right)))
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*map(_value, given)))
        case _:
            pass  # A name, a call, or what else Python has.
    raise ValueError(f"{ast.unparse(node)[:40]!r} is not known here; there are: {_KNOWN}")


def _power(base: Number, exponent: Number) -> Number:
    """Refuse what takes long before it is begun: only whole numbers grow without end."""
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and exponent > 0 and base not in {-1, 0, 1}:
        if int(base).bit_length() * exponent > BITS_MAX:
            raise OverflowError
        return base**exponent
    value = base**exponent
    if isinstance(value, complex):
        raise ValueError("a root of a negative number is no real number")  # noqa: TRY004 - a value
    return _bounded(value)


def _bounded(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > BITS_MAX:
        raise OverflowError
    return value
