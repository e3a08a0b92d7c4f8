#include "parallel/params/exchange_state.h"

#include <limits.h>
#include <stdlib.h>

/* To begin a message of fewer bytes takes longer than to send them. */
#define SMALL_BYTES 65536

/* Which of the terms is this owner's own; -1 if it is no worker. */
static int own_term(const struct sl__exchange *x) {
  return sl__is_worker(&x->ranks) ? sl__worker(&x->ranks) : -1;
}

static bool is_mine(const struct sl__exchange *x, int shard) {
  return x->shards[shard].rank == x->ranks.rank;
}

/* Gradients are computed last layer first, and the messages follow that order. */
static void group_messages(struct sl__exchange *x) {
  bool *taken = sl__alloc((size_t)x->shard_count + 1, sizeof *taken, "an exchange");
  int at = 0;
  x->message_count = -(taken == NULL);
  for (int p = 0; taken && p < x->shard_count; p++) taken[p] = x->shards[p].is_elsewhere;
  for (int p = x->shard_count - 1; taken && p >= 0; p--) {
    if (taken[p]) continue;
    struct sl__exchange_message *m = &x->messages[x->message_count++];
    int64_t bytes = 0;
    *m = (struct sl__exchange_message){.owner = x->shards[p].rank, .shards = x->order + at};
    for (int q = p; q >= 0; q--) {
      int64_t more = 4 * x->shards[q].count;
      if (taken[q] || x->shards[q].rank != m->owner || (q < p && bytes + more > SMALL_BYTES))
        continue;
      bytes += more;
      taken[q] = true;
      x->order[at++] = q;
      m->count++;
    }
  }
  free(taken);
}

static enum sl_status make_packed(struct sl__exchange *x, int p) {
  struct sl_context *context = x->context;
  const struct sl__shard *shard = &x->shards[p];
  struct sl_shape shape = SL_SHAPE(shard->count);
  enum sl_status status = SL_OK;
  if (!sl__is_compressed(x) || shard->is_elsewhere) return SL_OK;
  if (is_mine(x, p)) SL__TRY(sl__tensor_temporary(context, &shape, SL_F32, &x->total[p]));
  if (!sl__is_worker(&x->ranks)) return SL_OK;
  SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(sl__compress_words(&x->compress, shard->count)),
                               SL_I32, &x->packed[p]));
  if (!sl__compress_has_residual(&x->compress)) return SL_OK;
  SL__TRY(sl__tensor_temporary(context, &shape, SL_F32, &x->residual[p]));
  SL__TRY(sl__fill(context, &shard->launch, x->residual[p], 0));
out:
  return status;
}

static enum sl_status make_terms(struct sl__exchange *x, int p) {
  if (!is_mine(x, p)) return SL_OK;
  enum sl_status status = SL_OK;
  enum sl_type type = sl__is_compressed(x) ? SL_I32 : SL_F32;
  struct sl_shape shape = SL_SHAPE(sl__compress_words(&x->compress, x->shards[p].count));
  x->terms[p] = sl__alloc((size_t)x->ranks.workers, sizeof **x->terms, "an exchange");
  if (!x->terms[p]) return SL_NO_MEMORY;
  for (int w = 0; w < x->ranks.workers && status == SL_OK; w++)
    if (w != own_term(x)) status = sl__tensor_temporary(x->context, &shape, type, &x->terms[p][w]);
  return status;
}

static enum sl_status check_sizes(int count, const struct sl__shard *shards) {
  for (int p = 0; p < count; p++)
    if (shards[p].count > INT_MAX / 4)
      return sl__fail(SL_BAD_ARGUMENT,
                      "%s: a shard of %lld elements is too large for one message; take a "
                      "smaller bigarray_bound or more ranks",
                      shards[p].launch.name, (long long)shards[p].count);
  return SL_OK;
}

enum sl_status sl__exchange_new(struct sl_context *context, const struct sl__ranks *ranks,
                                int count, const struct sl__shard *shards,
                                const struct sl__compress *compress, int tag,
                                struct sl__exchange **out, int *tags) {
  enum sl_status status;
  *out = NULL;
  struct sl__exchange *x = sl__alloc(1, sizeof *x, "an exchange");
  if (!x) return SL_NO_MEMORY;
  x->context = context;
  x->ranks = *ranks;
  x->tag = tag;
  x->compress = *compress;
  SL__TRY(check_sizes(count, shards));
  size_t n = (size_t)count;
  x->order = sl__alloc(n, sizeof *x->order, "an exchange");
  x->messages = sl__alloc(n, sizeof *x->messages, "an exchange");
  x->terms = sl__alloc(n, sizeof *x->terms, "an exchange");
  x->list = sl__alloc(n * (size_t)ranks->size + 2, sizeof *x->list, "an exchange");
  x->packed = sl__alloc(n, sizeof *x->packed, "an exchange");
  x->residual = sl__alloc(n, sizeof *x->residual, "an exchange");
  x->total = sl__alloc(n, sizeof *x->total, "an exchange");
  status = SL_NO_MEMORY;
  if (!x->packed || !x->residual || !x->total) goto out;
  if (!x->order || !x->messages || !x->terms || !x->list) goto out;
  x->shards = shards;
  x->shard_count = count;
  group_messages(x);
  if (x->message_count < 0) goto out;
  status = SL_OK;
  for (int p = 0; p < count; p++) {
    SL__TRY(make_terms(x, p));
    SL__TRY(make_packed(x, p));
  }
  *tags = SL__TAG_MESSAGES + 2 * x->message_count;
  *out = x;
  x = NULL;
out:
  sl__exchange_free(x);
  return status;
}

void sl__exchange_free(struct sl__exchange *x) {
  if (!x) return;
  sl__parameter_server_free(x);
  for (int p = 0; p < x->shard_count; p++) {
    for (int w = 0; x->terms[p] && w < x->ranks.workers; w++)
      if (w != own_term(x)) sl__tensor_free(x->terms[p][w]);
    free(x->terms[p]);
    sl__tensor_free(x->packed[p]);
    sl__tensor_free(x->residual[p]);
    sl__tensor_free(x->total[p]);
  }
  free(x->packed);
  free(x->residual);
  free(x->total);
  free(x->order);
  free(x->messages);
  free(x->terms);
  free(x->list);
  free(x);
}

int sl__exchange_messages(const struct sl__exchange *x) { return x->message_count; }

int sl__exchange_shards(const struct sl__exchange *x, int m, const int **shards) {
  *shards = x->messages[m].shards;
  return x->messages[m].count;
}

/* The ranks of other workers that have the same layers. */
static struct sl__peers other_workers(const struct sl__exchange *x) {
  return (struct sl__peers){.first = sl__member(&x->ranks),
                            .count = x->ranks.workers,
                            .skip = x->ranks.rank,
                            .stride = sl__members(&x->ranks)};
}

enum sl_status sl__exchange_pack(struct sl__exchange *x, int p, struct sl__tensor **out) {
  const struct sl__shard *shard = &x->shards[p];
  *out = sl__is_compressed(x) ? x->packed[p] : shard->gradient;
  if (!sl__is_compressed(x)) return SL_OK;
  return sl__compress(x->context, &shard->launch, &x->compress, shard->gradient, x->residual[p],
                      x->packed[p]);
}

/* Decompresses all workers' gradients of a shard into one sum, one after the other. */
static enum sl_status unpack(struct sl__exchange *x, int p) {
  struct sl__launch launch = x->shards[p].launch;
  enum sl_status status = SL_OK;
  for (int w = 0; w < x->ranks.workers && sl__is_compressed(x); w++) {
    launch.accumulate = w > 0;
    SL__TRY(sl__decompress(x->context, &launch, &x->compress, x->terms[p][w], x->total[p]));
  }
out:
  return status;
}

static enum sl_status push_to_owner(struct sl__exchange *x, int m) {
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(message->owner);
  enum sl_status status = SL_OK;
  if (!sl__is_worker(&x->ranks)) return SL_OK;
  for (int i = 0; i < message->count; i++) {
    int p = message->shards[i];
    SL__TRY(sl__exchange_pack(x, p, &x->list[i]));
  }
  status = sl__send(x->context, &launch, sl__push_tag(x, m), &owner, message->count, x->list);
out:
  return status;
}

enum sl_status sl__exchange_push(struct sl__exchange *x, int m) {
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers others = other_workers(x);
  enum sl_status status = SL_OK;
  int n = 0;
  if (message->owner != x->ranks.rank) return push_to_owner(x, m);
  for (int w = 0; w < x->ranks.workers; w++)
    for (int i = 0; i < message->count; i++) {
      int p = message->shards[i];
      if (w == own_term(x))
        SL__TRY(sl__exchange_pack(x, p, &x->terms[p][w]));
      else
        x->list[n++] = x->terms[p][w];
    }
  others.timeout_policy = x->timeout;
  SL__TRY(sl__receive(x->context, &launch, sl__push_tag(x, m), &others, n, x->list));
  for (int i = 0; i < message->count; i++) SL__TRY(unpack(x, message->shards[i]));
out:
  return status;
}

bool sl__exchange_has_residual(const struct sl__exchange *x) {
  return sl__compress_has_residual(&x->compress);
}

void sl__exchange_set_timeout(struct sl__exchange *x, enum sl__timeout_policy policy) {
  x->timeout = policy;
}

enum sl_status sl__exchange_send_close(struct sl__exchange *x, int m, struct sl__tensor *content) {
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(x->messages[m].owner);
  return sl__send(x->context, &launch, sl__push_tag(x, m), &owner, 1, &content);
}

struct sl__tensor *sl__exchange_residual(const struct sl__exchange *x, int shard) {
  return x->residual[shard];
}

struct sl__tensor *const *sl__exchange_terms(struct sl__exchange *x, int shard, int *count) {
  *count = sl__is_compressed(x) ? 1 : x->ranks.workers;
  return sl__is_compressed(x) ? &x->total[shard] : x->terms[shard];
}

/* Drops the received gradients, which were added up before. A captured step drops them itself. */
static void drop_terms(struct sl__exchange *x, const struct sl__exchange_message *message) {
  for (int i = 0; i < message->count; i++) {
    int p = message->shards[i];
    for (int w = 0; w < x->ranks.workers; w++)
      if (w != own_term(x)) sl__tensor_invalidate(x->terms[p][w]);
    if (x->packed[p]) sl__tensor_invalidate(x->packed[p]);
    if (x->total[p]) sl__tensor_invalidate(x->total[p]);
  }
}

enum sl_status sl__exchange_pull(struct sl__exchange *x, int m) {
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(message->owner), others = other_workers(x);
  owner.timeout_policy = SL__TIMEOUT_LONGER;
  for (int i = 0; i < message->count; i++) x->list[i] = x->shards[message->shards[i]].param;
  if (message->owner == x->ranks.rank) {
    drop_terms(x, message);
    return sl__send(x->context, &launch, sl__pull_tag(x, m), &others, message->count, x->list);
  }
  if (!sl__is_worker(&x->ranks)) return SL_OK;
  return sl__receive(x->context, &launch, sl__pull_tag(x, m), &owner, message->count, x->list);
}

enum sl_status sl__owners_exchange(struct sl_context *context, const struct sl__ranks *ranks,
                                   int tag, int count, const struct sl__shard *shards,
                                   sl__tensor_of_shard *of, struct sl__tensor **list) {
  struct sl__launch launch = {.name = "norm", .priority = SL__PRIORITY_LOSS};
  int first = sl__first_owner(ranks);
  struct sl__peers others = {.first = first, .count = ranks->size - first, .skip = ranks->rank};
  enum sl_status status = SL_OK;
  for (int owner = first; owner < ranks->size && ranks->rank >= first; owner++) {
    struct sl__peers sender = sl__peer(owner);
    int n = 0;
    for (int s = 0; s < count; s++)
      if (shards[s].rank == owner && of(&shards[s])) list[n++] = of(&shards[s]);
    if (!n) continue;
    if (owner == ranks->rank)
      SL__TRY(sl__send(context, &launch, tag, &others, n, list));
    else
      SL__TRY(sl__receive(context, &launch, tag, &sender, n, list));
  }
out:
  return status;
}
