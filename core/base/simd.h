/* Vector code without intrinsics: a function marked SL__SIMD is compiled for several widths, and
 * the loader picks one (GCC's target_clones). Which one serves depends on the machine only, so a
 * machine always gives the same bits. Functions that it calls for
 * each element must be SL__INLINE, so that they are compiled with it. */
#ifndef SL_CORE_BASE_SIMD_H
#define SL_CORE_BASE_SIMD_H

/* The floats of the widest vector that is used. -DSL__MOST_LANES=8 (AVX2) and 4 show on any
 * processor what narrower ones run. */
#ifndef SL__MOST_LANES
#define SL__MOST_LANES 16
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12 &&           \
    !defined(SL_SANITIZE)
#if SL__MOST_LANES >= 16
#define SL__SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#elif SL__MOST_LANES == 8
#define SL__SIMD __attribute__((target_clones("arch=x86-64-v3", "default")))
#endif
#endif
#ifdef SL__SIMD
#define SL__SIMD_CLONES 1
#else
#define SL__SIMD_CLONES 0 /* one version, for the processor that the compiler is told */
#define SL__SIMD
#endif

#define SL__INLINE static inline __attribute__((always_inline))

#endif
