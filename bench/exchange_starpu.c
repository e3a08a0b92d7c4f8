/* The method through StarPU-MPI: handles are sent and received, the sum is a task, and the main
 * thread sleeps until all is done. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <starpu.h>
#include <starpu_mpi.h>

#include "bench/exchange.h"

/* ---- one worker, which computes ---- */

/* Tasks' callbacks need them. */
static atomic_bool computing;
static void (*compute_kernel)(void);

static void compute_cpu(void *buffers[], void *cl_arg) {
  (void)buffers, (void)cl_arg;
  compute_kernel();
}

static struct starpu_codelet compute = {.cpu_funcs = {compute_cpu}, .name = "compute"};

/* A task that submits itself again when it has run. */
static void compute_again(void *argument) {
  (void)argument;
  if (!atomic_load(&computing)) return;
  struct starpu_task *task = starpu_task_create();
  task->cl = &compute;
  task->callback_func = compute_again;
  if (starpu_task_submit(task) != 0) starpu_task_destroy(task);
}

bool starpu_ranks_compute(bool on, void (*kernel)(void)) {
  compute_kernel = kernel;
  atomic_store(&computing, on);
  /* two, so that the worker finds the next one at once */
  for (int i = 0; on && i < 2; i++) compute_again(NULL);
  return on || starpu_task_wait_for_all() == 0;
}

bool starpu_ranks_start(void) {
  struct starpu_conf conf;
  setenv("STARPU_NCPU", "1", 0);
  setenv("STARPU_NCUDA", "0", 0);
  setenv("STARPU_SCHED", "prio", 0);       /* sums go before kernels */
  setenv("STARPU_WORKERS_NOBIND", "1", 0); /* the rank is bound, or is not to be */
  setenv("STARPU_SILENT", "1", 0);
  int failed = starpu_conf_init(&conf);
  if (!failed) failed = starpu_mpi_init_conf(NULL, NULL, 0, MPI_COMM_WORLD, &conf);
  if (failed) fprintf(stderr, "bench_exchange: StarPU-MPI does not start: error %d\n", failed);
  return !failed;
}

void starpu_ranks_stop(void) { starpu_mpi_shutdown(); }

/* ---- the exchange ---- */

struct handles {
  starpu_data_handle_t
      *gradients; /* [pieces, ranks]: this rank's own gradients, and those that an owner receives */
  starpu_data_handle_t *weights; /* [pieces] */
  struct starpu_data_descr *sum; /* [1 + ranks]: a task's buffers */
};

static void add_cpu(void *buffers[], void *cl_arg) {
  struct exchange *x;
  struct piece *piece;
  (void)buffers; /* which are the exchange's own memory */
  starpu_codelet_unpack_args(cl_arg, &x, &piece);
  exchange_add(x, piece->begin, piece->count);
}

static struct starpu_codelet add = {
    .cpu_funcs = {add_cpu}, .nbuffers = STARPU_VARIABLE_NBUFFERS, .name = "add"};

static void register_floats(starpu_data_handle_t *handle, const float *floats, int64_t count) {
  starpu_vector_data_register(handle, STARPU_MAIN_RAM, (uintptr_t)floats, (uint32_t)count,
                              sizeof *floats);
}

bool exchange_starpu_open(struct exchange *x) {
  struct handles *handles = calloc(1, sizeof *handles);
  if (!handles) return false;
  x->starpu = handles;
  handles->gradients = calloc((size_t)(x->piece_count * x->ranks), sizeof *handles->gradients);
  handles->weights = calloc((size_t)x->piece_count, sizeof *handles->weights);
  handles->sum = calloc(1 + (size_t)x->ranks, sizeof *handles->sum);
  if (!handles->gradients || !handles->weights || !handles->sum) return false;
  for (int p = 0; p < x->piece_count; p++) {
    const struct piece *piece = &x->pieces[p];
    starpu_data_handle_t *gradients = handles->gradients + p * x->ranks;
    register_floats(&handles->weights[p], x->weights + piece->begin, piece->count);
    register_floats(&gradients[x->rank], x->gradient + piece->begin, piece->count);
    for (int r = 0; r < x->ranks && piece->owner == x->rank; r++)
      if (r != x->rank)
        register_floats(&gradients[r], x->inbox + r * x->floats + piece->begin, piece->count);
  }
  return true;
}

void exchange_starpu_close(struct exchange *x) {
  struct handles *handles = x->starpu;
  if (!handles) return;
  for (int p = 0; handles->weights && p < x->piece_count; p++)
    if (handles->weights[p]) starpu_data_unregister(handles->weights[p]);
  for (int i = 0; handles->gradients && i < x->piece_count * x->ranks; i++)
    if (handles->gradients[i]) starpu_data_unregister(handles->gradients[i]);
  free(handles->gradients);
  free(handles->weights);
  free(handles->sum);
  free(handles);
}

static void send_handle(struct exchange *x, int p, starpu_data_handle_t handle, int to, int tag) {
  starpu_mpi_isend_detached(handle, to, tag, MPI_COMM_WORLD, NULL, NULL);
  x->sent += x->pieces[p].count * (int64_t)sizeof(float);
}

static void receive_handle(starpu_data_handle_t handle, int from, int tag) {
  starpu_mpi_irecv_detached(handle, from, tag, MPI_COMM_WORLD, NULL, NULL);
}

static void own(struct exchange *x, int p) {
  struct handles *handles = x->starpu;
  struct piece *piece = &x->pieces[p];
  starpu_data_handle_t *gradients = handles->gradients + p * x->ranks;
  handles->sum[0] = (struct starpu_data_descr){handles->weights[p], STARPU_W};
  for (int r = 0; r < x->ranks; r++) {
    if (r != x->rank) receive_handle(gradients[r], r, 2 * p);
    handles->sum[1 + r] = (struct starpu_data_descr){gradients[r], STARPU_R};
  }
  starpu_task_insert(&add, STARPU_DATA_MODE_ARRAY, handles->sum, 1 + x->ranks, STARPU_VALUE, &x,
                     sizeof x, STARPU_VALUE, &piece, sizeof piece, STARPU_PRIORITY, STARPU_MAX_PRIO,
                     0);
  for (int r = 0; r < x->ranks; r++)
    if (r != x->rank) send_handle(x, p, handles->weights[p], r, 2 * p + 1);
}

/* Acquired for writing, a handle has been written, sent and read by all that was asked for before.
 */
static void await(starpu_data_handle_t handle) {
  if (starpu_data_acquire(handle, STARPU_RW) == 0) starpu_data_release(handle);
}

void exchange_starpu_run(struct exchange *x) {
  struct handles *handles = x->starpu;
  x->sent = 0;
  for (int p = 0; p < x->piece_count; p++) {
    const struct piece *piece = &x->pieces[p];
    if (piece->owner == x->rank) {
      own(x, p);
      continue;
    }
    send_handle(x, p, handles->gradients[p * x->ranks + x->rank], piece->owner, 2 * p);
    receive_handle(handles->weights[p], piece->owner, 2 * p + 1);
  }
  for (int p = 0; p < x->piece_count; p++) {
    await(handles->gradients[p * x->ranks + x->rank]);
    await(handles->weights[p]);
  }
}
