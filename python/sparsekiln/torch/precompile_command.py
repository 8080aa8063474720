"""`sparsekiln precompile --from-model`: the kernels of a model of PyTorch as a pack."""

import argparse
import importlib
import os
import sys

import sparsekiln

from .precompilation import precompile


def main(arguments: list[str]) -> int:
    """The exit status, as the command's: 2 for arguments that make no sense, 1 where a kernel cannot be made."""
    parser = argparse.ArgumentParser("sparsekiln precompile", description="the kernels of a model of PyTorch as a pack", allow_abbrev=False)
    parser.add_argument(
        "--from-model", required=True, metavar="MODULE:FUNCTION",
        help="a function without arguments that gives a model and its arguments: a tensor, a tuple, or a dict of named ones",
    )  # fmt: skip
    parser.add_argument("--arch", default="", help="what to compile for, joined by commas: sm_80,sm_90 (else what the model is on)")
    parser.add_argument("--jobs", type=int, help="kernels to compile at once (one a core where not given)")
    parser.add_argument("--forward", action="store_true", help="without the backward pass (else models in training mode have one)")
    parser.add_argument("-o", "--output", required=True, help="the pack to write")
    given = parser.parse_args(arguments)
    module, _, function = given.from_model.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        parser.error(f"--from-model {given.from_model}: {error}")
    try:
        model, sample = make()
        precompile(
            model, sample, backward=False if given.forward else None, threads=given.jobs, pack=given.output,
            archs=[arch for arch in given.arch.split(",") if arch],
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    except sparsekiln.Error as error:
        print(f"sparsekiln: {error}", file=sys.stderr)
        return 1
    return 0
