/* Opening and closing a context: the one place that knows all rooms that have a part in it. */
#include <math.h>
#include <stdlib.h>

#include "codelets/kernels/gemm.h"
#include "codelets/kernels/numerics.h"
#include "codelets/kernels/tuning.h"
#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/memory/admission.h"
#include "core/memory/limits.h"
#include "core/memory/watchdog.h"
#include "core/net/local_rank.h"
#include "core/net/net.h"
#include "core/runtime/cuda.h"
#include "core/runtime/forked.h"
#include "core/runtime/model_folder.h"
#include "core/runtime/tensor.h"
#include "core/runtime/trace.h"
#include "core/runtime/wait.h"
#include "nn/layer.h"

static enum sl_status watch_memory(struct sl_context *c, const struct sl_context_options *options) {
  double stall_timeout = options->stall_timeout;
  enum sl_status status = sl__memory_open(c, options->distributed);
  if (status == SL_OK) status = sl__admission_open(c, stall_timeout > 0);
  return status == SL_OK && stall_timeout > 0 ? sl__watchdog_open(c, stall_timeout) : status;
}

/* failed: this rank's status so far, with sl_error() as its reason. If it is an error, c may be
 * NULL. */
static enum sl_status join_ranks(struct sl_context *c, const struct sl_context_options *options,
                                 enum sl_status failed) {
  const double usual = 60;
  struct sl__net *joined = NULL;
  const struct sl__net_options net = {.timeout = options->timeout > 0   ? options->timeout
                                                 : options->timeout < 0 ? 0
                                                                        : usual,
                                      .exchange = options->exchange,
                                      .interface = options->net_interface,
                                      .ports = options->net_ports,
                                      .failed = failed,
                                      .why = sl_error()};
  enum sl_status status = sl__net_open(c, &net, &joined);
  if (status != SL_OK) return status;
  c->net = joined;
  status = sl__net_register(c);
  if (status == SL_OK) status = sl__net_agree_build(c->net);
  if (status == SL_OK) status = sl__numerics_compare(c);
  return status == SL_OK ? sl__net_open_starpu(c->net) : status;
}

/* StarPU takes a task's memory back when the task's function has returned, although its messages
 * may still be in progress. */
static enum sl_status check_ranks(const struct sl_context *c) {
  if (!c->swaps || sl_rank_count(c) == 1) return SL_OK;
  return sl__fail(
      SL_UNSUPPORTED,
      "a swap folder serves one rank only: leave it out, or cut the batch or the layers "
      "over more ranks instead");
}

/* The GPUs of a machine are divided among its ranks. If there are too few, this rank gets none, and
 * open_devices, which can tell the other ranks, fails. */
static enum sl_status choose_gpus(struct sl_context *c, const struct sl_context_options *options) {
  if (!options->distributed || !sl__devices_may_be_gpus(options->devices)) return SL_OK;
  return sl__local_gpus(sl__cuda_count(), sl__devices_name_gpus(options->devices), &c->gpus);
}

/* Before StarPU starts: it reads its environment only then. */
static enum sl_status start_runtime(struct sl_context *c,
                                    const struct sl_context_options *options) {
  enum sl_status status = sl__trace_open(c, options->trace);
  if (status == SL_OK) status = sl__memory_begin(options, &c->memory);
  if (status == SL_OK) status = sl__model_folder_open(c);
  if (status != SL_OK) return status;
  sl__model_folder_describe(c);
  bool pooled = !sl__memory_limit(c->memory); /* under a limit freed memory must be free */
  if (!starpu_is_initialized()) {
    status = sl__model_folder_check(c);
    if (status != SL_OK) return status;
    choose_gpus(c, options);
  }
  status = sl__context_start(c, options, pooled);
  if (status == SL_OK) sl__gemm_open();
  return status;
}

/* A rank on which this fails tells the others. */
static enum sl_status open_devices(struct sl_context *c, const struct sl_context_options *options) {
  enum sl_status status = c->gpus.count ? SL_OK : choose_gpus(c, options);
  if (status == SL_OK) status = sl__devices_parse(options->devices, &c->devices, &c->device_count);
  if (status == SL_OK) status = sl__cuda_open(c);
  if (status == SL_OK) status = sl__tuning_open(options->tune, sl__model_folder(c), &c->tuning);
  return sl_share(c, status, sl_error());
}

static enum sl_status check_options(const struct sl_context_options *o) {
  if (!(o->stall_timeout >= 0))
    return sl__fail(SL_BAD_ARGUMENT, "stall_timeout is %g; it must be seconds, or 0 for never",
                    o->stall_timeout);
  if (isnan(o->timeout))
    return sl__fail(SL_BAD_ARGUMENT, "timeout is %g; it must be seconds, or below 0 for never",
                    o->timeout);
  if ((unsigned)o->exchange > SL_EXCHANGE_AUTO)
    return sl__fail(SL_BAD_ARGUMENT, "there is no exchange %d (SL_EXCHANGE_*)", (int)o->exchange);
  if ((unsigned)o->log_level > SL_LOG_DEBUG)
    return sl__fail(SL_BAD_ARGUMENT, "there is no log level %d (SL_LOG_*)", (int)o->log_level);
  return SL_OK;
}

/* The start of this rank, before it meets the others. *context: to be closed, also after a failure;
 * or NULL. */
static enum sl_status start(const struct sl_context_options *options, struct sl_context **context) {
  enum sl_status status = check_options(options);
  if (status != SL_OK) return status;
  *context = sl__context_new(options);
  if (!*context) return SL_NO_MEMORY;
  status = start_runtime(*context, options);
  if (status == SL_OK) status = watch_memory(*context, options);
  return status == SL_OK ? sl__graphs_open(*context) : status;
}

enum sl_status sl_open(const struct sl_context_options *options, struct sl_context **context) {
  SL__NEEDS(context);
  static const struct sl_context_options defaults;
  struct sl_context *c = NULL;
  *context = NULL;
  if (!options) options = &defaults;
  enum sl_status status = sl__fork_check(NULL);
  if (status != SL_OK) return status;
  status = start(options, &c);
  if (options->distributed) status = join_ranks(c, options, status);
  if (status != SL_OK) goto out;
  SL__TRY(check_ranks(c));
  SL__TRY(open_devices(c, options));
  if (c->net) sl__net_started(c->net);
  *context = c;
  c = NULL;
out:
  sl_close(c);
  return status;
}

/* All that works with StarPU's tasks and data. false: tasks or messages that never end may still
 * look at it, and at the context. */
static bool close_users(struct sl_context *c) {
  sl__wait_endless(c, -c->endless); /* of a store that was left open: nothing ends before them */
  sl__wait_for_all(c);
  if (c->forked || (c->abandoned && !c->net)) return false;
  if (!sl__net_close(c->net)) return false;
  for (size_t i = 0; i < sizeof c->scratch / sizeof *c->scratch; i++)
    sl__tensor_free(c->scratch[i]);
  sl__tuning_close(c->tuning);
  sl__gemm_close();
  sl__cuda_close(c);
  sl_trace_stop(c);
  sl__watchdog_close(c->watchdog);
  return true;
}

void sl_close(struct sl_context *context) {
  if (!context) return;
  if (context->is_started && !close_users(context)) {
    sl__context_give_up(context);
    return;
  }
  sl__context_stop(context);
  sl__model_folder_close(context);
  sl__trace_close(context->trace);
  sl__graphs_close(context);
  sl__admission_close(context);
  sl__memory_close(context->memory);
  sl__kinds_close(context);
  sl__context_free(context);
}
