#include "codelets/kernels/gemm.h"

#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "codelets/kernels/tiles.h"

#ifdef SL_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>

void omp_set_num_threads(int threads); /* part of the OpenMP runtime that oneDNN links */
#endif

/* StarPU's workers are the only threads: a library that starts more of them makes workers compete
 * for cores. */
static struct {
  pthread_mutex_t lock;
  int contexts;
  int before; /* OpenBLAS's threads before the first product; 0: there was none. Atomic */
} openblas = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void one_thread_for_openblas(void) {
  if (__atomic_load_n(&openblas.before, __ATOMIC_ACQUIRE)) return;
  pthread_mutex_lock(&openblas.lock);
  if (!openblas.before) {
    int before = openblas_get_num_threads();
    openblas_set_num_threads(1);
    __atomic_store_n(&openblas.before, before, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&openblas.lock);
}

void sl__gemm_open(void) {
  pthread_mutex_lock(&openblas.lock);
  openblas.contexts++;
  pthread_mutex_unlock(&openblas.lock);
}

void sl__gemm_close(void) {
  pthread_mutex_lock(&openblas.lock);
  if (--openblas.contexts == 0 && openblas.before) {
    if (openblas_get_num_threads() == 1) openblas_set_num_threads(openblas.before);
    __atomic_store_n(&openblas.before, 0, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&openblas.lock);
}

void sl__one_thread(void) {
  one_thread_for_openblas();
#ifdef SL_HAVE_ONEDNN
  static __thread bool done; /* OpenMP keeps the number per thread */
  if (!done) omp_set_num_threads(1);
  done = true;
#endif
}

enum sl__gemm sl__gemm_preferred(void) {
  return sl__gemm_available(SL__GEMM_ONEDNN) ? SL__GEMM_ONEDNN : SL__GEMM_OPENBLAS;
}

bool sl__gemm_available(enum sl__gemm who) {
#ifdef SL_HAVE_ONEDNN
  return who == SL__GEMM_OPENBLAS || who == SL__GEMM_ONEDNN;
#else
  return who == SL__GEMM_OPENBLAS;
#endif
}

#ifdef SL_HAVE_ONEDNN
/* Small products, by oneDNN's own threshold (nocopy_checker in its gemm), read A and B where they
 * lie. With AVX2, rows a multiple of 2 or 4 KB apart then meet in a few sets of the cache: half of
 * OpenBLAS's speed, measured. */
static bool strides_collide(bool ta, bool tb, int64_t m, int64_t n, int64_t lda, int64_t ldb) {
  const int64_t half_page = 512, page = 1024; /* in floats */
  bool is_copied = 1.0 / (double)m + 1.0 / (double)n < 0.0038;
  if (is_copied || tb || sl__lanes(0) != 8) return false;
  if (ta && lda % half_page == 0) return true;
  return m >= 32 ? ldb % half_page == 0 : m >= 8 && ldb % page == 0;
}
#endif

void sl__gemm(enum sl__gemm who, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
              const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
              int64_t ldc) {
  sl__one_thread();
#ifdef SL_HAVE_ONEDNN
  if (who == SL__GEMM_ONEDNN && !strides_collide(ta, tb, m, n, lda, ldb) &&
      dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) ==
          dnnl_success)
    return;
#endif
  (void)who;
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m,
              (int)n, (int)k, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

static char texts[2][96];
static void write_texts(void) {
  char version[32] = "?";
  sscanf(openblas_get_config(), "OpenBLAS %31s", version);
  snprintf(texts[SL__GEMM_OPENBLAS], sizeof *texts, "OpenBLAS %s (%s)", version,
           openblas_get_corename());
#ifdef SL_HAVE_ONEDNN
  const dnnl_version_t *v = dnnl_version();
  snprintf(texts[SL__GEMM_ONEDNN], sizeof *texts, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
#endif
}

const char *sl__gemm_text(enum sl__gemm who) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, write_texts);
  return texts[who];
}

const char *sl__gemm_warning(void) {
#if defined(__x86_64__)
  static const char *const wide[] = {"SkylakeX", "Cooperlake", "Sapphirerapids", "Zen4", "Zen5"};
  if (sl__gemm_preferred() != SL__GEMM_OPENBLAS || !__builtin_cpu_supports("avx512f")) return NULL;
  for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
    if (!strcasecmp(openblas_get_corename(), wide[i])) return NULL;
  return "OpenBLAS uses kernels below this processor's AVX-512: set OPENBLAS_CORETYPE=SkylakeX in "
         "the "
         "environment, or build with oneDNN";
#else
  return NULL;
#endif
}
