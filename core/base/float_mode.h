/* How a thread computes with floating-point numbers. Each new thread gets that from the thread that
 * makes it, which may be the program's own, with traps or another rounding. */
#ifndef SL_CORE_BASE_FLOAT_MODE_H
#define SL_CORE_BASE_FLOAT_MODE_H

#include <fenv.h>
#include <stdint.h>

#ifdef __SSE__
#include <xmmintrin.h>
#endif

/* The first thing that each thread of the library does: from now on it rounds to nearest and traps
 * nothing, so that results depend on the seed alone. */
static inline void sl__float_mode_begin(void) { fesetenv(FE_DFL_ENV); }

/* From now on this thread's operations take subnormal numbers as zero, and make none: a processor
 * takes some hundred cycles for each operation with one, and they do not go away. The velocity of a
 * weight without a gradient shrinks by a tenth a step until it is the smallest of them, and
 * rounding keeps it there. Processors without such a mode stay as they are. */
static inline void sl__flush_subnormals(void) {
#ifdef __SSE__
  const unsigned flush_to_zero = 1u << 15, denormals_are_zero = 1u << 6;
  _mm_setcsr(_mm_getcsr() | flush_to_zero | denormals_are_zero);
#elif defined(__aarch64__)
  const uint64_t flush_to_zero = 1u << 24;
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("msr fpcr, %0" : : "r"(control | flush_to_zero));
#endif
}

#endif
