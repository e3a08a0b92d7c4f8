/* A build without StarPU-MPI. */
#include "core/base/error.h"
#include "core/net/starpu_mpi.h"

bool sl__starpu_mpi_is_there(void) { return false; }

enum sl_status sl__starpu_mpi_open(int size, void (*ended)(void *user), void *user,
                                   struct sl__starpu_mpi **way) {
  (void)size, (void)ended, (void)user;
  *way = NULL;
  return sl__fail(SL_UNSUPPORTED, "this build has no StarPU-MPI");
}

void sl__starpu_mpi_close(struct sl__starpu_mpi *way) { (void)way; }

enum sl_status sl__starpu_mpi_post(struct sl__starpu_mpi *way, const struct sl__post *post,
                                   double since) {
  (void)way, (void)since;
  return sl__fail(SL_UNSUPPORTED, "%s: this build has no StarPU-MPI", post->name);
}

int sl__starpu_mpi_count(struct sl__starpu_mpi *way) {
  (void)way;
  return 0;
}

bool sl__starpu_mpi_find(struct sl__starpu_mpi *way,
                         bool (*is_it)(void *user, const struct sl__under_way *tensor), void *user,
                         struct sl__under_way *tensor) {
  (void)way, (void)is_it, (void)user, (void)tensor;
  return false;
}
