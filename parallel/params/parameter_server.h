/* The exchange out of step (dist_async): an owner applies each worker's gradient when it arrives.
 * Every function takes an exchange on which sl__parameter_server_new has succeeded. */
#ifndef SL_PARALLEL_PARAMS_PARAMETER_SERVER_H
#define SL_PARALLEL_PARAMS_PARAMETER_SERVER_H

#include "parallel/params/exchange.h"

/* max_staleness: number of steps that a worker may be ahead of the slowest worker (stale
 * synchronous parallel, Ho et al. 2013); negative: any number. has_norm: each push carries the norm
 * of the worker's gradient. optimizer NULL: set_optimizer follows before the first push. */
enum sl_status sl__parameter_server_new(struct sl__exchange *exchange,
                                        const struct sl_optimizer *optimizer, int max_staleness,
                                        bool has_norm);

/* The updates to come are steps of this optimizer. The shards' states must suit it. */
void sl__parameter_server_set_optimizer(struct sl__exchange *exchange,
                                        const struct sl_optimizer *optimizer);

/* All ranks: owners start to wait for pushes, from the present parameters. No effect if they wait
 * already. step: number of steps that all workers have made. */
enum sl_status sl__parameter_server_open(struct sl__exchange *exchange, int64_t step);

struct sl__push {
  int64_t step; /* of this worker, from 1 */
  float lr;
  bool stop;               /* this worker wants all workers to stop */
  bool without_pull;       /* the owner need not send the parameters back */
  struct sl__tensor *norm; /* of this worker's gradient; NULL if pushes carry none */
};
/* Submit, on a worker: the gradients of message m to their owner, and the owner's parameters
 * back. */
enum sl_status sl__parameter_server_push(struct sl__exchange *exchange, int m,
                                         const struct sl__push *push);

/* Submit, on a worker: the owner's parameters of message m, with all pushes of this worker applied.
 * pauses: this worker will wait for all others. It gets the parameters even if it is ahead, no
 * other worker waits for it until its next message, and its steps count from 1 again. */
enum sl_status sl__parameter_server_pull(struct sl__exchange *exchange, int m, bool pauses);

/* The end, in two calls so that several exchanges can end together. All ranks call both: the first
 * sends this worker's closing message, the second waits, on an owner, for those of all workers. */
enum sl_status sl__parameter_server_begin_close(struct sl__exchange *exchange);
enum sl_status sl__parameter_server_end_close(struct sl__exchange *exchange);

/* All ranks: wait until all workers have called this. Then all workers have the owners' parameters
 * and the server is closed. stop: this rank is asked to stop; all ranks then know it. No effect if
 * it is closed already. */
enum sl_status sl__parameter_server_synchronize(struct sl__exchange *exchange, bool stop);

/* After a failure: wait until no callback runs. No effect without a parameter
 * server. */
void sl__parameter_server_end_callbacks(struct sl__exchange *exchange);

/* Staleness of this worker's pushes since the last call: the number of other workers' updates
 * between its pull and its push. stop: a worker wants all to stop. */
struct sl__staleness {
  int64_t sum, most, count;
  bool stop;
};
void sl__parameter_server_staleness(struct sl__exchange *exchange, struct sl__staleness *staleness);

#endif
