/* Trains small networks over ranks and compares every loss and all weights with those of one
 * process that has the whole batch; tests/parallel/test_dist.sh starts it.
 *
 *     dist_train reference FILE          one process, KVStore local: writes the result to FILE
 *     mpirun ... dist_train compare FILE HASHES EVERY
 *
 * A start of mpirun costs more than a training, so one run has all cases and set-ups: MPI is begun
 * here, contexts are opened one after the other. Rank 0 prints "ok - ..." or "not ok - ..." for
 * each, and writes a hash of each result to HASHES, to be compared with another run's. Of the cases
 * it takes every EVERY-th.
 *
 * How near: sums over ranks are rounded in another order than sums over one batch, and steps carry
 * the difference on, so it grows with the training: some 1e-7 of the largest value a step at first.
 * 1e-5 of the largest of a parameter is 80 roundings; a wrong factor, a lost or doubled gradient or
 * a step of another age is 1e-2 and more. Adam divides by the gradient's own size: where that is
 * near zero, a rounding would be a whole step of another sign; its epsilon is 1e-3 here. */
#include <math.h>
#include <mpi.h>
#include <starling.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                                                                  \
  do {                                                                                             \
    if ((call) != SL_OK) {                                                                         \
      fprintf(stderr, "rank %d: %s: %s\n", rank, #call, sl_error());                               \
      return 1;                                                                                    \
    }                                                                                              \
  } while (0)

enum { STEPS = 20, BATCH = 24, MOST = 20000 }; /* a batch for 1, 2, 3 and 4 workers */
static const double NEAR = 1e-5;

static int rank, ranks = 1;

/* ---- the networks and their data ---- */

static int convolutions(struct sl_model *m) {
  TRY(sl_conv2d(
      m, "conv1",
      &(struct sl_conv2d_options){
          .channels = 4, .kernel_h = 5, .stride_h = 2, .activation = SL_ACTIVATION_TANH}));
  TRY(sl_avgpool2d(m, "pool1", &(struct sl_pool2d_options){.kernel_h = 2}));
  TRY(sl_conv2d(m, "conv2", &(struct sl_conv2d_options){.channels = 6, .kernel_h = 3}));
  TRY(sl_dense(m, "fc1",
               &(struct sl_dense_options){.features = 16, .activation = SL_ACTIVATION_SIGMOID}));
  TRY(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 10}));
  return 0;
}

static int partly_frozen(struct sl_model *m) {
  if (convolutions(m)) return 1;
  TRY(sl_freeze(m, "conv1,fc1"));
  TRY(sl_group_rate(m, "conv2=0.5,fc2=2"));
  TRY(sl_group_decay(m, "fc2=30"));
  TRY(sl_decay_weights_only(m, true));
  return 0;
}

static int dense(struct sl_model *m) {
  TRY(sl_dense(m, "fc1",
               &(struct sl_dense_options){.features = 9, .activation = SL_ACTIVATION_TANH}));
  TRY(sl_dense(m, "fc2", &(struct sl_dense_options){.features = 10, .no_bias = true}));
  return 0;
}

static int language(struct sl_model *m) {
  TRY(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 31, .features = 7}));
  TRY(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 9}));
  TRY(sl_dense(m, "decoder", &(struct sl_dense_options){.features = 31, .positions = true}));
  return 0;
}

static int tied(struct sl_model *m) {
  TRY(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 31, .features = 8}));
  TRY(sl_lstm(m, "lstm", &(struct sl_lstm_options){.features = 8}));
  TRY(sl_dense(
      m, "decoder",
      &(struct sl_dense_options){.features = 31, .positions = true, .layer.shares = "embed"}));
  return 0;
}

/* 97 images: the last batch has one, so that most ranks' parts of it are empty. */
static int open_images(struct sl_dataset **data) {
  TRY(sl_digits_new(97, 3, true, data));
  return 0;
}

/* Tokens that follow from one another; number 30 ends a sentence. */
static void write_text(int32_t *text, int count, bool sentences) {
  int left = 0;
  text[0] = 1;
  for (int i = 1; i < count; i++) {
    text[i] = (text[i - 1] * 5 + (i % 7 == 0) + 3) % 30;
    if (!sentences) continue;
    if (left-- == 0) {
      text[i] = 30;
      left = (i * 7 / 3) % 11;
    }
  }
}

static int open_text(struct sl_dataset **data) {
  int32_t text[1200];
  write_text(text, 1200, false);
  TRY(sl_tokens_new("text", text, 1200, 6, 31, data));
  return 0;
}

/* Buckets of uneven numbers of sentences of uneven lengths: ranks' shares of a batch differ. */
static int open_sentences(struct sl_dataset **data) {
  static const int64_t buckets[] = {3, 6, 8};
  int32_t text[700];
  write_text(text, 700, true);
  TRY(sl_sentences_new(
      "sentences", text, 700, 31,
      &(struct sl_sentences_options){.end = 30, .buckets = buckets, .bucket_count = 3}, data));
  return 0;
}

static const struct network {
  const char *name;
  int (*build)(struct sl_model *model);
  int (*open)(struct sl_dataset **data);
  bool contiguous; /* and the state is carried on */
  float rate; /* times the optimizer's: a network on the edge of stability blows roundings up */
} networks[] = {{"convolutions", convolutions, open_images, false, 1},
                {"dense", dense, open_images, false, 0.25f},
                {"LSTM over a text", language, open_text, true, 1},
                {"LSTM, tied weights", tied, open_text, true, 1},
                {"LSTM over sentences", language, open_sentences, false, 1},
                {"frozen convolutions", partly_frozen, open_images, false, 1}};

static const struct descent {
  const char *name;
  struct sl_optimizer optimizer;
} descents[] = {
    {"SGD", {.lr = 0.2f}},
    {"momentum, clipped", {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 1e-3f, .clip = 0.3f}},
    {"Adam", {.kind = SL_ADAM, .lr = 0.01f, .epsilon = 1e-3f}},
    {"AdamW, clipped", {.kind = SL_ADAMW, .lr = 0.01f, .epsilon = 1e-3f, .clip = 0.3f}}};

enum {
  NETWORKS = sizeof networks / sizeof *networks,
  DESCENTS = sizeof descents / sizeof *descents,
  CASES = NETWORKS * DESCENTS
};

/* ---- one training ---- */

struct setup {
  enum sl_kvstore_kind kvstore;
  int servers, replicas, microbatches;
  const char *split; /* of each rank's batch; NULL: even */
  int64_t bound;
};

/* STEPS losses, the evaluation's two numbers, then each parameter. */
struct result {
  int count, parameters, first[64]; /* of each parameter */
  float value[MOST];
};

static int note(struct result *r, double value) {
  if (r->count == MOST) return 1;
  r->value[r->count++] = (float)value;
  return 0;
}

static int note_weights(struct sl_model *model, struct result *r) {
  struct sl_shape shape;
  r->parameters = sl_model_parameter_count(model);
  for (int i = 0; i < r->parameters; i++) {
    const char *name = sl_model_parameter(model, i, &shape);
    int64_t count = sl_shape_count(&shape);
    r->first[i] = r->count;
    if (i == 63 || r->count + count > MOST) return 1;
    TRY(sl_model_get(model, name, r->value + r->count));
    r->count += (int)count;
  }
  r->first[r->parameters] = r->count;
  return 0;
}

static int take_steps(struct sl_trainer *trainer, struct sl_loader *loader, struct result *r) {
  struct sl_report report;
  bool reported;
  double loss, accuracy;
  r->count = 0;
  for (int s = 0; s < STEPS; s++) {
    TRY(sl_trainer_step(trainer, loader, &report, &reported));
    if (reported) note(r, report.loss);
  }
  do {
    TRY(sl_trainer_drain(trainer, &report, &reported));
    if (reported) note(r, report.loss);
  } while (reported);
  TRY(sl_loader_seek(loader, 0));
  TRY(sl_trainer_evaluate(trainer, loader, &loss, &accuracy));
  note(r, loss);
  note(r, accuracy);
  return 0;
}

static int train(struct sl_context *context, int number, const struct setup *setup,
                 struct result *result) {
  const struct network *network = &networks[number / DESCENTS];
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_model *model;
  struct sl_trainer *trainer;
  struct sl_optimizer optimizer = descents[number % DESCENTS].optimizer;
  int workers = ranks - setup->servers;
  optimizer.lr *= network->rate;
  if (network->open(&data)) return 1;
  struct sl_loader_options options = {.batch = BATCH / workers,
                                      .seed = 5,
                                      .shuffle = !network->contiguous,
                                      .contiguous = network->contiguous,
                                      .num_parts = workers,
                                      .part_index = rank < workers ? rank : 0};
  TRY(sl_loader_new(data, &options, &loader));
  TRY(sl_model_new(context, &sl_dataset_info(data)->sample, &model));
  if (network->build(model)) return 1;
  TRY(sl_trainer_new(model, &optimizer, NULL,
                     &(struct sl_trainer_options){.replicas = setup->replicas,
                                                  .microbatches = setup->microbatches,
                                                  .kvstore = setup->kvstore,
                                                  .carry_state = network->contiguous,
                                                  .servers = setup->servers,
                                                  .split = setup->split,
                                                  .bigarray_bound = setup->bound},
                     &trainer));
  if (take_steps(trainer, loader, result)) return 1;
  sl_trainer_free(trainer);
  if (note_weights(model, result)) return 1;
  sl_model_free(model);
  sl_loader_free(loader);
  sl_dataset_free(data);
  return 0;
}

/* ---- comparison ---- */

static uint64_t hash(const float *values, int count) {
  uint64_t h = 14695981039346656037ull;
  const unsigned char *bytes = (const unsigned char *)values;
  for (size_t i = 0; i < (size_t)count * sizeof *values; i++) h = (h ^ bytes[i]) * 1099511628211ull;
  return h;
}

/* The worst distance of values [first, end), as a part of the largest wanted. */
static double distance(const float *got, const float *want, int first, int end) {
  double worst = 0, largest = 1e-30;
  for (int i = first; i < end; i++) {
    double apart = fabs((double)got[i] - (double)want[i]);
    if (!(apart <= worst)) worst = isfinite(apart) ? apart : 1e30;
    largest = fmax(largest, fabs((double)want[i]));
  }
  return worst / largest;
}

/* Losses, and then the worst of the parameters. */
static void compare(const struct result *got, const struct result *want, double *losses,
                    double *weights) {
  *losses = distance(got->value, want->value, 0, STEPS + 1); /* and the evaluation's */
  *weights = got->count == want->count ? 0 : 1e30;
  for (int p = 0; p < want->parameters && got->count == want->count; p++)
    *weights =
        fmax(*weights, distance(got->value, want->value, want->first[p], want->first[p + 1]));
}

/* The losses are those of all ranks to the bit, the weights those of all workers. */
static bool ranks_are_alike(const struct result *r, int workers) {
  uint64_t mine[2] = {hash(r->value, STEPS + 2), hash(r->value, r->count)}, all[2 * 64];
  bool alike = true;
  MPI_Gather(mine, 2, MPI_UINT64_T, all, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  for (int i = 0; i < ranks && !rank; i++)
    alike = alike && all[2 * i] == all[0] && (i >= workers || all[2 * i + 1] == all[1]);
  return alike;
}

static bool judge(int number, const struct setup *s, const struct result *got,
                  const struct result *want) {
  double losses, weights;
  bool alike = ranks_are_alike(got, ranks - s->servers);
  if (rank) return true;
  compare(got, want, &losses, &weights);
  bool good = alike && losses <= NEAR && weights <= NEAR;
  printf(
      "%s - %s, %s: %d ranks, %d of them servers, %s, bound %lld, %d x %d slices, %s: losses "
      "within %.1e, weights %.1e%s\n",
      good ? "ok" : "not ok", networks[number / DESCENTS].name, descents[number % DESCENTS].name,
      ranks, s->servers, sl_kvstore_name(s->kvstore), (long long)s->bound, s->replicas,
      s->microbatches, s->split ? s->split : "even", losses, weights,
      alike ? "" : "; ranks differ");
  fflush(stdout);
  return good;
}

/* ---- all of them ---- */

static int write_reference(const char *path) {
  static struct result result;
  struct sl_context *context;
  FILE *out = fopen(path, "wb");
  if (!out) return 1;
  TRY(sl_open(&(struct sl_context_options){.seed = 11}, &context));
  for (int number = 0; number < CASES; number++) {
    struct setup alone = {.replicas = 1, .microbatches = 1};
    if (train(context, number, &alone, &result)) return 1;
    if (fwrite(&result, sizeof result, 1, out) != 1) return 1;
  }
  sl_close(context);
  return fclose(out) != 0;
}

/* Of the eight ways to cut, another one for each case and number of servers. */
static struct setup setup_of(int number, int servers) {
  int way = (number + number / DESCENTS + 3 * servers + 5 * ranks) % 8;
  return (struct setup){
      .kvstore = number % 5 == 4 ? SL_KVSTORE_DIST_SYNC_DEVICE : SL_KVSTORE_DIST_SYNC,
      .servers = servers,
      .replicas = 1 + way % 2,
      .microbatches = 1 + way / 2 % 2,
      .split = way == 3 || way == 5 ? "5,2" : NULL,
      .bound = way / 4 ? 20 : 0};
}

/* A context each, so that closing and opening again is tried, too. */
static int compare_with(int number, const struct result *want, FILE *hashes, bool *good) {
  static struct result got;
  struct sl_context *context;
  TRY(sl_open(&(struct sl_context_options){.seed = rank ? 99 : 11, .distributed = true}, &context));
  for (int servers = 0; servers < ranks && servers <= 2; servers++) {
    struct setup setup = setup_of(number, servers);
    if (train(context, number, &setup, &got)) return 1;
    *good &= judge(number, &setup, &got, want);
    if (hashes)
      fprintf(hashes, "case %d, %d servers: %016llx\n", number, servers,
              (unsigned long long)hash(got.value, got.count));
  }
  sl_close(context);
  return 0;
}

static int compare_all(const char *path, const char *hashes_path, int every, bool *good) {
  static struct result want;
  FILE *in = fopen(path, "rb"), *hashes = rank ? NULL : fopen(hashes_path, "w");
  if (!in || (!rank && !hashes)) return 1;
  for (int number = 0; number < CASES; number++) {
    if (fread(&want, sizeof want, 1, in) != 1) return 1;
    if (number % every == 0 && compare_with(number, &want, hashes, good)) return 1;
  }
  fclose(in);
  return hashes && fclose(hashes);
}

int main(int argc, char **argv) {
  int level;
  if (argc == 3 && !strcmp(argv[1], "reference")) return write_reference(argv[2]);
  if (argc != 5 || strcmp(argv[1], "compare") != 0 || atoi(argv[4]) < 1) return 2;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  bool good = true;
  /* MPI_Finalize would wait for ranks that still wait for this one: mpirun ends them */
  if (compare_all(argv[2], argv[3], atoi(argv[4]), &good)) return 1;
  MPI_Finalize();
  return !good;
}
