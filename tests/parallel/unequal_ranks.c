/* Rank 0 broadcasts BYTES, all others expect 16: they must not write beyond these, and end with an
 * error. Exit code 1: with an error, as it should be; 3: memory was overwritten.
 * "option": one option of the last rank is bad, so sl_open must fail on all ranks; with better
 * options it opens then.
 *
 *     unequal_ranks BYTES | option */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <starling.h>

enum { EXPECTED = 16, MOST = 1 << 22, GUARD = 0x5a };

static unsigned char memory[MOST];

/* A program that goes on after the failure: mpirun would end the others once it ends. */
static int open_with_option(struct sl_context_options *options) {
  struct sl_context *context;
  int rank, ranks = sl_launched(&rank);
  if (rank == ranks - 1) options->log_level = 99;
  enum sl_status status = sl_open(options, &context);
  fprintf(stderr, "unequal_ranks: %s\n", status == SL_OK ? "no error" : sl_error());
  if (status == SL_OK) {
    sl_close(context);
    return 0;
  }
  if (rank == ranks - 1) sleep(2);
  options->log_level = SL_LOG_WARNING;
  for (int again = 0; again < 3 && status != SL_OK; again++) {
    options->exchange = again ? SL_EXCHANGE_LANE : (enum sl_exchange)77; /* bad on all ranks */
    options->devices = again == 1 && rank == 1 ? "cpu:4000" : NULL;      /* after they have met */
    status = sl_open(options, &context);
    fprintf(stderr, "unequal_ranks: again: %s\n", status == SL_OK ? "no error" : sl_error());
  }
  bool whole = status == SL_OK && sl_share(context, SL_OK, "") == SL_OK;
  if (status == SL_OK) sl_close(context);
  return whole ? 1 : 4;
}

int main(int argc, char **argv) {
  struct sl_context_options options = {.distributed = true, .timeout = 3};
  size_t bytes = argc > 1 ? (size_t)atoi(argv[1]) : 0;
  struct sl_context *context = NULL;
  int code = 1;
  if (argc > 1 && !strcmp(argv[1], "option")) return open_with_option(&options);
  if (bytes <= EXPECTED || bytes > MOST) return 2;
  enum sl_status status = sl_open(&options, &context);
  int rank = status == SL_OK ? sl_rank(context) : 0;
  for (size_t i = 0; rank && i < MOST; i++) memory[i] = GUARD;
  if (status == SL_OK) status = sl_broadcast(context, memory, rank ? EXPECTED : bytes);
  /* a small message may leave before it is refused */
  if (status == SL_OK && !rank) status = sl_share(context, SL_OK, "");
  fprintf(stderr, "unequal_ranks: %s\n", status == SL_OK ? "no error" : sl_error());
  for (size_t i = EXPECTED; rank && i < MOST; i++)
    if (memory[i] != GUARD) code = 3;
  sl_close(context);
  return status == SL_OK ? 0 : code;
}
