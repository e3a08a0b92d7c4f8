/* A build without StarPU-MPI. */
#include "core/base/error.h"
#include "core/net/starpu_mpi.h"

bool sl__starpu_mpi_is_there(void) { return false; }

enum sl_status sl__starpu_mpi_open(int size, void (*ended)(void *user), void *user,
                                   struct sl__starpu_mpi **starpu) {
  (void)size, (void)ended, (void)user;
  *starpu = NULL;
  return sl__fail(SL_UNSUPPORTED, "this build has no StarPU-MPI");
}

void sl__starpu_mpi_close(struct sl__starpu_mpi *starpu) { (void)starpu; }

enum sl_status sl__starpu_mpi_post(struct sl__starpu_mpi *starpu, const struct sl__post *post,
                                   double now) {
  (void)starpu, (void)now;
  return sl__fail(SL_UNSUPPORTED, "%s: this build has no StarPU-MPI", post->name);
}

int sl__starpu_mpi_count(struct sl__starpu_mpi *starpu) {
  (void)starpu;
  return 0;
}

bool sl__starpu_mpi_find(struct sl__starpu_mpi *starpu,
                         bool (*matches)(void *user, const struct sl__in_flight *tensor),
                         void *user, struct sl__in_flight *tensor) {
  (void)starpu, (void)matches, (void)user, (void)tensor;
  return false;
}
