/* Checks of options against each other. Checks that the library makes are left to it. */
#include <string.h>

#include "tools/train/cli.h"
#include "tools/train/ranks.h"

bool cli_is_automatic(const struct cli *cli) {
  return cli->placement && !strcmp(cli->placement, "auto");
}

bool cli_splits_itself(const struct cli *cli) { return cli->split && !strcmp(cli->split, "auto"); }

/* NULL, or the library's message. */
static const char *must(const char *option, enum sl_status status) {
  return status == SL_OK ? NULL : option_problem("%s: %s", option, sl_error());
}

/* The options in force: those of the command line, else the program's for its kind of optimizer,
 * else the library's. */
static void fill_optimizer(struct cli *cli, const struct sl_optimizer *own) {
  struct sl_optimizer *optimizer = &cli->optimizer;
  if (optimizer->kind == own->kind) {
    optimizer->lr = own->lr;
    optimizer->weight_decay = own->weight_decay;
    if (own->momentum > 0) optimizer->momentum = own->momentum;
    if (own->beta2 > 0) optimizer->beta2 = own->beta2;
  }
  if (cli->lr >= 0) optimizer->lr = (float)cli->lr;
  if (cli->momentum >= 0) optimizer->momentum = (float)cli->momentum;
  if (cli->weight_decay >= 0) optimizer->weight_decay = (float)cli->weight_decay;
  if (cli->clip >= 0) optimizer->clip = (float)cli->clip;
  optimizer->average = (float)cli->average;
}

static bool is_regression(const struct cli *cli) {
  return cli->task && !strcmp(cli->task, "regression");
}

/* Where nothing is said of the updates. At a constant rate SGD's noise stays above that of a
 * table's targets. */
static void choose_updates(struct cli *cli) {
  bool said = cli->lr >= 0 || cli->momentum >= 0 || cli->optimizer_name != cli->own_optimizer ||
              cli->lr_schedule != cli->own_schedule;
  if (said || !is_regression(cli)) return;
  cli->optimizer_name = "adamw";
  cli->lr_schedule = "cosine";
  cli->chose_updates = true;
}

static const char *make_optimizer(struct cli *cli) {
  const struct sl_optimizer own = cli->optimizer; /* the program's defaults, for its kind */
  cli->optimizer = (struct sl_optimizer){0};
  const char *why = must("--optimizer", sl_optimizer_parse(cli->optimizer_name, &cli->optimizer));
  if (why) return why;
  fill_optimizer(cli, &own);
  why = must("--optimizer", sl_optimizer_check(&cli->optimizer));
  cli->lr = (double)cli->optimizer.lr;
  cli->momentum = (double)cli->optimizer.momentum;
  cli->weight_decay = (double)cli->optimizer.weight_decay;
  cli->clip = (double)cli->optimizer.clip;
  return why;
}

static const char *check_schedule(const struct cli *cli) {
  struct sl_schedule schedule;
  return must("--lr-schedule", sl_schedule_parse(cli->lr_schedule, 1000000, &schedule));
}

static const char *check_loss(const struct cli *cli) {
  struct sl_loss_part parts[SL_MAX_FIELDS];
  struct sl_loss loss = {0};
  const char *why = cli->loss ? must("--loss", sl_loss_parse_parts(cli->loss, parts, &loss)) : NULL;
  bool regression = is_regression(cli);
  if (why || !cli->task) return why;
  if (!regression && strcmp(cli->task, "classification") != 0)
    return option_problem("--task %s: is unknown; use classification or regression", cli->task);
  if (cli->loss && sl_loss_takes_labels(&loss) && regression)
    return option_problem("--loss %s: takes labels, but --task says regression; use mse",
                          cli->loss);
  return NULL;
}

static const char *check_data(const struct cli *cli) {
  if (!cli->fold || !cli->validation) return NULL;
  return "--fold and --validation: both say what is held back; give one of them";
}

static const char *check_checkpoint(struct cli *cli) {
  if (!cli->checkpoint &&
      (cli->checkpoint_every || cli->checkpoint_minutes > 0 || cli->keep || cli->resume))
    return "--checkpoint-every, --keep, --resume: they belong to --checkpoint DIR";
  if (cli->checkpoint_minutes > 0 && ranks_are_async(cli))
    return option_problem(
        "--checkpoint-every %gmin: ranks out of step (dist_async) meet after a number of steps; "
        "name one",
        cli->checkpoint_minutes);
  if (!cli->keep) cli->keep = 3;
  return NULL;
}

/* Several processes without such a --kvstore are refused later, for that alone. */
static const char *check_ranks(struct cli *cli) {
  bool alone = !ranks_wanted(cli) && !ranks_strayed(cli);
  if (alone && (cli->servers || cli->bigarray_bound || cli->compress))
    return "--servers, --bigarray-bound, --compress: only with --kvstore dist_...";
  if (alone && cli->exchange) return "--exchange: only with --kvstore dist_...";
  if (alone && (cli->timeout >= 0 || cli->net_interface || cli->net_ports))
    return "--timeout, --net-interface, --net-ports: only with --kvstore dist_...";
  if (cli->timeout < 0) cli->timeout = 60;
  if (cli->max_staleness && !ranks_are_async(cli))
    return "--max-staleness: only with --kvstore dist_async";
  return NULL;
}

static const char *check_placement(const struct cli *cli) {
  bool automatic = cli_is_automatic(cli); /* --stages: at most as many */
  int places =
      (cli->stages != 0 && !automatic) + (cli->placement != NULL) + (cli->placement_file != NULL);
  if (places > 1)
    return "--stages, --placement and --placement-file: each says where layers run; give one of "
           "them";
  if (automatic && ranks_wanted(cli))
    return "--placement auto: not over ranks yet; name the devices";
  if (cli_splits_itself(cli) && (cli->stages || cli->placement || cli->placement_file))
    return "--split auto: --stages and --placement say where layers run; give weights (--split "
           "4,1) "
           "or leave them out";
  if (automatic && cli->split && strcmp(cli->split, "even") != 0)
    return "--split and --placement auto: replicas get devices that are alike then; leave --split "
           "out";
  return NULL;
}

/* It has the length of --steps, and leaves nothing behind. */
static const char *check_search(struct cli *cli) {
  if (!cli->find_rate) return NULL;
  if (cli->save || cli->best || cli->checkpoint || cli->log || cli->trace || cli->patience)
    return "--find-rate: trains nothing; leave out --save, --best, --checkpoint, --log, --trace "
           "and "
           "--patience";
  if (ranks_are_async(cli)) return "--find-rate: needs ranks in common steps; take dist_sync";
  if (cli->steps && cli->steps < 10)
    return option_problem("--find-rate: %lld steps are too few; take 10 or more, or none for 100",
                          (long long)cli->steps);
  cli->search_steps = cli->steps;
  return NULL;
}

static const char *check_files(const struct cli *cli) {
  if (cli->trace_first && !cli->trace) return "--trace-steps: it belongs to --trace DIR";
  if (cli->confusion && !cli->log) return "--confusion: the matrix goes into a log; add --log FILE";
  if (cli->log_gradients && !cli->log && !ranks_wanted(cli)) /* ranks may have one log for all */
    return "--log-gradients: the norms go into a log; add --log FILE";
  if (cli->swap && !cli->memory_limit)
    return "--swap: it belongs to --memory-limit, which says what main memory holds";
  if (cli->load && cli->load_part)
    return "--load and --load-part: both say where the weights come from; give one of them";
  return NULL;
}

const char *cli_check(struct cli *cli) {
  choose_updates(cli);
  const char *why = make_optimizer(cli);
  if (!why) why = check_schedule(cli);
  if (!why) why = check_data(cli);
  if (!why) why = check_loss(cli);
  if (!why) why = check_placement(cli);
  if (!why) why = check_ranks(cli);
  if (!why) why = check_checkpoint(cli);
  if (!why) why = check_search(cli);
  return why ? why : check_files(cli);
}
