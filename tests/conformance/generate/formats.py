"""Binary floating-point formats in exact arithmetic: what IEEE 754 says, with the PTX ISA's modifiers.

Values are bits. Results are exact fractions, rounded once. Nothing here uses the host's floating point.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt


@dataclass(frozen=True)
class Format:
    name: str
    exponent_bits: int
    fraction_bits: int

    @property
    def width(self):
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self):
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def sign_bit(self):
        return 1 << (self.width - 1)

    @property
    def infinity(self):
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    @property
    def largest(self):
        return self.infinity - 1

    @property
    def nan(self):
        """The canonical NaN of the ISA: all ones but the sign."""
        return self.sign_bit - 1

    @property
    def one(self):
        return self.bias << self.fraction_bits

    @property
    def least_normal(self):
        return 1 << self.fraction_bits

    def is_nan(self, bits):
        return bits & (self.sign_bit - 1) > self.infinity

    def is_infinite(self, bits):
        return bits & (self.sign_bit - 1) == self.infinity

    def is_zero(self, bits):
        return bits & (self.sign_bit - 1) == 0

    def is_subnormal(self, bits):
        return 0 < bits & (self.sign_bit - 1) < self.least_normal

    def sign(self, bits):
        return bits >> (self.width - 1)

    def value(self, bits):
        """The number that finite bits are."""
        fraction = bits & (self.least_normal - 1)
        exponent = bits >> self.fraction_bits & ((1 << self.exponent_bits) - 1)
        assert exponent != (1 << self.exponent_bits) - 1
        scale = max(exponent, 1) - self.bias - self.fraction_bits
        magnitude = Fraction(fraction + (self.least_normal if exponent else 0)) * Fraction(2) ** scale
        return -magnitude if self.sign(bits) else magnitude

    def flush(self, bits):
        return bits & self.sign_bit if self.is_subnormal(bits) else bits

    def round(self, number, mode="rn", zero_sign=0):
        """The bits nearest to an exact number, by a rounding mode of the ISA: rn rz rm rp rna."""
        if number == 0:
            return zero_sign * self.sign_bit
        sign, magnitude = (1, -number) if number < 0 else (0, number)
        exponent = max(_floor_log2(magnitude), 1 - self.bias)
        scaled = magnitude / Fraction(2) ** (exponent - self.fraction_bits)
        whole, rest = divmod(scaled, 1)
        bits = self._round_up(int(whole), rest, sign, mode) + ((exponent + self.bias - 1) << self.fraction_bits)
        if bits >= self.infinity:
            to_infinity = mode in ("rn", "rna") or (mode == "rp" and not sign) or (mode == "rm" and sign)
            bits = self.infinity if to_infinity else self.largest
        return bits | sign * self.sign_bit

    @staticmethod
    def _round_up(whole, rest, sign, mode):
        half = Fraction(1, 2)
        if mode == "rn":
            up = rest > half or (rest == half and whole & 1)
        elif mode == "rna":
            up = rest >= half
        elif mode == "rz":
            up = False
        else:
            up = rest > 0 and (sign == 1) == (mode == "rm")
        return whole + int(up)


def _floor_log2(number):
    guess = number.numerator.bit_length() - number.denominator.bit_length()
    if Fraction(2) ** guess > number:
        guess -= 1
    return guess


F16 = Format("f16", 5, 10)
BF16 = Format("bf16", 8, 7)
TF32 = Format("tf32", 8, 10)  # as 19 bits; in a register 13 zeros follow
F32 = Format("f32", 8, 23)
F64 = Format("f64", 11, 52)


def _finish(form, bits, ftz, sat):
    if sat:
        if form.is_nan(bits) or form.sign(bits):
            return 0
        bits = min(bits, form.one)
    return form.flush(bits) if ftz else bits


def fma(form, a, b, c, mode="rn", ftz=False, sat=False):
    """a × b + c, rounded once. A NaN becomes the canonical one."""
    if ftz:
        a, b, c = form.flush(a), form.flush(b), form.flush(c)
    product_sign = form.sign(a) ^ form.sign(b)
    if form.is_nan(a) or form.is_nan(b) or form.is_nan(c):
        return _finish(form, form.nan, ftz, sat)
    if form.is_infinite(a) or form.is_infinite(b):
        invalid = form.is_zero(a) or form.is_zero(b) or (form.is_infinite(c) and form.sign(c) != product_sign)
        return _finish(form, form.nan if invalid else form.infinity | product_sign * form.sign_bit, ftz, sat)
    if form.is_infinite(c):
        return _finish(form, c, ftz, sat)
    product = form.value(a) * form.value(b)
    total = product + form.value(c)
    zero_sign = product_sign if product_sign == form.sign(c) and form.value(c) == -product else int(mode == "rm")
    if product == 0 and form.value(c) == 0 and product_sign == form.sign(c):
        zero_sign = product_sign
    return _finish(form, form.round(total, mode, zero_sign), ftz, sat)


def add(form, a, b, mode="rn", ftz=False, sat=False):
    return fma(form, a, form.one, b, mode, ftz, sat)


def sub(form, a, b, mode="rn", ftz=False, sat=False):
    return add(form, a, b ^ form.sign_bit, mode, ftz, sat)


def mul(form, a, b, mode="rn", ftz=False, sat=False):
    """Its zero has the sign of the product, so a zero of that sign is added."""
    zero = (form.sign(a) ^ form.sign(b)) * form.sign_bit
    return fma(form, a, b, zero, mode, ftz, sat)


def div(form, a, b, mode="rn", ftz=False):
    if ftz:
        a, b = form.flush(a), form.flush(b)
    sign = (form.sign(a) ^ form.sign(b)) * form.sign_bit
    if form.is_nan(a) or form.is_nan(b):
        return form.nan
    if form.is_infinite(a) or form.is_zero(b):
        invalid = form.is_infinite(b) or form.is_zero(a)
        if form.is_infinite(a) and form.is_zero(b):
            invalid = False
        return form.nan if invalid else form.infinity | sign
    if form.is_infinite(b) or form.is_zero(a):
        return sign
    return _finish(form, form.round(form.value(a) / form.value(b), mode), ftz, False)


def sqrt(form, a, mode="rn", ftz=False):
    if ftz:
        a = form.flush(a)
    if form.is_zero(a):
        return a
    if form.is_nan(a) or form.sign(a):
        return form.nan
    if form.is_infinite(a):
        return a
    # 2·fraction_bits more bits than needed, and a last one that says whether anything is left.
    shift = 4 * form.width
    scaled = form.value(a) * Fraction(4) ** (shift + form.bias)
    assert scaled.denominator == 1
    root = isqrt(scaled.numerator)
    exact = root * root == scaled.numerator
    number = Fraction(2 * root + (0 if exact else 1)) / 2 / Fraction(2) ** (shift + form.bias)
    return _finish(form, form.round(number, mode), ftz, False)


def convert(source, target, bits, mode="rn", ftz=False, sat=False):
    if ftz and source is F32:
        bits = source.flush(bits)
    sign = source.sign(bits) * target.sign_bit
    if source.is_nan(bits):
        result = target.nan
    elif source.is_infinite(bits):
        result = target.infinity | sign
    else:
        result = target.round(source.value(bits), mode, source.sign(bits))
    return _finish(target, result, ftz and target is F32, sat)


def to_integer(source, bits, width, signed, mode, ftz=False):
    """Float to integer: rounded, clamped to the range; what the ISA leaves open for NaN is None here."""
    if ftz:
        bits = source.flush(bits)
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    if source.is_nan(bits):
        return None
    if source.is_infinite(bits):
        return low if source.sign(bits) else high
    return min(max(round_to_integer(source.value(bits), mode), low), high)


def round_to_integer(number, mode):
    whole, rest = divmod(number, 1)
    half = Fraction(1, 2)
    if mode == "rni":
        return int(whole) + int(rest > half or (rest == half and whole % 2 == 1))
    if mode == "rzi":
        return int(whole) + int(rest > 0 and number < 0)
    return int(whole) + int(rest > 0 and mode == "rpi")
