/* StarPU-MPI, the second transport of tensors between ranks: the caller hands it StarPU handles
 * when it submits tasks, and StarPU-MPI's own thread sends and receives them. It needs
 * MPI_THREAD_MULTIPLE.
 *
 * Tensors cannot be called back: after the loss of a rank, tasks that wait for them never end.
 * core/runtime/wait.h explains how to wait all the same. */
#ifndef SL_CORE_NET_STARPU_MPI_H
#define SL_CORE_NET_STARPU_MPI_H

#include <starling/base.h>
#include <starpu.h>

struct sl__starpu_mpi;

/* Tensors for one rank, or from one rank; each travels on its own. */
struct sl__post {
  bool is_send;
  int peer, tag;
  int priority;     /* StarPU's */
  const char *name; /* must outlive the message */
  int count;
  const starpu_data_handle_t *handles;
};

/* A message that has begun and has not ended. */
struct sl__in_flight {
  const char *name;
  double since; /* microseconds */
  int peer;
  bool is_send;
  bool is_call; /* of all ranks together, by their main threads; name is the function's */
};

/* Does this build have StarPU-MPI? */
bool sl__starpu_mpi_is_there(void);

/* All ranks together; StarPU and MPI must have begun. StarPU-MPI's thread calls ended(user) each
 * time a tensor has been sent or received. */
enum sl_status sl__starpu_mpi_open(int size, void (*ended)(void *user), void *user,
                                   struct sl__starpu_mpi **starpu);
/* No tensor may be in flight. MPI goes on. NULL is legal. */
void sl__starpu_mpi_close(struct sl__starpu_mpi *starpu);

/* Hands over the tensors. now: microseconds. Messages between two ranks with the same tag arrive in
 * the order in which they were posted. */
enum sl_status sl__starpu_mpi_post(struct sl__starpu_mpi *starpu, const struct sl__post *post,
                                   double now);

/* Number of tensors in flight. */
int sl__starpu_mpi_count(struct sl__starpu_mpi *starpu);
/* Finds the first tensor in flight for which `matches` is true; returns false if there is none. */
bool sl__starpu_mpi_find(struct sl__starpu_mpi *starpu,
                         bool (*matches)(void *user, const struct sl__in_flight *tensor),
                         void *user, struct sl__in_flight *tensor);

#endif
