"""Tools of torch.nn.utils (pruning, parametrizations, norms) when they are told to work on `weight`.

A block-sparse layer has no parameter of that name: `weight` is computed. The tools would end in errors about dictionaries or
sparse tensors. They have no hook for that, so the places where they look are where it is said what to do instead.
"""

import sys

import torch

_REFUSAL = (
    "torch.nn.utils cannot work on 'weight' of a {kind}, which is computed from its parameter; give it 'weight_values' "
    "[blocks, …], or for pruning of whole blocks, call relayout"
)


def refuse_tools_of_weight(module: torch.nn.Module) -> None:
    """Raises TypeError if the property `weight`, which calls this, is read by a tool of torch.nn.utils."""
    if not torch.compiler.is_compiling() and sys._getframe(2).f_globals.get("__name__", "").startswith("torch.nn.utils."):
        raise TypeError(_REFUSAL.format(kind=type(module).__name__))


class Parametrizations:
    """The property `parametrizations`, where torch.nn.utils.parametrize first looks; else the attribute of that name."""

    def __get__(self, module, owner=None):
        if module is None:
            return self
        found = module._modules.get("parametrizations")
        if found is None:
            asking = None if torch.compiler.is_compiling() else sys._getframe(2)
            if asking is not None and asking.f_code.co_name == "register_parametrization":
                if asking.f_locals.get("tensor_name") == "weight":
                    raise TypeError(_REFUSAL.format(kind=type(module).__name__))
            raise AttributeError(f"'{type(module).__name__}' object has no attribute 'parametrizations'")
        return found
