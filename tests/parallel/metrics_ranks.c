/* Metrics over ranks; tests/parallel/test_metrics_ranks.sh starts it by mpirun. Reference: each
 * rank measures all data alone (tests/parallel/test_metrics.c has the naive loops). Rank 0 prints
 * "ok - WHAT" or "not ok - WHAT". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling.h>

#include "core/base/random.h"

#define TRY(call)                                                                                  \
  do {                                                                                             \
    if ((call) != SL_OK) {                                                                         \
      fprintf(stderr, "rank %d: %s: %s\n", rank, #call, sl_error());                               \
      if (context) sl_leave(context, sl_error());                                                  \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

/* The last batch of an epoch is short, and empty on some ranks. */
enum { COUNT = 61, IN = 3, MOST = 8, BATCH = 12, STEPS = 5, TOKENS = COUNT * STEPS + 1 };

static struct sl_context *context;
static int rank, ranks;
static bool good = true;
static float inputs[COUNT * IN], targets[COUNT * MOST];
static int32_t labels[COUNT], tokens[TOKENS];

static float draw(uint64_t stream, int64_t i) {
  return 2 * sl__uniform(11, stream, (uint64_t)i) - 1;
}

static void make_values(void) {
  for (int i = 0; i < COUNT * IN; i++) inputs[i] = draw(1, i);
  for (int n = 0; n < COUNT; n++) labels[n] = n * 7 % 11;
  for (int i = 0; i < TOKENS; i++) tokens[i] = (int32_t)((draw(4, i) + 1) / 2 * MOST);
}

struct task {
  const char *name;
  enum sl_loss_kind loss;
  int64_t width, chunk;
  bool is_text, is_placed;
  int servers; /* the last ranks have no data */
};

static struct sl_dataset *data_of(const struct task *task) {
  struct sl_dataset *set;
  bool has_labels = task->loss == SL_LOSS_CROSS_ENTROPY;
  static int32_t own[COUNT];
  const struct sl_dataset_options description = {
      .name = "table",
      .sample = SL_SHAPE(IN),
      .target = has_labels ? (struct sl_shape){0} : SL_SHAPE(task->width),
      .count = COUNT,
      .classes = has_labels ? (int)task->width : 0};
  if (task->is_text) {
    TRY(sl_tokens_new("text", tokens, TOKENS, STEPS, MOST, &set));
    return set;
  }
  for (int n = 0; n < COUNT; n++) own[n] = (int32_t)(labels[n] % task->width);
  for (int i = 0; i < COUNT * task->width; i++)
    targets[i] = task->loss == SL_LOSS_BCE ? (float)(draw(2, i) > 0.3f) : draw(2, i);
  TRY(sl_dataset_floats(&description, inputs, has_labels ? NULL : targets, has_labels ? own : NULL,
                        true, &set));
  return set;
}

static struct sl_model *model_of(const struct task *task, bool alone) {
  struct sl_model *m;
  TRY(sl_model_new(context, task->is_text ? &SL_SHAPE(STEPS) : &SL_SHAPE(IN), &m));
  if (task->is_text)
    TRY(sl_embedding(m, "embed",
                     &(struct sl_embedding_options){.vocabulary = MOST, .features = 4}));
  if (task->is_text) TRY(sl_gru(m, "gru", &(struct sl_gru_options){.features = 5}));
  TRY(sl_dense(m, "fc",
               &(struct sl_dense_options){.features = task->width, .positions = task->is_text}));
  if (task->is_placed && !alone) TRY(sl_place(m, "embed,gru=rank0/cpu:0;fc=rank1/cpu:0"));
  return m;
}

/* One rank cannot take its loader: all refuse the evaluation, and measure afterwards. */
static void refuse(struct sl_trainer *trainer, struct sl_loader *loader) {
  struct sl_dataset *set;
  struct sl_loader *other;
  double loss, accuracy;
  TRY(sl_digits_new(COUNT, 1, true, &set));
  TRY(sl_loader_new(set, &(struct sl_loader_options){.batch = BATCH}, &other));
  enum sl_status status = sl_trainer_evaluate(trainer, rank ? loader : other, &loss, &accuracy);
  if (status != SL_BAD_SHAPE || !strstr(sl_error(), "has samples")) {
    fprintf(stderr, "rank %d: a wrong loader: %s\n", rank, sl_status_name(status));
    good = false;
  }
  sl_loader_free(other);
  sl_dataset_free(set);
}

static struct sl_evaluation *measure(const struct task *task, bool alone) {
  struct sl_dataset *set = data_of(task);
  struct sl_model *m = model_of(task, alone);
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_evaluation *e;
  int members = task->is_placed && !alone ? ranks : 1, worker = rank / members;
  int parts = alone ? 1 : ranks / members - task->servers;
  TRY(sl_loader_new(
      set,
      &(struct sl_loader_options){
          .batch = BATCH / parts, .num_parts = parts, .part_index = worker < parts ? worker : 0},
      &loader));
  TRY(sl_trainer_new(
      m, &(struct sl_optimizer){0}, NULL,
      &(struct sl_trainer_options){.replicas = 1,
                                   .chunk = alone ? 0 : task->chunk,
                                   .loss.kind = task->loss,
                                   .servers = alone ? 0 : task->servers,
                                   .kvstore = alone ? SL_KVSTORE_LOCAL : SL_KVSTORE_DIST_SYNC},
      &trainer));
  if (!alone) refuse(trainer, loader);
  TRY(sl_trainer_measure(trainer, loader, &e));
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_model_free(m);
  sl_dataset_free(set);
  return e;
}

static bool is_near(double a, double b) {
  return fabs(a - b) <= 1e-5 * (1 + fabs(b)) || (isnan(a) && isnan(b));
}

/* Rank 0's bits, and those of one process nearly. */
static bool agrees(const struct sl_metric *m, const struct sl_metric *alone) {
  double first = m->value;
  bool fine = !strcmp(m->name, alone->name) && m->count == alone->count;
  TRY(sl_broadcast(context, &first, sizeof first));
  fine = fine && !memcmp(&first, &m->value, sizeof first) && is_near(m->value, alone->value);
  for (int64_t i = 0; fine && i < m->count; i++) fine = is_near(m->each[i], alone->each[i]);
  if (!fine)
    fprintf(stderr, "rank %d: %s %.9g, alone %.9g\n", rank, m->name, m->value, alone->value);
  return fine;
}

static void check(const struct task *task) {
  struct sl_evaluation *e = measure(task, false), *alone = measure(task, true);
  bool fine = e->metric_count == alone->metric_count && e->metric_count > 1 &&
              e->samples == alone->samples && is_near(e->loss, alone->loss);
  for (int i = 0; i < e->metric_count; i++) fine &= agrees(&e->metrics[i], &alone->metrics[i]);
  enum sl_status status = sl_share(context, fine ? SL_OK : SL_BAD_FILE, "the values differ");
  good &= status == SL_OK;
  if (!rank) printf("%s - %s\n", status == SL_OK ? "ok" : "not ok", task->name);
  fflush(stdout);
  sl_evaluation_free(e);
  sl_evaluation_free(alone);
}

int main(void) {
  static const struct task tasks[] = {
      {.name = "labels", .loss = SL_LOSS_CROSS_ENTROPY, .width = 7},
      {.name = "labels of two classes", .loss = SL_LOSS_CROSS_ENTROPY, .width = 2},
      {.name = "values", .loss = SL_LOSS_MSE, .width = 3},
      {.name = "yes and no", .loss = SL_LOSS_BCE, .width = 2},
      {.name = "a text", .loss = SL_LOSS_CROSS_ENTROPY, .width = MOST, .is_text = true},
      {.name = "a text in chunks",
       .loss = SL_LOSS_CROSS_ENTROPY,
       .width = MOST,
       .is_text = true,
       .chunk = 2},
      {.name = "a text, one model on both ranks",
       .loss = SL_LOSS_CROSS_ENTROPY,
       .width = MOST,
       .is_text = true,
       .is_placed = true}};
  static const struct task served = {
      .name = "values, with a server", .loss = SL_LOSS_MSE, .width = 3, .servers = 1};
  TRY(sl_open(&(struct sl_context_options){.seed = 11, .distributed = true}, &context));
  rank = sl_rank(context);
  ranks = sl_rank_count(context);
  make_values();
  for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
    if (!tasks[i].is_placed || ranks == 2) check(&tasks[i]);
  if (ranks == 3) check(&served);
  sl_close(context);
  return !good;
}
