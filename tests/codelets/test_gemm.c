/* Products by every implementation of this build against naive sums in double precision: all
 * transposes, alpha and beta, odd sizes, rows wider than the matrix (whose rest must stay). */
#include "codelets/kernels/gemm.h"

#include "tests/common/check.h"

/* pad: floats behind each row */
static void check(enum sl__gemm who, int m, int n, int k, int pad, bool ta, bool tb, double alpha,
                  double beta) {
  int lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad, ldc = n + pad;
  int rows_a = ta ? k : m, rows_b = tb ? n : k;
  double *a = random_values(rows_a * lda, 1), *b = random_values(rows_b * ldb, 2),
         *c = random_values(m * ldc, 3);
  float *fa = calloc((size_t)(rows_a * lda), 4), *fb = calloc((size_t)(rows_b * ldb), 4),
        *fc = calloc((size_t)(m * ldc), 4);
  for (int i = 0; i < rows_a * lda; i++) fa[i] = (float)a[i];
  for (int i = 0; i < rows_b * ldb; i++) fb[i] = (float)b[i];
  for (int i = 0; i < m * ldc; i++) fc[i] = (float)c[i];
  sl__gemm(who, ta, tb, m, n, k, (float)alpha, fa, lda, fb, ldb, (float)beta, fc, ldc);
  for (int i = 0; i < m; i++)
    for (int j = 0; j < ldc; j++) {
      double sum = 0;
      for (int p = 0; j < n && p < k; p++)
        sum += (ta ? a[p * lda + i] : a[i * lda + p]) * (tb ? b[j * ldb + p] : b[p * ldb + j]);
      double want = j < n ? alpha * sum + beta * c[i * ldc + j] : c[i * ldc + j];
      if (fabs((double)fc[i * ldc + j] - want) > 6e-8 * (k + 8))
        fail_msg("%d: %dx%dx%d %d%d: [%d, %d] is %.9g, not %.9g", who, m, n, k, ta, tb, i, j,
                 (double)fc[i * ldc + j], want);
    }
  free(a), free(b), free(c), free(fa), free(fb), free(fc);
}

static void products_match(void **state) {
  (void)state;
  /* the last ones have rows that are some multiples of 2 KB apart */
  static const int sizes[][4] = {{1, 1, 1, 3},     {1, 10, 500, 3},  {20, 576, 25, 3},
                                 {50, 64, 500, 3}, {33, 17, 65, 3},  {64, 10, 3, 3},
                                 {5, 130, 1, 3},   {40, 512, 7, 0},  {9, 1024, 5, 0},
                                 {512, 6, 9, 0},   {48, 20, 33, 492}};
  for (int who = SL__GEMM_OPENBLAS; who <= SL__GEMM_ONEDNN; who++) {
    if (!sl__gemm_available((enum sl__gemm)who)) {
      puts("# built without oneDNN");
      continue;
    }
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      for (int t = 0; t < 4; t++) {
        check((enum sl__gemm)who, sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3], t & 1, t & 2,
              1, 0);
        check((enum sl__gemm)who, sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3], t & 1, t & 2,
              0.5, 1);
      }
  }
}

static void each_library_has_its_text(void **state) {
  (void)state;
  const char *blas = sl__gemm_text(SL__GEMM_OPENBLAS), *onednn = sl__gemm_text(SL__GEMM_ONEDNN);
  assert_memory_equal(blas, "OpenBLAS ", 9);
  assert_true(blas[9] >= '0' && blas[9] <= '9');
  if (!sl__gemm_available(SL__GEMM_ONEDNN)) assert_string_equal(onednn, "");
  if (!sl__gemm_available(SL__GEMM_ONEDNN)) return;
  assert_memory_equal(onednn, "oneDNN ", 7);
  assert_true(onednn[7] >= '0' && onednn[7] <= '9');
  assert_null(sl__gemm_warning());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(products_match),
                                     cmocka_unit_test(each_library_has_its_text)};
  return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
