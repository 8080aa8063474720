#pragma once

// Activation functions and their derivatives in float32, made of multiply-adds and divisions alone, so that
// every architecture gives the same bits. How far each may be off is in its row in compiler/activation.cpp;
// the oracle and the kernel suite judge by it. compiler/cpu/activation_ir.cpp takes the same steps.

namespace sparsekiln {

/// e^t = 2^power · (1 + r·quotient) for t <= 0, above -87; returns the quotient, (e^r - 1) / r. Range
/// reduction by Cody & Waite (1980), ln 2 in two parts; the polynomial is a minimax fit on [-ln 2 / 2, ln 2 /
/// 2], off by 4e-9.
__device__ __forceinline__ float exp_quotient(float t, int& power, float& r) {
  power = __float2int_rn(t * 1.44269504f);
  const float k = static_cast<float>(power);
  r = __fmaf_rn(k, 2.12194440e-4f, __fmaf_rn(k, -0.693359375f, t));
  float p = __fmaf_rn(1.3751407e-3f, r, 8.368916e-3f);
  p = __fmaf_rn(p, r, 4.1669533e-2f);
  p = __fmaf_rn(p, r, 1.6666518e-1f);
  p = __fmaf_rn(p, r, 4.9999988e-1f);
  return __fmaf_rn(p, r, 1.0f);
}

/// e^t for t <= 0, and 0 below -87, where it leaves the normal numbers.
__device__ __forceinline__ float exp_of_negative(float t) {
  int power;
  float r;
  const float quotient = exp_quotient(t, power, r);
  const float p = __fmaf_rn(quotient, r, 1.0f);
  return t < -87.0f ? 0.0f : p * __int_as_float((power + 127) << 23);
}

/// e^t - 1 for t <= 0, accurate relative to itself also near 0.
__device__ __forceinline__ float expm1_of_negative(float t) {
  int power;
  float r;
  const float quotient = exp_quotient(t, power, r);
  const float q = quotient * r;
  const float scale = __int_as_float((power + 127) << 23);
  return t < -87.0f ? -1.0f : __fmaf_rn(scale, q, scale - 1.0f);
}

__device__ __forceinline__ float sigmoid(float t) {
  const float e = exp_of_negative(-fabsf(t));
  return __fdiv_rn(t < 0 ? e : 1.0f, 1.0f + e);
}

/// The normal distribution's cumulative distribution at z. `density`: e^(-z²/2), which it takes on the way.
/// Its tail is density · t · P(t) with t = 1 / (1 + |z| / 4), P a minimax fit of degree 8 for |z| up to 14.5,
/// off by 6e-8 of itself.
__device__ __forceinline__ float normal_cdf(float z, float& density) {
  const float t = __fdiv_rn(1.0f, __fmaf_rn(fabsf(z), 0.25f, 1.0f));
  float p = __fmaf_rn(2.5175435e-2f, t, -1.5011372e-1f);
  p = __fmaf_rn(p, t, 2.9047611e-1f);
  p = __fmaf_rn(p, t, -1.9922151e-1f);
  p = __fmaf_rn(p, t, 1.9713987e-1f);
  p = __fmaf_rn(p, t, 3.4939222e-2f);
  p = __fmaf_rn(p, t, 1.0321850e-1f);
  p = __fmaf_rn(p, t, 9.8593190e-2f);
  p = __fmaf_rn(p, t, 9.9792838e-2f);
  density = exp_of_negative(-0.5f * (z * z));
  const float tail = t * p * density;
  return z < 0 ? tail : 1.0f - tail;
}

/// The functions, by the names of Activation (include/sparsekiln/problem.h). A NaN stays a NaN.
struct NoActivation {
  __device__ static __forceinline__ float apply(float z) { return z; }
  __device__ static __forceinline__ float derivative(float) { return 1.0f; }
};
struct Relu {
  __device__ static __forceinline__ float apply(float z) { return z <= 0 ? 0.0f : z; }
  __device__ static __forceinline__ float derivative(float z) { return z > 0 ? 1.0f : 0.0f; }
};
struct Silu {
  __device__ static __forceinline__ float apply(float z) { return z * sigmoid(z); }
  __device__ static __forceinline__ float derivative(float z) {
    const float s = sigmoid(z);
    return __fmaf_rn(z * s, 1.0f - s, s);
  }
};
struct Gelu {
  __device__ static __forceinline__ float apply(float z) {
    float density;
    return z * normal_cdf(z, density);
  }
  __device__ static __forceinline__ float derivative(float z) {
    float density;
    const float cdf = normal_cdf(z, density);
    return __fmaf_rn(z * 0.39894228f, density, cdf);  // 1 / √(2π)
  }
};
/// z · sigmoid(2·√(2/π)·(z + 0.044715·z³)), which is what the formula with tanh is.
struct GeluTanh {
  __device__ static __forceinline__ float argument(float z) {
    return 1.5957691f * z * __fmaf_rn(z * z, 0.044715f, 1.0f);
  }
  __device__ static __forceinline__ float apply(float z) { return z * sigmoid(argument(z)); }
  __device__ static __forceinline__ float derivative(float z) {
    const float s = sigmoid(argument(z));
    return __fmaf_rn(z * s * (1.0f - s), 1.5957691f * __fmaf_rn(z * z, 0.134145f, 1.0f), s);
  }
};

/// z · relu6(z + 3) / 6, with the sixth taken first: z times six may overflow.
struct HardSwish {
  __device__ static __forceinline__ float apply(float z) {
    const float above = z + 3.0f < 0 ? 0.0f : z + 3.0f;
    return z * ((above > 6.0f ? 6.0f : above) * 0.16666667f);
  }
  __device__ static __forceinline__ float derivative(float z) {
    return z <= -3.0f ? 0.0f : z >= 3.0f ? 1.0f : __fmaf_rn(z, 0.33333334f, 0.5f);
  }
};
/// z · tanh(ln(1 + e^z)), which is z·n / (n + 2) with n = e^z·(e^z + 2). Written with e^-|z|, so that nothing
/// overflows; all terms are positive, so that nothing cancels.
struct Mish {
  struct Quotient {
    float above;
    float below;
    float e;       ///< e^-|z|
    float weight;  ///< e for z <= 0, else e²
  };
  __device__ static __forceinline__ Quotient quotient(float z) {
    const float e = exp_of_negative(-fabsf(z));
    const float square = e * e;
    const float above = __fmaf_rn(2.0f, e, z > 0 ? 1.0f : square);
    return {above, __fmaf_rn(2.0f, z > 0 ? square : 1.0f, above), e, z > 0 ? square : e};
  }
  __device__ static __forceinline__ float apply(float z) {
    const Quotient q = quotient(z);
    return z * __fdiv_rn(q.above, q.below);
  }
  /// The quotient, and z times its derivative, 4·weight·(1 + e) / below².
  __device__ static __forceinline__ float derivative(float z) {
    const Quotient q = quotient(z);
    const float r = __fdiv_rn(1.0f, q.below);
    return r * __fmaf_rn(z * q.weight * __fmaf_rn(4.0f, q.e, 4.0f), r, q.above);
  }
};
struct LeakyRelu {
  __device__ static __forceinline__ float apply(float z) { return z > 0 ? z : z * 0.01f; }
  __device__ static __forceinline__ float derivative(float z) { return z > 0 ? 1.0f : 0.01f; }
};
/// (1 - e) / (1 + e) with e = e^-2|z|, and the sign of z.
struct Tanh {
  __device__ static __forceinline__ float apply(float z) {
    const float m = expm1_of_negative(-2.0f * fabsf(z));
    const float magnitude = fabsf(__fdiv_rn(m, 2.0f + m));
    return __uint_as_float(__float_as_uint(magnitude) | (__float_as_uint(z) & 0x80000000u));
  }
  __device__ static __forceinline__ float derivative(float z) {
    const float e = exp_of_negative(-2.0f * fabsf(z));
    return __fdiv_rn(4.0f * e, (1.0f + e) * (1.0f + e));
  }
};
struct Sigmoid {
  __device__ static __forceinline__ float apply(float z) { return sigmoid(z); }
  __device__ static __forceinline__ float derivative(float z) {
    const float e = exp_of_negative(-fabsf(z));
    return __fdiv_rn(e, (1.0f + e) * (1.0f + e));
  }
};

}  // namespace sparsekiln
