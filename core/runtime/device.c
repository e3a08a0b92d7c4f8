/* Device names as people write them: "cpu", "cpu:3", "cuda:0", "any", "gpu-or-cpu". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/numbers.h"
#include "core/runtime/context.h"
#include "core/runtime/cuda.h"
#include "core/base/error.h"

struct kind {
  const char *name;
  enum starpu_worker_archtype type;
  uint32_t where;
};

static const struct kind kinds[] = {{"cpu", STARPU_CPU_WORKER, STARPU_CPU},
                                    {"cuda", STARPU_CUDA_WORKER, STARPU_CUDA},
                                    /* another process of a master-slave run; for tests */
                                    {"slave", STARPU_TCPIP_MS_WORKER, STARPU_TCPIP_MS}};

bool sl__devices_name_gpus(const char *list) {
  return list && (strstr(list, "cuda") || strstr(list, "gpu"));
}

bool sl__devices_may_be_gpus(const char *list) {
  return !list || strstr(list, "any") || sl__devices_name_gpus(list);
}

bool sl__devices_are_gpus(const char *list) {
  bool all = list && *list;
  for (const char *name = list; all && name; name = strchr(name, ',')) {
    name += *name == ',';
    bool is_gpu = !strncmp(name, "cuda", strlen("cuda"));
    all = is_gpu || (!strncmp(name, "gpu-or-cpu", strlen("gpu-or-cpu")) && sl__cuda_count() > 0);
  }
  return all;
}

/* All workers of a kind, or any worker. */
static struct sl__device device_any(const char *name, uint32_t where, unsigned node) {
  struct sl__device d = {.place = {.where = where}, .node = node};
  snprintf(d.name, sizeof d.name, "%s", name);
  return d;
}

bool sl__place_has(const struct sl__place *place, int worker) {
  uint32_t where = 0;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (starpu_worker_get_type(worker) == kinds[i].type) where = kinds[i].where;
  if (place->worker) return place->worker == worker + 1;
  return !place->where || place->where & where;
}

void sl__place_here(struct sl__place *place, bool on_gpu) {
  const uint32_t own = STARPU_CPU | (on_gpu ? (uint32_t)STARPU_CUDA : 0);
  place->where = place->where & own ? place->where & own : place->where ? STARPU_CPU : own;
  if (!place->worker) return;
  struct sl__place pinned = {.where = place->where};
  if (!sl__place_has(&pinned, place->worker - 1)) place->worker = 0;
}

void sl__device_of_worker(int worker, struct sl__device *device) {
  *device = (struct sl__device){.place.worker = worker + 1,
                                .node = starpu_worker_get_memory_node((unsigned)worker)};
  starpu_worker_get_name(worker, device->name, sizeof device->name);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    for (int n = 0; n < starpu_worker_get_count_by_type(kinds[i].type); n++) {
      if (starpu_worker_get_by_type(kinds[i].type, n) != worker) continue;
      snprintf(device->name, sizeof device->name, "%s:%d", kinds[i].name, n);
      device->place.where = kinds[i].where;
    }
}

static unsigned kind_node(const struct kind *kind) {
  int worker = starpu_worker_get_by_type(kind->type, 0);
  return worker < 0 ? STARPU_MAIN_RAM : starpu_worker_get_memory_node((unsigned)worker);
}

/* Why there are no more devices of a kind, and what to do. */
static const char *advice(const struct kind *kind, int count, char *text, size_t size) {
  char why[256];
  if (kind->type != STARPU_CUDA_WORKER) return " (STARPU_NCPU sets how many)";
  if (count) return " (gpu-or-cpu takes a GPU where there is one)";
  snprintf(text, size, " (%s; gpu-or-cpu takes a GPU where there is one)",
           sl__cuda_absence(why, sizeof why));
  return text;
}

static enum sl_status find_worker(const struct kind *kind, const char *name, const char *number,
                                  struct sl__device *device) {
  char why[320];
  int64_t index;
  if (!sl__parse_whole(number, 0, INT64_MAX, &index))
    return sl__fail(SL_BAD_ARGUMENT, "device '%s': '%s' is no number; write %s:0", name, number,
                    kind->name);
  int count = starpu_worker_get_count_by_type(kind->type);
  if (index >= count)
    return sl__fail(SL_NO_DEVICE, "device '%s': there %s %d of kind %s here%s", name,
                    count == 1 ? "is" : "are", count, kind->name,
                    advice(kind, count, why, sizeof why));
  int worker = starpu_worker_get_by_type(kind->type, (int)index);
  *device = device_any(name, kind->where, starpu_worker_get_memory_node((unsigned)worker));
  device->place.worker = worker + 1;
  return SL_OK;
}

static enum sl_status find_device(const char *name, struct sl__device *device) {
  char why[320];
  if (strlen(name) >= sizeof device->name)
    return sl__fail(SL_BAD_ARGUMENT, "device '%.32s...' is too long for a device's name", name);
  if (!strcmp(name, "any")) {
    *device = device_any(name, 0, STARPU_MAIN_RAM);
    return SL_OK;
  }
  if (!strcmp(name, "gpu-or-cpu"))
    return find_device(starpu_cuda_worker_get_count() ? "cuda:0" : "cpu", device);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    size_t length = strlen(kinds[i].name);
    if (strncmp(name, kinds[i].name, length)) continue;
    if (name[length] == ':') return find_worker(&kinds[i], name, name + length + 1, device);
    if (name[length]) continue;
    if (!starpu_worker_get_count_by_type(kinds[i].type))
      return sl__fail(SL_NO_DEVICE, "device '%s': StarPU has no worker of that kind here%s", name,
                      advice(&kinds[i], 0, why, sizeof why));
    *device = device_any(name, kinds[i].where, kind_node(&kinds[i]));
    return SL_OK;
  }
  return sl__fail(
      SL_BAD_ARGUMENT,
      "unknown device '%s': use cpu, cpu:N, cuda:N, gpu-or-cpu or any, with commas between", name);
}

enum sl_status sl__devices_parse(const char *list, struct sl__device **devices, int *count) {
  enum sl_status status = SL_OK;
  if (!list) list = "any";
  size_t most = 1;
  for (const char *c = list; *c; c++) most += *c == ',';
  *count = 0;
  *devices = sl__alloc(most, sizeof **devices, "the device list");
  char *copy = sl__strdup(list), *rest = copy;
  if (!*devices || !copy) {
    status = SL_NO_MEMORY;
    goto out;
  }
  for (char *name = strsep(&rest, ","); name; name = strsep(&rest, ","))
    SL__TRY(find_device(name, &(*devices)[(*count)++]));
out:
  free(copy);
  if (status != SL_OK) {
    free(*devices);
    *devices = NULL;
    *count = 0;
  }
  return status;
}
