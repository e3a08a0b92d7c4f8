#include "core/graph/helper.h"

#include <sched.h>

#include "core/base/clock.h"
#include "core/graph/graph_state.h"
#include "core/runtime/context.h"

/* In the inbox of a worker while there is no message: of one that polls, and of one that helps with
 * a run, which takes only a message that asks for help with the next run. Without that a worker
 * that loses its core for a moment when a run ends would miss the next one. The inbox of a worker
 * that does not poll holds NULL. */
static struct sl__inbox_message empty, busy;

static bool replace(struct worker_inbox *inbox, struct sl__inbox_message *from,
                    struct sl__inbox_message *to) {
  return __atomic_compare_exchange_n(&inbox->message, &from, to, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED);
}

bool sl__inbox_put(struct sl_context *context, int member, struct sl__inbox_message *message) {
  return replace(&context->graphs->inboxes[member], &empty, message);
}

static bool put_join(struct sl_context *context, int member, struct sl__inbox_message *message) {
  struct worker_inbox *inbox = &context->graphs->inboxes[member];
  /* in the order in which the worker goes from one to the other */
  return replace(inbox, &busy, message) || replace(inbox, &empty, message);
}

void sl__batch_begins(struct sl_context *context) {
  __atomic_fetch_add(&context->graphs->batches, 1, __ATOMIC_RELAXED);
}

void sl__batch_ends(struct sl_context *context) {
  __atomic_fetch_sub(&context->graphs->batches, 1, __ATOMIC_RELAXED);
}

int sl__batches(const struct sl_context *context) {
  return __atomic_load_n(&context->graphs->batches, __ATOMIC_RELAXED);
}

int sl__member_core(int member) {
  int worker = starpu_worker_get_by_type(STARPU_CPU_WORKER, member);
  int unit = worker < 0 ? -1 : starpu_worker_get_bindid(worker);
  return unit < 0 ? -1 : (int)starpu_get_pu_os_index((unsigned)unit);
}

bool sl__inbox_put_on_core(struct sl_context *context, int core,
                           struct sl__inbox_message *message) {
  const int64_t most_us = 10;
  int count = (int)starpu_cpu_worker_get_count();
  for (int member = 0; member < count && member < SL__TEAM_MOST && core >= 0; member++) {
    if (sl__member_core(member) != core) continue;
    int64_t seen = __atomic_load_n(&context->graphs->inboxes[member].seen_us, __ATOMIC_RELAXED);
    return (int64_t)sl__microseconds() - seen <= most_us && sl__inbox_put(context, member, message);
  }
  return false;
}

/* When a worker stops polling: at `end_us`, or 30 us after a batch has begun that does not ask it
 * for help. Such a batch has a task for each core, and the next one may be for this worker. */
struct polling {
  double end_us;
  double batch_us;  /* when that batch was first seen; 0: there is none */
  double others_us; /* since when StarPU may have other tasks for this worker; 0: it has none */
};

static bool is_over(const struct sl_context *context, double now, struct polling *p) {
  const double most_us = 30;
  if (!sl__batches(context))
    p->batch_us = 0;
  else if (!(p->batch_us > 0))
    p->batch_us = now;
  return now > p->end_us || (p->batch_us > 0 && now > p->batch_us + most_us);
}

static bool is_join(const struct sl__inbox_message *message) {
  return message->run == sl__graph_join_team;
}

/* Returns the next message, or NULL when the worker is to stop polling. A worker that looked for
 * StarPU's tasks without a pause would keep its core from other threads until the kernel's next
 * tick, some milliseconds; this one yields after each look. The inbox is open again while a short
 * message runs: the thread that it wakes may send the next one before the message has ended. */
static struct sl__inbox_message *poll_inbox(struct sl_context *context, int member,
                                            struct polling *polling) {
  struct worker_inbox *inbox = &context->graphs->inboxes[member];
  double now = sl__microseconds();
  if (!replace(inbox, NULL, &empty)) replace(inbox, &busy, &empty);
  for (; !is_over(context, now, polling); now = sl__microseconds()) {
    __atomic_store_n(&inbox->seen_us, (int64_t)now, __ATOMIC_RELAXED);
    struct sl__inbox_message *message = __atomic_load_n(&inbox->message, __ATOMIC_ACQUIRE);
    if (message && message != &empty && !is_join(message)) {
      __atomic_store_n(&inbox->message, &empty, __ATOMIC_RELEASE);
      return message;
    }
    if (message != &empty) break;
    sched_yield();
  }
  struct sl__inbox_message *message = __atomic_exchange_n(&inbox->message, NULL, __ATOMIC_ACQ_REL);
  return message == &empty ? NULL : message;
}

static struct sl__graph *graph_of(struct sl__inbox_message *message) {
  return (struct sl__graph *)((char *)message - offsetof(struct sl__graph, join_message));
}

void sl__graph_join_team(struct sl__inbox_message *message, int member) {
  const double timeout_us = 200;
  struct sl__graph *g = graph_of(message);
  __atomic_fetch_and(&g->asked, ~(UINT32_C(1) << member), __ATOMIC_RELAXED);
  sl__team_join(g->subgraphs[0].team, member, timeout_us);
  __atomic_fetch_sub(&g->helpers, 1, __ATOMIC_RELEASE); /* the graph may be freed from here on */
}

static bool is_late(const struct polling *p) {
  const double most_us = 20000;
  return p->others_us > 0 && sl__microseconds() > p->others_us + most_us;
}

/* Before a run of a step: are tasks ready, or executing, besides the leader's and the helpers'?
 * Only while the leader is in its kernel, which is when its team is expected, its task is certainly
 * one of them, and the task of the next step is not. Of a predictor's batch: there may be. */
static void look_for_others(const struct sl__graph *g, bool is_step, struct polling *p) {
  int helping = __atomic_load_n(&g->context->graphs->helping, __ATOMIC_RELAXED);
  bool may_be = !is_step || starpu_task_nready() > 1 + helping;
  if (may_be && !(p->others_us > 0)) p->others_us = sl__microseconds();
  if (!may_be && sl__team_is_expected(g->subgraphs[0].team)) p->others_us = 0;
}

/* Only helping prolongs the polling, not other messages, and for at most 20 ms if StarPU may have
 * tasks for this worker. A step asks in each run; to help with it does not put off making way for a
 * batch. */
void sl__graph_help(struct sl__graph *g, int member) {
  const double polling_us = 60;
  struct sl_context *context = g->context;
  struct worker_inbox *inbox = &context->graphs->inboxes[member];
  struct sl__inbox_message *message = &g->join_message;
  __atomic_store_n(&inbox->is_helping, true, __ATOMIC_RELAXED);
  __atomic_fetch_add(&context->graphs->helping, 1, __ATOMIC_RELAXED);
  for (struct polling p = {0}; message; message = poll_inbox(context, member, &p)) {
    bool helps = is_join(message), is_step = helps && graph_of(message)->slice_us > 0;
    if (helps) look_for_others(graph_of(message), is_step, &p);
    if (is_step && !is_late(&p) && !sl__batches(context)) replace(inbox, NULL, &busy);
    message->run(message, member);
    if (helps) p.end_us = sl__microseconds() + (is_late(&p) ? 0 : polling_us);
    if (helps && !is_step) p.batch_us = 0;
  }
  __atomic_fetch_sub(&context->graphs->helping, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&inbox->is_helping, false, __ATOMIC_RELAXED);
}

struct sl__place sl__member_place(int member) {
  int worker = starpu_worker_get_by_type(STARPU_CPU_WORKER, member);
  return (struct sl__place){.where = STARPU_CPU, .worker = worker + 1};
}

static bool submit_helper(struct sl__graph *g, int member, int priority) {
  const struct sl__launch launch = {.place = sl__member_place(member), .priority = priority};
  const struct sl__helper_args args = {g, member};
  return sl__submit(g->context, g->helper_op, &launch, 0, NULL, &args, sizeof args, 0, 0) == SL_OK;
}

/* How a member may be asked. */
enum way { BY_MESSAGE, BY_TASK, BY_EITHER };

static void ask(struct sl__graph *g, int member, int priority, enum way way) {
  uint32_t own = UINT32_C(1) << member;
  if (__atomic_fetch_or(&g->asked, own, __ATOMIC_RELAXED) & own) return;
  __atomic_fetch_add(&g->helpers, 1, __ATOMIC_RELAXED);
  if (way != BY_TASK && put_join(g->context, member, &g->join_message)) return;
  if (way != BY_MESSAGE && submit_helper(g, member, priority)) return;
  __atomic_fetch_and(&g->asked, ~own, __ATOMIC_RELAXED);
  __atomic_fetch_sub(&g->helpers, 1, __ATOMIC_RELAXED);
}

void sl__graph_ask_helper(struct sl__graph *g, int member, int priority) {
  ask(g, member, priority, BY_EITHER);
}

void sl__graph_want_helpers(struct sl__graph *g, int members, int priority) {
  const struct worker_inbox *inboxes = g->context->graphs->inboxes;
  for (int member = 0; member < members; member++) {
    bool is_helping = __atomic_load_n(&inboxes[member].is_helping, __ATOMIC_RELAXED);
    if (member != g->leader && !is_helping) ask(g, member, priority, BY_TASK);
  }
}

void sl__graph_ask_helpers(struct sl__graph *g, int members) {
  sl__team_expect(g->subgraphs[0].team);
  for (int member = 0; member < members; member++)
    if (member != g->leader) ask(g, member, 0, BY_MESSAGE);
}
