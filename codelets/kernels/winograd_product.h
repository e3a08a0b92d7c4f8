/* The products of Winograd's convolutions: for each element of a transformed window, a matrix of
 * weights by the matrix of all windows. codelets/kernels/winograd.c, winograd_channels.c and
 * winograd_backward_data.c include this file before their inner loops, and winograd_product_tile.h
 * among them. */
#ifndef SL_CODELETS_KERNELS_WINOGRAD_PRODUCT_H
#define SL_CODELETS_KERNELS_WINOGRAD_PRODUCT_H

#include <stdint.h>

#include "codelets/kernels/tiles.h"

struct product {
  int places, lanes;
  int64_t rows, channels, vectors; /* of the sums, of each sum, of windows */
  int64_t weights, windows, sums;  /* distances between the matrices of the elements */
  int64_t sums_row;                /* floats from row to row of the sums */
  int run;                         /* windows that lie side by side: a vector of them, or more */
  int64_t next;                    /* floats from the first to the second vector of a pair */
};

/* The sums over channels of some rows of weights by some vectors of windows. Rows of weights have
 * `channels` values; a run of windows lies channel by channel. */
typedef void run_tile(const struct product *p, const float *weight, const float *window, float *to);

static inline int64_t run_at(const struct product *p, int64_t window) {
  return window / p->run * p->channels * p->run + window % p->run;
}

/* Vectors in pairs, with as many rows at a time as fit into registers. */
static inline void multiply(struct product *p, run_tile *const (*all)[SL__TILE_ROWS + 1],
                            const float *weight, const float *window, float *to) {
  p->next = run_at(p, p->lanes);
  for (int place = 0; place < p->places; place++, weight += p->weights, window += p->windows)
    for (int64_t v = 0; v < p->vectors; v += 2) {
      run_tile *const *tiles = all[v + 1 < p->vectors ? 2 : 1];
      int most = SL__TILE_ROWS;
      while (!tiles[most]) most--;
      for (int64_t k = 0; k < p->rows; k += most)
        tiles[p->rows - k < most ? p->rows - k : most](
            p, weight + k * p->channels, window + run_at(p, v * p->lanes),
            to + place * p->sums + k * p->sums_row + v * p->lanes);
    }
}

#endif
