#include "core/net/local_rank.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/numbers.h"

/* A variable of the environment; -1 if it is no number. */
static int number(const char *name) {
  const char *text = getenv(name);
  int64_t value;
  return text && sl__parse_whole(text, 0, INT32_MAX, &value) ? (int)value : -1;
}

int sl__slurm_tasks(const char *list, int64_t node) {
  int64_t tasks, nodes;
  for (;; list++) {
    list = sl__scan_whole(list, &tasks);
    if (!list || tasks > INT32_MAX) return 0;
    nodes = 1;
    if (!strncmp(list, "(x", 2)) {
      list = sl__scan_whole(list + 2, &nodes);
      if (!list || *list++ != ')') return 0;
    }
    if (node < nodes) return (int)tasks;
    if (*list != ',') return 0;
    node -= nodes;
  }
}

/* srun tells the numbers of tasks of all nodes, and which node this one is. */
static int slurm_size(void) {
  const char *list = getenv("SLURM_STEP_TASKS_PER_NODE");
  int node = number("SLURM_NODEID");
  return list && node >= 0 ? sl__slurm_tasks(list, node) : 0;
}

struct sl__local_rank sl__local_rank(void) {
  static const struct {
    const char *rank, *size;
  } launchers[] = {{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                   {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                   {"PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"},
                   {"MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
                   {"SLURM_LOCALID", NULL}};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    int rank = number(launchers[i].rank);
    int size = launchers[i].size ? number(launchers[i].size) : slurm_size();
    if (rank >= 0 && rank < size) return (struct sl__local_rank){rank, size};
  }
  return (struct sl__local_rank){0, 0};
}

bool sl__gpu_range_of(const struct sl__local_rank *local, int visible, struct sl__gpu_range *gpus) {
  int64_t rank = local->rank, size = local->size;
  *gpus = (struct sl__gpu_range){0, 0};
  if (rank >= visible) return false;
  if (visible < size) {
    *gpus = (struct sl__gpu_range){(int)rank, 1};
    return true;
  }
  gpus->first = (int)(rank * visible / size);
  gpus->count = (int)((rank + 1) * visible / size) - gpus->first;
  return true;
}

/* Does the launcher show each rank GPUs of its own? Slurm's --gpus-per-task does; its value may be
 * "a100:2". */
static bool sees_own(int visible) {
  const char *each = getenv("SLURM_GPUS_PER_TASK"), *colon = each ? strrchr(each, ':') : NULL;
  int64_t count;
  if (!getenv("CUDA_VISIBLE_DEVICES")) return false;
  if (visible == 1) return true;
  return each && sl__parse_whole(colon ? colon + 1 : each, 0, INT32_MAX, &count) &&
         count == visible;
}

enum sl_status sl__local_gpus(int visible, bool needed, struct sl__gpu_range *gpus) {
  struct sl__local_rank local = sl__local_rank();
  *gpus = SL__ANY_GPUS;
  if (!visible || local.size < 2 || sees_own(visible)) return SL_OK;
  if (getenv("STARPU_NCUDA") || getenv("STARPU_WORKERS_CUDAID")) return SL_OK;
  if (visible < local.size && !needed) return SL_OK;
  if (sl__gpu_range_of(&local, visible, gpus)) return SL_OK;
  return sl__fail(SL_NO_DEVICE,
                  "rank %d of the %d ranks on this machine needs GPU %d, but the machine has %d: "
                  "start at most %d ranks on a machine, or say by STARPU_NCUDA and "
                  "STARPU_WORKERS_CUDAID which GPUs each of them uses",
                  local.rank, local.size, local.rank, visible, visible);
}
