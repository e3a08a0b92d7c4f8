/* How the workers' gradients reach the owners of the shards, and how the new weights come back.
 *
 * Every shard has one owner, a rank. Each worker sends it its gradient; the owner has them all, in
 * the workers' order, and sends what it makes of the parameters to all workers. Both ways together
 * a rank sends 2 (N - 1) / N of the parameters, as little as any exchange can. */
#ifndef SL_PARALLEL_PARAMS_EXCHANGE_H
#define SL_PARALLEL_PARAMS_EXCHANGE_H

#include "codelets/codelets.h"
#include "core/net/net.h"

/* One shard, as it travels. */
struct sl__parcel {
  const char *name; /* of the layer; must live on */
  int owner;        /* rank */
  bool elsewhere;   /* other members of the groups have it: it does not travel from or to here */
  int64_t count;    /* elements */
  struct sl__launch launch;
  struct sl__tensor *param; /* this rank's copy, f32 [count] */
};

struct sl__exchange;

/* Who takes part: so many workers, each a group of `members` ranks that have the model's layers
 * between them (0 means 1), the first group ranks 0 .. members - 1. The owners of what member j has
 * are the j-th of all groups; or, where there are ranks beyond the workers', these. */
struct sl__ranks {
  int rank, size, workers, members;
};

static inline int sl__members(const struct sl__ranks *ranks) {
  return ranks->members > 1 ? ranks->members : 1;
}
static inline int sl__first_owner(const struct sl__ranks *ranks) {
  return ranks->size > ranks->workers * sl__members(ranks) ? ranks->workers : 0;
}
static inline bool sl__is_worker(const struct sl__ranks *ranks) {
  return ranks->rank < ranks->workers * sl__members(ranks);
}
/* This rank's worker; its place in that. */
static inline int sl__worker(const struct sl__ranks *ranks) {
  return ranks->rank / sl__members(ranks);
}
static inline int sl__member(const struct sl__ranks *ranks) {
  return ranks->rank % sl__members(ranks);
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
                                 struct sl__tensor *const *sums);

/* From now on this owner waits for gradients as long as it takes: it does not know whether one will
 * come. */
void sl__exchange_listen(struct sl__exchange *exchange);

/* Submit, on a worker: a message in place of a push, of which only the arrival counts, for an owner
 * that listens and will know that no more comes. word: any tensor [1]. */
enum sl_status sl__exchange_farewell(struct sl__exchange *exchange, int m, struct sl__tensor *word);

/* What compression has kept back of this worker's gradients, f32 [count]; NULL where nothing is. */
bool sl__exchange_has_residual(const struct sl__exchange *exchange);
struct sl__tensor *sl__exchange_residual(const struct sl__exchange *exchange, int parcel);

/* On the owner: what is to be added up for a parcel, in this order. */
struct sl__tensor *const *sl__exchange_terms(struct sl__exchange *exchange, int parcel, int *count);

/* Submit: the parameters of message m to all workers. */
enum sl_status sl__exchange_pull(struct sl__exchange *exchange, int m);

/* Submit: each owner's scalars [1] to all other owners; owners[i], a rank, has scalars[i], which
 * may be NULL (on all ranks). list: room for as many. */
enum sl_status sl__owners_share(struct sl_context *context, const struct sl__ranks *ranks, int tag,
                                int count, const int *owners, struct sl__tensor *const *scalars,
                                struct sl__tensor **list);

/* ---- dist_async: the owner applies each worker's gradient when it comes ---- */

/* On the owner: submit the optimizer's step on a shard's own copy of the parameters. Called by any
 * thread. version: updates before this one. norm NULL: nothing is clipped. */
typedef enum sl_status (*sl__apply)(void *user, int parcel, struct sl__tensor *master,
                                    struct sl__tensor *gradient, struct sl__tensor *norm,
                                    int64_t version, float lr);

/* max_staleness: steps that a worker may be ahead of the slowest one (stale synchronous parallel,
 * Ho et al. 2013); negative: any number. has_norm: a norm comes with each push. */
enum sl_status sl__parameter_server_new(struct sl__exchange *exchange, sl__apply apply, void *user,
                                        int max_staleness, bool has_norm);

/* From here on owners listen, with what the parameters are now; nothing where they do already.
 * step: that all workers have made so many. */
enum sl_status sl__parameter_server_open(struct sl__exchange *exchange, int64_t step);

/* Submit, on a worker: the gradients of message m of its step, from 1, to their owner, and the
 * owner's parameters back. */
struct sl__push {
  int64_t step;
  float lr;
  bool stop;   /* this worker wants all to stop */
  bool silent; /* the parameters are not wanted back */
  struct sl__tensor *norm;
};
enum sl_status sl__parameter_server_push(struct sl__exchange *exchange, int m,
                                         struct sl__tensor *const *sums,
                                         const struct sl__push *push);

/* Submit, on a worker: the owner's parameters of message m, with all that this worker has pushed.
 * rests: this worker will wait for all others, so it gets them even if it is ahead, and nobody
 * waits for it until its next message; its steps are counted from 1 again. */
enum sl_status sl__parameter_server_ask(struct sl__exchange *exchange, int m, bool rests);

/* The end in two parts, for all ranks, so that several exchanges can end together: this worker's
 * farewell; then wait, on an owner, for that of all workers. */
enum sl_status sl__parameter_server_leave(struct sl__exchange *exchange);
enum sl_status sl__parameter_server_wait(struct sl__exchange *exchange);

/* All ranks: wait until all workers have come here; then all have the owners' parameters, and
 * nobody listens. Nothing where nobody does. */
enum sl_status sl__parameter_server_settle(struct sl__exchange *exchange);

/* After a failure: wait until no callback is under way any more. */
void sl__parameter_server_calm(struct sl__exchange *exchange);

/* What this worker's pushes since the last call met: other workers' updates between its pull and
 * its push, and how many such counts. stop: some worker wants it. */
struct sl__staleness {
  int64_t sum, most, count;
  bool stop;
};
void sl__parameter_server_staleness(struct sl__exchange *exchange, struct sl__staleness *staleness);

/* By sl__exchange_free. */
void sl__parameter_server_free(struct sl__exchange *exchange);

#endif
