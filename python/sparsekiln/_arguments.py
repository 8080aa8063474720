"""Arguments as the core takes them: what does not suit is refused by a sentence with its name, its value and what would work.

What has the wrong type raises TypeError, what has the wrong value ValueError.
"""

import operator
import os
import reprlib
from collections.abc import Iterable
from typing import Any

import numpy as np

_MOST = 2**63 - 1  # an int64

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 100


def shown(given: Any) -> str:
    """For a message: on one line, and shortened."""
    return " ".join(_short.repr(given).split())


def integer(name: str, given: Any, least: int = -_MOST - 1, most: int = _MOST) -> int:
    """An int, or what is one: an integer of NumPy, or of one element of an array or tensor. No float, even if it is whole."""
    try:
        whole = operator.index(given)
    except TypeError:
        raise TypeError(f"{name} is {shown(given)}; an integer would work") from None
    if not least <= whole <= most:
        some = f"from {least} to {most}" if most != _MOST else f"of {least} or more" if least >= 0 else "of 64 bits"
        raise ValueError(f"{name} is {shown(given)}; an integer {some} would work")
    return whole


def int32(name: str, given: Any) -> int:
    return integer(name, given, -(2**31), 2**31 - 1)


def unsigned(name: str, given: Any) -> int:
    """A seed or an address: 64 bits."""
    return integer(name, given, 0, 2**64 - 1)


def real(name: str, given: Any) -> float:
    """A float, or what is a real number. No text, though float() reads it."""
    try:
        if isinstance(given, (str, bytes, bytearray)):
            raise TypeError
        return float(given)
    except (TypeError, ValueError, RuntimeError):  # the last one is PyTorch's, of several elements
        raise TypeError(f"{name} is {shown(given)}; a number would work") from None
    except OverflowError:
        raise ValueError(f"{name} is {shown(given)}; a number that a float can hold would work") from None


def flag(name: str, given: Any) -> bool:
    """A bool, NumPy's too, or 0 or 1. Nothing else: "no" would be taken for true."""
    if isinstance(given, (bool, np.bool_)):
        return bool(given)
    try:
        if operator.index(given) in (0, 1):
            return bool(given)
    except TypeError:
        pass
    raise TypeError(f"{name} is {shown(given)}; True or False would work")


def text(name: str, given: Any) -> str:
    """A str that UTF-8 can encode, without null characters, at which the core would end it."""
    if not isinstance(given, str):
        raise TypeError(f"{name} is {shown(given)}; a str would work")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {shown(given)}; a str without surrogates would work") from None
    if "\0" in given:
        raise ValueError(f"{name} is {shown(given)}; a str without null characters would work")
    return str.__str__(given)  # of a member of an Enum that is one, too


def path(name: str, given: Any) -> bytes:
    """The bytes of a path, which need not be UTF-8."""
    try:
        encoded = os.fsencode(given)
    except TypeError:
        raise TypeError(f"{name} is {shown(given)}; a str, bytes or a path of pathlib would work") from None
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {shown(given)}; a path that the file system can have would work") from None
    if b"\0" in encoded:
        raise ValueError(f"{name} is {shown(given)}; a path without null characters would work")
    return encoded


def paths(name: str, given: Any) -> list[bytes]:
    """The bytes of one path, or of several."""
    if isinstance(given, (str, bytes, os.PathLike)):
        return [path(name, given)]
    if not isinstance(given, Iterable):
        raise TypeError(f"{name} is {shown(given)}; a path, or a list of them, would work")
    return [path(f"{name}[{position}]", one) for position, one in enumerate(given)]
