/* The part of cmocka that the kernels' tests use, for a processor without a cmocka library
 * (tests/codelets/test_arm.sh): cases in their order, a failed assertion ends its case. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <string.h>

#include "codelets/codelets.h"
#include "codelets/kernels/gemm.h"

void sl__conv2d_forward_cpu(void *buffers[], void *cl_arg);
__attribute__((weak)) struct sl__op sl__op_conv2d_forward = {
    .codelet.cpu_funcs = {sl__conv2d_forward_cpu}};

static jmp_buf end_of_case;

void print_error(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vprintf(format, values);
  va_end(values);
}

void print_message(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vprintf(format, values);
  va_end(values);
}

/* A skipped case ends as a passed one does; its message shows in the test's other build. */
void _skip(const char *file, int line) {
  printf("# %s:%d: skipped\n", file, line);
  longjmp(end_of_case, 2);
}

void _fail(const char *file, int line) {
  printf("# %s:%d: the assertion does not hold\n", file, line);
  longjmp(end_of_case, 1);
}

/* There is no BLAS, and tests of our own kernels alone need none; those of whole operations link
 * arm_runtime.c, which has plain loops. */
__attribute__((weak)) enum sl__gemm sl__gemm_preferred(void) { return SL__GEMM_OPENBLAS; }

__attribute__((weak)) void sl__gemm(enum sl__gemm who, bool transpose_a, bool transpose_b,
                                    int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                                    int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                                    int64_t ldc) {
  (void)who, (void)transpose_a, (void)transpose_b, (void)alpha, (void)a, (void)lda, (void)b;
  (void)ldb, (void)beta, (void)c, (void)ldc;
  fail_msg("a product of %lld x %lld x %lld by a library", (long long)m, (long long)n,
           (long long)k);
}

void _assert_true(const LargestIntegralType result, const char *expression, const char *file,
                  int line) {
  if (result) return;
  printf("# %s\n", expression);
  _fail(file, line);
}

void _assert_int_equal(const LargestIntegralType a, const LargestIntegralType b, const char *file,
                       int line) {
  if (a != b) _fail(file, line);
}

void _assert_memory_equal(const void *a, const void *b, size_t size, const char *file, int line) {
  if (memcmp(a, b, size) != 0) _fail(file, line);
}

int _cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                            CMFixtureFunction setup, CMFixtureFunction teardown) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  volatile int failed = 0;
  void *state = NULL;
  if (setup && setup(&state) != 0) return 1;
  for (volatile size_t i = 0; i < count; i++) {
    volatile bool passed = true;
    switch (setjmp(end_of_case)) {
      case 0: tests[i].test_func(&state); break;
      case 1: passed = false; break;
      default: break; /* skipped */
    }
    failed += !passed;
    printf("%s - %s: %s\n", passed ? "ok" : "not ok", name, tests[i].name);
  }
  if (teardown && teardown(&state) != 0) return 1;
  return failed;
}
