#include "parallel/params/exchange_state.h"

#include <limits.h>
#include <stdlib.h>

/* Below this a message costs more to begin than to carry. */
#define SMALL_BYTES 65536

/* Of an owner that is a worker, too. */
static int own_term(const struct sl__exchange *x) {
  return sl__is_worker(&x->ranks) ? sl__worker(&x->ranks) : -1;
}

static bool is_mine(const struct sl__exchange *x, int parcel) {
  return x->parcels[parcel].owner == x->ranks.rank;
}

/* Gradients come last layer first; so do the messages. */
static void group(struct sl__exchange *x) {
  bool *taken = sl__alloc((size_t)x->parcel_count + 1, sizeof *taken, "an exchange");
  int at = 0;
  x->message_count = -(taken == NULL);
  for (int p = 0; taken && p < x->parcel_count; p++) taken[p] = x->parcels[p].elsewhere;
  for (int p = x->parcel_count - 1; taken && p >= 0; p--) {
    if (taken[p]) continue;
    struct sl__exchange_message *m = &x->messages[x->message_count++];
    int64_t bytes = 0;
    *m = (struct sl__exchange_message){.owner = x->parcels[p].owner, .parcels = x->order + at};
    for (int q = p; q >= 0; q--) {
      int64_t more = 4 * x->parcels[q].count;
      if (taken[q] || x->parcels[q].owner != m->owner || (q < p && bytes + more > SMALL_BYTES))
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
  const struct sl__parcel *parcel = &x->parcels[p];
  struct sl_shape shape = SL_SHAPE(parcel->count);
  enum sl_status status = SL_OK;
  if (!sl__is_compressed(x) || parcel->elsewhere) return SL_OK;
  if (is_mine(x, p)) SL__TRY(sl__tensor_temporary(context, &shape, SL_F32, &x->total[p]));
  if (!sl__is_worker(&x->ranks)) return SL_OK;
  SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(sl__compress_words(&x->compress, parcel->count)),
                               SL_I32, &x->packed[p]));
  if (!sl__compress_has_residual(&x->compress)) return SL_OK;
  SL__TRY(sl__tensor_temporary(context, &shape, SL_F32, &x->residual[p]));
  SL__TRY(sl__fill(context, &parcel->launch, x->residual[p], 0));
out:
  return status;
}

static enum sl_status make_terms(struct sl__exchange *x, int p) {
  if (!is_mine(x, p)) return SL_OK;
  enum sl_status status = SL_OK;
  enum sl_type type = sl__is_compressed(x) ? SL_I32 : SL_F32;
  struct sl_shape shape = SL_SHAPE(sl__compress_words(&x->compress, x->parcels[p].count));
  x->terms[p] = sl__alloc((size_t)x->ranks.workers, sizeof **x->terms, "an exchange");
  if (!x->terms[p]) return SL_NO_MEMORY;
  for (int w = 0; w < x->ranks.workers && status == SL_OK; w++)
    if (w != own_term(x)) status = sl__tensor_temporary(x->context, &shape, type, &x->terms[p][w]);
  return status;
}

static enum sl_status check(int count, const struct sl__parcel *parcels) {
  for (int p = 0; p < count; p++)
    if (parcels[p].count > INT_MAX / 4)
      return sl__fail(SL_BAD_ARGUMENT,
                      "%s: a shard of %lld elements is too large for one message; take a "
                      "smaller --bigarray-bound or more ranks",
                      parcels[p].name, (long long)parcels[p].count);
  return SL_OK;
}

enum sl_status sl__exchange_new(struct sl_context *context, const struct sl__ranks *ranks,
                                int count, const struct sl__parcel *parcels,
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
  SL__TRY(check(count, parcels));
  size_t n = (size_t)count;
  x->parcels = sl__alloc(n, sizeof *x->parcels, "an exchange");
  x->order = sl__alloc(n, sizeof *x->order, "an exchange");
  x->messages = sl__alloc(n, sizeof *x->messages, "an exchange");
  x->terms = sl__alloc(n, sizeof *x->terms, "an exchange");
  x->list = sl__alloc(n * (size_t)ranks->size + 2, sizeof *x->list, "an exchange");
  x->packed = sl__alloc(n, sizeof *x->packed, "an exchange");
  x->residual = sl__alloc(n, sizeof *x->residual, "an exchange");
  x->total = sl__alloc(n, sizeof *x->total, "an exchange");
  status = SL_NO_MEMORY;
  if (!x->packed || !x->residual || !x->total) goto out;
  if (!x->parcels || !x->order || !x->messages || !x->terms || !x->list) goto out;
  for (int p = 0; p < count; p++) x->parcels[p] = parcels[p];
  x->parcel_count = count;
  group(x);
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
  for (int p = 0; p < x->parcel_count; p++) {
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
  free(x->parcels);
  free(x->order);
  free(x->messages);
  free(x->terms);
  free(x->list);
  free(x);
}

int sl__exchange_messages(const struct sl__exchange *x) { return x->message_count; }

int sl__exchange_parcels(const struct sl__exchange *x, int m, const int **parcels) {
  *parcels = x->messages[m].parcels;
  return x->messages[m].count;
}

/* Those that have the same layers. */
static struct sl__peers all_workers_but_me(const struct sl__exchange *x) {
  return (struct sl__peers){.first = sl__member(&x->ranks),
                            .count = x->ranks.workers,
                            .skip = x->ranks.rank,
                            .stride = sl__members(&x->ranks)};
}

enum sl_status sl__exchange_pack(struct sl__exchange *x, int p, struct sl__tensor *sum,
                                 struct sl__tensor **out) {
  *out = sl__is_compressed(x) ? x->packed[p] : sum;
  if (!sl__is_compressed(x)) return SL_OK;
  return sl__compress(x->context, &x->parcels[p].launch, &x->compress, sum, x->residual[p],
                      x->packed[p]);
}

/* All workers' gradients of a parcel, one after the other, into one sum. */
static enum sl_status unpack(struct sl__exchange *x, int p) {
  struct sl__launch launch = x->parcels[p].launch;
  enum sl_status status = SL_OK;
  for (int w = 0; w < x->ranks.workers && sl__is_compressed(x); w++) {
    launch.accumulate = w > 0;
    SL__TRY(sl__decompress(x->context, &launch, &x->compress, x->terms[p][w], x->total[p]));
  }
out:
  return status;
}

static enum sl_status push_to_owner(struct sl__exchange *x, int m, struct sl__tensor *const *sums) {
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(message->owner);
  enum sl_status status = SL_OK;
  if (!sl__is_worker(&x->ranks)) return SL_OK;
  for (int i = 0; i < message->count; i++) {
    int p = message->parcels[i];
    SL__TRY(sl__exchange_pack(x, p, sums[p], &x->list[i]));
  }
  status = sl__send(x->context, &launch, sl__push_tag(x, m), &owner, message->count, x->list);
out:
  return status;
}

enum sl_status sl__exchange_push(struct sl__exchange *x, int m, struct sl__tensor *const *sums) {
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers others = all_workers_but_me(x);
  enum sl_status status = SL_OK;
  int n = 0;
  if (message->owner != x->ranks.rank) return push_to_owner(x, m, sums);
  for (int w = 0; w < x->ranks.workers; w++)
    for (int i = 0; i < message->count; i++) {
      int p = message->parcels[i];
      if (w == own_term(x))
        SL__TRY(sl__exchange_pack(x, p, sums[p], &x->terms[p][w]));
      else
        x->list[n++] = x->terms[p][w];
    }
  others.patience = x->patience;
  SL__TRY(sl__receive(x->context, &launch, sl__push_tag(x, m), &others, n, x->list));
  for (int i = 0; i < message->count; i++) SL__TRY(unpack(x, message->parcels[i]));
out:
  return status;
}

bool sl__exchange_has_residual(const struct sl__exchange *x) {
  return sl__compress_has_residual(&x->compress);
}

void sl__exchange_listen(struct sl__exchange *x) { x->patience = SL__NO_TIMEOUT; }

enum sl_status sl__exchange_farewell(struct sl__exchange *x, int m, struct sl__tensor *word) {
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(x->messages[m].owner);
  return sl__send(x->context, &launch, sl__push_tag(x, m), &owner, 1, &word);
}

struct sl__tensor *sl__exchange_residual(const struct sl__exchange *x, int parcel) {
  return x->residual[parcel];
}

struct sl__tensor *const *sl__exchange_terms(struct sl__exchange *x, int parcel, int *count) {
  *count = sl__is_compressed(x) ? 1 : x->ranks.workers;
  return sl__is_compressed(x) ? &x->total[parcel] : x->terms[parcel];
}

/* What was received has been added up by tasks submitted before. */
static void forget_terms(struct sl__exchange *x, const struct sl__exchange_message *message) {
  for (int i = 0; i < message->count; i++) {
    int p = message->parcels[i];
    for (int w = 0; w < x->ranks.workers; w++)
      if (w != own_term(x) || sl__is_compressed(x)) sl__tensor_invalidate(x->terms[p][w]);
    if (x->total[p]) sl__tensor_invalidate(x->total[p]);
  }
}

enum sl_status sl__exchange_pull(struct sl__exchange *x, int m) {
  const struct sl__exchange_message *message = &x->messages[m];
  struct sl__launch launch = sl__message_launch(x, m);
  struct sl__peers owner = sl__peer(message->owner), others = all_workers_but_me(x);
  owner.patience = SL__TIMEOUT_LONGER;
  for (int i = 0; i < message->count; i++) x->list[i] = x->parcels[message->parcels[i]].param;
  if (message->owner == x->ranks.rank) {
    forget_terms(x, message);
    return sl__send(x->context, &launch, sl__push_tag(x, m) + 1, &others, message->count, x->list);
  }
  if (!sl__is_worker(&x->ranks)) return SL_OK;
  return sl__receive(x->context, &launch, sl__push_tag(x, m) + 1, &owner, message->count, x->list);
}

enum sl_status sl__owners_share(struct sl_context *context, const struct sl__ranks *ranks, int tag,
                                int count, const int *owners, struct sl__tensor *const *scalars,
                                struct sl__tensor **list) {
  struct sl__launch launch = {.name = "norm", .priority = SL__PRIORITY_LOSS};
  int first = sl__first_owner(ranks);
  struct sl__peers all = {.first = first, .count = ranks->size - first, .skip = ranks->rank};
  enum sl_status status = SL_OK;
  for (int owner = first; owner < ranks->size && ranks->rank >= first; owner++) {
    struct sl__peers from = sl__peer(owner);
    int n = 0;
    for (int i = 0; i < count; i++)
      if (owners[i] == owner && scalars[i]) list[n++] = scalars[i];
    if (!n) continue;
    if (owner == ranks->rank)
      SL__TRY(sl__send(context, &launch, tag, &all, n, list));
    else
      SL__TRY(sl__receive(context, &launch, tag, &from, n, list));
  }
out:
  return status;
}
