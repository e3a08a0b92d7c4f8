/* A model over the ranks of a group, alone and with several groups, and copies of it on each rank;
 * tests/parallel/test_ranks_pipeline.sh starts it by mpirun -np N, N from 2 to 4. References, both
 * of one process (rank 0, KVStore local): with one group the same weights to the bit; with two
 * groups of half the batch each the same losses within 1e-5. Eager steps of the same ranks: the
 * same weights to the bit.
 *
 * usage: nodes_ranks FOLDER; rank 0 prints "ok - WHAT" or "not ok - WHAT". */
#include <math.h>
#include <starling.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/train/trainer.h"
#include "tests/common/task_count.h"

#define TRY(call)                                                                                  \
  do {                                                                                             \
    if ((call) != SL_OK) {                                                                         \
      fprintf(stderr, "rank %d: %s: %s\n", rank, #call, sl_error());                               \
      sl_leave(context, sl_error());                                                               \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

enum { MOST_STEPS = 50, MOST_WEIGHTS = 100000, WINDOW = 17 };

static struct sl_context *context;
static int rank, ranks;
static const char *folder;

/* On all ranks; good where it is so on all. */
static void check(bool good, const char *format, ...) SL_PRINTF(2, 3);
static void check(bool good, const char *format, ...) {
  char what[400];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  enum sl_status status = sl_share(context, good ? SL_OK : SL_BAD_FILE, what);
  if (status == SL_OK) {
    if (!rank) printf("ok - %s\n", what);
  } else if (!rank) {
    printf("not ok - %s\n", sl_error());
  }
  fflush(stdout);
}

/* ---- the networks and their data ---- */

/* conv0 is read by bn0 and sum, act0 by conv1, sum and sum2: by layers on several ranks. */
static void residual(struct sl_model *m) {
  TRY(sl_conv2d(m, "conv0",
                &(struct sl_conv2d_options){.channels = 4, .kernel_h = 3, .stride_h = 3}));
  TRY(sl_batchnorm(m, "bn0", &(struct sl_batchnorm_options){.momentum = 0.2f}));
  TRY(sl_activate(m, "act0", &(struct sl_activation_options){.activation = SL_ACTIVATION_GELU}));
  TRY(sl_conv2d(m, "conv1",
                &(struct sl_conv2d_options){
                    .layer.inputs = "act0", .channels = 4, .kernel_h = 3, .pad_h = 1}));
  TRY(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = "act0,conv1"}));
  TRY(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.2f}));
  TRY(sl_add(m, "sum2", &(struct sl_add_options){.layer.inputs = "act0,drop"}));
  TRY(sl_add(m, "sum3", &(struct sl_add_options){.layer.inputs = "conv0,sum2"}));
  TRY(sl_dense(m, "fc", &(struct sl_dense_options){.features = 10}));
}

static void lenet(struct sl_model *m) {
  TRY(sl_conv2d(
      m, "conv1",
      &(struct sl_conv2d_options){.channels = 4, .kernel_h = 5, .activation = SL_ACTIVATION_TANH}));
  TRY(sl_maxpool2d(m, "pool1", &(struct sl_pool2d_options){.kernel_h = 2}));
  TRY(sl_conv2d(m, "conv2", &(struct sl_conv2d_options){.channels = 6, .kernel_h = 5}));
  TRY(sl_avgpool2d(m, "pool2", &(struct sl_pool2d_options){.kernel_h = 2}));
  TRY(sl_dense(m, "fc1",
               &(struct sl_dense_options){.features = 16, .activation = SL_ACTIVATION_TANH}));
  TRY(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 10}));
}

/* Its first block has more than 256 KB: a captured step keeps no such tensor's memory. */
static void perceptron(struct sl_model *m) {
  TRY(sl_dense(m, "fc1",
               &(struct sl_dense_options){.features = 100, .activation = SL_ACTIVATION_RELU}));
  TRY(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 10}));
}

static void language(struct sl_model *m) {
  TRY(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 13, .features = 7}));
  TRY(sl_lstm(m, "lstm0", &(struct sl_lstm_options){.features = 9}));
  TRY(sl_lstm(m, "lstm1", &(struct sl_lstm_options){.features = 9}));
  TRY(sl_dropout(m, "drop", &(struct sl_dropout_options){.rate = 0.2f}));
  TRY(sl_gru(m, "gru", &(struct sl_gru_options){.features = 8}));
  TRY(sl_dense(m, "decoder", &(struct sl_dense_options){.features = 13, .positions = true}));
}

static void tied(struct sl_model *m) {
  TRY(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 13, .features = 8}));
  TRY(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 8}));
  TRY(sl_dense(
      m, "decoder",
      &(struct sl_dense_options){.features = 13, .positions = true, .layer.shares = "embed"}));
}

struct study {
  const char *name;
  void (*build)(struct sl_model *m);
  bool tokens, scattered; /* layer i on rank i modulo the group; else runs of layers */
  int batch, steps;
  struct sl_trainer_options options;
  struct sl_optimizer optimizer;
};

struct outcome {
  double loss[MOST_STEPS], evaluated;
  float weights[MOST_WEIGHTS];
  int64_t count;
  int tasks;          /* of all steps after the first two */
  int64_t stop, save; /* the first step whose report asks for it; 0: none */
};

static struct sl_dataset *open_data(bool tokens) {
  struct sl_dataset *data;
  int32_t text[1500] = {1};
  for (int i = 1; i < 1500; i++) text[i] = (text[i - 1] * 5 + (i % 7 == 0) + 3) % 13;
  if (tokens)
    TRY(sl_tokens_new("text", text, 1500, WINDOW, 13, &data));
  else
    TRY(sl_digits_new(110, 3, true, &data)); /* the last batch is short */
  return data;
}

static struct sl_model *open_model(const struct study *s) {
  struct sl_model *m;
  TRY(sl_model_new(context, s->tokens ? &SL_SHAPE(WINDOW) : &SL_SHAPE(1, 28, 28), &m));
  s->build(m);
  TRY(sl_model_build(m));
  return m;
}

/* "conv1=rank0/cpu;pool1=rank1/cpu": a rule a layer. */
static void place(const struct study *s, struct sl_model *m, int members) {
  char text[1000] = "";
  size_t used = 0;
  for (int i = 0; i < m->count; i++)
    used +=
        (size_t)snprintf(text + used, sizeof text - used, "%s%s=rank%d/cpu", i ? ";" : "",
                         m->layers[i].name, s->scattered ? i % members : i * members / m->count);
  TRY(sl_place(m, text));
}

/* ---- training ---- */

struct training {
  struct sl_model *model;
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
};

/* members: ranks a copy of the model. 0: one process, which has all of every batch. */
static struct training begin(const struct study *s, int members) {
  struct training t = {.model = open_model(s), .data = open_data(s->tokens)};
  struct sl_trainer_options options = s->options;
  struct sl_loader_options loader = {
      .batch = s->batch, .seed = 5, .shuffle = !s->tokens, .contiguous = s->tokens};
  options.carry_state = s->tokens;
  options.kvstore = SL_KVSTORE_LOCAL;
  if (members) {
    if (members > 1) place(s, t.model, members);
    options.kvstore = s->scattered ? SL_KVSTORE_DIST_SYNC_DEVICE : SL_KVSTORE_DIST_SYNC;
    loader.num_parts = ranks / members - options.servers;
    loader.part_index = rank / members % loader.num_parts; /* a server reads nothing */
    loader.batch = s->batch / loader.num_parts;
  }
  TRY(sl_loader_new(t.data, &loader, &t.loader));
  TRY(sl_trainer_new(t.model, &s->optimizer, NULL, &options, &t.trainer));
  return t;
}

static void note(const struct sl_report *report, struct outcome *out) {
  out->loss[report->step] = report->loss;
  if (report->stop && !out->stop) out->stop = report->step;
  if (report->save && !out->save) out->save = report->step;
}

static void go(const struct training *t, int steps, struct outcome *out) {
  struct sl_report report;
  bool reported = true;
  for (int i = 0; i < steps; i++) {
    if (i == 2) out->tasks = 0;
    TRY(sl_trainer_step(t->trainer, t->loader, &report, &reported));
    if (reported) note(&report, out);
  }
  for (reported = true; reported;) {
    TRY(sl_trainer_drain(t->trainer, &report, &reported));
    if (reported) note(&report, out);
  }
}

/* The weights are rank 0's, as it would save them. */
static void end(struct training *t, struct outcome *out) {
  double accuracy;
  TRY(sl_loader_seek(t->loader, 0));
  TRY(sl_trainer_evaluate(t->trainer, t->loader, &out->evaluated, &accuracy));
  TRY(sl_trainer_settle(t->trainer, NULL));
  sl_trainer_free(t->trainer);
  out->count = 0;
  for (int i = 0; i < sl_model_parameter_count(t->model); i++) {
    struct sl_shape shape;
    const char *name = sl_model_parameter(t->model, i, &shape);
    if (out->count + sl_shape_count(&shape) > MOST_WEIGHTS) exit(1);
    TRY(sl_model_get(t->model, name, out->weights + out->count));
    out->count += sl_shape_count(&shape);
  }
  sl_model_free(t->model);
  sl_loader_free(t->loader);
  sl_dataset_free(t->data);
}

/* A rank has gradients, optimizer's state and activations of its own layers only. */
static bool has_only_its_own(const struct sl_trainer *t) {
  const struct sl__model_shards *kv = t->shards;
  bool good = true;
  int here = 0;
  for (int i = 0; i < t->model->count; i++) {
    bool own = sl__grid_is_here(&t->grid, i);
    here += own;
    for (int r = 0; r < t->grid.replicas && !own; r++)
      good &= !kv->grads[r][i] && !kv->rows[r][i] && !kv->sums[i].dense;
    for (int p = 0; p < t->plan_count; p++) {
      const struct sl__slice *slice = &t->plans[p]->slices[0];
      good &= own || (!slice->saved[i] && !slice->state[i] && !slice->dstate[i]);
      good &= !own || slice->y[i];
    }
  }
  for (int n = 0; n < kv->shard_count; n++)
    good &= sl__grid_is_here(&t->grid, kv->shards[n].block) || !kv->shards[n].state[0];
  return good && here > 0 && here < t->model->count;
}

static bool same_weights(const struct outcome *a, const struct outcome *b) {
  return a->count == b->count && !memcmp(a->weights, b->weights, (size_t)a->count * sizeof(float));
}

static double far(const struct outcome *a, const struct outcome *b, int steps) {
  double most = fabs(a->evaluated - b->evaluated) / b->evaluated;
  for (int i = 0; i < steps; i++) most = fmax(most, fabs(a->loss[i] - b->loss[i]) / b->loss[i]);
  return isfinite(most) ? most : INFINITY;
}

/* A captured step over ranks has the bits of an eager one, in no more tasks: in fewer where ranks
 * have several layers that follow each other. */
static void compare_eager(const struct study *s, int members, const struct outcome *captured,
                          bool has_fewer) {
  static struct outcome eager;
  struct study own = *s;
  own.options.eager = true;
  struct training t = begin(&own, members);
  TRY(task_count_begin(context, &eager.tasks));
  go(&t, s->steps, &eager);
  task_count_end(context, &eager.tasks);
  end(&t, &eager);
  check(same_weights(captured, &eager) && far(captured, &eager, s->steps) == 0 &&
            captured->tasks + has_fewer <= eager.tasks,
        "%s, %d x %d ranks: captured steps have the bits of eager ones, in %d tasks instead of %d",
        s->name, ranks / members, members, captured->tasks, eager.tasks);
}

/* Copies of the model, whose gradients the ranks exchange. A server has messages only, which are
 * submitted one by one. */
static void compare_copies(const struct study *s) {
  static struct outcome captured;
  bool is_server = rank >= ranks - s->options.servers;
  struct training t = begin(s, 1);
  TRY(task_count_begin(context, &captured.tasks));
  go(&t, s->steps, &captured);
  task_count_end(context, &captured.tasks);
  check(t.trainer->captures && (is_server || t.trainer->captured_count > 0),
        "%s, %d copies: steps are captured", s->name, ranks);
  end(&t, &captured);
  compare_eager(s, 1, &captured, !is_server);
}

static void compare(const struct study *s, int members) {
  static struct outcome alone, spread, told;
  struct training t;
  int groups = ranks / members;
  if (!rank) {
    t = begin(s, 0);
    go(&t, s->steps, &alone);
    end(&t, &alone);
  }
  t = begin(s, members);
  TRY(task_count_begin(context, &spread.tasks));
  go(&t, s->steps, &spread);
  task_count_end(context, &spread.tasks);
  check(t.trainer->captures, "%s, %d x %d ranks: steps are captured", s->name, groups, members);
  check(has_only_its_own(t.trainer), "%s, %d x %d ranks: each has its own layers' tensors only",
        s->name, groups, members);
  end(&t, &spread);
  told = spread;
  TRY(sl_broadcast(context, told.loss, sizeof told.loss));
  TRY(sl_broadcast(context, &told.evaluated, sizeof told.evaluated));
  check(!memcmp(told.loss, spread.loss, (size_t)s->steps * sizeof *told.loss) &&
            told.evaluated == spread.evaluated,
        "%s, %d x %d ranks: all are told the same losses", s->name, groups, members);
  double error = rank ? 0 : far(&spread, &alone, s->steps);
  if (groups == 1)
    check(rank || (same_weights(&spread, &alone) && error == 0),
          "%s over %d ranks: the weights and losses of one process, to the bit", s->name, members);
  else
    check(error < 1e-5, "%s, %d x %d ranks: the losses of one process (%.1e)", s->name, groups,
          members, error);
  compare_eager(s, members, &spread, members == 2);
}

/* Stopped in the midst of an epoch and gone on with, by trainers and models of their own. */
static void resume(const struct study *s, int members) {
  static struct outcome whole, parts;
  char path[500];
  struct training t = begin(s, members);
  snprintf(path, sizeof path, "%s/checkpoint.safetensors", folder);
  go(&t, 9, &whole);
  end(&t, &whole);
  t = begin(s, members);
  go(&t, 5, &parts);
  TRY(sl_trainer_save(t.trainer, path));
  end(&t, &parts);
  t = begin(s, members);
  TRY(sl_trainer_load(t.trainer, t.loader, path));
  go(&t, 4, &parts);
  end(&t, &parts);
  check(rank || (same_weights(&whole, &parts) && whole.evaluated == parts.evaluated),
        "%s, %d x %d ranks: a checkpoint goes on to the bit", s->name, ranks / members, members);
}

static const struct study studies[] = {
    {.name = "lenet",
     .build = lenet,
     .batch = 24,
     .steps = MOST_STEPS,
     .options = {.replicas = 1},
     .optimizer = {.lr = 0.05f, .momentum = 0.9f}},
    {.name = "lenet, clipped, 2 replicas x 3 microbatches",
     .build = lenet,
     .scattered = true,
     .batch = 24,
     .steps = 20,
     .options = {.replicas = 2, .microbatches = 3, .big_shard = 300, .in_flight = 3},
     .optimizer = {.lr = 0.1f, .clip = 0.3f}},
    {.name = "language model",
     .build = language,
     .tokens = true,
     .batch = 8,
     .steps = MOST_STEPS,
     .options = {.replicas = 1, .microbatches = 2, .big_shard = 40},
     .optimizer = {.lr = 0.3f, .clip = 0.2f}},
    {.name = "language model, one slice in halves of its time steps",
     .build = language,
     .tokens = true,
     .batch = 8,
     .steps = 20,
     .options = {.replicas = 1},
     .optimizer = {.lr = 0.3f, .clip = 0.2f}},
    {.name = "language model, Adam, clipped, chunks",
     .build = language,
     .tokens = true,
     .scattered = true,
     .batch = 8,
     .steps = 30,
     .options = {.replicas = 1, .microbatches = 4, .chunk = 4},
     .optimizer = {.kind = SL_ADAM, .lr = 0.003f, .epsilon = 1e-3f, .clip = 0.5f}},
    {.name = "language model in bf16",
     .build = language,
     .tokens = true,
     .batch = 8,
     .steps = 8,
     .options = {.replicas = 1, .microbatches = 2, .math = SL_MATH_BF16},
     .optimizer = {.lr = 0.3f}},
};

/* A slice is normalised by itself: the same slices are needed for the same numbers. */
static const struct study normalised[] = {{.name = "residual network, scattered",
                                           .build = residual,
                                           .scattered = true,
                                           .batch = 24,
                                           .steps = 12,
                                           .options = {.replicas = 1, .microbatches = 2},
                                           .optimizer = {.lr = 0.05f, .momentum = 0.9f}}};

/* With an exchange between the ranks: of all that goes with one. */
static const struct study copies[] = {
    {.name = "lenet",
     .build = lenet,
     .batch = 24,
     .steps = 12,
     .options = {.replicas = 1},
     .optimizer = {.lr = 0.05f, .momentum = 0.9f}},
    {.name = "lenet, clipped, cut into shards, 2 replicas, norms of gradients",
     .build = lenet,
     .batch = 24,
     .steps = 12,
     .options = {.replicas = 2, .bigarray_bound = 300, .log_gradients = true},
     .optimizer = {.lr = 0.1f, .clip = 0.3f}},
    {.name = "lenet, LAMB, an average, a server",
     .build = lenet,
     .batch = 24,
     .steps = 12,
     .options = {.servers = 1},
     .optimizer = {.kind = SL_LAMB, .lr = 0.01f, .average = 0.9f, .weight_decay = 0.1f}},
    {.name = "residual network, compressed",
     .build = residual,
     .scattered = true,
     .batch = 24,
     .steps = 12,
     .options = {.compress = "2bit:0.01"},
     .optimizer = {.lr = 0.05f}},
    {.name = "language model, Adam, chunks, cut into shards",
     .build = language,
     .tokens = true,
     .batch = 12,
     .steps = 12,
     .options = {.replicas = 2, .chunk = 4, .bigarray_bound = 100},
     .optimizer = {.kind = SL_ADAM, .lr = 0.003f, .epsilon = 1e-3f}},
    {.name = "perceptron in bf16",
     .build = perceptron,
     .batch = 24,
     .steps = 12,
     .options = {.replicas = 1, .math = SL_MATH_BF16},
     .optimizer = {.lr = 0.05f, .momentum = 0.9f}},
    {.name = "language model in bf16, cut into shards",
     .build = language,
     .tokens = true,
     .batch = 12,
     .steps = 12,
     .options = {.replicas = 1, .math = SL_MATH_BF16, .bigarray_bound = 100},
     .optimizer = {.lr = 0.3f}},
};

/* What one rank asks for in the midst of a training, all are told after the same step. */
static void ask(const struct study *s) {
  static struct outcome own, first;
  struct training t = begin(s, 1);
  go(&t, 4, &own);
  bool early = own.stop || own.save;
  if (rank == ranks - 1) sl_trainer_stop(t.trainer);
  if (!rank) sl_trainer_ask_save(t.trainer);
  go(&t, 4, &own);
  end(&t, &own);
  first = own;
  TRY(sl_broadcast(context, &first, sizeof first));
  check(
      !early && own.stop >= 4 && own.save >= 4 && own.stop == first.stop && own.save == first.save,
      "%s, %d copies: all are told after the same steps that one asks to stop, one to save",
      s->name, ranks);
}

/* ---- what is refused ---- */

struct refusal {
  const char *words, *placement;
  const char *others; /* placement of the other ranks; NULL: the same */
  struct sl_trainer_options options;
  void (*build)(struct sl_model *m); /* NULL: lenet */
};

#define DIST .kvstore = SL_KVSTORE_DIST_SYNC
static const struct refusal refusals[] = {
    {"rank 2 has no layer, though rank 3 has",
     "conv1=rank0/cpu;pool1=rank1/cpu;conv2,pool2,fc1-2=rank3/cpu",
     NULL,
     {DIST},
     NULL},
    {"start a multiple of 5 (mpirun -np 5)",
     "conv1=rank0/cpu;pool1=rank1/cpu;conv2=rank2/cpu;pool2=rank3/cpu;fc1-2=rank4/cpu",
     NULL,
     {DIST},
     NULL},
    {"unknown device 'gpx'",
     "conv1,pool1=rank0/cpu;conv2,pool2,fc1-2=rank1/gpx",
     NULL,
     {DIST},
     NULL},
    {"device 'cpu:99'", "conv1,pool1=rank0/cpu;conv2,pool2,fc1-2=rank1/cpu:99", NULL, {DIST}, NULL},
    {"names no rank", "conv1,pool1=cpu;conv2,pool2,fc1-2=rank1/cpu", NULL, {DIST}, NULL},
    {"names no rank", "conv1,pool1=rank0/cpu,cpu;conv2,pool2,fc1-2=rank1/cpu", NULL, {DIST}, NULL},
    {"must be of one rank",
     "conv1,pool1=rank0/cpu,rank1/cpu;conv2,pool2,fc1-2=rank1/cpu",
     NULL,
     {DIST},
     NULL},
    {"shares the weight", "embed=rank0/cpu;lstm,decoder=rank1/cpu", NULL, {DIST}, tied},
    {"KVStore local is of one",
     "conv1,pool1=rank0/cpu;conv2,pool2,fc1-2=rank1/cpu",
     NULL,
     {0},
     NULL},
    {"make each step together",
     "conv1,pool1=rank0/cpu;conv2,pool2,fc1-2=rank1/cpu",
     NULL,
     {.kvstore = SL_KVSTORE_DIST_ASYNC},
     NULL},
    {"leave the servers out",
     "conv1,pool1=rank0/cpu;conv2,pool2,fc1-2=rank1/cpu",
     NULL,
     {DIST, .servers = 1},
     NULL},
    {"were not started alike",
     "conv1,pool1=rank0/cpu;conv2,pool2,fc1-2=rank1/cpu",
     "conv1,pool1,conv2=rank0/cpu;pool2,fc1-2=rank1/cpu",
     {DIST},
     NULL},
};

static void refuse(const struct refusal *r) {
  const struct study s = {.build = r->build ? r->build : lenet, .tokens = r->build != NULL};
  struct sl_model *m = open_model(&s);
  struct sl_trainer *trainer = NULL;
  enum sl_status status = sl_place(m, rank && r->others ? r->others : r->placement);
  status = sl_share(context, status, sl_error());
  if (status == SL_OK)
    status = sl_trainer_new(m, &(struct sl_optimizer){.lr = 0.1f}, NULL, &r->options, &trainer);
  check((status == SL_BAD_ARGUMENT || status == SL_NO_DEVICE) && strstr(sl_error(), r->words),
        "refused: %s: %.150s", r->words, status == SL_OK ? "no" : sl_error());
  sl_trainer_free(trainer);
  sl_model_free(m);
}

/* Ranks whose owners would update by other rates, or one of which forgets its recurrent state. */
static void refuse_unlike(const char *words, const struct sl_schedule *schedule, bool carries) {
  const struct study s = {.build = tied, .tokens = true};
  struct sl_model *m = open_model(&s);
  struct sl_trainer *trainer = NULL;
  enum sl_status status =
      sl_trainer_new(m, &(struct sl_optimizer){.lr = 0.1f}, schedule,
                     &(struct sl_trainer_options){DIST, .carry_state = carries}, &trainer);
  check(status == SL_BAD_ARGUMENT && strstr(sl_error(), "not started alike") &&
            strstr(sl_error(), words),
        "refused: %s: %.200s", words, status == SL_OK ? "no" : sl_error());
  sl_trainer_free(trainer);
  sl_model_free(m);
}

static void refuse_schedules(void) {
  const struct sl_schedule steps = {.kind = SL_STEP, .period = 2},
                           drops = {.kind = SL_DROPS, .drop = {3, 7}, .drop_count = 2},
                           cosine[2] = {{.kind = SL_COSINE, .total = 9, .floor = 0.5f, .warmup = 2},
                                        {.kind = SL_COSINE, .total = 8, .floor = 0.5f}};
  refuse_unlike("\"schedule constant\", rank 1 has \"schedule step:2:0.1\"", rank ? &steps : NULL,
                false);
  refuse_unlike("schedule drops:3:7 by 0.1", rank ? &drops : NULL, false);
  refuse_unlike("schedule cosine:0.5 of 9 steps,warmup:2", &cosine[rank], false);
  refuse_unlike("carry their state", NULL, rank);
}

int main(int argc, char **argv) {
  const struct sl_context_options options = {.seed = 11, .distributed = true, .timeout = 20};
  if (argc != 2) return 2;
  folder = argv[1];
  enum sl_status status = sl_open(&options, &context);
  if (status != SL_OK) {
    fprintf(stderr, "%s\n", sl_error());
    return status == SL_UNSUPPORTED ? 77 : 1;
  }
  rank = sl_rank(context);
  ranks = sl_rank_count(context);
  for (size_t i = 0; i < sizeof studies / sizeof *studies; i++) {
    compare(&studies[i], ranks);
    if (ranks == 4) compare(&studies[i], 2);
  }
  compare(&normalised[0], ranks);
  for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) compare_copies(&copies[i]);
  ask(&copies[0]);
  resume(&studies[3], ranks);
  if (ranks == 4) resume(&studies[3], 2);
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals && ranks == 2; i++)
    refuse(&refusals[i]);
  if (ranks == 2) refuse_schedules();
  sl_close(context);
  return 0;
}
