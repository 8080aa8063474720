"""Fashion-MNIST (Xiao, Rasul and Vollgraf 2017), as Debian ships it: images of clothes in ten classes, 28 × 28 pixels of gray.

60,000 images are to train on, and 10,000 to test.
"""

import gzip
import pathlib

import numpy as np
import torch

Tensor = torch.Tensor
FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")


def images(part: str) -> tuple[Tensor, Tensor]:
    """Pixels float32 [images, 1, 28, 28], from 0 to 1, and classes int64 [images]; `part` is "train" or "t10k", the test."""
    pixels = _read(f"{part}-images-idx3-ubyte.gz", header=16).reshape(-1, 1, 28, 28)
    classes = _read(f"{part}-labels-idx1-ubyte.gz", header=8)
    return torch.from_numpy(pixels.astype(np.float32) / 255), torch.from_numpy(classes.astype(np.int64))


def _read(name: str, header: int) -> np.ndarray:
    """The bytes of a file after its header."""
    try:
        with gzip.open(FOLDER / name) as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)
    except FileNotFoundError:
        raise SystemExit(
            "the images of this example are the package dataset-fashion-mnist of Debian: apt-get install dataset-fashion-mnist"
        ) from None
