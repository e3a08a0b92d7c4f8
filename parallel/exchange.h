/* How the workers' gradients reach the owners of the shards, and how the new weights come back.
 *
 * Every shard has one owner, a rank. Each worker sends it its gradient; the owner has them all, in
 * the workers' order, and sends what it makes of the parameters to all workers. Both ways together
 * a rank sends 2 (N - 1) / N of the parameters, as little as any exchange can. */
#ifndef SL_PARALLEL_EXCHANGE_H
#define SL_PARALLEL_EXCHANGE_H

#include "codelets/codelets.h"
#include "core/net.h"

/* One shard, as it travels. */
struct sl__parcel {
  const char *name; /* of the layer; must live on */
  int owner;        /* rank */
  int64_t count;    /* elements */
  struct sl__launch launch;
  struct sl_tensor *param; /* this rank's copy, f32 [count] */
};

struct sl__exchange;

/* Who takes part: ranks 0 .. workers - 1 are workers; the owners are all ranks, or those from
 * workers on where there are any. */
struct sl__ranks {
  int rank, size, workers;
};

static inline int sl__first_owner(const struct sl__ranks *ranks) {
  return ranks->size > ranks->workers ? ranks->workers : 0;
}
static inline bool sl__is_worker(const struct sl__ranks *ranks) {
  return ranks->rank < ranks->workers;
}

/* parcels are copied; compress: of the gradients, method SL__COMPRESS_NONE for none. Neighbours of
 * one owner that are small travel as one message. tag: the first of those to be used; *tags
 * receives how many are. */
enum sl_status sl__exchange_new(struct sl_context *context, const struct sl__ranks *ranks,
                                int count, const struct sl__parcel *parcels,
                                const struct sl__compress *compress, int tag,
                                struct sl__exchange **exchange, int *tags);
void sl__exchange_free(struct sl__exchange *exchange);

int sl__exchange_messages(const struct sl__exchange *exchange);
/* The parcels of message m. */
int sl__exchange_parcels(const struct sl__exchange *exchange, int m, const int **parcels);

/* Submit: a worker's gradients sums[parcel] of message m to their owner. sums may be NULL on a rank
 * that is no worker. */
enum sl_status sl__exchange_push(struct sl__exchange *exchange, int m,
                                 struct sl_tensor *const *sums);

/* What compression has kept back of this worker's gradients, f32 [count]; NULL where nothing is. */
struct sl_tensor *sl__exchange_residual(const struct sl__exchange *exchange, int parcel);

/* On the owner: what is to be added up for a parcel, in this order. */
struct sl_tensor *const *sl__exchange_terms(struct sl__exchange *exchange, int parcel, int *count);

/* Submit: the parameters of message m to all workers. */
enum sl_status sl__exchange_pull(struct sl__exchange *exchange, int m);

/* Submit: each owner's scalars[parcel] to all other owners. */
enum sl_status sl__exchange_share(struct sl__exchange *exchange, struct sl_tensor *const *scalars);

#endif
