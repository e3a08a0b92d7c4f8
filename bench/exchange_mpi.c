/* The methods that need MPI only: collectives that block, collectives that are polled, and messages
 * from rank to rank. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdlib.h>
#include <string.h>

#include "bench/exchange.h"

/* ---- the block and its pieces ---- */

float exchange_value(int rank, int64_t i) {
  uint64_t bits = (uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xd1b54a32d192ed03u;
  bits = (bits ^ (bits >> 29)) * 0xbf58476d1ce4e5b9u;
  return ((float)(bits >> 40) / 8388608.0f - 1) / (float)(1 + bits % 8);
}

void exchange_add(struct exchange *x, int64_t begin, int64_t count) {
  enum { RUN = 4096 }; /* stays in the first cache while the ranks are gone through */
  for (int64_t from = begin; from < begin + count; from += RUN) {
    int64_t run = begin + count - from < RUN ? begin + count - from : RUN;
    float *restrict sum = x->weights + from;
    for (int r = 0; r < x->ranks; r++) {
      const float *term = (r == x->rank ? x->gradient : x->inbox + r * x->floats) + from;
      if (r == 0)
        memcpy(sum, term, (size_t)run * sizeof *sum);
      else
        for (int64_t i = 0; i < run; i++) sum[i] += term[i];
    }
  }
}

static bool cut_pieces(struct exchange *x, enum cut cut) {
  x->piece_count = cut == CUT_WHOLE  ? 1
                   : cut == CUT_EVEN ? x->ranks
                                     : (int)((x->floats + SHARD - 1) / SHARD);
  x->pieces = calloc((size_t)x->piece_count, sizeof *x->pieces);
  for (int p = 0; x->pieces && p < x->piece_count; p++) {
    int64_t begin = x->floats * p / x->piece_count, end = x->floats * (p + 1) / x->piece_count;
    x->pieces[p] = (struct piece){.begin = begin, .count = end - begin, .owner = p % x->ranks};
  }
  return x->pieces;
}

static bool make_messages(struct exchange *x) {
  size_t most = 2 * (size_t)x->piece_count * (size_t)x->ranks;
  x->requests = malloc(most * sizeof *x->requests);
  x->request_piece = malloc(most * sizeof *x->request_piece);
  x->completed = malloc(most * sizeof *x->completed);
  return x->requests && x->request_piece && x->completed;
}

static bool make_parts(struct exchange *x) {
  x->counts = calloc(4 * (size_t)x->ranks, sizeof *x->counts);
  if (!x->counts) return false;
  x->starts = x->counts + x->ranks;
  x->inbox_counts = x->starts + x->ranks;
  x->inbox_starts = x->inbox_counts + x->ranks;
  for (int r = 0; r < x->ranks; r++) {
    int64_t begin = x->floats * r / x->ranks, end = x->floats * (r + 1) / x->ranks;
    x->starts[r] = (int)begin;
    x->counts[r] = (int)(end - begin);
  }
  for (int r = 0; r < x->ranks; r++) {
    x->inbox_counts[r] = x->counts[x->rank];
    x->inbox_starts[r] = (int)(r * x->floats) + x->starts[x->rank];
  }
  return true;
}

bool exchange_open(struct exchange *x, const struct way *way, int64_t floats) {
  *x = (struct exchange){.floats = floats};
  MPI_Comm_size(MPI_COMM_WORLD, &x->ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &x->rank);
  x->gradient = malloc((size_t)floats * sizeof(float));
  x->weights = malloc((size_t)floats * sizeof(float));
  x->inbox = malloc((size_t)x->ranks * (size_t)floats * sizeof(float));
  bool made = x->gradient && x->weights && x->inbox && cut_pieces(x, way->cut) &&
              make_messages(x) && make_parts(x);
  for (int64_t i = 0; made && i < floats; i++) {
    x->gradient[i] = exchange_value(x->rank, i);
    x->weights[i] = 1e9f; /* no sum */
  }
  return made && (way->start != exchange_starpu_run || exchange_starpu_open(x));
}

void exchange_close(struct exchange *x) {
  exchange_starpu_close(x);
  free(x->gradient);
  free(x->weights);
  free(x->inbox);
  free(x->pieces);
  free(x->requests);
  free(x->request_piece);
  free(x->completed);
  free(x->counts);
  *x = (struct exchange){0};
}

/* ---- from rank to rank ---- */

static MPI_Request *next_request(struct exchange *x, int completes) {
  x->request_piece[x->request_count] = completes;
  x->open++;
  return &x->requests[x->request_count++];
}

static void post(struct exchange *x, int p) {
  struct piece *piece = &x->pieces[p];
  int count = (int)piece->count, gradient_tag = 2 * p, weights_tag = 2 * p + 1;
  if (piece->owner != x->rank) {
    MPI_Irecv(x->weights + piece->begin, count, MPI_FLOAT, piece->owner, weights_tag,
              MPI_COMM_WORLD, next_request(x, -1));
    MPI_Isend(x->gradient + piece->begin, count, MPI_FLOAT, piece->owner, gradient_tag,
              MPI_COMM_WORLD, next_request(x, -1));
    x->sent += piece->count * (int64_t)sizeof(float);
    return;
  }
  piece->missing = x->ranks - 1;
  for (int r = 0; r < x->ranks; r++)
    if (r != x->rank)
      MPI_Irecv(x->inbox + r * x->floats + piece->begin, count, MPI_FLOAT, r, gradient_tag,
                MPI_COMM_WORLD, next_request(x, p));
}

static void finish(struct exchange *x, int p) {
  const struct piece *piece = &x->pieces[p];
  exchange_add(x, piece->begin, piece->count);
  for (int r = 0; r < x->ranks; r++) {
    if (r == x->rank) continue;
    MPI_Isend(x->weights + piece->begin, (int)piece->count, MPI_FLOAT, r, 2 * p + 1, MPI_COMM_WORLD,
              next_request(x, -1));
    x->sent += piece->count * (int64_t)sizeof(float);
  }
}

/* Gradients for others first: they wait for them. */
static void p2p_start(struct exchange *x) {
  x->request_count = x->open = 0;
  x->sent = 0;
  for (int mine = 0; mine < 2; mine++)
    for (int p = 0; p < x->piece_count; p++)
      if ((x->pieces[p].owner == x->rank) == mine) post(x, p);
}

/* Open MPI's MPI_Testsome looks for new messages only when it finds nothing done, and then does not
 * look at the requests again: only the second call in a row without a result says that nothing has
 * come. With one call a poll, an exchange between kernels would take twice as many kernels. */
static bool p2p_poll(struct exchange *x) {
  for (int count, empty = 0; x->open > 0 && empty<2; empty = count> 0 ? 0 : empty + 1) {
    MPI_Testsome(x->request_count, x->requests, &count, x->completed, MPI_STATUSES_IGNORE);
    x->open -= count;
    for (int i = 0; i < count; i++) {
      int p = x->request_piece[x->completed[i]];
      if (p >= 0 && --x->pieces[p].missing == 0) finish(x, p);
    }
  }
  return x->open == 0;
}

/* ---- collectives ---- */

static bool nothing_to_poll(struct exchange *x) {
  (void)x;
  return true;
}

static void count_parts(struct exchange *x) {
  x->sent = (x->floats - x->counts[x->rank] + (x->ranks - 1) * (int64_t)x->counts[x->rank]) *
            (int64_t)sizeof(float);
}

/* The library decides on the algorithm, the order of the sum and the messages. */
static void allreduce(struct exchange *x) {
  x->sent = -1;
  MPI_Allreduce(x->gradient, x->weights, (int)x->floats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(struct exchange *x) {
  count_parts(x);
  MPI_Alltoallv(x->gradient, x->counts, x->starts, MPI_FLOAT, x->inbox, x->inbox_counts,
                x->inbox_starts, MPI_FLOAT, MPI_COMM_WORLD);
  exchange_add(x, x->starts[x->rank], x->counts[x->rank]);
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, x->weights, x->counts, x->starts, MPI_FLOAT,
                 MPI_COMM_WORLD);
}

static void ialltoall_start(struct exchange *x) {
  count_parts(x);
  x->gathering = false;
  MPI_Ialltoallv(x->gradient, x->counts, x->starts, MPI_FLOAT, x->inbox, x->inbox_counts,
                 x->inbox_starts, MPI_FLOAT, MPI_COMM_WORLD, &x->requests[0]);
}

static bool done_now(struct exchange *x) {
  int done;
  MPI_Test(&x->requests[0], &done, MPI_STATUS_IGNORE);
  return done;
}

static bool ialltoall_poll(struct exchange *x) {
  if (!done_now(x)) return false;
  if (x->gathering) return true;
  exchange_add(x, x->starts[x->rank], x->counts[x->rank]);
  MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, x->weights, x->counts, x->starts, MPI_FLOAT,
                  MPI_COMM_WORLD, &x->requests[0]);
  x->gathering = true;
  return done_now(x);
}

/* ---- all ways ---- */

static const struct way ways[] = {
    {"allreduce", CUT_EVEN, true, allreduce, nothing_to_poll},
    {"alltoall", CUT_EVEN, true, alltoall, nothing_to_poll},
    {"ialltoall", CUT_EVEN, false, ialltoall_start, ialltoall_poll},
    {"p2p-whole", CUT_WHOLE, false, p2p_start, p2p_poll},
    {"p2p-even", CUT_EVEN, false, p2p_start, p2p_poll},
    {"p2p-shards", CUT_SHARDS, false, p2p_start, p2p_poll},
    {"starpu-even", CUT_EVEN, true, exchange_starpu_run, nothing_to_poll},
    {"starpu-shards", CUT_SHARDS, true, exchange_starpu_run, nothing_to_poll},
};
enum { WAYS = sizeof ways / sizeof *ways };

const struct way *way_at(int i) { return i < WAYS ? &ways[i] : NULL; }

const struct way *way_find(const char *name) {
  for (int i = 0; i < WAYS; i++)
    if (strcmp(name, ways[i].name) == 0) return &ways[i];
  return NULL;
}
