"""Broken TOML for the fuzz tests: values of all kinds, mutated tables, and scribbled text."""

import datetime
import math
import time
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dpcompare.errors import UsageError

FUZZ = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
"""Every run tries the same cases."""

LONGEST_SECONDS = 1.0
LONGEST_MESSAGE = 2000

ODD_TEXTS = [
    "", " ", "a", "é", "日本", "\U0001f600", "e\u0301", "a\nb", "\r", "\x00", "\x1b[31m", "\u2028",
    "a,b", "a b", "(a=1)", "x (a=1)", "*", "***a*", "x" * 1500, "inf", "true", "0", "-1", "{}",
    "%s", "../..", "/", "a.py:B", "x" * 300 + ":B", "\x00:B", ":", "--data", "synthetic", "\u202e",
    "\ufeff",
]  # fmt: skip
ODD_NUMBERS = [
    0, 1, -1, 2, 3, 7, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30, 10**308,
    10**400, 10**4000, -(10**400), 0.0, -0.0, 0.5, 1.0, 1.5, 3.7, -2.5, 5e-324, 1e-300, 1e-12,
    1e300, 1.7976931348623157e308, math.inf, -math.inf, math.nan, 0.1 + 0.2, 1 / 3,
]  # fmt: skip
ODD_OTHERS = [
    True, False, [], {}, [[]], [{}], [True], [1, "a"], [1, 2.5], [1, 1], [0.1, 0.1], ["a", "a"],
    [math.nan], [10**400], [{"value": 1}], [{"value": [0.1, 0.2]}], [{"value": True}],
    [{"epsilon_up_to": 10**400, "value": 1}], [{"epsilon_up_to": math.inf, "value": 1}],
    [{"epsilon_up_to": 2**53, "value": 1}, {"epsilon_up_to": 2**53 + 1, "value": 2}, {"value": 3}],
    [{"epsilon_up_to": 1, "value": 1}, {"value": 2}], [{"value": 1}, {"value": 2}],
    list(range(3000)), [0.001 * i for i in range(1, 2000)], ["a"] * 2000, {"a": {"b": {"c": [1]}}},
    {"clip_norm": [1, 2]}, {"training": {"epochs": [1, 2]}}, {"training.epochs": [1, 2]},
    {"training": {"epochs": [1, 2]}, "training.epochs": [3, 4]}, {"sweep": [1, 2]},
    {"neighboring": ["zero-out"]}, {"neighboring": [1]}, {"a\nb": [1]}, datetime.date(2024, 2, 29),
    datetime.datetime(2024, 1, 1, 12), datetime.time(1, 2, 3),
]  # fmt: skip
SCRAPS = [
    "=", "\n", '"', "'", '"""', "'''", "[", "]", "[[", "]]", "{", "}", ",", ".", "#", " ", "\\",
    "\\u0000", "\\ud800", "\\x", "0x", "0xf", "1", "-", "+", "_", "e", "inf", "nan", "true",
    "1979-05-27", "T07:32", "task", "data", "mechanisms", "name", "columns", "tasks", "role", "a",
    "a.b", "é", "\x00", "\x7f", "\r", "\r\n", "\t", "\ufeff", "[" * 600, "a." * 300 + "a=1\n",
    "1" * 5000, "0x" + "f" * 6000, "[a]\n", "[[a]]\n", "[a.b]\n", "a={}\n", "a.b=1\n", "a=[]\n",
    "a={b=1}\n", "a.b.c=1\n", "[[a.b]]\n", "{a=" * 300, "1e99999", "-0", "+nan", "[[mechanisms]]\n",
    "[tasks]\n", "[data]\n", 'task="pctr"\n',
]  # fmt: skip


# Strategies are made once, for making them takes longer than drawing from them.
ANY_PLACE = st.integers(0, 2**16)
FEW = st.integers(0, 3)
COIN = st.booleans()
ACTIONS = st.integers(0, 9)
ODD_VALUES = st.one_of(
    st.sampled_from([*ODD_NUMBERS, *ODD_OTHERS, *ODD_TEXTS]),
    st.floats(width=64),
    st.integers(-(10**6), 10**6),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
"""Values that TOML can hold, most of them wrong wherever they stand."""


@st.composite
def mutated(draw: Any, valid: list[dict[str, Any]], words: list[Any]) -> dict[str, Any]:
    """One of the valid tables after up to three mutations.

    Args:
        draw: by hypothesis.
        valid: tables that are right.
        words: keys and values that are right in some place.
    """
    content = deepcopy(valid[draw(ANY_PLACE) % len(valid)])
    for _ in range(draw(FEW)):
        places = list(_places(content))
        if not places:
            break
        parent, key = places[draw(ANY_PLACE) % len(places)]
        _mutate(draw, parent, key, places, words)
    return content


def _places(tree: Any) -> Any:
    """Every key of every table, and every index of every list."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree[:50])
    for key, value in list(items):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _mutate(draw: Any, parent: Any, key: Any, places: list[Any], words: list[Any]) -> None:
    action = draw(ACTIONS)
    if action <= 3:
        parent[key] = deepcopy(draw(ODD_VALUES))
    elif action == 4:
        parent[key] = deepcopy(words[draw(ANY_PLACE) % len(words)])
    elif action == 5:
        del parent[key]
    elif action == 6 and isinstance(parent, list):  # an entry twice
        parent.insert(key, deepcopy(parent[key]))
    elif action <= 7 and isinstance(parent, dict):  # another name
        names = [*(word for word in words if isinstance(word, str)), *ODD_TEXTS]
        parent[names[draw(ANY_PLACE) % len(names)]] = parent.pop(key)
    else:  # a copy of what stands elsewhere
        other, at = places[draw(ANY_PLACE) % len(places)]
        if (at in other) if isinstance(other, dict) else (at < len(other)):
            parent[key] = deepcopy(other[at])


@st.composite
def scribbled(draw: Any, texts: list[str]) -> str:
    """A valid text with scraps put in, taken out and repeated, or scraps alone."""
    whole = draw(ANY_PLACE) % (len(texts) + 1)
    if whole == len(texts):
        return "".join(SCRAPS[index % len(SCRAPS)] for index in draw(st.binary(max_size=12)))
    text = texts[whole]
    for _ in range(1 + draw(FEW)):
        start = draw(ANY_PLACE) % (len(text) + 1)
        length = (0, 1, 5, 30)[draw(FEW)]
        again = (0, 0, 1, 2)[draw(FEW)]
        piece = SCRAPS[draw(ANY_PLACE) % len(SCRAPS)] if draw(COIN) else ""
        text = text[:start] + piece + text[start : start + length] * again + text[start + length :]
    return text


@contextmanager
def one_clear_message(name: str, refusals: type[Exception] = UsageError):
    """What is refused inside is refused quickly, in one line that names the file."""
    start = time.thread_time()
    try:
        yield
    except refusals as error:
        message = str(error)
        if not (name in message and message.isprintable() and len(message) <= LONGEST_MESSAGE):
            pytest.fail(f"not one clear line with {name}: {message[:4000]!r}")
    seconds = time.thread_time() - start
    assert seconds < LONGEST_SECONDS, f"took {seconds:.1f} s"
