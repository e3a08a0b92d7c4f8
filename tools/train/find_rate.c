#include "tools/train/find_rate.h"

#include <math.h>
#include <stdio.h>

#include "tools/train/failure.h"

enum { LINES = 25, BAR = 40, USUAL_STEPS = 100 };

static void print_bar(double share) {
  for (int i = 0; i < (int)lround(share * BAR); i++) putchar('#');
  putchar('\n');
}

/* Every few points; bars from the least smoothed loss to the first one. */
static void print_points(const struct sl_rate_search *s) {
  int64_t stride = (s->count + LINES - 1) / LINES;
  double least = INFINITY, most = s->count ? s->points[0].smoothed : 0;
  for (int64_t i = 0; i < s->count; i++) least = fmin(least, s->points[i].smoothed);
  printf("%10s  %10s  %10s\n", "rate", "loss", "smoothed");
  for (int64_t i = 0; i < s->count; i += stride) {
    const struct sl_rate_point *p = &s->points[i];
    double share = most > least ? (p->smoothed - least) / (most - least) : 0;
    printf("%10.3g  %10.4f  %10.4f  ", p->lr, p->loss, p->smoothed);
    print_bar(fmin(share, 1));
  }
}

/* With the options of the search: a rate alone would go with the program's own updates. */
static void print_result(const struct sl_rate_search *s, const struct cli *cli) {
  char updates[96] = "";
  if (cli->chose_updates)
    snprintf(updates, sizeof updates, "--optimizer %s --lr-schedule %s ", cli->optimizer_name,
             cli->lr_schedule);
  if (s->steepest > 0)
    printf("The loss falls fastest at %s--lr %.2g; it is least at %.2g", updates, s->steepest,
           s->least);
  else
    printf("At no rate the loss falls more than batches differ");
  if (s->divergence > 0)
    printf(", and diverges at %.2g\n", s->divergence);
  else
    printf(", and does not diverge\n");
  if (!(s->steepest > 0)) printf("Take more --steps or a larger --batch.\n");
}

int find_rate(struct session *session) {
  struct sl_rate_search *search;
  int64_t steps = session->cli.search_steps ? session->cli.search_steps : USUAL_STEPS;
  const struct sl_rate_search_options options = {.steps = steps};
  enum sl_status status = sl_find_rate(session->trainer, session->train_loader, &options, &search);
  if (status != SL_OK) return session_fail_library(session, status);
  if (!session->rank) print_points(search);
  if (!session->rank && search->count < steps && !(search->divergence > 0))
    printf("Stopped by a signal after %lld steps\n", (long long)search->count);
  else if (!session->rank)
    print_result(search, &session->cli);
  sl_rate_search_free(search);
  return EXIT_DONE;
}
