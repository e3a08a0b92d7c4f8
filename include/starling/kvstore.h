/* The KVStore alone: arrays by number, added up over devices and ranks, for training loops that are
 * not the trainer's. */
#ifndef STARLING_KVSTORE_H
#define STARLING_KVSTORE_H

#include <starling/base.h>
#include <starling/nn.h>
#include <starling/parallel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup store The KVStore alone
 * You would use it if you compute gradients yourself, on several devices or several ranks (as
 * MXNet's kvstore is used without its Module; Li et al., "Scaling Distributed Machine Learning with
 * the Parameter Server", OSDI 2014). A value is an array of floats under a whole number, its key;
 * one process, or one rank, owns it. A push sends gradients to the owner, a pull gets the value:
 *
 *     sl_kvstore_open(context, SL_KVSTORE_DIST_SYNC, NULL, &kv);
 *     sl_kvstore_set_optimizer(kv, &(struct sl_optimizer){.lr = 0.1f});
 *     sl_kvstore_init(kv, 3, count, weights);
 *     for (...) {
 *       sl_kvstore_pull(kv, 3, weights);
 *       ... compute gradient from weights and this rank's share of the data ...
 *       sl_kvstore_push(kv, 3, 1, (const float *[]){gradient});
 *     }
 *     sl_kvstore_close(kv);
 *
 * Kinds (enum sl_kvstore_kind). LOCAL and DEVICE: within this process, whatever the number of
 * ranks. DIST_SYNC: each push of a key is one of all workers: their arrays are added up in the
 * ranks' order, and the value changes once. The same calls give the same bits, however fast each
 * rank is. DIST_ASYNC: each worker's push changes the value when it arrives. *_DEVICE: as DEVICE
 * within the rank that owns.
 *
 * Effect of a push on the value: with an optimizer, one step of it with the sum as the gradient (a
 * sum, no mean: divide the learning rate or the gradient by the number of workers); without one,
 * the sum replaces the value, so that a pull gives the sum (no such thing with DIST_ASYNC).
 *
 * Calls. Collective (all workers call them in the same order): open, init, set_optimizer,
 * set_compression, barrier, close. Not collective: push, pull, pushpull; with DIST_SYNC each worker
 * must push each key as often as the others, but in an order of its own. A rank that is a server
 * (the last ones, options.servers) calls open, then serve until all workers have closed, then
 * close. One thread at a time may use a store.
 *
 * Beside a training. Trainers may use the context at the same time, those over ranks only beside
 * stores without servers. sl_wait waits for pushes that were made, on owners of DIST_ASYNC also for
 * those that have arrived, but not for those to come.
 *
 * Several stores may be open; each has its own keys. A server opens all that it serves before its
 * first call of serve, which does what the workers call of any of them. A context must outlive its
 * stores.
 *
 * Errors. SL_BAD_ARGUMENT from a collective call is that of all ranks, and the store is as before,
 * but for pushes that do not match: see sl_kvstore_barrier. SL_LOST: a rank is gone or does nothing
 * while others wait for it (see sl_context_options.timeout: it must be longer than the time between
 * two pushes); only sl_kvstore_close is of use then. */
struct sl_kvstore;

struct sl_kvstore_options {
  int servers; /**< dist_*: number of ranks, the last ones, that only own values; 0: all are
                  workers, and own values */
  int64_t bigarray_bound; /**< elements above which a value is cut: dist_* into a shard an owning
                             rank, else into the fewest of at most this size; 0 means 1,000,000 */
  int max_staleness; /**< DIST_ASYNC: pushes of a key that a worker may be ahead of the slowest one
                        and still get its value (stale synchronous parallel, Ho et al. 2013; a pull
                        waits, a push does not), counted from the last collective call; 0: any */
};

/** Collective in dist_* kinds, servers included. options NULL: defaults. dist_* needs a context
 * with sl_context_options.distributed; with one rank no MPI. \return SL_BAD_ARGUMENT for options
 * out of range, or that are not alike on all ranks. */
SL_API enum sl_status sl_kvstore_open(struct sl_context *context, enum sl_kvstore_kind kind,
                                      const struct sl_kvstore_options *options,
                                      struct sl_kvstore **kv);

/** Collective: a new key (any int) whose value are rank 0's values [count], f32; those of other
 * ranks are not looked at and may be NULL. Keys may come between pushes. \return SL_BAD_ARGUMENT,
 * on all ranks, for a key that is there, a count below 1, or another key or count on another rank.
 */
SL_API enum sl_status sl_kvstore_init(struct sl_kvstore *kv, int key, int64_t count,
                                      const float *values);

/** The sum of values[0] .. values[n - 1], each [count] (one a device, say), in this order, goes to
 * the key's owner. They are copied: they are the caller's again when the call returns. It does not
 * wait for other ranks or earlier pushes; each push that is not finished takes memory for a copy.
 * Values that are not finite are sent like others. \return SL_BAD_ARGUMENT for an unknown key, n
 * below 1, NULL, a server, or DIST_ASYNC without an optimizer; SL_LOST. */
SL_API enum sl_status sl_kvstore_push(struct sl_kvstore *kv, int key, int n,
                                      const float *const *values);

/** The key's value into values [count]. Waits for this key alone. It has all that this worker
 * pushed; DIST_SYNC: exactly that number of all workers' pushes; DIST_ASYNC: and the other pushes
 * that have arrived. \return SL_BAD_ARGUMENT for an unknown key, NULL or a server; SL_LOST. */
SL_API enum sl_status sl_kvstore_pull(struct sl_kvstore *kv, int key, float *values);

/** Push, then pull; DIST_ASYNC: in one round trip. */
SL_API enum sl_status sl_kvstore_pushpull(struct sl_kvstore *kv, int key, int n,
                                          const float *const *values, float *result);

/** Collective: from the next push on a push is a step of this optimizer, run where the value lives
 * (Adam counts each key's pushes from the first one with an optimizer). It may be set again, for
 * another learning rate, say: the state stays. DIST_ASYNC: the learning rate is that of the worker
 * that pushes, the rest the owner's. \return SL_BAD_ARGUMENT for a setting out of range; for clip
 * (no owner knows the whole gradient: clip before the push); after the first push for one that
 * keeps another state (another kind, or momentum where there was none); for settings that differ
 * between ranks. */
SL_API enum sl_status sl_kvstore_set_optimizer(struct sl_kvstore *kv,
                                               const struct sl_optimizer *optimizer);

/** Collective, before the first init: what is sent of pushed values, as
 * sl_trainer_options.compress: "2bit:0.5" (with error feedback, each worker for itself), "1bit",
 * "fp16", "bf16", "none". Values come back whole. With one rank nothing travels, but what is added
 * up is the same. \return SL_BAD_ARGUMENT for another text, LOCAL or DEVICE, a key that is there.
 */
SL_API enum sl_status sl_kvstore_set_compression(struct sl_kvstore *kv, const char *text);

/** This rank; whether it is a worker; how many ranks are. 0, true, 1 for LOCAL and DEVICE. */
SL_API int sl_kvstore_rank(const struct sl_kvstore *kv);
SL_API bool sl_kvstore_is_worker(const struct sl_kvstore *kv);
SL_API int sl_kvstore_num_workers(const struct sl_kvstore *kv);

/** Collective: wait for all workers. DIST_ASYNC: pulls after it have what any worker pushed before
 * it. \return DIST_SYNC: SL_BAD_ARGUMENT, on all ranks, if a key was not pushed as often by all
 * ("key 3 was pushed 5 times by rank 0, 4 times by rank 1"). Such pushes can never be completed:
 * all messages of the context end, and all that needs other ranks fails with SL_LOST. */
SL_API enum sl_status sl_kvstore_barrier(struct sl_kvstore *kv);

/** On a server: own values until all workers have closed the store. \return SL_BAD_ARGUMENT on a
 * worker; SL_LOST. */
SL_API enum sl_status sl_kvstore_serve(struct sl_kvstore *kv);

/** Collective: wait until all pushes have been applied, then free the store, whatever is returned:
 * kv is gone. DIST_SYNC: SL_BAD_ARGUMENT as sl_kvstore_barrier. A server that did not serve does so
 * here. NULL is legal. */
SL_API enum sl_status sl_kvstore_close(struct sl_kvstore *kv);

#ifdef __cplusplus
}
#endif
#endif
