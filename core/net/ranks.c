/* The public functions about ranks, for distributed contexts and others; and the network's hooks in
 * submissions and waits. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/net/net.h"

static enum sl_status check(void *net) { return sl__net_check(net); }

/* StarPU-MPI cannot cancel a message: after the loss of a rank, tasks that wait for one never end.
 */
static bool is_needed(void *net) { return sl__net_has_starpu(net); }

static int messages(void *net) { return sl__net_posts(net); }

enum sl_status sl__net_register(struct sl_context *c) {
  const struct sl__submit_hook hook = {.after = sl__net_task_ended, .data = c->net};
  const struct sl__health_check health = {
      .is_needed = is_needed, .check = check, .messages = messages, .data = c->net};
  enum sl_status status = sl__submit_hook_add(c, &hook);
  return status == SL_OK ? sl__health_check_add(c, &health) : status;
}

int sl_rank(const struct sl_context *context) {
  SL__NEEDS_OR(0, context);
  return context->net ? sl__net_rank(context->net) : 0;
}

int sl_rank_count(const struct sl_context *context) {
  SL__NEEDS_OR(0, context);
  return context->net ? sl__net_size(context->net) : 1;
}

static const char *const exchanges[] = {
    [SL_EXCHANGE_LANE] = "lane", [SL_EXCHANGE_STARPU] = "starpu", [SL_EXCHANGE_AUTO] = "auto"};

enum sl_status sl_exchange_parse(const char *name, enum sl_exchange *exchange) {
  SL__NEEDS(name, exchange);
  for (size_t i = 0; i < sizeof exchanges / sizeof *exchanges; i++)
    if (!strcmp(name, exchanges[i])) {
      *exchange = (enum sl_exchange)i;
      return SL_OK;
    }
  return sl__fail(SL_BAD_ARGUMENT, "unknown exchange '%s': use lane, starpu or auto", name);
}

const char *sl_exchange_name(enum sl_exchange exchange) {
  return (size_t)exchange < sizeof exchanges / sizeof *exchanges ? exchanges[exchange] : "?";
}

int sl_launched(int *rank) { return sl__launched(rank); }

enum sl_status sl_agree(struct sl_context *context, const char *lines) {
  SL__NEEDS(context, lines);
  return context->net ? sl__net_agree(context->net, lines) : SL_OK;
}

enum sl_status sl_share(struct sl_context *context, enum sl_status status, const char *why) {
  SL__NEEDS(context);
  if (!why) why = "";
  if (context->net && sl__net_size(context->net) > 1)
    return sl__net_sync_status(context->net, status, why);
  return status == SL_OK || status == SL_LOST ? status : sl__fail(status, "%s", why);
}

enum sl_status sl_broadcast(struct sl_context *context, void *data, size_t bytes) {
  SL__NEEDS(context);
  if (bytes) SL__NEEDS(data);
  return context->net && sl__net_size(context->net) > 1
             ? sl__net_broadcast(context->net, data, bytes)
             : SL_OK;
}

enum sl_status sl_bytes_sent(struct sl_context *context, double *mean) {
  SL__NEEDS(context, mean);
  enum sl_status status = SL_OK;
  *mean = 0;
  int size = sl_rank_count(context);
  if (size < 2) return SL_OK;
  double mine = (double)sl__net_bytes_sent(context->net);
  double *all = sl__alloc((size_t)size, sizeof *all, "ranks");
  if (!all) return SL_NO_MEMORY;
  SL__TRY(sl__net_gather(context->net, &mine, sizeof mine, all));
  for (int r = 0; r < size && !sl_rank(context); r++) *mean += all[r] / size;
  status = sl__net_broadcast(context->net, mean, sizeof *mean);
out:
  free(all);
  return status;
}

void sl_leave(struct sl_context *context, const char *why) {
  if (context && context->net) sl__net_announce(context->net, why ? why : "");
}
