/* Where runs of sl_fit over ranks begin and end; tests/parallel/test_fit_ranks.sh starts it by
 * mpirun. Another batch is here what another number of ranks is: a step of another size. Rank 0
 * prints "ok - WHAT" or "not ok - WHAT".
 *
 *     fit_ranks FOLDER               for its checkpoints */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling.h>

#define TRY(call)                                                                                  \
  do {                                                                                             \
    if ((call) != SL_OK) {                                                                         \
      fprintf(stderr, "rank %d: %s: %s\n", rank, #call, sl_error());                               \
      if (context) sl_leave(context, sl_error());                                                  \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

enum { COUNT = 96, IN = 4, OUT = 2 };

static struct sl_context *context;
static struct sl_dataset *data;
static int rank, ranks;
static bool good = true;
static char path[2][4096]; /* of a run's folder, of a file of the program's */

/* On all ranks; good where it is so on all. */
static void check(bool fine, const char *what) {
  enum sl_status status = sl_share(context, fine ? SL_OK : SL_BAD_FILE, what);
  good &= status == SL_OK;
  if (!rank) printf("%s - %s\n", status == SL_OK ? "ok" : "not ok", what);
  fflush(stdout);
}

struct training {
  struct sl_model *model;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
};

static struct sl_loader *new_loader(int64_t batch) {
  struct sl_loader *loader;
  TRY(sl_loader_new(data,
                    &(struct sl_loader_options){
                        .batch = batch, .shuffle = true, .num_parts = ranks, .part_index = rank},
                    &loader));
  return loader;
}

static struct training begin(int64_t batch) {
  struct training t = {.loader = new_loader(batch)};
  TRY(sl_model_new(context, &SL_SHAPE(IN), &t.model));
  TRY(sl_dense(t.model, "fc", &(struct sl_dense_options){.features = OUT}));
  TRY(sl_trainer_new(
      t.model, &(struct sl_optimizer){.lr = 0.1f}, NULL,
      &(struct sl_trainer_options){.kvstore = SL_KVSTORE_DIST_SYNC, .loss.kind = SL_LOSS_MSE},
      &t.trainer));
  return t;
}

static void end(struct training *t) {
  sl_trainer_free(t->trainer);
  sl_loader_free(t->loader);
  sl_model_free(t->model);
}

/* The trainer's step after a run; -1: it failed. */
static int64_t step_after(struct training *t, struct sl_loader *loader,
                          const struct sl_fit_options *options) {
  if (sl_fit(t->trainer, loader, options, NULL) == SL_OK)
    return sl_trainer_position(t->trainer).step;
  fprintf(stderr, "rank %d: %s\n", rank, sl_error());
  return -1;
}

/* An epoch in batches of 4 leaves checkpoints, which runs go on from in batches of 8. */
static void goes_on_in_larger_batches(int64_t small, int64_t large) {
  struct sl_fit_options options = {.epochs = 1, .checkpoint = path[0], .resume = true};
  struct training t = begin(4);
  check(step_after(&t, t.loader, &options) == small, "an epoch");
  TRY(sl_trainer_save(t.trainer, path[1]));
  end(&t);

  t = begin(8);
  options.epochs = 2;
  check(step_after(&t, t.loader, &options) == small + large,
        "resumed with another batch: the next epoch");
  struct sl_loader *another = new_loader(8);
  struct sl_fit_options steps = {.steps = small + large + 3};
  check(step_after(&t, another, &steps) == small + large + 3,
        "then steps of another loader count from the trainer's first");
  steps.steps = 3 * large + 3; /* of them 2 epochs and 3 are made */
  check(step_after(&t, t.loader, &steps) == small + 2 * large + 3,
        "then the loader again: from its own place");
  sl_loader_free(another);
  end(&t);
}

/* The program loads a file by itself. */
static void loads_another_batch(int64_t small, int64_t large) {
  struct training t = begin(8);
  struct sl_fit_options options = {.epochs = 2};
  TRY(sl_trainer_load(t.trainer, t.loader, path[1]));
  check(step_after(&t, t.loader, &options) == small + large,
        "loaded with another batch: the next epoch");
  end(&t);

  t = begin(8);
  TRY(sl_trainer_load(t.trainer, t.loader, path[1]));
  strcat(path[0], "2");
  options.checkpoint = path[0];
  check(step_after(&t, t.loader, &options) == small + large,
        "loaded with another batch: the next epoch with checkpoints");
  end(&t);
  t = begin(8);
  options.resume = true;
  options.epochs = 3;
  check(step_after(&t, t.loader, &options) == small + 2 * large, "which a run goes on from");
  end(&t);
}

/* Rank 1 alone does so: all ranks fail. */
static enum sl_status seeks(void *user, const struct sl_fit_evaluation *evaluation, bool is_best) {
  (void)evaluation, (void)is_best;
  return rank == 1 ? sl_loader_seek(user, 0) : SL_OK;
}

static void callbacks_leave_the_place(void) {
  struct training t = begin(8);
  struct sl_loader *validation = new_loader(8);
  strcat(path[0], "3");
  const struct sl_fit_options options = {.epochs = 2,
                                         .checkpoint = path[0],
                                         .validation = validation,
                                         .user = t.loader,
                                         .on_evaluation = seeks};
  struct sl_fit_result result;
  enum sl_status status = sl_fit(t.trainer, t.loader, &options, &result);
  check(status == SL_BAD_ARGUMENT && result.common && strstr(sl_error(), "on_evaluation"),
        "a callback that moves the loader of one rank: no checkpoint");
  sl_loader_free(validation);
  end(&t);
}

/* The last rank alone asks for it: no rank makes a step. */
static enum sl_status stops(void *user, const struct sl_fit_begin *begin) {
  (void)begin;
  if (rank == ranks - 1) sl_trainer_stop(user);
  return SL_OK;
}

static void a_stop_before_the_first_step(void) {
  struct training t = begin(8);
  const struct sl_fit_options options = {.epochs = 2, .user = t.trainer, .on_begin = stops};
  struct sl_fit_result result;
  TRY(sl_fit(t.trainer, t.loader, &options, &result));
  check(result.end == SL_FIT_INTERRUPTED && !result.step, "a stop in on_begin: no step");
  end(&t);
}

/* Options that would leave ranks waiting for each other are refused before the first step. */
static void options_are_compared(void) {
  const struct {
    const char *member; /* in the message */
    struct sl_fit_options first, other;
  } cases[] = {
      {"checkpoint_every 2", {.checkpoint_every = 2}, {.checkpoint_every = 3}},
      {"checkpoint_minutes 2", {.checkpoint_minutes = 2}, {.checkpoint_minutes = 3}},
      {"resume given", {.resume = true}, {.resume = false}},
      {"steps 1", {.steps = 1}, {.steps = 2}},
      {"save given", {.save = path[1]}, {.save = NULL}},
      {"save (not given)", {.save = NULL}, {.save = path[1]}},
      {"patience 1", {.patience = 1}, {.patience = 2}},
  };
  struct training t = begin(8);
  struct sl_loader *validation = new_loader(8);
  bool fine = true;
  strcat(path[0], "4");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sl_fit_options options = rank ? cases[i].other : cases[i].first;
    struct sl_fit_result result;
    options.checkpoint = path[0];
    options.validation = validation;
    enum sl_status status = sl_fit(t.trainer, t.loader, &options, &result);
    fine &= status == SL_BAD_ARGUMENT && result.common && strstr(sl_error(), cases[i].member);
    if (status == SL_OK) break; /* a folder with checkpoints is refused for another reason */
  }
  check(fine && !sl_trainer_position(t.trainer).step, "other options on rank 1 are refused");
  const struct sl_fit_options none = {.epochs = 1}, folder = {.epochs = 1, .checkpoint = path[0]};
  enum sl_status status = sl_fit(t.trainer, t.loader, rank ? &folder : &none, NULL);
  check(status == SL_BAD_ARGUMENT && strstr(sl_error(), "checkpoint (not given)"),
        "a folder of checkpoints on rank 1 alone is refused");
  sl_loader_free(validation);
  end(&t);
}

int main(int argc, char **argv) {
  static float inputs[COUNT * IN], targets[COUNT * OUT];
  if (argc != 2) return 2;
  TRY(sl_open(&(struct sl_context_options){.seed = 1, .distributed = true}, &context));
  rank = sl_rank(context);
  ranks = sl_rank_count(context);
  snprintf(path[0], sizeof path[0] - 10, "%s/folder", argv[1]);
  snprintf(path[1], sizeof path[1], "%s/file.safetensors", argv[1]);
  for (int i = 0; i < COUNT * IN; i++) inputs[i] = (float)(i * 7 % 13) / 13;
  for (int i = 0; i < COUNT * OUT; i++) targets[i] = (float)(i % 3);
  TRY(sl_dataset_floats(
      &(struct sl_dataset_options){
          .name = "data", .sample = SL_SHAPE(IN), .target = SL_SHAPE(OUT), .count = COUNT},
      inputs, targets, NULL, false, &data));
  goes_on_in_larger_batches(COUNT / 4 / ranks, COUNT / 8 / ranks);
  loads_another_batch(COUNT / 4 / ranks, COUNT / 8 / ranks);
  callbacks_leave_the_place();
  a_stop_before_the_first_step();
  options_are_compared();
  sl_dataset_free(data);
  sl_close(context);
  return !good;
}
