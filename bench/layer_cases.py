"""The layers of PyTorch that bench/gpu_layers.py measures, the important ones first."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class LayerCase:
    kind: str  # linear, convolution or lstm
    out_features: int
    in_features: int
    density: float
    block: int
    dtype: str
    batch: int
    extent: int = 0  # of a convolution: the side of an image; of an LSTM: steps

    @property
    def title(self) -> str:
        what = {"linear": "", "convolution": f" 3x3 {self.extent}x{self.extent}", "lstm": f" {self.extent} steps"}[self.kind]
        return f"{self.kind} {self.out_features}x{self.in_features}{what} {100 * self.density:.3g} % block {self.block} {self.dtype} n={self.batch}"


FIRST = [
    LayerCase("convolution", 256, 256, 0.1, 32, "bf16", 32, 56),
    LayerCase("linear", 4096, 4096, 0.1, 32, "bf16", 64),
    LayerCase("linear", 14336, 4096, 0.1, 64, "bf16", 8192),
    LayerCase("lstm", 4096, 64, 0.05, 32, "f16", 64, 16),  # cuDNN copies weights of bfloat16 at each call
    LayerCase("convolution", 512, 512, 0.1, 32, "bf16", 32, 28),
    LayerCase("convolution", 128, 128, 0.1, 32, "bf16", 32, 56),
    LayerCase("linear", 14336, 4096, 0.1, 64, "bf16", 64),
    LayerCase("linear", 12288, 12288, 0.1, 32, "bf16", 32),
]
SHORT = [
    LayerCase("linear", 128, 96, 0.5, 32, "f32", 8), LayerCase("convolution", 64, 32, 0.5, 16, "f32", 2, 6),
    LayerCase("lstm", 64, 32, 0.5, 16, "f32", 4, 2),
]  # fmt: skip
