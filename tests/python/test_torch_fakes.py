"""Operators refuse the same operands whether they are computed or traced, and results have the shapes that are foretold."""

import math
import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from operator_calls import recorded_calls  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

_REFUSALS = (ValueError, TypeError, RuntimeError)
_OF_VALUES = re.compile("index tensors hold a layout of|crow_indices ends with|^layout: row")  # of index tensors, which fakes do not have
CALLS = recorded_calls()


def others_than(argument):
    """What something else may give instead: values that some operators take, and values that none does."""
    if isinstance(argument, bool):
        return [not argument]
    if isinstance(argument, int):
        return [0, -1, argument + 1, argument * 2, 24]
    if isinstance(argument, float):
        return [-1.0, math.nan, math.inf]
    if isinstance(argument, str):
        return ["no_such_activation", "none", "relu", "gelu"]
    if isinstance(argument, torch.Tensor):
        wide, empty = argument[None], argument.new_empty([0, *argument.shape[1:]])
        long = torch.cat([argument, argument[:1]])
        return [wide, empty, long, argument.to(torch.float64), argument.to(torch.int64), argument.to(torch.complex64)]
    if isinstance(argument, (list, tuple)):
        several = list(argument)
        changed = [[*several[:at], other, *several[at + 1 :]] for at in range(len(several)) for other in others_than(several[at])]
        return [[], several[:-1], [*several, *several[-1:]], *changed]
    assert argument is None, argument
    return [torch.randn(3, 64), torch.randn(3, 256)]


def outcome(function, arguments):
    try:
        return None, function(*arguments)
    except _REFUSALS as error:
        return error, None


def foretold(function, arguments):
    with FakeTensorMode() as mode:
        return outcome(function, tree_map(lambda one: mode.from_tensor(one) if isinstance(one, torch.Tensor) else one, arguments))


@pytest.mark.parametrize("name", list(CALLS))
def test_what_an_operator_refuses_its_fake_refuses(name):
    function, recorded = CALLS[name]
    arguments = tree_map(lambda one: one.detach().clone() if isinstance(one, torch.Tensor) else one, recorded)
    accepted = refused = 0
    for place, argument in enumerate(arguments):
        optional = "Optional" in str(function._schema.arguments[place].type)
        for other in others_than(argument) + [None] * optional:
            given = [*arguments[:place], other, *arguments[place + 1 :]]
            error, results = outcome(function, given)
            traced_error, traced = foretold(function, given)
            if error is not None and _OF_VALUES.search(str(error)):
                continue
            what = f"argument {place} is {other!r:.80}"
            assert (error is None) == (traced_error is None), f"{what}; computed: {error!r}; traced: {traced_error!r}"
            if error is None:
                accepted += 1
                for mine, theirs in zip(tree_leaves(traced), tree_leaves(results), strict=True):
                    assert mine.shape == theirs.shape and mine.dtype == theirs.dtype, what
            else:
                refused += 1
    assert refused >= 5, (accepted, refused)
