"""What BlocksparseConv and BlocksparseDeconv stand for, in dense float64, tap by tap."""

import itertools

import numpy as np

DIAGONAL = [(range(b * 32, b * 32 + 32), range(b * 48, b * 48 + 48)) for b in range(4)]
OVERLAPPING = [(range(b * 8, b * 8 + 16), range(b * 16, b * 16 + 32)) for b in range(8)]


class Case:
    """A convolution: the arguments of the class, and what follows from them. `before` is the padding and `output` the extents
    that are expected of the convolution, or, of a deconvolution, of the input of that which it transposes."""

    def __init__(self, BCK, TRS, DHW, output, before, strides=(1, 1, 1), dilates=(1, 1, 1), padding="SAME", deconv=False, MPQ=None):
        self.BCK = [(list(C), list(K)) for C, K in BCK]
        self.arguments = {"BCK": self.BCK, "TRS": TRS, "DHW": DHW, "strides": strides, "dilates": dilates, "padding": padding, "MPQ": MPQ}
        self.deconv, self.taps, self.before = deconv, tuple(TRS), before
        self.input, self.output, self.strides, self.dilates = tuple(DHW), tuple(output), tuple(strides), tuple(dilates)
        self.C = max(max(C) for C, _ in self.BCK) + 1
        self.K = max(max(K) for _, K in self.BCK) + 1

    def filters(self, seed=0):
        """One for each block: [K, C, taps], of a deconvolution [C, K, taps]."""
        random = np.random.default_rng(seed)
        sides = [(len(C), len(K)) if self.deconv else (len(K), len(C)) for C, K in self.BCK]
        return [random.uniform(-1, 1, (*side, *self.taps)).astype(np.float32) for side in sides]

    def images(self, n, seed=1):
        """Input and gradient of the output."""
        random = np.random.default_rng(seed)
        shapes = (n, self.C, *self.input), (n, self.K, *self.output)
        return [random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]

    def results(self, filters, x, dy):
        """y, dx and the gradient of the filters, flat."""
        x, dy = x.astype(np.float64), dy.astype(np.float64)
        dense = np.zeros((self.C, self.K, *self.taps) if self.deconv else (self.K, self.C, *self.taps))
        for (C, K), block in zip(self.BCK, filters):
            dense[np.ix_(C, K) if self.deconv else np.ix_(K, C)] += block
        if self.deconv:  # the gradient of a convolution whose output x is
            dx = self._forward(dense, dy, self.input)
            y = self._gradients(dense, np.zeros_like(dy), x)[0]
            ddense = self._gradients(dense, dy, x)[1]
        else:
            y = self._forward(dense, x, self.output)
            dx, ddense = self._gradients(dense, x, dy)
        blocks = [ddense[np.ix_(C, K) if self.deconv else np.ix_(K, C)] for C, K in self.BCK]
        return y, dx, np.concatenate([block.reshape(-1) for block in blocks])

    def _windows(self, image, outputs):
        """Each tap, and the part of a padded image [n, channels, …] that it meets at all outputs."""
        for tap in itertools.product(*map(range, self.taps)):
            parts = [
                slice(one * dilate, one * dilate + (q - 1) * step + 1, step)
                for one, dilate, step, q in zip(tap, self.dilates, self.strides, outputs)
            ]
            yield tap, image[(slice(None), slice(None), *parts)]

    def _padded(self, image, outputs):
        """With zeros before, and after as far as any tap reaches."""
        reached = [(tap - 1) * dilate + (q - 1) * step + 1
                   for tap, dilate, step, q in zip(self.taps, self.dilates, self.strides, outputs)]  # fmt: skip
        after = [max(0, end - one - extent) for end, one, extent in zip(reached, self.before, image.shape[2:])]
        return np.pad(image, [(0, 0), (0, 0), *zip(self.before, after)])

    def _forward(self, dense, x, outputs):
        y = np.zeros((len(x), dense.shape[0], *outputs))
        for tap, part in self._windows(self._padded(x, outputs), outputs):
            y += np.einsum("kc,ncdhw->nkdhw", dense[(slice(None), slice(None), *tap)], part, optimize=True)
        return y

    def _gradients(self, dense, x, dy):
        padded, ddense = self._padded(x, dy.shape[2:]), np.zeros_like(dense)
        dpadded = np.zeros_like(padded)
        parts = zip(self._windows(padded, dy.shape[2:]), self._windows(dpadded, dy.shape[2:]))
        for (tap, part), (_, dpart) in parts:
            at = (slice(None), slice(None), *tap)
            ddense[at] = np.einsum("nkdhw,ncdhw->kc", dy, part, optimize=True)
            dpart += np.einsum("kc,nkdhw->ncdhw", dense[at], dy, optimize=True)
        inside = [slice(one, one + extent) for one, extent in zip(self.before, x.shape[2:])]
        return dpadded[(slice(None), slice(None), *inside)], ddense

    def edges(self):
        """Positions of the output, in row-major order, by the taps that meet padding there: in the order of their first."""
        found = {}
        for number, position in enumerate(np.ndindex(*self.output)):
            taps = tuple(tap for tap in np.ndindex(*self.taps) if self._meets_padding(position, tap))
            if taps:
                found.setdefault(taps, []).append(number)
        return sorted(found.values())

    def _meets_padding(self, position, tap):
        for at, one, dilate, step, before, extent in zip(position, tap, self.dilates, self.strides, self.before, self.input):
            if self.deconv:
                whole, rest = divmod(at + before - one * dilate, step)
                if rest == 0 and (whole < 0 or whole >= extent):
                    return True
            elif at * step + one * dilate - before < 0 or at * step + one * dilate - before >= extent:
                return True
        return False

    def output_rows(self, filters):
        """The elements of the flat filters that belong to each output feature of each block."""
        first, rows = 0, []
        for block in filters:
            numbers = np.arange(first, first + block.size).reshape(block.shape)
            numbers = np.moveaxis(numbers, 1, 0) if self.deconv else numbers
            rows += [row.reshape(-1) for row in numbers]
            first += block.size
        return rows

    def normalised(self, filters, gain=None, epsilon=1e-12):
        flat = np.concatenate([block.reshape(-1) for block in filters]).astype(np.float64)
        result = np.empty_like(flat)
        for number, row in enumerate(self.output_rows(filters)):
            length = np.sqrt(max((flat[row] ** 2).sum(), epsilon))
            result[row] = flat[row] / length * (1 if gain is None else float(gain[number]))
        return result

    def normalised_gradients(self, filters, U, gain=None):
        flat = np.concatenate([block.reshape(-1) for block in filters]).astype(np.float64)
        dF, dgain = np.empty_like(flat), []
        for number, row in enumerate(self.output_rows(filters)):
            length = np.sqrt((flat[row] ** 2).sum())
            unit, u = flat[row] / length, U[row].astype(np.float64)
            dgain.append(u @ unit)
            dF[row] = (u - unit * (u @ unit)) / length * (1 if gain is None else float(gain[number]))
        return dF, np.array(dgain)


def biased(y, edges, g, b):
    """y · g + b at the edges, in float64."""
    result = y.astype(np.float64).reshape(*y.shape[:2], -1)
    for number, positions in enumerate(edges):
        for position in positions:
            result[:, :, position] = result[:, :, position] * g[:, number] + b[:, number]
    return result.reshape(y.shape)


def biased_gradients(dy, y, edges, g):
    shape = dy.shape
    dy, y = (one.astype(np.float64).reshape(*shape[:2], -1) for one in (dy, y))
    dx, dg, db = dy.copy(), np.zeros(g.shape), np.zeros(g.shape)
    for number, positions in enumerate(edges):
        for position in positions:
            dx[:, :, position] = dy[:, :, position] * g[:, number]
            dg[:, number] += (dy[:, :, position] * y[:, :, position]).sum(0)
            db[:, number] += dy[:, :, position].sum(0)
    return dx.reshape(shape), dg, db


#: The configurations that the original is tested with, with the extents of their outputs and their padding.
PUBLISHED = {
    "1 tap": Case(DIAGONAL, (1, 1, 1), (1, 1, 32), (1, 1, 32), (0, 0, 0), padding="VALID"),
    "3 taps, stride 2": Case(DIAGONAL, (1, 1, 3), (1, 1, 32), (1, 1, 16), (0, 0, 1), strides=(1, 1, 2)),
    "5 taps, stride 2": Case(DIAGONAL, (1, 1, 5), (1, 1, 32), (1, 1, 16), (0, 0, 2), strides=(1, 1, 2)),
    "overlapping, dilation 2": Case(OVERLAPPING, (1, 1, 3), (1, 1, 32), (1, 1, 32), (0, 0, 2), dilates=(1, 1, 2)),
    "3 taps, stride 2, again": Case(DIAGONAL, (1, 1, 3), (1, 1, 32), (1, 1, 16), (0, 0, 1), strides=(1, 1, 2)),
    "3x3": Case(DIAGONAL, (1, 3, 3), (1, 8, 8), (1, 8, 8), (0, 1, 1)),
    "overlapping, 3x3, valid": Case(OVERLAPPING, (1, 3, 3), (1, 8, 8), (1, 6, 6), (0, 0, 0), padding="VALID"),
    "3x3x3": Case(DIAGONAL, (3, 3, 3), (4, 4, 4), (4, 4, 4), (1, 1, 1)),
    "deconvolution, stride 2": Case(DIAGONAL, (1, 1, 3), (1, 1, 32), (1, 1, 64), (0, 0, 1), strides=(1, 1, 2), deconv=True),
}  # fmt: skip
