"""Tuning records as JSON lines, made up: what `sparsekiln report` reads. The grammar is autotune/record_json.cpp's."""

import json

_RESOURCES = ["registers", "shared_bytes", "stack_bytes", "spill_load_bytes", "spill_store_bytes", "constant_bytes", "code_bytes"]


def config(tile_n: int) -> str:
    """A config in full, as the command writes it."""
    return (
        f"simt tile_n={tile_n} tile_out=4 stages=1 warps=4 split=1 rows=1 merge=1 split_saves=0 in_flight=all table=constant "
        "operand_a=x packed=0"
    )


def candidate(tile_n: int, outcome: str = "measured", samples: list[float] | None = None, **fields) -> dict:
    return {
        "config": config(tile_n),
        "outcome": outcome,
        "reason": "",
        "predicted_us": 0,
        "compile_ms": 0,
        "resources": {name: 0 for name in _RESOURCES},
        "samples_us": samples or [],
        "relative": [1.0] * len(samples or []),
        "final_us": [],
    } | fields


def around(us: float, share: float = 0.005) -> list[float]:
    """Eleven samples, evenly spread by that share to both sides."""
    return [us * (1 + share * (i - 5) / 5) for i in range(11)]


def contest(best: float = 100, default: float = 150, n: int = 64, floor: float = 50) -> dict:
    return {
        "n": n,
        "flops": 2.0 * 2560 * 2560 * 0.25 * n,
        "bytes": 2560 * 2560 * 0.25 * 4 + 2 * 2560 * n * 4,
        "floor_us": floor,
        "default": config(64),
        "candidates": [
            candidate(64, samples=around(default), compile_ms=1500, predicted_us=140),
            candidate(32, samples=around(best), compile_ms=500, predicted_us=120),
            candidate(16, samples=around(best * 4), compile_ms=500),
            candidate(8, "failed", reason="wrong: y[3, 5] is 1, not 2"),
            candidate(4, "pruned", reason="the same code as an earlier candidate"),
            candidate(2, "untried", reason="out of time"),
        ],
        "pruned": [{"reason": "shared memory: 70000 bytes of 49152", "example": config(128), "count": 1200}],
    }


def record(**fields) -> dict:
    """A forward product of 80x80 blocks of 32x32, a quarter of them present. Texts whose names a problem has go there."""
    problem = {
        "operation": "forward", "layout": "00112233445566778899aabbccddeeff", "grid": "80x80", "features": "0x0",
        "block": "32x32", "batch": "64", "dtype": "f32", "out_dtype": "f32", "math": "ieee", "order": "batch-major",
        "strict_absent": "no", "epilogue": "none", "derivative": "none", "gates": "no", "bias_gradient": "no",
        "gate_gradient": "no", "alignment": "16", "target": "sm_90:132",
    }  # fmt: skip
    whole = {
        "version": 1,
        "problem": problem,
        "layout": {"rows": 80, "cols": 80, "blocks": 1600, "picture": ["0123456789abcdef" * 4] * 64},
        "environment": {"device": "A device", "workers": 132, "cache_bytes": 1 << 20, "driver": "1.0", "policy": "warm"},
        "peak": {"gflops": 50000, "gbytes": 3000, "measured": False},
        "compiler": "0" * 64,
        "seconds": 12.5,
        "contests": [contest()],
    }
    for name, value in fields.items():
        (problem if name in problem and isinstance(value, str) else whole)[name] = value
    return whole


def lines(*records: dict) -> str:
    return "".join(json.dumps(one) + "\n" for one in records)
