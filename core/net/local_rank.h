/* This process among the ranks of its machine, and its share of the machine's GPUs. Known before
 * MPI begins: StarPU, which starts earlier, opens a GPU only once. */
#ifndef SL_CORE_NET_LOCAL_RANK_H
#define SL_CORE_NET_LOCAL_RANK_H

#include "core/runtime/context.h"

struct sl__local_rank {
  int rank, size; /* size 0: no launcher told how many ranks this machine has */
};

/* From the launcher's environment: Open MPI's, MPICH's, Intel MPI's, MVAPICH's or Slurm's. */
struct sl__local_rank sl__local_rank(void);

/* Tasks on a node in Slurm's list: "4(x2),3" means 4, 4 and 3. 0: the list does not say it. */
int sl__slurm_tasks(const char *list, int64_t node);

/* Divides `visible` GPUs among the ranks of a machine: each has a run of its own. Returns false
 * if this rank gets none, because there are fewer GPUs than ranks. */
bool sl__gpu_range_of(const struct sl__local_rank *local, int visible, struct sl__gpu_range *gpus);

/* The GPUs for this rank, of `visible` ones that CUDA shows it; StarPU's choice if nothing is to be
 * divided: the user chose (STARPU_NCUDA, STARPU_WORKERS_CUDAID), the launcher shows each rank its
 * own GPUs, or the rank is alone. SL_NO_DEVICE and no GPU if needed, but there are fewer GPUs than
 * ranks. */
enum sl_status sl__local_gpus(int visible, bool needed, struct sl__gpu_range *gpus);

#endif
