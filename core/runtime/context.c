#include "core/runtime/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory/admission.h"
#include "core/runtime/cuda.h"
#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/runtime/failure.h"
#include "core/memory/limits.h"
#include "core/net/net.h"
#include "core/runtime/pool.h"
#include "core/memory/watchdog.h"
#include "core/memory/swap.h"
#include "core/runtime/tensor.h"
#include "core/runtime/trace.h"
#include "codelets/kernels/tuning.h"
#include "core/runtime/wait.h"

/* The default scheduler knows nothing of transfers or priorities: with a GPU a model-based one
 * serves better. STARPU_SCHED in the environment wins over both. */
static const char *default_scheduler(const char *devices) {
  bool gpu = devices && (strstr(devices, "cuda") || strstr(devices, "gpu"));
  return gpu ? "dmdas" : "lws";
}

static enum sl_status start_starpu(const char *devices) {
  struct starpu_conf conf;
  starpu_conf_init(&conf);
  conf.sched_policy_name = default_scheduler(devices);
  starpu_malloc_set_align(64);
  int result = starpu_init(&conf);
  if (result == -ENODEV)
    return sl__fail(SL_STARPU, "StarPU finds no worker: are STARPU_NCPU or STARPU_NCUDA set to 0?");
  if (result)
    return sl__fail(SL_STARPU, "StarPU does not start: %s; STARPU_* in the environment may be why",
                    strerror(-result));
  return SL_OK;
}

static void describe(struct sl_context *c) {
  int major, minor, release;
  starpu_get_version(&major, &minor, &release);
  const struct starpu_sched_policy *policy = starpu_sched_get_sched_policy();
  snprintf(c->version, sizeof c->version, "%d.%d.%d", major, minor, release);
  snprintf(c->scheduler, sizeof c->scheduler, "%s", policy ? policy->policy_name : "?");
  snprintf(c->text, sizeof c->text, "StarPU %s, scheduler %s, %u CPU and %u CUDA workers",
           c->version, c->scheduler, starpu_cpu_worker_get_count(), starpu_cuda_worker_get_count());
}

static enum sl_status join(struct sl_context *c, double timeout, enum sl_exchange exchange) {
  const double usual = 60;
  double seconds = timeout > 0 ? timeout : timeout < 0 ? 0 : usual;
  enum sl_status status = sl__net_open(c, seconds, exchange, &c->net);
  if (status == SL_OK) status = sl__net_agree_build(c->net);
  return status == SL_OK ? sl__net_open_starpu(c->net) : status;
}

static enum sl_status watch_memory(struct sl_context *c, double stall_timeout) {
  enum sl_status status = sl__memory_open(c->memory);
  if (status == SL_OK) status = sl__admission_open(c, stall_timeout > 0);
  return status == SL_OK && stall_timeout > 0 ? sl__watchdog_open(c, stall_timeout) : status;
}

/* StarPU takes a task's memory back when its function has returned, while its messages are still
 * under way. */
static enum sl_status check_ranks(const struct sl_context *c) {
  if (!sl__memory_swaps(c->memory) || sl_rank_count(c) == 1) return SL_OK;
  return sl__fail(
      SL_UNSUPPORTED,
      "a swap folder serves one rank only: leave it out, or cut the batch or the layers "
      "over more ranks instead");
}

enum sl_status sl_open(const struct sl_context_options *options, struct sl_context **context) {
  static const struct sl_context_options defaults;
  enum sl_status status;
  *context = NULL;
  if (!options) options = &defaults;
  struct sl_context *c = sl__alloc(1, sizeof *c, "the context");
  if (!c) return SL_NO_MEMORY;
  c->seed = options->seed;
  c->log = options->log;
  c->log_user = options->log_user;
  c->log_level = options->log_level;
  starpu_pthread_mutex_init(&c->log_mutex, NULL);
  starpu_pthread_mutex_init(&c->submit_mutex, NULL);
  status = sl__trace_open(options->trace, &c->trace);
  if (status == SL_OK) status = sl__memory_begin(options, &c->memory);
  if (status == SL_OK) status = start_starpu(options->devices);
  if (status != SL_OK) {
    sl__memory_close(c->memory);
    sl__trace_close(c->trace);
    starpu_pthread_mutex_destroy(&c->submit_mutex);
    starpu_pthread_mutex_destroy(&c->log_mutex);
    free(c);
    return status;
  }
  sl__task_failure_clear();
  if (!sl__memory_limit(c->memory)) sl__pool_open(); /* what is freed must be free */
  SL__TRY(watch_memory(c, options->stall_timeout));
  SL__TRY(sl__graphs_open(c));
  if (options->distributed) SL__TRY(join(c, options->timeout, options->exchange));
  SL__TRY(check_ranks(c));
  status = sl__devices_parse(options->devices, &c->devices, &c->device_count);
  if (status == SL_OK) status = sl__cuda_open(c);
  if (status == SL_OK) status = sl__tuning_open(options->tune, &c->tuning);
  SL__TRY(sl_share(c, status, sl_error()));
  describe(c);
  *context = c;
  c = NULL;
out:
  sl_close(c);
  return status;
}

void sl_close(struct sl_context *c) {
  if (!c) return;
  sl__wait_for_all(c);
  if (c->abandoned && !c->net) return;
  if (!sl__net_close(c->net)) return; /* there are threads that may still look at all of it */
  for (size_t i = 0; i < sizeof c->scratch / sizeof *c->scratch; i++)
    sl__tensor_free(c->scratch[i]);
  sl__tuning_close(c->tuning);
  sl__cuda_close(c);
  sl_trace_stop(c);
  sl__watchdog_close(c->stall);
  starpu_shutdown();
  sl__trace_close(c->trace);
  if (!sl__memory_limit(c->memory)) sl__pool_close();
  sl__graphs_close(c);
  sl__admission_close(c);
  sl__memory_close(c->memory);
  starpu_pthread_mutex_destroy(&c->submit_mutex);
  starpu_pthread_mutex_destroy(&c->log_mutex);
  if (c->kinds_free) c->kinds_free(c->kinds);
  free(c->devices);
  free(c);
}

int sl_device_count(const struct sl_context *c) { return c->device_count; }

const char *sl_device_name(const struct sl_context *c, int device) {
  return device >= 0 && device < c->device_count ? c->devices[device].name : "?";
}

int sl_worker_count(const struct sl_context *c) {
  (void)c;
  return (int)starpu_worker_get_count();
}

enum sl_status sl_worker(const struct sl_context *c, int worker, struct sl_worker_info *info) {
  int count = (int)starpu_worker_get_count();
  *info = (struct sl_worker_info){0};
  if (worker < 0 || worker >= count)
    return sl__fail(SL_BAD_ARGUMENT, "worker %d: there are %d, from 0", worker, count);
  struct sl__device device;
  sl__device_of_worker(worker, &device);
  snprintf(info->name, sizeof info->name, "%s", device.name);
  starpu_worker_get_name(worker, info->description, sizeof info->description);
  for (int d = 0; d < c->device_count; d++)
    info->listed |= sl__place_has(&c->devices[d].place, worker);
  return SL_OK;
}

int sl_rank(const struct sl_context *c) { return c->net ? sl__net_rank(c->net) : 0; }

int sl_rank_count(const struct sl_context *c) { return c->net ? sl__net_size(c->net) : 1; }

static const char *const exchanges[] = {
    [SL_EXCHANGE_LANE] = "lane", [SL_EXCHANGE_STARPU] = "starpu", [SL_EXCHANGE_AUTO] = "auto"};

enum sl_status sl_exchange_parse(const char *name, enum sl_exchange *exchange) {
  for (size_t i = 0; i < sizeof exchanges / sizeof *exchanges; i++)
    if (!strcmp(name, exchanges[i])) {
      *exchange = (enum sl_exchange)i;
      return SL_OK;
    }
  return sl__fail(SL_BAD_ARGUMENT, "unknown exchange '%s': use lane, starpu or auto", name);
}

const char *sl_exchange_name(enum sl_exchange exchange) { return exchanges[exchange]; }

int sl_launched(int *rank) { return sl__launched(rank); }

enum sl_status sl_agree(struct sl_context *c, const char *lines) {
  return c->net ? sl__net_agree(c->net, lines) : SL_OK;
}

enum sl_status sl_share(struct sl_context *c, enum sl_status status, const char *why) {
  return c->net ? sl__net_sync_status(c->net, status, why) : status;
}

enum sl_status sl_broadcast(struct sl_context *c, void *data, size_t bytes) {
  return c->net && sl__net_size(c->net) > 1 ? sl__net_broadcast(c->net, data, bytes) : SL_OK;
}

enum sl_status sl_bytes_sent(struct sl_context *c, double *mean) {
  enum sl_status status = SL_OK;
  *mean = 0;
  int size = sl_rank_count(c);
  if (size < 2) return SL_OK;
  double mine = (double)sl__net_bytes_sent(c->net);
  double *all = sl__alloc((size_t)size, sizeof *all, "ranks");
  if (!all) return SL_NO_MEMORY;
  SL__TRY(sl__net_gather(c->net, &mine, sizeof mine, all));
  for (int r = 0; r < size && !sl_rank(c); r++) *mean += all[r] / size;
  status = sl__net_broadcast(c->net, mean, sizeof *mean);
out:
  free(all);
  return status;
}

void sl_leave(struct sl_context *c, const char *why) {
  if (c && c->net) sl__net_announce(c->net, why);
}

const char *sl_scheduler(const struct sl_context *c) { return c->scheduler; }

const char *sl_starpu_version(const struct sl_context *c) { return c->version; }

const char *sl_context_text(const struct sl_context *c) { return c->text; }

void sl_memory_use(const struct sl_context *c, struct sl_memory_use *use) {
  *use = (struct sl_memory_use){.limit = (int64_t)sl__memory_limit(c->memory)};
  if (!use->limit) return;
  use->peak = (int64_t)sl__admission_peak(c);
  if (sl__memory_swaps(c->memory)) sl__swap_count(&use->swap_out, &use->swap_in, &use->swap_size);
}

enum sl_status sl_wait(struct sl_context *c) { return sl__wait_for_all(c); }
