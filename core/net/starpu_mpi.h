/* StarPU-MPI, the other way for tensors between ranks: handles are handed to it as soon as the
 * graph is submitted, and a thread of its own sends and receives them. Needs MPI_THREAD_MULTIPLE.
 *
 * What it was given cannot be called back: once a rank is lost, tasks that wait for it never end.
 * core/runtime/wait.h is how to wait all the same. */
#ifndef SL_CORE_NET_STARPU_MPI_H
#define SL_CORE_NET_STARPU_MPI_H

#include <starpu.h>
#include <starling/base.h>

struct sl__starpu_mpi;

/* One message to or from one rank; its tensors travel one by one. */
struct sl__post {
  bool is_send;
  int peer, tag;
  int priority;     /* StarPU's */
  const char *name; /* must live on */
  int count;
  const starpu_data_handle_t *handles;
};

/* A tensor under way. */
struct sl__under_way {
  const char *name;
  double since;
  int peer;
  bool is_send;
};

/* Does this build have it? */
bool sl__starpu_mpi_is_there(void);

/* All ranks together, with StarPU and MPI begun. ended(user) is called by StarPU-MPI's thread when
 * a tensor has come or gone. */
enum sl_status sl__starpu_mpi_open(int size, void (*ended)(void *user), void *user,
                                   struct sl__starpu_mpi **way);
/* Only when nothing is under way. MPI goes on. NULL is legal. */
void sl__starpu_mpi_close(struct sl__starpu_mpi *way);

/* Submit. since: what time it is. Messages between two ranks with the same tag arrive in the order
 * in which they were submitted. */
enum sl_status sl__starpu_mpi_post(struct sl__starpu_mpi *way, const struct sl__post *post,
                                   double since);

int sl__starpu_mpi_count(struct sl__starpu_mpi *way);
/* The first tensor under way of which this is true. */
bool sl__starpu_mpi_find(struct sl__starpu_mpi *way,
                         bool (*is_it)(void *user, const struct sl__under_way *tensor), void *user,
                         struct sl__under_way *tensor);

#endif
