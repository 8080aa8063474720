"""BlockSparseConv2d against PyTorch's dense convolution: python3 bench/cpu_convolution_torch.py [--write FILE] [--short]

The 3x3 layers of ResNet-50 with block-sparse channels, float32, 8 images, as in cpu_convolution, on this machine's cpu:
inference, and forward with the gradients of the input and of the weight. PyTorch's is measured on channels-last images with
a channels-last weight, its fastest format on cpus, on contiguous ones, its default, and for inference on oneDNN's own
formats, into which layer and images are converted beforehand. Ours takes channels-last images. All contestants of a layer
take turns in every round; times are medians over the rounds, and ratios medians of the rounds' ratios.
"""

import copy
import itertools
import statistics

import publish
import torch
import torch.utils.mkldnn
import torch_contest
from torch_contest import contest, processor

import sparsekiln
from sparsekiln.torch import BlockSparseConv2d

_LAYERS = ((64, 56), (128, 28), (256, 14), (512, 7))  # channels and side of an image
_BLOCKS, _DENSITIES, _IMAGES = (16, 32), (0.1, 0.25, 0.5), 8
_OURS, _LAST, _FIRST, _OWN = "ours", "channels-last", "contiguous", "oneDNN's formats"


def inference(ours: BlockSparseConv2d, dense: torch.nn.Conv2d, x: torch.Tensor) -> dict:
    last, images = copy.deepcopy(dense).to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    own, opaque = torch.utils.mkldnn.to_mkldnn(copy.deepcopy(dense).eval()), x.to_mkldnn()
    return {
        _OURS: lambda: ours(images),
        _LAST: lambda: last(images),
        _FIRST: lambda: dense(x),
        _OWN: lambda: own(opaque),
    }


def gradients(ours: BlockSparseConv2d, dense: torch.nn.Conv2d, x: torch.Tensor, dy: torch.Tensor) -> dict:
    """Each computes y, and gives dx and dW."""

    def both(layer: torch.nn.Module, weight: torch.Tensor, memory_format: torch.memory_format):
        leaf = x.clone(memory_format=memory_format).requires_grad_()
        given = dy.clone(memory_format=memory_format)
        return lambda: torch.autograd.grad(layer(leaf), (leaf, weight), given)

    last = copy.deepcopy(dense).to(memory_format=torch.channels_last)
    return {
        _OURS: both(ours, ours.weight_values, torch.channels_last),
        _LAST: both(last, last.weight, torch.channels_last),
        _FIRST: both(dense, dense.weight, torch.contiguous_format),
    }


def check(ours: BlockSparseConv2d, of_inference: dict, of_gradients: dict) -> None:
    """All contestants compute the same."""
    expected, (dx, dw) = of_inference[_FIRST](), of_gradients[_FIRST]()
    for run in of_inference.values():
        y = run()
        torch.testing.assert_close(y.to_dense() if y.is_mkldnn else y, expected, rtol=1e-3, atol=1e-3)
    present = torch.from_numpy(ours.layout.mask()).repeat_interleave(ours.block[0], 0).repeat_interleave(ours.block[1], 1)[:, :, None, None]
    for name, run in of_gradients.items():
        its_dx, its_dw = run()
        if name == _OURS:
            its = BlockSparseConv2d(ours.in_channels, ours.out_channels, ours.kernel_size, layout=ours.layout, block=ours.block)
            its.weight_values.data.copy_(its_dw)
            its_dw = its.dense_weight().detach()
        torch.testing.assert_close(its_dx, dx, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(its_dw * present, dw * present, rtol=1e-3, atol=1e-2)


def measure(channels: int, side: int, block: int, density: float, images: int, rounds: int) -> tuple[dict, dict]:
    """Milliseconds of each contestant in each round, of inference and of forward with gradients."""
    layout = sparsekiln.patterns.random(channels // block, channels // block, density, seed=1)
    ours = BlockSparseConv2d(channels, channels, 3, padding=1, bias=False, layout=layout, block=block)
    dense, x = ours.to_dense(), torch.randn(images, channels, side, side)
    of_gradients = gradients(ours, dense, x, torch.randn_like(x))
    with torch.no_grad():
        of_inference = inference(ours, dense, x)
    with torch.no_grad():
        inferred = {name: run() for name, run in of_inference.items()}
    check(ours, {name: lambda y=y: y for name, y in inferred.items()}, of_gradients)
    with torch.no_grad():
        times = contest(of_inference, rounds)
    return times, contest(of_gradients, rounds)


def row(case: tuple, times: dict[str, list[float]]) -> list[str]:
    ratios = [statistics.median(a / b for a, b in zip(times[name], times[_OURS])) for name in times if name != _OURS]
    return [*map(str, case), f"{statistics.median(times[_OURS]):.3g}", *(f"{ratio:.2f}" for ratio in ratios)]


def main() -> None:
    options = torch_contest.options(__doc__, __file__, rounds=11)
    cases = [(*layer, block, density) for block, density, layer in itertools.product(_BLOCKS, _DENSITIES, _LAYERS)]
    cases = [case for case in cases if case[3] * (case[0] // case[2]) ** 2 >= 1]  # which has a block
    images = 2 if options.short else _IMAGES
    if options.short:
        cases = [(64, 5, 16, 0.5)]
    measured = [(case, measure(*case, images, options.rounds)) for case in cases]
    text = [
        f"{processor()}, {options.threads} threads, PyTorch {torch.__version__}: 3×3, float32, {images} images, {options.rounds} rounds in which "
        "all take turns. PyTorch's times are given over ours.", "",
    ]  # fmt: skip
    for number, title in enumerate(("inference", "forward and both gradients")):
        columns = ["channels", "image side", "block", "density", f"{title}, ms", *list(measured[0][1][number])[1:]]
        text += [*publish.table(columns, (row(case, times[number]) for case, times in measured)), ""]
    result = "\n".join(text).rstrip()
    print(result)
    if options.write:
        publish.write(options.write, result, __file__)


if __name__ == "__main__":
    main()
