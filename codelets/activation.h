/* Activations: what CPU and CUDA compute per element. */
#ifndef SL_CODELETS_ACTIVATION_H
#define SL_CODELETS_ACTIVATION_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"
#include <starling/nn.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(SL_CUDA_STANDIN)
/* A GPU's own instructions, 2^x within 2 ulp and 1 / x within 1 (PTX ISA). A polynomial and a
 * division take some 35 instructions a value, longer than the memory takes to bring it. gpu_ops
 * compares the results with the CPU's. */

/* e^x within 4 ulp where that is a float of full precision; 0 below, infinity above. e: what the
 * rounding of t lost. */
SL__HOST_DEVICE SL__INLINE float sl__exp(float x) {
  float t = x * 1.44269502f, y;
  float e = fmaf(x, 1.92596299e-8f, fmaf(x, 1.44269502f, -t));
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(t));
  return fabsf(x) < 88.722f ? fmaf(y, e * 0.693147181f, y) : y;
}

/* a / b within 2 ulp for 2^-126 <= |b| < 2^126; above that 0. */
SL__HOST_DEVICE SL__INLINE float sl__quotient(float a, float b) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return a * inverse;
}
#else
SL__HOST_DEVICE SL__INLINE float sl__quotient(float a, float b) { return a / b; }

/* e^c = p 2^n for -87.3 <= c <= 88.8, by Cephes' scheme: c = n ln 2 + r, p a polynomial in r. */
SL__HOST_DEVICE SL__INLINE float sl__exp_parts(float c, int32_t *whole) {
  const float shift = 12582912.0f; /* 1.5 x 2^23: adding it rounds to a whole number */
  float n = (c * 1.44269504088896341f + shift) - shift;
  float r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  *whole = (int32_t)n;
  return p * r * r + r + 1.0f;
}

/* e^x within 1 ulp (test_activation.c measures); 0 below -87.3, infinity above 88.7, NaN stays. The
 * exponent by integer addition; no branch, so that it vectorises. */
SL__HOST_DEVICE SL__INLINE float sl__exp(float x) {
  int32_t whole;
  float c = x > 88.8f ? 88.8f : x < -87.3f ? -87.3f : x;
  float p = sl__exp_parts(x != x ? 0.0f : c, &whole);
  /* 2^n in two factors: n = 128 has no float of its own */
  int32_t half = whole >> 1, rest = whole - half;
  uint32_t b0 = (uint32_t)(half + 127) << 23, b1 = (uint32_t)(rest + 127) << 23;
  float f0, f1;
  memcpy(&f0, &b0, sizeof f0);
  memcpy(&f1, &b1, sizeof f1);
  float y = p * f0 * f1;
  y = x > 88.72284f ? INFINITY : y;
  y = x < -87.3f ? 0.0f : y;
  return x != x ? x : y;
}

/* The same bits for x up to 88 and NaN, in fewer instructions. */
SL__HOST_DEVICE SL__INLINE float sl__exp_bounded(float x) {
  int32_t whole;
  float p = sl__exp_parts(x > -87.3f ? x : -87.3f, &whole), power;
  uint32_t bits = (uint32_t)(whole + 127) << 23;
  memcpy(&power, &bits, sizeof power);
  float y = x < -87.3f ? 0.0f : p * power;
  return x != x ? x : y;
}
#endif

/* tanh x: the rational approximation of degree 13/6 that Eigen uses, within 6 ulp
 * (test_activation.c measures). */
SL__HOST_DEVICE SL__INLINE float sl__tanh(float x) {
  float c = x > 7.90531110763549805f    ? 7.90531110763549805f
            : x < -7.90531110763549805f ? -7.90531110763549805f
                                        : x;
  float s = c * c;
  float p = -2.76076847742355e-16f;
  p = p * s + 2.00018790482477e-13f;
  p = p * s + -8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  float q = 1.19825839466702e-06f;
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  float y = sl__quotient(c * p, q);
  float small = c < 0 ? -c : c;
  y = small < 0.0004f ? c : y;
  return x != x ? x : y;
}

SL__HOST_DEVICE SL__INLINE float sl__sigmoid(float x) {
  return sl__quotient(1.0f, 1.0f + sl__exp(-x));
}

/* e^(-x^2 / 2) */
SL__HOST_DEVICE SL__INLINE float sl__bell(float x) { return sl__exp(-0.5f * x * x); }

/* Phi(x), the normal distribution; bell: sl__bell(x). On a CPU by the scheme of Abramowitz and
 * Stegun, Handbook of Mathematical Functions, 7.1.26: Phi(-|x|) is bell t p(t), with
 * t = 1 / (1 + c |x|). Its polynomial of degree 7, fitted here, is within 6e-8 of the quotient. The
 * C library's erff would keep loops from vectors. */
SL__HOST_DEVICE SL__INLINE float sl__phi(float x, float bell) {
#if defined(__CUDA_ARCH__) && !defined(SL_CUDA_STANDIN)
  (void)bell;
  return 0.5f * (1.0f + erff(x * 0.70710678118654752f));
#else
  float t = sl__quotient(1.0f, 1.0f + 0.231641888f * fabsf(x));
  float p = -0.0721801747f;
  p = p * t + 0.255231459f;
  p = p * t + -0.215163285f;
  p = p * t + 0.238273612f;
  p = p * t + 0.00626251674f;
  p = p * t + 0.105014691f;
  p = p * t + 0.090009511f;
  p = p * t + 0.0925516422f;
  float tail = bell * (t * p);
  return x > 0 ? 1 - tail : tail;
#endif
}

SL__HOST_DEVICE SL__INLINE float sl__gelu(float x) { return x * sl__phi(x, sl__bell(x)); }

/* Its derivative. */
SL__HOST_DEVICE SL__INLINE float sl__gelu_slope(float x) {
  float bell = sl__bell(x);
  return sl__phi(x, bell) + x * 0.39894228040143268f * bell;
}

/* x sigmoid(x); -0 where e^-x is infinite. */
SL__HOST_DEVICE SL__INLINE float sl__silu(float x) { return sl__quotient(x, 1.0f + sl__exp(-x)); }

/* Its derivative. */
SL__HOST_DEVICE SL__INLINE float sl__silu_slope(float x) {
  float s = sl__sigmoid(x);
  return s * (1 + x * (1 - s));
}

/* (1 + tanh u) / 2 is sigmoid(2 u), which keeps its digits where tanh u is near -1. With
 * u = sqrt(2 / pi) (x + 0.044715 x^3) this is 2 u. */
SL__HOST_DEVICE SL__INLINE float sl__gelu_tanh_inner(float x) {
  return 1.59576912160573071f * x * (1 + 0.044715f * x * x);
}

SL__HOST_DEVICE SL__INLINE float sl__gelu_tanh(float x) {
  return sl__quotient(x, 1.0f + sl__exp(-sl__gelu_tanh_inner(x)));
}

/* Its derivative. Beyond 10 it is 1 or 0; x^2 may be infinite there. Of the two limits in one
 * expression GCC makes branches, which keep the loop from vectors. */
SL__HOST_DEVICE SL__INLINE float sl__gelu_tanh_slope(float x) {
  float c = x > 10 ? 10 : x;
  c = c < -10 ? -10 : c;
  float s = sl__sigmoid(sl__gelu_tanh_inner(c));
  float inner = 1.59576912160573071f * (1 + 0.134145f * c * c);
  return s * (1 + c * (1 - s) * inner);
}

SL__HOST_DEVICE SL__INLINE float sl__activation_value(enum sl_activation a, float x) {
  switch (a) {
    case SL_ACTIVATION_RELU: return x < 0 ? 0 : x; /* NaN stays NaN */
    case SL_ACTIVATION_TANH: return sl__tanh(x);
    case SL_ACTIVATION_SIGMOID: return sl__sigmoid(x);
    case SL_ACTIVATION_GELU: return sl__gelu(x);
    case SL_ACTIVATION_GELU_TANH: return sl__gelu_tanh(x);
    case SL_ACTIVATION_SILU: return sl__silu(x);
    default: return x;
  }
}

/* The derivative; saved is y for relu, tanh and sigmoid, x for the others. */
SL__HOST_DEVICE SL__INLINE float sl__activation_slope(enum sl_activation a, float saved) {
  switch (a) {
    case SL_ACTIVATION_RELU: return saved > 0 ? 1 : 0;
    case SL_ACTIVATION_TANH: return 1 - saved * saved;
    case SL_ACTIVATION_SIGMOID: return saved * (1 - saved);
    case SL_ACTIVATION_GELU: return sl__gelu_slope(saved);
    case SL_ACTIVATION_GELU_TANH: return sl__gelu_tanh_slope(saved);
    case SL_ACTIVATION_SILU: return sl__silu_slope(saved);
    default: return 1;
  }
}

/* Arguments of the operations in activation.c. */
struct sl__activation_args {
  int64_t count;
  int32_t activation;
};

/* y[i] = act(x[i]) for n values; x and y may be the same. Host only. */
void sl__activate(enum sl_activation activation, const float *x, float *y, int64_t n);

/* The same for bf16. */
void sl__activate_bf16(enum sl_activation activation, const uint16_t *x, uint16_t *y, int64_t n);

#endif
