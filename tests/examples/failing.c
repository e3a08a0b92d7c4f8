/* Part of tests/examples/failing_lenet, which is lenet but for a kernel that fails where SL_FAIL
 * says so: "sgd:5" at its fifth call, "sgd:5:1" on rank 1 only. There is no memory, says the
 * kernel. Where SL_FAIL_BY says "stall" it pauses StarPU instead, "sleep": it takes 3 s. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codelets/codelets.h"
#include "core/runtime/failure.h"

static starpu_cpu_func_t kernel;
static int calls, fails_at, rank = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_due(void) {
  const char *own = getenv("OMPI_COMM_WORLD_RANK");
  pthread_mutex_lock(&lock);
  bool due = ++calls == fails_at && (rank < 0 || (own && atoi(own) == rank));
  pthread_mutex_unlock(&lock);
  return due;
}

/* What is not computed may be anything; here it is finite, so that nothing else notices. */
static void fail_or_run(void *buffers[], void *cl_arg) {
  const char *by = getenv("SL_FAIL_BY");
  bool due = is_due();
  if (due && by && !strcmp(by, "stall")) starpu_pause(); /* no worker takes another task */
  if (due && by && !strcmp(by, "sleep")) sleep(3);
  if (due && !by)
    sl__task_failed(SL_NO_MEMORY, "no memory for what the test takes away");
  else
    kernel(buffers, cl_arg);
}

__attribute__((constructor)) static void replace(void) {
  static const struct {
    const char *name;
    struct sl__op *op;
  } ops[] = {{"dense_forward", &sl__op_dense_forward}, {"sgd", &sl__op_sgd}};
  const char *text = getenv("SL_FAIL");
  char name[32];
  if (!text || sscanf(text, "%31[^:]:%d:%d", name, &fails_at, &rank) < 2) return;
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    if (!strcmp(name, ops[i].name)) {
      kernel = ops[i].op->codelet.cpu_funcs[0];
      ops[i].op->codelet.cpu_funcs[0] = fail_or_run;
    }
}
