/* Gradient compression against a naive reference: value by value and bit by bit, each operation in
 * double precision and rounded to float once (for a sum of two floats that is the float sum, exact
 * to the bit). Hard are numbers of values that fill no word or no vector, values that lie on the
 * threshold, ties of the halves' rounding, subnormals, and what is not finite. */
#include "codelets/compress.h"

#include <float.h>

#include "tests/common/check.h"
#include "tests/common/displaced.h"

static const int64_t sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 1000, 65537};
static const struct sl__compress methods[] = {{SL__COMPRESS_2BIT, 0.5f},
                                              {SL__COMPRESS_2BIT, 0.013f},
                                              {SL__COMPRESS_1BIT, 0},
                                              {SL__COMPRESS_FP16, 0},
                                              {SL__COMPRESS_BF16, 0}};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- one shard and its two ends ---- */

struct shard {
  struct sl__compress c;
  int64_t n, words;
  struct sl__tensor *gradient, *residual, *packed, *values;
  float *g, *r, *y; /* input, residual, output */
  uint32_t *w;
};

static struct shard open_shard(struct sl__compress c, int64_t n) {
  struct shard s = {.c = c, .n = n, .words = sl__compress_words(&c, n)};
  s.gradient = tensor(SL_SHAPE(n), NULL);
  s.values = tensor(SL_SHAPE(n), NULL);
  if (sl__compress_has_residual(&c)) s.residual = tensor(SL_SHAPE(n), NULL);
  s.packed = integers(SL_SHAPE(s.words), NULL);
  s.g = calloc((size_t)n, sizeof *s.g);
  s.r = calloc((size_t)n, sizeof *s.r);
  s.y = calloc((size_t)n, sizeof *s.y);
  s.w = calloc((size_t)s.words, sizeof *s.w);
  memset(s.w, 0x5a, (size_t)s.words * sizeof *s.w); /* all of it must be written */
  OK(sl__tensor_write(s.packed, s.w));
  return s;
}

static void close_shard(struct shard *s) {
  sl__tensor_free(s->gradient), sl__tensor_free(s->residual);
  sl__tensor_free(s->packed), sl__tensor_free(s->values);
  free(s->g), free(s->r), free(s->y), free(s->w);
}

/* s->g is compressed and decompressed. */
static void exchange(struct shard *s) {
  OK(sl__tensor_write(s->gradient, s->g));
  OK(sl__compress(context, &plain, &s->c, s->gradient, s->residual, s->packed));
  OK(sl__decompress(context, &plain, &s->c, s->packed, s->values));
  if (s->residual) OK(sl__tensor_read(s->residual, s->r));
  OK(sl__tensor_read(s->packed, s->w));
  OK(sl__tensor_read(s->values, s->y));
}

/* Random, with some values that are zero, of either sign, tiny, large or on the threshold. */
static void fill_gradient(struct shard *s, uint64_t step) {
  const float special[] = {0.0f, -0.0f,     s->c.threshold, -s->c.threshold, nextafterf(0.5f, 0),
                           3.5f, -1234.75f, 1e-37f,         -1e-20f,         6e-8f};
  double *v = random_values(s->n, 100 + step);
  for (int64_t i = 0; i < s->n; i++) {
    bool is_special = (uint64_t)i * 7 % 11 == step % 11;
    s->g[i] = is_special ? special[(uint64_t)i % COUNT(special)] : (float)v[i];
  }
  free(v);
}

static bool same_bits(float a, float b) { return sl__float_bits(a) == sl__float_bits(b); }

static void assert_bits(const char *what, int64_t n, int64_t i, float got, float want) {
  if (!same_bits(got, want))
    fail_msg("%s: value %lld of %lld is %.9g, the reference %.9g", what, (long long)i, (long long)n,
             (double)got, (double)want);
}

/* ---- 2bit ---- */

/* The value's two bits, found in the packed bytes. */
static int two_bits(const uint32_t *w, int64_t i) {
  const unsigned char *bytes = (const unsigned char *)w;
  static const int shift[] = {6, 4, 2, 0};
  return bytes[i / 4] >> shift[i % 4] & 3;
}

static void check_2bit(struct shard *s, float *r) {
  double t = (double)s->c.threshold;
  for (int64_t i = 0; i < s->n; i++) {
    double sum = (double)(float)((double)r[i] + (double)s->g[i]), sent = 0;
    int code = 0;
    if (sum >= t)
      code = 3, sent = t;
    else if (sum <= -t)
      code = 2, sent = -t;
    r[i] = (float)(sum - sent);
    if (two_bits(s->w, i) != code)
      fail_msg("2bit: code %lld of %lld is %d, the reference %d", (long long)i, (long long)s->n,
               two_bits(s->w, i), code);
    assert_bits("2bit, sent", s->n, i, s->y[i], (float)sent);
    assert_bits("2bit, residual", s->n, i, s->r[i], r[i]);
  }
  for (int64_t i = s->n; i < 16 * s->words; i++) assert_int_equal(two_bits(s->w, i), 0);
}

/* Three steps, so that residuals take part. */
static void two_bits_match_the_reference(void **state) {
  (void)state;
  for (size_t m = 0; m < 2; m++)
    for (size_t k = 0; k < COUNT(sizes); k++) {
      struct shard s = open_shard(methods[m], sizes[k]);
      float *r = calloc((size_t)s.n, sizeof *r);
      for (uint64_t step = 0; step < 3; step++) {
        fill_gradient(&s, step);
        exchange(&s);
        check_2bit(&s, r);
      }
      free(r);
      close_shard(&s);
    }
}

/* MXNet's bytes: + - 0 + is 11 10 00 11. */
static void two_bits_have_the_layout_of_mxnet(void **state) {
  (void)state;
  struct shard s = open_shard(methods[0], 18);
  const float g[18] = {1, -1, 0, 1, 0, 0, 0, -1, 1, 1, 1, 1, -1, 0, 0, 0, 0, 1};
  const unsigned char want[8] = {0xe3, 0x02, 0xff, 0x80, 0x30};
  memcpy(s.g, g, sizeof g);
  exchange(&s);
  assert_memory_equal(s.w, want, sizeof want);
  close_shard(&s);
}

/* ---- 1bit ---- */

static int one_bit(const uint32_t *w, int64_t i) {
  const unsigned char *bytes = (const unsigned char *)(w + 2);
  return bytes[i / 8] >> (7 - i % 8) & 1;
}

/* The kernel adds in another order: doubles differ by n 2^-53, so the mean as a float by one step.
 */
static void check_mean(const char *what, float got, double sum, int64_t count) {
  double want = count ? sum / (double)count : 0;
  if (!(fabs((double)got - want) <= 1.2e-7 * fabs(want)))
    fail_msg("1bit: the mean of the values %s is %.9g, the reference %.9g", what, (double)got,
             want);
}

static void check_1bit(struct shard *s, float *r) {
  double above = 0, below = 0;
  int64_t count = 0;
  float mean[2] = {sl__bits_float(s->w[1]), sl__bits_float(s->w[0])};
  for (int64_t i = 0; i < s->n; i++) {
    r[i] = (float)((double)r[i] + (double)s->g[i]);
    *(r[i] >= 0 ? &above : &below) += (double)r[i];
    count += r[i] >= 0;
  }
  check_mean(">= 0", mean[1], above, count);
  check_mean("< 0", mean[0], below, s->n - count);
  for (int64_t i = 0; i < s->n; i++) {
    int code = r[i] >= 0;
    if (one_bit(s->w, i) != code)
      fail_msg("1bit: code %lld of %lld is %d", (long long)i, (long long)s->n, !code);
    r[i] = (float)((double)r[i] - (double)mean[code]);
    assert_bits("1bit, sent", s->n, i, s->y[i], mean[code]);
    assert_bits("1bit, residual", s->n, i, s->r[i], r[i]);
  }
  for (int64_t i = s->n; i < 32 * (s->words - 2); i++) assert_int_equal(one_bit(s->w, i), 0);
}

static void one_bit_matches_the_reference(void **state) {
  (void)state;
  for (size_t k = 0; k < COUNT(sizes); k++) {
    struct shard s = open_shard(methods[2], sizes[k]);
    float *r = calloc((size_t)s.n, sizeof *r);
    for (uint64_t step = 0; step < 3; step++) {
      fill_gradient(&s, step);
      exchange(&s);
      check_1bit(&s, r);
    }
    free(r);
    close_shard(&s);
  }
}

/* ---- halves: all patterns, from the formats' definition ---- */

struct format {
  struct sl__compress c;
  int mantissa, bias, patterns; /* patterns: of values from 0 up to infinity, without it */
};
static const struct format formats[] = {{{SL__COMPRESS_FP16, 0}, 10, 15, 0x7c00},
                                        {{SL__COMPRESS_BF16, 0}, 7, 127, 0x7f80}};

/* The value of a pattern below 0x8000; infinity counts as the next power of two. */
static double meaning(const struct format *f, int pattern) {
  int exponent = pattern >> f->mantissa, rest = pattern & ((1 << f->mantissa) - 1);
  if (exponent == 0) return ldexp(rest, 1 - f->bias - f->mantissa);
  return ldexp((1 << f->mantissa) + rest, exponent - f->bias - f->mantissa);
}

/* The pattern nearest to x >= 0, the even one of two, by bisection. */
static int nearest(const struct format *f, double x) {
  int low = 0, high = f->patterns;
  if (x >= meaning(f, high)) return high;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    *(meaning(f, middle) <= x ? &low : &high) = middle;
  }
  double down = x - meaning(f, low), up = meaning(f, high) - x;
  return down < up || (down == up && low % 2 == 0) ? low : high;
}

static uint16_t half_at(const struct shard *s, int64_t i) {
  return (uint16_t)(s->w[i / 2] >> (i % 2 ? 16 : 0));
}

static void check_half(const struct format *f, const struct shard *s) {
  for (int64_t i = 0; i < s->n; i++) {
    uint16_t got = half_at(s, i);
    double size = fabs((double)s->g[i]);
    int want = nearest(f, size);
    if (isnan(s->g[i]) ? (got & 0x7fff) <= f->patterns
                       : got != (want | (signbit(s->g[i]) ? 0x8000 : 0)))
      fail_msg("%.9g becomes 0x%04x, the reference 0x%04x (without the sign)", (double)s->g[i], got,
               want);
  }
  if (s->n % 2) assert_int_equal(half_at(s, s->n), 0);
}

static void halves_mean_what_their_patterns_say(void **state) {
  (void)state;
  for (size_t k = 0; k < 2; k++) {
    const struct format *f = &formats[k];
    struct shard s = open_shard(f->c, 65536);
    for (uint32_t i = 0; i < 65536; i++) s.w[i / 2] = i % 2 ? (s.w[i / 2] & 0xffff) | i << 16 : i;
    OK(sl__tensor_write(s.packed, s.w));
    OK(sl__decompress(context, &plain, &s.c, s.packed, s.values));
    OK(sl__tensor_read(s.values, s.y));
    for (int i = 0; i < 65536; i++) {
      int pattern = i & 0x7fff;
      assert_int_equal(signbit(s.y[i]) != 0, i >= 0x8000);
      if (pattern < f->patterns)
        assert_true((double)fabsf(s.y[i]) == meaning(f, pattern));
      else
        assert_true(pattern == f->patterns ? isinf(s.y[i]) : isnan(s.y[i]));
    }
    /* and back: each value is its own nearest */
    memcpy(s.g, s.y, (size_t)s.n * sizeof *s.g);
    exchange(&s);
    check_half(f, &s);
    close_shard(&s);
  }
}

/* Between each pair of neighbours: the tie, and the floats beside it. The last tie is with
 * infinity. */
static void halves_round_to_nearest_even(void **state) {
  (void)state;
  for (size_t k = 0; k < 2; k++) {
    const struct format *f = &formats[k];
    struct shard s = open_shard(f->c, 3 * f->patterns);
    for (int sign = -1; sign <= 1; sign += 2) {
      for (int p = 0; p < f->patterns; p++) {
        double tie = (meaning(f, p) + meaning(f, p + 1)) / 2;
        float at = (float)tie;
        assert_true((double)at == tie);
        s.g[3 * p] = (float)sign * nextafterf(at, 0);
        s.g[3 * p + 1] = (float)sign * at;
        s.g[3 * p + 2] = (float)sign * nextafterf(at, INFINITY);
      }
      exchange(&s);
      check_half(f, &s);
    }
    close_shard(&s);
  }
}

static void halves_of_any_float(void **state) {
  (void)state;
  for (size_t k = 0; k < 2; k++)
    for (size_t n = 0; n < COUNT(sizes); n++) {
      struct shard s = open_shard(formats[k].c, sizes[n]);
      double *v = random_values(2 * s.n, 7);
      for (int64_t i = 0; i < s.n; i++) /* all 32 bits, from two numbers */
        s.g[i] = sl__bits_float((uint32_t)((v[2 * i] + 1) * 32768) << 16 |
                                (uint32_t)((v[2 * i + 1] + 1) * 32768));
      exchange(&s);
      check_half(&formats[k], &s);
      free(v);
      close_shard(&s);
    }
}

/* ---- what holds for all ---- */

/* Decompression is exact and so is, in double precision, the sum of its results. So all losses
 * are in each step's two roundings to float, r + g and r - sent: each at most 2^-24 of its
 * result, which is no larger than the largest |r| + |g| seen (|r - sent| counts as the next r). */
static void nothing_is_lost_over_many_steps(void **state) {
  (void)state;
  enum { N = 1003, STEPS = 200 };
  for (size_t m = 0; m < 3; m++) {
    struct shard s = open_shard(methods[m], N);
    double *sent = zeros(N), *truth = zeros(N), *largest = zeros(N);
    for (uint64_t step = 0; step < STEPS; step++) {
      double *v = random_values(N, 1000 + step);
      for (int64_t i = 0; i < N; i++) {
        s.g[i] = (float)(0.3 * v[i]);
        truth[i] += (double)s.g[i];
        largest[i] = fmax(largest[i], fabs((double)s.r[i]) + fabs((double)s.g[i]));
      }
      exchange(&s);
      for (int64_t i = 0; i < N; i++) {
        sent[i] += (double)s.y[i];
        largest[i] = fmax(largest[i], fabs((double)s.r[i]));
      }
      free(v);
    }
    for (int64_t i = 0; i < N; i++) {
      double lost = sent[i] + (double)s.r[i] - truth[i];
      if (!(fabs(lost) <= 2 * STEPS * ldexp(1, -24) * largest[i] * 1.0001))
        fail_msg("method %zu, value %lld: %.9g is lost of %.9g", m, (long long)i, lost, truth[i]);
    }
    free(sent), free(truth), free(largest);
    close_shard(&s);
  }
}

static bool finite_shard(const struct shard *s) {
  for (int64_t i = 0; i < s->n; i++)
    if (!isfinite(s->y[i])) return false;
  return true;
}

/* Where a residual keeps it, the next, clean gradient is not finite either. */
static void what_is_not_finite_arrives(void **state) {
  (void)state;
  const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
  const int64_t places[] = {0, 17, 36};
  for (size_t m = 0; m < COUNT(methods); m++)
    for (size_t b = 0; b < COUNT(bad); b++)
      for (size_t p = 0; p < COUNT(places); p++) {
        struct shard s = open_shard(methods[m], 37);
        for (int64_t i = 0; i < s.n; i++) s.g[i] = i % 2 ? 1 : -1;
        s.g[places[p]] = bad[b];
        for (int step = 0; step < 2; step++, s.g[places[p]] = s.residual ? 0 : bad[b]) {
          exchange(&s);
          for (int64_t i = 0; i < s.n; i++)
            if (i == places[p] || s.c.method == SL__COMPRESS_1BIT)
              assert_false(isfinite(s.y[i]));
            else
              assert_true(isfinite(s.y[i]));
        }
        close_shard(&s);
      }
}

static void overflow_arrives(void **state) {
  (void)state;
  struct shard half = open_shard(methods[3], 1), brain = open_shard(methods[4], 1);
  half.g[0] = 65519.99f;
  exchange(&half);
  assert_true(half.y[0] == 65504);
  half.g[0] = 65520;
  exchange(&half);
  assert_true(isinf(half.y[0]));
  brain.g[0] = -FLT_MAX; /* nearer to 2^128 than to bf16's largest */
  exchange(&brain);
  assert_true(isinf(brain.y[0]) && brain.y[0] < 0);
  close_shard(&half), close_shard(&brain);
  for (size_t m = 0; m < 3; m++) {
    struct shard s = open_shard(methods[m], 3);
    s.g[0] = FLT_MAX, s.g[1] = -FLT_MAX / 2;
    exchange(&s);
    assert_true(finite_shard(&s));
    exchange(&s); /* on top of the residual */
    assert_false(finite_shard(&s));
    close_shard(&s);
  }
}

static void decompression_adds(void **state) {
  (void)state;
  for (size_t m = 0; m < COUNT(methods); m++)
    for (size_t k = 0; k < COUNT(sizes); k++) {
      struct shard s = open_shard(methods[m], sizes[k]);
      fill_gradient(&s, 3);
      exchange(&s);
      double *old = random_values(s.n, 4), *want = zeros(s.n);
      struct sl__tensor *sum = tensor(SL_SHAPE(s.n), old);
      for (int64_t i = 0; i < s.n; i++)
        want[i] = (double)(float)((double)(float)old[i] + (double)s.y[i]);
      OK(sl__decompress(context, &adding, &s.c, s.packed, sum));
      assert_near("sum", take(sum), want, s.n, 0, 0);
      free(old), free(want);
      close_shard(&s);
    }
}

static void two_runs_give_the_same_bits(void **state) {
  (void)state;
  for (size_t m = 0; m < COUNT(methods); m++) {
    struct shard a = open_shard(methods[m], 65537), b = open_shard(methods[m], 65537);
    for (uint64_t step = 0; step < 3; step++) {
      fill_gradient(&a, step), fill_gradient(&b, step);
      exchange(&a), exchange(&b);
      assert_memory_equal(a.w, b.w, (size_t)a.words * sizeof *a.w);
      assert_memory_equal(a.r, b.r, (size_t)a.n * sizeof *a.r);
      assert_memory_equal(a.y, b.y, (size_t)a.n * sizeof *a.y);
    }
    close_shard(&a), close_shard(&b);
  }
}

/* Where no vector is aligned, too. */
static void shards_begin_anywhere(void **state) {
  (void)state;
  for (size_t m = 0; m < COUNT(methods); m++)
    for (size_t k = 0; k < COUNT(sizes); k++) {
      struct shard s = open_shard(methods[m], sizes[k]);
      uint32_t *words = calloc((size_t)s.words, sizeof *words);
      double *g = zeros(s.n);
      fill_gradient(&s, 5);
      for (int64_t i = 0; i < s.n; i++) g[i] = (double)s.g[i];
      struct displaced gradient = displaced(SL_SHAPE(s.n), g, SL_F32);
      struct displaced residual = displaced(SL_SHAPE(s.n), NULL, SL_F32);
      struct displaced values = displaced(SL_SHAPE(s.n), g, SL_F32);
      struct sl__tensor *r = tensor(SL_SHAPE(s.n), NULL), *y = tensor(SL_SHAPE(s.n), NULL);
      exchange(&s);
      OK(sl__compress(context, &plain, &s.c, &gradient.tensor, s.residual ? &residual.tensor : NULL,
                      s.packed));
      OK(sl__decompress(context, &plain, &s.c, s.packed, &values.tensor));
      OK(sl__axpy(context, &plain, 1, &residual.tensor, r));
      OK(sl__axpy(context, &plain, 1, &values.tensor, y));
      OK(sl__tensor_read(s.packed, words));
      assert_memory_equal(words, s.w, (size_t)s.words * sizeof *words);
      double *left = take(r), *sent = take(y);
      for (int64_t i = 0; i < s.n; i++) {
        assert_true(left[i] == (double)s.r[i]);
        assert_true(sent[i] == (double)s.y[i]);
      }
      put_back(&gradient), put_back(&residual), put_back(&values);
      free(words), free(g), free(left), free(sent);
      close_shard(&s);
    }
}

/* ---- sizes, texts, arguments ---- */

static void packed_forms_are_small(void **state) {
  (void)state;
  static const struct {
    enum sl__compression method;
    int64_t count, words;
  } cases[] = {
      {SL__COMPRESS_NONE, 17, 17},        {SL__COMPRESS_2BIT, 1, 1},
      {SL__COMPRESS_2BIT, 16, 1},         {SL__COMPRESS_2BIT, 17, 2},
      {SL__COMPRESS_2BIT, 250000, 15625}, {SL__COMPRESS_1BIT, 1, 3},
      {SL__COMPRESS_1BIT, 32, 3},         {SL__COMPRESS_1BIT, 33, 4},
      {SL__COMPRESS_1BIT, 3200, 102},     {SL__COMPRESS_FP16, 1, 1},
      {SL__COMPRESS_FP16, 1000, 500},     {SL__COMPRESS_BF16, 1001, 501},
      {SL__COMPRESS_BF16, 2, 1},
  };
  for (size_t i = 0; i < COUNT(cases); i++)
    assert_int_equal(
        sl__compress_words(&(struct sl__compress){.method = cases[i].method}, cases[i].count),
        cases[i].words);
}

static void texts_are_understood(void **state) {
  (void)state;
  static const struct {
    const char *text;
    struct sl__compress want;
    bool residual;
  } good[] = {
      {"none", {SL__COMPRESS_NONE, 0}, false},
      {"2bit", {SL__COMPRESS_2BIT, 0.5f}, true},
      {"2bit:0.5", {SL__COMPRESS_2BIT, 0.5f}, true},
      {"2bit:1e-3", {SL__COMPRESS_2BIT, 1e-3f}, true},
      {"2bit:2", {SL__COMPRESS_2BIT, 2}, true},
      {"1bit", {SL__COMPRESS_1BIT, 0}, true},
      {"fp16", {SL__COMPRESS_FP16, 0}, false},
      {"bf16", {SL__COMPRESS_BF16, 0}, false},
  };
  for (size_t i = 0; i < COUNT(good); i++) {
    struct sl__compress c;
    char text[SL__COMPRESS_TEXT];
    OK(sl__compress_parse(good[i].text, &c));
    assert_int_equal(c.method, good[i].want.method);
    assert_true(same_bits(c.threshold, good[i].want.threshold));
    assert_int_equal(sl__compress_has_residual(&c), good[i].residual);
    /* back to a text, which gives the same */
    OK(sl__compress_parse(sl__compress_text(&c, text), &c));
    assert_int_equal(c.method, good[i].want.method);
    assert_true(same_bits(c.threshold, good[i].want.threshold));
  }
}

static void bad_texts_are_refused(void **state) {
  (void)state;
  static const char *const bad[] = {
      "",         ":",          "2bit:",       "2bit:0",  "2bit:-1",  "2bit:nan",
      "2bit:inf", "2bit:1e999", "2bit:1e-999", "2bit: 1", "2bit:0x1", "2bit:0.5:1",
      "2bit:1,",  "2bit:1-",    "3bit",        "2bi",     "2bitt",    "fp16:1",
      "1bit:0.5", "bf16:",      "none:",       "FP16",    " fp16",
  };
  for (size_t i = 0; i < COUNT(bad); i++) {
    struct sl__compress c = {SL__COMPRESS_FP16, 7};
    if (sl__compress_parse(bad[i], &c) != SL_BAD_ARGUMENT) fail_msg("'%s' is taken", bad[i]);
    if (!strstr(sl_error(), "none, 2bit[:THRESHOLD], 1bit, fp16 and bf16"))
      fail_msg("'%s': the choices are not named: %s", bad[i], sl_error());
    assert_true(c.method == SL__COMPRESS_FP16 && c.threshold == 7);
  }
}

static void arguments_are_checked(void **state) {
  (void)state;
  struct sl__tensor *g = tensor(SL_SHAPE(40), NULL), *other = tensor(SL_SHAPE(41), NULL);
  for (size_t m = 0; m < COUNT(methods); m++) {
    const struct sl__compress *c = &methods[m];
    bool residual = sl__compress_has_residual(c);
    int64_t words = sl__compress_words(c, 40);
    struct sl__tensor *p = integers(SL_SHAPE(words), NULL),
                      *long_p = integers(SL_SHAPE(words + 1), NULL),
                      *floats = tensor(SL_SHAPE(words), NULL), *r = residual ? g : NULL;
    assert_int_equal(sl__compress(context, &plain, c, g, r, long_p), SL_BAD_SHAPE);
    assert_int_equal(sl__compress(context, &plain, c, g, r, floats), SL_BAD_SHAPE);
    assert_int_equal(sl__compress(context, &plain, c, p, r, p), SL_BAD_SHAPE);
    assert_int_equal(sl__compress(context, &plain, c, g, residual ? NULL : g, p), SL_BAD_ARGUMENT);
    if (residual) {
      assert_int_equal(sl__compress(context, &plain, c, g, other, p), SL_BAD_SHAPE);
      assert_int_equal(sl__compress(context, &plain, c, g, long_p, p), SL_BAD_SHAPE);
    }
    assert_int_equal(sl__decompress(context, &plain, c, long_p, g), SL_BAD_SHAPE);
    assert_int_equal(sl__decompress(context, &plain, c, floats, g), SL_BAD_SHAPE);
    sl__tensor_free(p), sl__tensor_free(long_p), sl__tensor_free(floats);
  }
  struct sl__tensor *p = integers(SL_SHAPE(40), NULL), *three = integers(SL_SHAPE(3), NULL);
  const struct sl__compress none = {SL__COMPRESS_NONE, 0}, bad[] = {{SL__COMPRESS_2BIT, 0},
                                                                    {SL__COMPRESS_2BIT, -1},
                                                                    {SL__COMPRESS_2BIT, NAN},
                                                                    {SL__COMPRESS_2BIT, INFINITY},
                                                                    {(enum sl__compression)9, 0}};
  assert_int_equal(sl__compress(context, &plain, &none, g, NULL, p), SL_BAD_ARGUMENT);
  assert_int_equal(sl__decompress(context, &plain, &none, p, g), SL_BAD_ARGUMENT);
  for (size_t i = 0; i < COUNT(bad); i++)
    assert_int_equal(sl__compress(context, &plain, &bad[i], g, other, three), SL_BAD_ARGUMENT);
  sl__tensor_free(g), sl__tensor_free(other), sl__tensor_free(p), sl__tensor_free(three);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_bits_match_the_reference),
      cmocka_unit_test(two_bits_have_the_layout_of_mxnet),
      cmocka_unit_test(one_bit_matches_the_reference),
      cmocka_unit_test(halves_mean_what_their_patterns_say),
      cmocka_unit_test(halves_round_to_nearest_even),
      cmocka_unit_test(halves_of_any_float),
      cmocka_unit_test(nothing_is_lost_over_many_steps),
      cmocka_unit_test(what_is_not_finite_arrives),
      cmocka_unit_test(overflow_arrives),
      cmocka_unit_test(decompression_adds),
      cmocka_unit_test(two_runs_give_the_same_bits),
      cmocka_unit_test(shards_begin_anywhere),
      cmocka_unit_test(packed_forms_are_small),
      cmocka_unit_test(texts_are_understood),
      cmocka_unit_test(bad_texts_are_refused),
      cmocka_unit_test(arguments_are_checked),
  };
  return cmocka_run_group_tests_name("gradient compression", tests, open_operations, close_context);
}
