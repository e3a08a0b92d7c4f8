/* The library's half of traces: tasks submitted while one is recorded, and only those, are named by
 * layer, operation and slice, and coloured. What StarPU does with that is
 * tests/tools/test_trace.sh's. */
#include <glob.h>
#include <unistd.h>

#include "tests/common/check.h"
#include "core/runtime/context.h"
#include "core/runtime/trace.h"

static char folder[] = "/tmp/starling-trace-XXXXXX";

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state) {
  glob_t found;
  char pattern[sizeof folder + 2];
  (void)state;
  snprintf(pattern, sizeof pattern, "%s/*", folder);
  if (!glob(pattern, 0, NULL, &found))
    for (size_t i = 0; i < found.gl_pathc; i++) unlink(found.gl_pathv[i]);
  globfree(&found);
  return rmdir(folder);
}

static bool is_supported(void) {
  if (!sl_trace_supported()) fprintf(stderr, "StarPU without FxT: not tested\n");
  return sl_trace_supported();
}

static void needs_a_folder(void **state) {
  struct sl_context *c;
  (void)state;
  OK(sl_open(NULL, &c));
  assert_int_equal(sl_trace_start(c), SL_BAD_ARGUMENT);
  sl_trace_stop(c);
  sl_close(c);
}

static void refuses_what_is_none(void **state) {
  struct sl_context *c;
  struct sl_context_options options = {.trace = "/dev/null"};
  (void)state;
  assert_int_equal(sl_open(&options, &c), sl_trace_supported() ? SL_IO : SL_UNSUPPORTED);
  assert_null(c);
}

static void assert_named(struct sl__trace *trace, const struct sl__launch *launch,
                         struct sl__op *op, const char *name) {
  struct starpu_task *task = starpu_task_create(), *again = starpu_task_create();
  task->name = again->name = "before";
  sl__trace_task(trace, task, op, launch);
  sl__trace_task(trace, again, op, launch);
  assert_string_equal(task->name, name);
  assert_ptr_equal(task->name, strcmp(name, "before") ? again->name : task->name);
  assert_int_equal(task->color != 0, strcmp(name, "before") != 0);
  task->destroy = again->destroy = 0;
  starpu_task_destroy(task);
  starpu_task_destroy(again);
}

static void names_what_it_records(void **state) {
  struct sl_context *c;
  struct sl_context_options options = {.trace = folder};
  struct sl__op forward = {.codelet = {.name = "sl_conv2d_forward"}},
                adam = {.codelet = {.name = "sl_adam"}};
  struct sl__launch slice = {.name = "conv 1", .mark = {2, 1, 4, 0}}, whole = {.name = "fc1"};
  (void)state;
  if (!is_supported()) return;
  OK(sl_open(&options, &c));
  assert_named(c->trace, &slice, &forward, "before");
  OK(sl_trace_start(c));
  OK(sl_trace_start(c));
  assert_named(c->trace, &slice, &forward, "conv_1.forward/s1/r0/m3");
  assert_named(c->trace, &whole, &adam, "fc1.adam");
  assert_named(c->trace, &(struct sl__launch){0}, &adam, "-.adam");
  sl_trace_stop(c);
  sl_trace_stop(c);
  assert_named(c->trace, &whole, &adam, "before");
  OK(sl_trace_start(c)); /* sl_close stops it */
  sl_close(c);
}

static void writes_its_file(void **state) {
  glob_t found;
  char pattern[sizeof folder + 16];
  (void)state;
  if (!is_supported()) return;
  snprintf(pattern, sizeof pattern, "%s/prof_file_*", folder);
  assert_int_equal(glob(pattern, 0, NULL, &found), 0);
  globfree(&found);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(needs_a_folder),
      cmocka_unit_test(refuses_what_is_none),
      cmocka_unit_test(names_what_it_records),
      cmocka_unit_test(writes_its_file),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
