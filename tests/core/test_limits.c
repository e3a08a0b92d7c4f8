/* Memory limits and the watchdog, from within: what is refused, that StarPU's environment
 * is as before afterwards, pieces of tensors, a swap file that is full, a task that takes long and
 * one that never comes. How whole trainings fare is test_swap.sh's. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codelets/codelets.h"
#include "core/memory/admission.h"
#include "core/memory/limits.h"
#include "core/memory/watchdog.h"
#include "core/runtime/wait.h"
#include "tests/common/harness.h"

static char folder[] = "/tmp/test_memory-XXXXXX";
static char lines[8192]; /* the logged text */

static void keep_line(void *user, enum sl_level level, const char *line) {
  size_t used = strlen(lines);
  (void)user;
  (void)level;
  snprintf(lines + used, sizeof lines - used, "%s\n", line);
}

static struct sl_context *open_limited(const char *limit, const char *swap, double stall) {
  struct sl_context *context;
  *lines = '\0';
  OK(sl_open(
      &(struct sl_context_options){
          .memory_limit = limit, .swap = swap, .stall_timeout = stall, .log = keep_line},
      &context));
  return context;
}

static void refused(const char *limit, const char *swap, enum sl_status expected,
                    const char *words) {
  struct sl_context *context;
  struct sl_context_options options = {.memory_limit = limit, .swap = swap};
  FAILS(sl_open(&options, &context), expected, words);
  assert_null(context);
  assert_null(getenv("STARPU_LIMIT_CPU_MEM"));
  assert_null(getenv("STARPU_LIMIT_CUDA_MEM"));
}

static void test_lists(void **state) {
  (void)state;
  static const char *const bad[] = {"",
                                    "cpu",
                                    "cpu=",
                                    "cpu=x",
                                    "cpu=1X",
                                    "cpu=1MM",
                                    "cpu=-1M",
                                    "cpu=+1M",
                                    "cpu= 1M",
                                    "cpu=1.5G",
                                    "cpu=1M,",
                                    ",cpu=1M",
                                    "gpu=1M",
                                    "cpu:0=1M",
                                    "cuda:=1M",
                                    "cuda:0x=1M",
                                    "cuda:-1=1M",
                                    "cpu=1048575",
                                    "cpu=99999999999999999999",
                                    "cpu=9999999999999T",
                                    "cpu=1M,cpu=2M"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    refused(bad[i], NULL, SL_BAD_ARGUMENT, "memory limit");
  setenv("STARPU_LIMIT_CPU_MEM", "7", 1);
  struct sl_context *context;
  assert_int_equal(sl_open(&(struct sl_context_options){.memory_limit = "cpu=8M"}, &context),
                   SL_BAD_ARGUMENT);
  assert_string_equal(getenv("STARPU_LIMIT_CPU_MEM"), "7");
  unsetenv("STARPU_LIMIT_CPU_MEM");
}

static void test_folders(void **state) {
  (void)state;
  refused("cuda=8M", folder, SL_BAD_ARGUMENT, "without a limit of main memory");
  refused("cpu=8M", "/nowhere/at/all", SL_IO, "make it first");
  refused("cpu=8M", "/dev/null", SL_IO, "is no folder");
  refused("cpu=8M", "/proc", SL_IO, "cannot be written to");
  setenv("STARPU_DISK_SWAP_SIZE", "4", 1);
  refused("cpu=8M", folder, SL_NO_MEMORY, "has room for 4.2 MB");
  unsetenv("STARPU_DISK_SWAP_SIZE");
}

static void test_options(void **state) {
  (void)state;
  struct sl_context *context;
#define REFUSED(words, ...)                                                                        \
  FAILS(sl_open(&(struct sl_context_options){__VA_ARGS__}, &context), SL_BAD_ARGUMENT, words);     \
  assert_null(context)
  REFUSED("stall_timeout is nan", .stall_timeout = NAN);
  REFUSED("stall_timeout is -1", .stall_timeout = -1);
  REFUSED("timeout is nan", .timeout = NAN);
  REFUSED("there is no exchange 77", .exchange = (enum sl_exchange)77);
  REFUSED("there is no log level 77", .log_level = (enum sl_level)77);
#undef REFUSED
}

static void test_environment(void **state) {
  (void)state;
  struct sl_memory_use use;
  struct sl_context *plain = open_limited(NULL, NULL, 0);
  bool gpus = starpu_cuda_worker_get_count() > 0;
  sl_close(plain);
  if (!gpus) {
    refused("cpu=8M,cuda=64M", NULL, SL_NO_DEVICE, "memory limit cuda: StarPU has no GPU");
    refused("cuda:1=64M", NULL, SL_NO_DEVICE, "memory limit cuda:1: StarPU has no GPU");
  }
  struct sl_context *other,
      *context = open_limited(gpus ? "cpu=8388609,cuda=64M,cuda:1=1G" : "cpu=8388609", NULL, 0);
  assert_string_equal(getenv("STARPU_LIMIT_CPU_MEM"), "8");
  if (gpus) assert_string_equal(getenv("STARPU_LIMIT_CUDA_1_MEM"), "1024");
  assert_string_equal(getenv("STARPU_PREFETCH"), "0");
  sl_memory_use(context, &use);
  assert_int_equal(use.limit, 8 << 20);
  assert_int_equal(sl_open(&(struct sl_context_options){.memory_limit = "cpu=8M"}, &other),
                   SL_BAD_ARGUMENT);
  sl_close(context);
  assert_null(getenv("STARPU_LIMIT_CPU_MEM"));
  assert_null(getenv("STARPU_LIMIT_CUDA_1_MEM"));
  assert_null(getenv("STARPU_PREFETCH"));
}

static const struct sl__launch plain = {.name = "test"},
                               adding = {.name = "test", .accumulate = true};

static struct sl__tensor *filled(struct sl_context *context, int64_t n, float value) {
  struct sl__tensor *t;
  OK(sl__tensor_kept(context, &SL_SHAPE(n), SL_F32, &t));
  OK(sl__fill(context, &plain, t, value));
  return t;
}

static void check_values(struct sl__tensor *t, float value) {
  int64_t n = sl_shape_count(&t->shape);
  float *values = calloc((size_t)n, sizeof *values);
  OK(sl__tensor_read(t, values));
  for (int64_t i = 0; i < n; i++)
    if (values[i] != value)
      fail_msg("element %lld is %g, not %g", (long long)i, (double)values[i], (double)value);
  free(values);
}

static void test_shapes(void **state) {
  (void)state;
  struct sl__tensor *t;
  struct sl_context *context = open_limited("cpu=4M", folder, 0);
  FAILS(sl__tensor_kept(context, &SL_SHAPE(3, 0), SL_F32, &t), SL_BAD_SHAPE, "shape [3, 0]");
  FAILS(sl__tensor_kept(context, &SL_SHAPE(1ll << 32), SL_F32, &t), SL_BAD_SHAPE,
        "shape [4294967296]: 1 to 5 dimensions, each at least 1, the first below 2^32");
  assert_null(t);
  sl_close(context);
}

/* 16 tensors of 1 MiB in 4 MiB, written and read twice. */
static void test_out_and_in(void **state) {
  (void)state;
  enum { COUNT = 16 };
  struct sl__tensor *t[COUNT];
  struct sl_memory_use use;
  struct sl_context *context = open_limited("cpu=4M", folder, 0);
  for (int i = 0; i < COUNT; i++) t[i] = filled(context, 1 << 18, (float)i);
  for (int i = 0; i < COUNT; i++) OK(sl__axpy(context, &adding, 1, t[i], t[(i + 1) % COUNT]));
  for (int i = 1; i < COUNT; i++) check_values(t[i], (float)(i * (i + 1) / 2));
  sl_memory_use(context, &use);
  assert_in_range(use.peak, 1 << 20, 4 << 20);
  assert_in_range(use.swap_out, 12 << 20, 1 << 30);
  assert_in_range(use.swap_in, 12 << 20, 1 << 30);
  assert_in_range(use.swap_size, 12 << 20, COUNT << 20);
  for (int i = 0; i < COUNT; i++) sl__tensor_free(t[i]);
  sl_close(context);
  assert_int_equal(rmdir(folder), 0); /* nothing was left in it */
  assert_int_equal(mkdir(folder, 0700), 0);
}

static void test_pieces(void **state) {
  (void)state;
  const int64_t rows[] = {3, 5, 2}, all = 10;
  struct sl_context *context = open_limited("cpu=4M", folder, 0);
  struct sl__tensor *p = filled(context, all, 1), *g = filled(context, all, 2);
  struct sl__tensor *sum = filled(context, 5, 0), *square = filled(context, 1, 0);
  const struct sl__update update = {.lr = 0.5f, .step = 1};
  float values[10], middle[5] = {1, 2, 3, 4, 5};
  OK(sl__tensor_pieces(p, 3, rows));
  OK(sl__tensor_pieces(g, 3, rows));
  assert_false(sl__tensor_is_cut(p));
  OK(sl__tensor_write(&g->views[1], middle));
  struct sl__tensor *term = &g->views[1];
  OK(sl__update(context, &sl__op_sgd, &plain, &p->views[1], NULL, 1, &term, NULL, &update));
  OK(sl__tensor_read(p, values));
  for (int i = 0; i < 10; i++)
    assert_true(values[i] == (i >= 3 && i < 8 ? 1 - 0.5f * middle[i - 3] : 1));
  OK(sl__reduce(context, &plain, sum, 1, &term));
  OK(sl__tensor_read(sum, values));
  assert_memory_equal(values, middle, sizeof middle);
  OK(sl__square_sum(context, &plain, term, square));
  OK(sl__tensor_read(square, values));
  assert_true(values[0] == 1 + 4 + 9 + 16 + 25);
  assert_int_equal(sl__axpy(context, &plain, 1, term, sum), SL_UNSUPPORTED);
  OK(sl__tensor_bring_home(sum));
  OK(sl__tensor_read(sum, values));
  assert_memory_equal(values, middle, sizeof middle);
  sl__tensor_free(p);
  sl__tensor_free(g);
  sl__tensor_free(sum);
  sl__tensor_free(square);
  sl_close(context);
}

static void test_too_large(void **state) {
  (void)state;
  struct sl_context *context = open_limited("cpu=4M", folder, 0);
  struct sl__tensor *t, *sum;
  OK(sl__tensor_temporary(context, &SL_SHAPE(5 << 18), SL_F32, &t));
  assert_int_equal(sl__fill(context, &plain, t, 0), SL_NO_MEMORY);
  assert_non_null(strstr(sl_error(), "fill (layer test) needs 5.2 MB"));
  assert_non_null(strstr(sl_error(), "cpu=5M), or take a smaller batch or more microbatches"));
  OK(sl__tensor_temporary(context, &SL_SHAPE(5 << 18), SL_F32, &sum));
  FAILS(sl__reduce(context, &plain, sum, 1, &t), SL_NO_MEMORY,
        "cpu=10M), or cut the layer's parameters into smaller shards");
  sl__tensor_free(sum);
  sl__tensor_free(t);
  OK(sl__tensor_temporary(context, &SL_SHAPE((1 << 20) + 64), SL_F32, &t));
  FAILS(sl__fill(context, &plain, t, 0), SL_NO_MEMORY,
        "needs 4.195 MB of main memory at once, but the limit is 4.194 MB");
  sl__tensor_free(t);
  sl_close(context);
}

/* Nor can the program write it: StarPU would wait for memory for ever. */
static void test_too_large_to_write(void **state) {
  (void)state;
  const int64_t count = 5 << 18;
  float *values = calloc((size_t)count, sizeof *values);
  struct sl__tensor *t;
  for (int swaps = 0; swaps < 2; swaps++) {
    struct sl_context *context = open_limited("cpu=4M", swaps ? folder : NULL, 0);
    OK(sl__tensor_temporary(context, &SL_SHAPE(count), SL_F32, &t));
    FAILS(sl__tensor_write(t, values), SL_NO_MEMORY,
          "a tensor needs 5.2 MB of main memory at once, but the limit is 4.2 MB; raise it (this "
          "tensor alone takes cpu=5M)");
    sl__tensor_free(t);
    OK(sl__tensor_temporary(context, &SL_SHAPE(1 << 18), SL_F32, &t));
    OK(sl__tensor_write(t, values));
    sl__tensor_free(t);
    sl_close(context);
  }
  free(values);
}

/* Without a swap folder nothing leaves. */
static void test_used_up(void **state) {
  (void)state;
  struct sl_context *context = open_limited("cpu=4M", NULL, 0);
  struct sl__tensor *t[5];
  for (int i = 0; i < 5; i++) OK(sl__tensor_temporary(context, &SL_SHAPE(1 << 18), SL_F32, &t[i]));
  assert_false(sl__admission_is_tight(context->admission));
  for (int i = 0; i < 4; i++) OK(sl__fill(context, &plain, t[i], 1));
  assert_true(sl__admission_is_tight(context->admission));
  assert_int_equal(sl__fill(context, &plain, t[4], 1), SL_NO_MEMORY);
  assert_non_null(strstr(sl_error(), "is used up"));
  sl__tensor_invalidate(t[0]);
  OK(sl__fill(context, &plain, t[4], 1));
  for (int i = 0; i < 5; i++) sl__tensor_free(t[i]);
  sl_close(context);
}

/* ---- stalls ---- */

static void rest(void *buffers[], void *argument) {
  (void)buffers;
  (void)argument;
  usleep(1500000);
}

static struct starpu_codelet resting = {
    .cpu_funcs = {rest}, .nbuffers = 1, .modes = {STARPU_RW}, .name = "rest"};

/* Its kernel takes longer than the watch would wait for a task that does not run. */
static void test_long_task(void **state) {
  (void)state;
  struct sl_context *context = open_limited(NULL, NULL, 0.3);
  starpu_cpu_func_t kernel = sl__op_fill.codelet.cpu_funcs[0];
  struct sl__tensor *t;
  OK(sl__tensor_temporary(context, &SL_SHAPE(4), SL_F32, &t));
  sl__op_fill.codelet.cpu_funcs[0] = rest;
  OK(sl__fill(context, &plain, t, 0));
  OK(sl_wait(context));
  sl__op_fill.codelet.cpu_funcs[0] = kernel;
  assert_non_null(strstr(lines, "fill (layer test) runs, but no task has ended"));
  assert_null(strstr(lines, "none runs"));
  sl__tensor_free(t);
  sl_close(context);
}

static struct sl__tensor *volatile left; /* the memory of an abandoned context stays reachable */

/* The last one: its context is left as it is. Its limit is far from being reached. */
static void test_stall(void **state) {
  (void)state;
  struct sl_context *context = open_limited("cpu=64M", NULL, 0.3);
  struct sl__tensor *t = filled(context, 4, 1);
  struct starpu_task *never = starpu_task_create();
  left = t;
  float values[4];
  OK(sl_wait(context));
  never->cl = &resting;
  never->handles[0] = t->handle;
  starpu_tag_declare_deps((starpu_tag_t)1, 1, (starpu_tag_t)2); /* no task notifies 2 */
  never->use_tag = 1;
  never->tag_id = (starpu_tag_t)1;
  assert_int_equal(starpu_task_submit(never), 0);
  OK(sl__fill(context, &plain, t, 2));
  OK(sl__axpy(context, &plain, 1, t, t));
  assert_string_equal(sl_status_name(sl__tensor_read(t, values)), "STALLED");
  assert_non_null(strstr(sl_error(), "stalled: no task has ended for"));
  assert_null(strstr(sl_error(), "raise the memory limit"));
  assert_non_null(strstr(lines, "none runs: 2 tasks are submitted"));
  assert_non_null(
      strstr(lines, "fill (layer test) waits for something that is no task of the library"));
  assert_non_null(strstr(lines, "axpy (layer test) waits for fill (layer test)"));
  char *report;
  OK(sl_context_report(context, &report));
  assert_non_null(strstr(report, "tasks: 2 submitted and not ended"));
  assert_non_null(strstr(report, "  axpy (layer test) waits for fill (layer test)\n"));
  free(report);
  assert_int_equal(sl_wait(context), SL_STALLED);
  sl__tensor_free(t);
  sl_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists),
                                     cmocka_unit_test(test_folders),
                                     cmocka_unit_test(test_options),
                                     cmocka_unit_test(test_environment),
                                     cmocka_unit_test(test_shapes),
                                     cmocka_unit_test(test_out_and_in),
                                     cmocka_unit_test(test_pieces),
                                     cmocka_unit_test(test_too_large),
                                     cmocka_unit_test(test_too_large_to_write),
                                     cmocka_unit_test(test_used_up),
                                     cmocka_unit_test(test_long_task),
                                     cmocka_unit_test(test_stall)};
  unsetenv("STARPU_PREFETCH");
  if (!mkdtemp(folder)) return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  rmdir(folder);
  return failed;
}
