#include "core/runtime/context.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/float_mode.h"
#include "core/base/machine.h"
#include "core/base/numbers.h"
#include "core/runtime/cuda.h"
#include "core/runtime/failure.h"
#include "core/runtime/forked.h"
#include "core/runtime/idle.h"
#include "core/runtime/pool.h"
#include "core/runtime/tensor.h"

struct sl_context *sl__context_new(const struct sl_context_options *options) {
  struct sl_context *c = sl__alloc(1, sizeof *c, "the context");
  if (!c) return NULL;
  c->seed = options->seed;
  c->log = options->log;
  c->log_user = options->log_user;
  c->log_level = options->log_level;
  c->gpus = SL__ANY_GPUS;
  starpu_pthread_mutex_init(&c->log_mutex, NULL);
  starpu_pthread_mutex_init(&c->submit_mutex, NULL);
  starpu_pthread_mutex_init(&c->chain_mutex, NULL);
  return c;
}

void sl__context_free(struct sl_context *c) {
  starpu_pthread_mutex_destroy(&c->chain_mutex);
  starpu_pthread_mutex_destroy(&c->submit_mutex);
  starpu_pthread_mutex_destroy(&c->log_mutex);
  free(c->devices);
  free(c);
}

/* The default scheduler knows nothing of transfers or priorities: with a GPU a model-based one
 * serves better. STARPU_SCHED in the environment wins over both. */
static const char *default_scheduler(const char *devices) {
  return sl__devices_name_gpus(devices) ? "dmdas" : "lws";
}

/* Processors that StarPU may take: as many as the environment says; else those of the affinity. */
static int count_cpus(void) {
  static const char *const names[] = {"STARPU_NCPU", "STARPU_NCPUS"};
  int64_t count;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *text = getenv(names[i]);
    if (text && sl__parse_whole(text, 0, INT16_MAX, &count)) return (int)count;
  }
  return sl__machine_affinity();
}

/* CPU workers where all devices are GPUs. Few tasks are for CPUs then, and idle workers look for
 * some at each task that is pushed: they would take the cores that the GPUs' drivers and the
 * submitting thread need. */
static int cpus_beside_gpus(const struct sl__gpu_range *gpus) {
  const int most = 2;
  int drivers = gpus->count < 0 ? sl__cuda_count() : gpus->count;
  int left = count_cpus() - drivers - 1;
  return left < 1 ? 1 : left > most ? most : left;
}

/* StarPU reads this while it starts. Where it must not fetch ahead, because memory is limited, it
 * has no more tasks in progress either. */
static bool set_pipeline(void) {
  const char *name = "STARPU_CUDA_PIPELINE", *prefetch = getenv("STARPU_PREFETCH");
  char text[12];
  if (getenv(name) || (prefetch && !strcmp(prefetch, "0"))) return false;
  snprintf(text, sizeof text, "%d", SL__CUDA_PIPELINE);
  return setenv(name, text, 0) == 0;
}

static enum sl_status init_starpu(struct starpu_conf *conf) {
  bool has_set = set_pipeline();
  int result = starpu_init(conf);
  if (has_set) unsetenv("STARPU_CUDA_PIPELINE");
  if (result == -ENODEV)
    return sl__fail(SL_STARPU, "StarPU finds no worker: are STARPU_NCPU or STARPU_NCUDA set to 0?");
  if (result)
    return sl__fail(SL_STARPU, "StarPU does not start: %s; STARPU_* in the environment may be why",
                    strerror(-result));
  return SL_OK;
}

static void choose_gpus(struct starpu_conf *conf, const struct sl__gpu_range *gpus) {
  if (gpus->count < 0) return;
  conf->ncuda = gpus->count;
  conf->use_explicit_workers_cuda_gpuid = 1;
  for (int i = 0; i < gpus->count; i++) conf->workers_cuda_gpuid[i] = (unsigned)(gpus->first + i);
}

/* StarPU aborts at a text or a negative number. Of the many variables that it reads as numbers
 * these are those that people set for a run. */
static enum sl_status check_environment(void) {
  static const char *const names[] = {"STARPU_NCPU",          "STARPU_NCPUS",
                                      "STARPU_RESERVE_NCPU",  "STARPU_NCUDA",
                                      "STARPU_CUDA_PIPELINE", "STARPU_PREFETCH",
                                      "STARPU_CALIBRATE",     "STARPU_BUS_CALIBRATE",
                                      "STARPU_LIMIT_CPU_MEM", "STARPU_LIMIT_CUDA_MEM",
                                      "STARPU_MIN_PRIO",      "STARPU_MAX_PRIO",
                                      "STARPU_SILENT",        "STARPU_MAIN_THREAD_BIND",
                                      "STARPU_USE_NUMA",      "STARPU_NTHREADS_PER_CORE",
                                      "STARPU_FXT_TRACE",     "STARPU_WORKERS_NOBIND"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *text = getenv(names[i]);
    char *end;
    if (!text) continue;
    long value = strtol(text, &end, 10); /* as StarPU does */
    if (*end || value < 0 || value > INT_MAX)
      return sl__fail(SL_BAD_ARGUMENT, "%s is '%s'; it must be a whole number from 0 on, or unset",
                      names[i], text);
  }
  return SL_OK;
}

/* Of a container that has processor time for two of 64 cores, 64 workers would wait for each other.
 * StarPU counts cores, of which there may be fewer than processors: so it is started to count. */
static enum sl_status start_starpu(const char *devices, const struct sl__gpu_range *gpus) {
  struct starpu_conf conf;
  struct sl__cgroup limits;
  bool chosen = getenv("STARPU_NCPU") || getenv("STARPU_NCPUS");
  enum sl_status status = check_environment();
  if (status == SL_OK) status = sl__machine_check_limits(count_cpus());
  if (status != SL_OK) return status;
  starpu_conf_init(&conf);
  conf.sched_policy_name = default_scheduler(devices);
  choose_gpus(&conf, gpus);
  if (!chosen && sl__devices_are_gpus(devices)) conf.ncpus = cpus_beside_gpus(gpus);
  starpu_malloc_set_align(64);
  status = init_starpu(&conf);
  if (status != SL_OK || chosen) return status;
  sl__cgroup_read("", &limits);
  if (starpu_cpu_worker_get_count() <= ceil(limits.cpus)) return SL_OK;
  starpu_shutdown();
  conf.ncpus = (int)ceil(limits.cpus);
  return init_starpu(&conf);
}

static void prepare_worker(void *unused) {
  (void)unused;
  sl__float_mode_begin();
  sl__flush_subnormals();
  sl__cuda_settle(-1);
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

static int started; /* contexts of this process; atomic */

enum sl_status sl__context_start(struct sl_context *c, const struct sl_context_options *options,
                                 bool pooled) {
  c->began_starpu = !starpu_is_initialized();
  int device = sl__cuda_current();      /* StarPU's measurement of the buses leaves another */
  locale_t before = sl__locale_begin(); /* StarPU reads its performance models */
  enum sl_status status = start_starpu(options->devices, &c->gpus);
  sl__locale_end(before);
  if (status != SL_OK) return status;
  sl__cuda_settle(device);
  starpu_execute_on_each_worker(prepare_worker, NULL, STARPU_CPU | STARPU_CUDA);
  c->is_started = true;
  sl__fork_watch(c);
  /* tensors of an open context may come from a failed task: its waits go on telling so */
  if (!__atomic_fetch_add(&started, 1, __ATOMIC_ACQ_REL)) sl__task_failure_clear();
  if (c->began_starpu) sl__idle_begin();
  if (pooled) sl__pool_open();
  c->is_pooled = pooled;
  describe(c);
  return SL_OK;
}

void sl__context_stop(struct sl_context *c) {
  if (!c->is_started) return;
  if (c->began_starpu) sl__idle_end();
  locale_t before = sl__locale_begin(); /* StarPU writes its performance models */
  starpu_shutdown();
  sl__locale_end(before);
  sl__fork_unwatch(c);
  if (c->is_pooled) sl__pool_close();
  c->is_started = c->is_pooled = false;
  __atomic_fetch_sub(&started, 1, __ATOMIC_ACQ_REL);
}

void sl__context_give_up(const struct sl_context *c) {
  if (!c->forked) __atomic_fetch_sub(&started, 1, __ATOMIC_ACQ_REL);
}

int sl_device_count(const struct sl_context *context) {
  SL__NEEDS_OR(0, context);
  return context->device_count;
}

const char *sl_device_name(const struct sl_context *context, int device) {
  SL__NEEDS_OR("?", context);
  return device >= 0 && device < context->device_count ? context->devices[device].name : "?";
}

int sl_worker_count(const struct sl_context *context) {
  SL__NEEDS_OR(0, context);
  return (int)starpu_worker_get_count();
}

enum sl_status sl_worker(const struct sl_context *context, int worker,
                         struct sl_worker_info *info) {
  SL__NEEDS(context, info);
  int count = (int)starpu_worker_get_count();
  *info = (struct sl_worker_info){0};
  if (worker < 0 || worker >= count)
    return sl__fail(SL_BAD_ARGUMENT, "worker %d: there are %d, from 0", worker, count);
  struct sl__device device;
  sl__device_of_worker(worker, &device);
  snprintf(info->name, sizeof info->name, "%s", device.name);
  starpu_worker_get_name(worker, info->description, sizeof info->description);
  for (int d = 0; d < context->device_count; d++)
    info->listed |= sl__place_has(&context->devices[d].place, worker);
  return SL_OK;
}

const char *sl_scheduler(const struct sl_context *context) {
  SL__NEEDS_OR("?", context);
  return context->scheduler;
}

const char *sl_starpu_version(const struct sl_context *context) {
  SL__NEEDS_OR("?", context);
  return context->version;
}

const char *sl_context_text(const struct sl_context *context) {
  SL__NEEDS_OR("?", context);
  return context->text;
}
