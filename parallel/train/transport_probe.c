/* The choice of a transport (--exchange auto). All ranks measure both transports together: each
 * rank sends to the next one, which passes the message on, while all workers compute for longer
 * than a time slice of the system. Rank 0 decides by the time until messages and computation are
 * done: a transport that delivers early but takes the processor from the workers gains nothing. */
#include "parallel/train/transport_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/net/net.h"
#include "core/runtime/log.h"
#include "core/runtime/wait.h"
#include "parallel/params/exchange.h"
#include "parallel/step/plan.h"

enum { MPI, STARPU, TRANSPORTS };
enum { ROUNDS = 2, HOPS = 4, KERNELS = 32, KERNEL_FLOATS = 524288 };

static const int64_t floats[SL__MESSAGE_SIZES] = {1024, 262144};

struct trial {
  struct sl_context *context;
  struct sl__tensor *out[SL__MESSAGE_SIZES], *in[SL__MESSAGE_SIZES];
  struct sl__tensor **work; /* one a worker */
  int workers;
};

struct times {
  double us[TRANSPORTS][SL__MESSAGE_SIZES];
};

static void close_trial(struct trial *t) {
  for (int s = 0; s < SL__MESSAGE_SIZES; s++) {
    sl__tensor_free(t->out[s]);
    sl__tensor_free(t->in[s]);
  }
  for (int w = 0; t->work && w < t->workers; w++) sl__tensor_free(t->work[w]);
  free(t->work);
}

static enum sl_status open_trial(struct sl_context *context, struct trial *t) {
  enum sl_status status = SL_OK;
  *t = (struct trial){.context = context, .workers = (int)starpu_cpu_worker_get_count()};
  t->work = sl__alloc((size_t)t->workers + 1, sizeof *t->work, "a trial of messages");
  if (!t->work) return SL_NO_MEMORY;
  for (int w = 0; w < t->workers; w++)
    SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(KERNEL_FLOATS), SL_F32, &t->work[w]));
  for (int s = 0; s < SL__MESSAGE_SIZES; s++) {
    SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(floats[s]), SL_F32, &t->out[s]));
    SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(floats[s]), SL_F32, &t->in[s]));
    SL__TRY(sl__fill(context, &(struct sl__launch){.name = "trial"}, t->out[s], 1));
  }
  status = sl__wait_for_all(context);
out:
  return status;
}

/* Microseconds from the first task's submission to the end of all. */
static enum sl_status take_round(struct trial *t, int size, int hops, double *us) {
  const struct sl__launch work = {.name = "trial", .place = {.where = STARPU_CPU}};
  const struct sl__launch message = {.name = "trial", .priority = SL__PRIORITY_LOSS};
  struct sl__net *net = t->context->net;
  int ranks = sl__net_size(net), rank = sl__net_rank(net);
  struct sl__peers next = sl__peer((rank + 1) % ranks), last = sl__peer((rank + ranks - 1) % ranks);
  double begin = starpu_timing_now();
  enum sl_status status;
  for (int hop = 0; hop < hops; hop++) {
    SL__TRY(sl__send(t->context, &message, SL__TAG_TRIAL, &next, 1, &t->out[size]));
    SL__TRY(sl__receive(t->context, &message, SL__TAG_TRIAL, &last, 1, &t->in[size]));
    SL__TRY(sl__reduce(t->context, &message, t->out[size], 1, &t->in[size]));
  }
  for (int k = 0; k < KERNELS && hops > 1; k++)
    for (int w = 0; w < t->workers; w++) SL__TRY(sl__fill(t->context, &work, t->work[w], 1));
  status = sl__wait_for_all(t->context);
  *us = starpu_timing_now() - begin;
out:
  return status;
}

/* The mean of some rounds; the first message is not counted. */
static enum sl_status measure(struct trial *t, struct times *times) {
  enum sl_status status = SL_OK;
  for (int transport = 0; transport < TRANSPORTS; transport++) {
    const bool by_starpu[SL__MESSAGE_SIZES] = {transport == STARPU, transport == STARPU};
    SL__TRY(sl__net_barrier(t->context->net)); /* all ranks change the transport together */
    sl__net_try_transport(t->context->net, by_starpu);
    for (int size = 0; size < SL__MESSAGE_SIZES; size++)
      for (int round = 0; round <= ROUNDS; round++) {
        double us;
        SL__TRY(take_round(t, size, round ? HOPS : 1, &us));
        if (round) times->us[transport][size] += us / ROUNDS;
      }
  }
out:
  return status;
}

/* All ranks get the times of the slowest one, so that all choose alike. */
static enum sl_status share(struct sl__net *net, struct times *times) {
  int ranks = sl__net_size(net);
  struct times *all = sl__alloc((size_t)ranks, sizeof *all, "ranks");
  enum sl_status status = SL_NO_MEMORY;
  if (!all) return status;
  SL__TRY(sl__net_gather(net, times, sizeof *times, all));
  for (int r = 1; r < ranks && !sl__net_rank(net); r++)
    for (int transport = 0; transport < TRANSPORTS; transport++)
      for (int size = 0; size < SL__MESSAGE_SIZES; size++)
        if (all[r].us[transport][size] > times->us[transport][size])
          times->us[transport][size] = all[r].us[transport][size];
  status = sl__net_broadcast(net, times, sizeof *times);
out:
  free(all);
  return status;
}

static void decide(struct sl_context *context, const struct times *times) {
  static const char *const names[] = {"4 KB", "1 MB"};
  const double least_gain = 0.8; /* by MPI alone the end is better when a rank is lost */
  bool by_starpu[SL__MESSAGE_SIZES];
  char text[200] = "";
  for (int s = 0; s < SL__MESSAGE_SIZES; s++) {
    by_starpu[s] = times->us[STARPU][s] < least_gain * times->us[MPI][s];
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s%s by %s (lane %.1f ms, StarPU-MPI %.1f)",
             s ? ", " : "", names[s], by_starpu[s] ? "StarPU-MPI" : "lane",
             1e-3 * times->us[MPI][s], 1e-3 * times->us[STARPU][s]);
  }
  sl__net_choose_transport(context->net, by_starpu, text);
  sl__log(context, SL_LOG_INFO, "messages between ranks, as measured: %s", text);
}

enum sl_status sl__probe_transports(struct sl_context *context) {
  struct times times = {0};
  struct trial trial;
  if (!sl__net_transport_is_undecided(context->net)) return SL_OK;
  enum sl_status status;
  SL__TRY(open_trial(context, &trial));
  SL__TRY(measure(&trial, &times));
  SL__TRY(share(context->net, &times));
  decide(context, &times);
out:
  close_trial(&trial);
  return status;
}
