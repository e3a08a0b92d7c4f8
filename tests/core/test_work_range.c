/* Kernels that can be cut into parts: dense and LSTM, of few rows. All parts of a phase start from
 * the same memory, so none can see what another one writes; no two write the same place; and
 * together, phase after phase, they leave the bits of the whole. */
#include "tests/common/check.h"
#include "codelets/dense.h"
#include "codelets/kernels/skinny_gemm.h"
#include "codelets/kernels/recurrent.h"

SL__KERNEL void sl__dense_forward_cpu(void *buffers[], void *cl_arg);
SL__KERNEL void sl__dense_shared_forward_cpu(void *buffers[], void *cl_arg);
SL__KERNEL void sl__lstm_forward_cpu(void *buffers[], void *cl_arg);

enum { BUFFERS = 6, MARGIN = 24 };

struct memory {
  float *at[BUFFERS];
};

struct kernel {
  void (*run)(void *buffers[], void *cl_arg);
  int buffers, phases;
  int64_t count[BUFFERS]; /* floats */
  struct {
    struct sl__args_header header;
    union {
      struct sl__dense_args dense;
      struct sl__recurrent_args recurrent;
    } args;
  } argument;
};

static struct memory make(const struct kernel *k) {
  struct memory m = {{NULL}};
  for (int b = 0; b < k->buffers; b++) {
    int64_t n = k->count[b] + MARGIN;
    m.at[b] = aligned_alloc(64, (size_t)(n + 15) / 16 * 64);
    for (int64_t i = 0; i < n; i++) m.at[b][i] = 2 * sl__uniform(1, (uint64_t)b, (uint64_t)i) - 1;
  }
  return m;
}

static void copy(const struct kernel *k, struct memory to, struct memory from) {
  for (int b = 0; b < k->buffers; b++)
    memcpy(to.at[b], from.at[b], (size_t)(k->count[b] + MARGIN) * sizeof(float));
}

static void clear(struct memory m) {
  for (int b = 0; b < BUFFERS; b++) free(m.at[b]);
}

static void run(struct kernel *k, struct memory m) {
  struct starpu_vector_interface vector[BUFFERS];
  void *buffers[BUFFERS];
  for (int b = 0; b < k->buffers; b++) {
    vector[b] = (struct starpu_vector_interface){.ptr = (uintptr_t)m.at[b]};
    buffers[b] = &vector[b];
  }
  k->run(buffers, &k->argument);
}

/* Adds a part's changes to `sum`; no other part may have changed the same value. */
static void merge(const struct kernel *k, struct memory before, struct memory after,
                  struct memory sum) {
  for (int b = 0; b < k->buffers; b++)
    for (int64_t i = 0; i < k->count[b] + MARGIN; i++) {
      if (!memcmp(&after.at[b][i], &before.at[b][i], sizeof(float))) continue;
      assert_true(i < k->count[b]);
      assert_memory_equal(&sum.at[b][i], &before.at[b][i], sizeof(float));
      sum.at[b][i] = after.at[b][i];
    }
}

static void run_cut(struct kernel *k, uint32_t parts, int64_t units, struct memory m) {
  struct memory before = make(k), after = make(k);
  k->argument.header.parts = parts;
  k->argument.header.units = units;
  for (int phase = 0; phase < (k->phases ? k->phases : 1); phase++) {
    k->argument.header.phase = k->phases ? (uint32_t)phase + 1 : 0;
    copy(k, before, m);
    for (uint32_t part = parts; part--;) {
      k->argument.header.part = part;
      copy(k, after, before);
      run(k, after);
      merge(k, before, after, m);
    }
  }
  memset(&k->argument.header, 0, sizeof k->argument.header);
  clear(before), clear(after);
}

/* Twice: the second call finds the first one's results. */
static void check(const char *what, struct kernel k, int64_t units) {
  static const uint32_t parts[] = {1, 2, 3, 5, 40};
  struct memory whole = make(&k), start = make(&k), cut = make(&k);
  for (int again = 0; again < 2; again++) {
    copy(&k, start, whole);
    run(&k, whole);
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
      copy(&k, cut, start);
      run_cut(&k, parts[p], units, cut);
      for (int b = 0; b < k.buffers; b++)
        if (memcmp(cut.at[b], whole.at[b], (size_t)k.count[b] * sizeof(float)))
          fail_msg("%s: buffer %d in %u parts differs", what, b, parts[p]);
    }
  }
  clear(whole), clear(start), clear(cut);
}

static void check_dense(int32_t rows, int32_t in, int32_t out, enum sl_activation activation,
                        int64_t units) {
  char what[64];
  struct kernel k = {.run = sl__dense_forward_cpu, .buffers = 3};
  k.argument.args.dense = (struct sl__dense_args){rows, in, out, 1, activation, SL__OWN};
  k.count[0] = (int64_t)rows * in;
  k.count[1] = (int64_t)out * in + out;
  k.count[2] = (int64_t)rows * out;
  snprintf(what, sizeof what, "dense %d x %d -> %d", rows, in, out);
  check(what, k, units);
  k.run = sl__dense_shared_forward_cpu;
  k.buffers = 4;
  k.count[3] = k.count[2];
  k.count[2] = out;
  k.count[1] -= out;
  check(what, k, units);
}

static void dense_parts_are_the_whole(void **state) {
  static const int32_t outs[] = {1, 10, 77, 96, 333}, rows[] = {1, 2, 7, 35, 64};
  (void)state;
  for (size_t o = 0; o < sizeof outs / sizeof *outs; o++)
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
      for (int32_t in = 1; in < 16; in += 7)
        check_dense(rows[r], in, outs[o], SL_ACTIVATION_NONE, 0);
      check_dense(rows[r], 45, outs[o], SL_ACTIVATION_TANH, 0);
      check_dense(rows[r], 130, outs[o], SL_ACTIVATION_GELU, 0);
    }
  check_dense(1, 45, 96, SL_ACTIVATION_SIGMOID, 6); /* a row's 16 at a time, */
  check_dense(1, 45, 96, SL_ACTIVATION_SIGMOID, 2); /* or more */
}

static void check_lstm(int32_t rows, int32_t steps, int32_t in, int32_t hidden, int32_t time) {
  char what[64];
  struct sl__recurrent_args a = {rows, steps, in, hidden, SL__OWN, time};
  int64_t ways = sl__directions(&a);
  struct kernel k = {.run = sl__lstm_forward_cpu, .buffers = 6, .phases = 1 + steps};
  k.argument.args.recurrent = a;
  k.count[0] = (int64_t)rows * steps * in;
  k.count[1] = ways * sl__recurrent_params(&a, 4);
  k.count[2] = 2 * ways * rows * hidden;
  k.count[3] = ways * rows * steps * hidden;
  k.count[4] = 6 * k.count[3];
  k.count[5] = (int64_t)(sl__recurrent_scratch(&a, 4, false) / sizeof(float));
  snprintf(what, sizeof what, "lstm %d x %d, %d -> %d (%d)", rows, steps, in, hidden, time);
  check(what, k, ways * sl__recurrent_units(&a));
}

static void lstm_parts_are_the_whole(void **state) {
  static const int32_t hidden[] = {1, 7, 16, 33, 100};
  (void)state;
  for (size_t h = 0; h < sizeof hidden / sizeof *hidden; h++)
    for (int32_t rows = 1; rows <= 4; rows++) {
      check_lstm(rows, 2, 3, hidden[h], SL__TIME_FORWARD);
      check_lstm(rows, 5, 20, hidden[h], SL__TIME_FORWARD);
      check_lstm(rows, 4, 5, hidden[h], SL__TIME_BOTH);
      check_lstm(rows, 4, 5, hidden[h], SL__TIME_REVERSE);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(dense_parts_are_the_whole),
                                     cmocka_unit_test(lstm_parts_are_the_whole)};
  return cmocka_run_group_tests_name("cut", tests, NULL, NULL);
}
