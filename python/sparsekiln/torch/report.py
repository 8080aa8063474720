"""What sparsify_ and Sparsifier did with the layers of a model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Replaced:
    """What was done with one layer."""

    name: str  #: as in named_modules
    shape: tuple[int, int]  #: outputs and inputs: features, or channels of a convolution
    blocks: int = 0  #: kept
    of: int = 0  #: blocks that its layout could have
    norm_kept: float = 0.0  #: Frobenius norm of what was kept, over that of all of the weight
    skipped: str = ""  #: why it was not replaced; empty if it was


@dataclass(frozen=True)
class Report:
    """What was done. str() is a table."""

    layers: tuple[Replaced, ...]
    message: str = ""  #: what the caller may not have expected, such as a pattern that no layer has; empty if all went as asked

    @property
    def replaced(self) -> tuple[Replaced, ...]:
        return tuple(one for one in self.layers if not one.skipped)

    @property
    def skipped(self) -> tuple[Replaced, ...]:
        return tuple(one for one in self.layers if one.skipped)

    def __str__(self) -> str:
        rows = [("layer", "out × in", "blocks kept", "norm kept")]
        for one in self.layers:
            blocks, norm = (f"{one.blocks} of {one.of}", f"{100 * one.norm_kept:.1f} %") if not one.skipped else ("", one.skipped)
            rows.append((one.name, f"{one.shape[0]} × {one.shape[1] or '?'}", blocks, norm))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]).rstrip() for row in rows]
        kept, of = sum(one.blocks for one in self.replaced), sum(one.of for one in self.replaced)
        share = f", {kept} of {of} blocks kept ({100 * kept / of:.1f} %)" if of else ""
        lines.append(f"{len(self.replaced)} of {len(self.layers)} layers replaced{share}")
        return "\n".join([*lines, self.message] if self.message else lines)
