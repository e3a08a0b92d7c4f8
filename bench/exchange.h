/* Methods to exchange one block's gradients between ranks: each rank has a gradient, and each gets
 * the gradients' sum in the ranks' order, as it would get new weights. (The update itself is
 * left out: it costs the same everywhere.) */
#ifndef SL_BENCH_EXCHANGE_H
#define SL_BENCH_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include <mpi.h>

/* Floats with one owner, the rank that adds them up. */
struct piece {
  int64_t begin, count;
  int owner, missing; /* gradients that have not arrived, at the owner */
};

enum cut {
  CUT_WHOLE, /* the block has one owner */
  CUT_EVEN,  /* each rank owns a part, of one size but for the remainder */
  CUT_SHARDS /* shards of SHARD floats, as of Starling's KVStore, go round the ranks */
};
enum { SHARD = 250000 };

struct exchange {
  int ranks, rank;
  int64_t floats;
  float *gradient, *weights;
  float *inbox; /* [ranks, floats]: where the others' gradients arrive, each at its place */
  struct piece *pieces;
  int piece_count;
  /* of point-to-point messages: the piece that a gradient completes, or -1 */
  MPI_Request *requests;
  int *request_piece, *completed, request_count, open;
  /* of collectives: each rank's part, and where it comes from or goes to */
  int *counts, *starts, *inbox_counts, *inbox_starts;
  bool gathering;
  int64_t sent; /* bytes that this rank handed over for others, in one exchange */
  void *starpu;
};

struct way {
  const char *name;
  enum cut cut;
  bool blocking; /* start() returns when all is done: nothing to poll */
  void (*start)(struct exchange *);
  bool (*poll)(struct exchange *); /* true when all is done */
};

/* Names as --ways takes them. NULL at the end, or where there is none. */
const struct way *way_at(int i);
const struct way *way_find(const char *name);
#define WAY_NAMES                                                                                  \
  "allreduce, alltoall, ialltoall, p2p-whole, p2p-even, p2p-shards, starpu-even, starpu-shards"

/* Allocates memory for exchanges of `floats` values. Returns false if there is none. */
bool exchange_open(struct exchange *x, const struct way *way, int64_t floats);
void exchange_close(struct exchange *x);

/* weights = sum of the gradients from begin on, in the ranks' order. */
void exchange_add(struct exchange *x, int64_t begin, int64_t count);

/* Gradient i of a rank: any value, but in such values' sum the order shows, from three ranks on. */
float exchange_value(int rank, int64_t i);

/* ---- exchange_starpu.c ---- */

bool exchange_starpu_open(struct exchange *x);
void exchange_starpu_close(struct exchange *x);
void exchange_starpu_run(struct exchange *x);

/* StarPU with one worker, which calls kernel() over and over between compute(true) and
 * compute(false). */
bool starpu_ranks_start(void);
void starpu_ranks_stop(void);
bool starpu_ranks_compute(bool on, void (*kernel)(void));

#endif
