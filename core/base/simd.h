/* Vector code without intrinsics: a function marked SL__SIMD is compiled for several widths, and
 * the loader picks one (GCC's target_clones). Which one serves depends on the machine only, so a
 * machine always gives the same bits. Functions that it calls for
 * each element must be SL__INLINE, so that they are compiled with it. */
#ifndef SL_CORE_BASE_SIMD_H
#define SL_CORE_BASE_SIMD_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12 &&           \
    !defined(SL_SANITIZE)
#define SL__SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SL__SIMD
#endif

#define SL__INLINE static inline __attribute__((always_inline))

#endif
