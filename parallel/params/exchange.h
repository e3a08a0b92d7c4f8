/* Exchange of shards between ranks: gradients go from the workers to the owners, parameters come
 * back.
 *
 * Each shard has one owner, a rank. Each worker sends its gradient to the owner. The owner has the
 * gradients of all workers, in the workers' order, and sends the new parameters to all workers. In
 * both directions together a rank sends 2 (N - 1) / N of the parameters, the least that any
 * exchange can send.
 *
 * This header is the exchange in step (dist_sync): all workers' gradients of a step make one
 * update. parameter_server.h is the exchange of dist_async, on the same messages. */
#ifndef SL_PARALLEL_PARAMS_EXCHANGE_H
#define SL_PARALLEL_PARAMS_EXCHANGE_H

#include "core/net/net.h"
#include "parallel/params/shard.h"

/* Numbers of the messages, from the exchange's tag on; a push and a pull for each message. */
enum { SL__TAG_SQUARES, SL__TAG_TRUST, SL__TAG_MESSAGES };

struct sl__exchange;

/* The shards must outlive the exchange. compress: for the gradients; method SL__COMPRESS_NONE for
 * none. Small shards that are neighbours and have the same owner share a message. tag: number of
 * the first message; *tags receives how many numbers the exchange takes. */
enum sl_status sl__exchange_new(struct sl_context *context, const struct sl__ranks *ranks,
                                int count, const struct sl__shard *shards,
                                const struct sl__compress *compress, int tag,
                                struct sl__exchange **exchange, int *tags);
void sl__exchange_free(struct sl__exchange *exchange);

int sl__exchange_messages(const struct sl__exchange *exchange);
/* The shards of message m: returns their number; *shards receives their indices. */
int sl__exchange_shards(const struct sl__exchange *exchange, int m, const int **shards);

/* Submit: the workers' gradients (sl__shard.gradient) of message m to their owner. */
enum sl_status sl__exchange_push(struct sl__exchange *exchange, int m);

/* How long this owner waits for gradients. SL__NO_TIMEOUT if it cannot know when a worker will
 * push. */
void sl__exchange_set_timeout(struct sl__exchange *exchange, enum sl__timeout_policy policy);

/* Submit, on a worker: a closing message in place of a push. Only its arrival counts; the owner
 * knows by other means that no push follows. content: any tensor [1]. */
enum sl_status sl__exchange_send_close(struct sl__exchange *exchange, int m,
                                       struct sl__tensor *content);

/* The residual of compression: the part of this worker's gradients that is not sent yet, f32
 * [count]; NULL if the compression has none. */
bool sl__exchange_has_residual(const struct sl__exchange *exchange);
struct sl__tensor *sl__exchange_residual(const struct sl__exchange *exchange, int shard);

/* On the owner: the gradients of a shard, to be added up in this order. */
struct sl__tensor *const *sl__exchange_terms(struct sl__exchange *exchange, int shard, int *count);

/* Submit: the parameters of message m to all workers. */
enum sl_status sl__exchange_pull(struct sl__exchange *exchange, int m);

/* A tensor of a shard, NULL on all ranks or on none. */
typedef struct sl__tensor *sl__tensor_of_shard(const struct sl__shard *shard);

/* Submit: each owner's tensors (squares of its shards) to all other owners. list: room for `count`
 * tensors. */
enum sl_status sl__owners_exchange(struct sl_context *context, const struct sl__ranks *ranks,
                                   int tag, int count, const struct sl__shard *shards,
                                   sl__tensor_of_shard *of, struct sl__tensor **list);

#endif
