"""What arguments must be; what they are not is a ValueError of one line."""

from __future__ import annotations

import operator
import os
import textwrap
from typing import Any, Type

from torch import nn


def shown(value: Any) -> str:
    """In one line, which a tensor has several of."""
    return textwrap.shorten(repr(value), 80, placeholder=" …")


def kind(what: str, value: Any, expected: Type[Any], called: str) -> None:
    if not isinstance(value, expected):
        raise ValueError(f"{what} is {shown(value)}; expected {called}")


def string(what: str, value: Any) -> str:
    kind(what, value, str, "a string")
    return value


def path(what: str, value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError(f"{what} is {shown(value)}; expected a path")
    return os.fsdecode(value)


def model(value: Any) -> None:
    kind("model", value, nn.Module, "a torch.nn.Module")


def number(what: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # the last from a tensor of several numbers
        raise ValueError(f"{what} is {shown(value)}; expected a number") from None


def whole_number(what: str, value: Any) -> int:
    try:
        whole = operator.index(value)
    except (TypeError, RuntimeError):
        whole = 2 ** 63
    if abs(whole) >= 2 ** 63:
        raise ValueError(f"{what} is {shown(value)}; expected a whole number")
    return whole
