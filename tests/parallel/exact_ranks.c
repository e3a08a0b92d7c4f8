/* Ranks against numbers that do not come from the library; tests/parallel/test_exact_ranks.sh
 * starts it by mpirun. Each rank compares its own values; rank 0 prints "ok - WHAT" or "not ok -
 * WHAT".
 *
 *     exact_ranks losses             trainings against a network in double precision
 *     exact_ranks fields             a training of two outputs, each with a part of the loss
 *     exact_ranks gradients          norms and noise of gradients, against that network
 *     exact_ranks statistics         an evaluation after ranks have met different samples
 *     exact_ranks averages FILE      averages of weights after a resume, before any step
 *     exact_ranks save FILE          some steps with compressed gradients, then a checkpoint
 *     exact_ranks load FILE OUT      loads it, and writes it again: its residuals */
#include <stdarg.h>
#include <stdio.h>

#include "core/base/safetensors.h"
#include "tests/common/exact_network.h"
#include "tests/common/fields_network.h"

#define TRY(call)                                                                                  \
  do {                                                                                             \
    if ((call) != SL_OK) {                                                                         \
      fprintf(stderr, "rank %d: %s: %s\n", rank, #call, sl_error());                               \
      if (context) sl_leave(context, sl_error());                                                  \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

/* A batch for 1, 2, 3 and 4 workers; the last one of an epoch has one sample, so that the parts of
 * other ranks are empty. */
enum { SAMPLES = 73, BATCH = 24, STEPS = 8 };
/* a loss within that part of itself, a parameter within that part of its tensor's largest */
static const double NEAR = 3e-6;

static struct sl_context *context;
static struct sl_dataset *data;
static int rank, ranks;
static bool good = true;

/* On all ranks; good where it is so on all. */
static void check(bool fine, const char *format, ...) SL_PRINTF(2, 3);
static void check(bool fine, const char *format, ...) {
  char what[400];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  enum sl_status status = sl_share(context, fine ? SL_OK : SL_BAD_FILE, what);
  good &= status == SL_OK;
  if (!rank)
    printf("%s - %s\n", status == SL_OK ? "ok" : "not ok", status == SL_OK ? what : sl_error());
  fflush(stdout);
}

struct training {
  struct sl_model *model;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
};

/* members: ranks of one copy of the model. */
static struct training begin(struct sl_model *model, const struct sl_optimizer *optimizer,
                             const struct sl_trainer_options *options, int members) {
  struct training t = {.model = model};
  int workers = ranks / members - options->servers, worker = rank / members;
  TRY(sl_loader_new(data,
                    &(struct sl_loader_options){.batch = BATCH / workers,
                                                .num_parts = workers,
                                                .part_index = worker < workers ? worker : 0},
                    &t.loader));
  TRY(sl_trainer_new(model, optimizer, NULL, options, &t.trainer));
  return t;
}

static void end(struct training *t) {
  sl_trainer_free(t->trainer);
  sl_loader_free(t->loader);
  sl_model_free(t->model);
}

static void take_steps(struct training *t, int steps, double *losses) {
  struct sl_report report;
  bool reported;
  for (int s = 0; s < steps; s++) {
    TRY(sl_trainer_step(t->trainer, t->loader, &report, &reported));
    if (reported) losses[report.step] = report.loss;
  }
  for (reported = true; reported;) {
    TRY(sl_trainer_drain(t->trainer, &report, &reported));
    if (reported) losses[report.step] = report.loss;
  }
}

/* ---- trainings ---- */

static const struct sl_optimizer optimizers[] = {
    {.lr = 0.05f, .momentum = 0.9f, .weight_decay = 1e-2f, .clip = 0.5f},
    {.kind = SL_ADAM,
     .lr = 0.01f,
     .beta1 = 0.9f,
     .beta2 = 0.99f,
     .epsilon = 1e-3f,
     .average = 0.7f},
    {.kind = SL_ADAMW,
     .lr = 0.01f,
     .beta1 = 0.8f,
     .beta2 = 0.99f,
     .epsilon = 1e-3f,
     .weight_decay = 0.1f,
     .clip = 0.5f},
    {.kind = SL_LAMB,
     .lr = 0.02f,
     .beta1 = 0.8f,
     .beta2 = 0.99f,
     .epsilon = 1e-3f,
     .weight_decay = 0.1f,
     .clip = 0.5f}};

/* How far the losses of this rank are from the network's. */
static double losses_apart(struct exact_network *net, const struct sl_optimizer *optimizer,
                           const double *losses) {
  double apart = 0, want;
  int64_t length = (SAMPLES + BATCH - 1) / BATCH;
  for (int64_t s = 0; s < STEPS; s++) {
    int64_t first = s % length * BATCH, left = SAMPLES - first;
    TRY(exact_step(net, data, first, left < BATCH ? left : BATCH, optimizer, &want));
    double d = fabs(losses[s] - want) / want;
    if (!(d <= apart)) apart = isfinite(d) ? d : 1e30;
  }
  return apart;
}

/* All ranks get the averages, and their own bits back. */
static void check_average(struct training *t, const struct exact_network *net, bool lacks_layers) {
  static float before[EXACT_PARAMETERS], after[EXACT_PARAMETERS];
  double apart;
  TRY(sl_model_get(t->model, "fc1.weight", before));
  TRY(sl_trainer_swap_average(t->trainer));
  TRY(sl_trainer_settle(t->trainer, NULL));
  TRY(exact_distance(t->model, net->average, &apart));
  if (lacks_layers) apart = 0;
  TRY(sl_trainer_swap_average(t->trainer));
  TRY(sl_trainer_settle(t->trainer, NULL));
  TRY(sl_model_get(t->model, "fc1.weight", after));
  bool same = !memcmp(before, after, sizeof before);
  check(apart <= NEAR && same, "averages within %.1e, and the weights are there again: %d", apart,
        same);
}

static void check_training(const struct sl_optimizer *optimizer,
                           const struct sl_trainer_options *options, const char *placement,
                           int members) {
  static struct exact_network net;
  struct sl_model *model;
  double losses[STEPS] = {0}, weights;
  TRY(sl_model_new(context, &SL_SHAPE(1, EXACT_SIDE, EXACT_SIDE), &model));
  TRY(exact_build(model));
  if (placement) TRY(sl_place(model, placement));
  struct training t = begin(model, optimizer, options, members);
  TRY(exact_begin(model, &net)); /* all ranks have rank 0's weights now */
  take_steps(&t, STEPS, losses);
  TRY(sl_trainer_settle(t.trainer, NULL));
  bool is_async = options->kvstore == SL_KVSTORE_DIST_ASYNC;
  double apart = losses_apart(&net, optimizer, losses);
  TRY(exact_distance(model, net.parameter, &weights));
  /* servers have the weights of their own shards, and those of dist_async meet no loss; of a placed
   * model rank 0 alone has all weights */
  bool is_server = rank >= ranks - options->servers;
  if (is_async && is_server) apart = 0;
  if (is_server || (placement && rank)) weights = 0;
  check(apart <= NEAR && weights <= NEAR,
        "%s, optimizer %d, %d ranks, %d of them servers, %d x %d slices, %s: rank %d: losses "
        "within %.1e, weights within %.1e",
        sl_kvstore_name(options->kvstore), (int)(optimizer - optimizers), ranks, options->servers,
        options->replicas, options->microbatches ? options->microbatches : 1,
        placement ? placement : "one stage", rank, apart, weights);
  if (optimizer->average > 0) check_average(&t, &net, is_server || (placement && rank));
  end(&t);
}

/* On all ranks, with a message and no hang. */
static void check_refused(const struct sl_optimizer *optimizer,
                          const struct sl_trainer_options *options) {
  struct sl_model *model;
  struct sl_trainer *t;
  TRY(sl_model_new(context, &SL_SHAPE(1, EXACT_SIDE, EXACT_SIDE), &model));
  TRY(exact_build(model));
  enum sl_status status = sl_trainer_new(model, optimizer, NULL, options, &t);
  check(status == SL_BAD_ARGUMENT && !t && strstr(sl_error(), "dist_sync"),
        "%s, optimizer %d: rank %d refuses (%s)", sl_kvstore_name(options->kvstore),
        (int)(optimizer - optimizers), rank, sl_error());
  sl_model_free(model);
}

static void check_losses(void) {
  for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
    const struct sl_optimizer *optimizer = &optimizers[o];
    const struct sl_trainer_options plain = {.replicas = 1, .kvstore = SL_KVSTORE_DIST_SYNC},
                                    cut = {.replicas = 2,
                                           .microbatches = 2,
                                           .split = "3,2",
                                           .kvstore = SL_KVSTORE_DIST_SYNC_DEVICE,
                                           .bigarray_bound = 50},
                                    served = {.replicas = 2,
                                              .kvstore = SL_KVSTORE_DIST_SYNC,
                                              .servers = 1,
                                              .bigarray_bound = 50},
                                    alone = {.replicas = 2,
                                             .kvstore = SL_KVSTORE_DIST_ASYNC,
                                             .servers = ranks - 1,
                                             .bigarray_bound = 50},
                                    placed = {.replicas = 1,
                                              .microbatches = 3,
                                              .kvstore = SL_KVSTORE_DIST_SYNC};
    check_training(optimizer, &plain, NULL, 1);
    check_training(optimizer, &cut, NULL, 1);
    check_training(optimizer, &served, NULL, 1);
    if (optimizer->kind == SL_LAMB || optimizer->average > 0)
      check_refused(optimizer, &alone);
    else
      check_training(optimizer, &alone, NULL, 1); /* one worker: the steps have an order */
    if (ranks == 2) check_training(optimizer, &placed, "conv1=rank0/cpu:0;fc1,fc2=rank1/cpu:0", 2);
  }
}

/* ---- several outputs ---- */

/* The last batch of an epoch has two samples: some ranks have none. */
/* weighted: the classes have weights; missing: some targets are missing, unlike on other ranks. */
static void check_fields_with(const struct sl_trainer_options *plan, bool missing, bool weighted) {
  struct sl_dataset *set = f_set(missing);
  struct sl_model *model = f_model(context);
  struct sl_loss_part parts[SL_MAX_FIELDS];
  struct sl_trainer_options options = *plan;
  struct training t = {.model = model};
  double losses[F_STEPS] = {0}, start[F_WEIGHTS], end_weights[F_WEIGHTS], apart = 0, moved = 0;
  double loss, accuracy, means[2];
  int workers = ranks - options.servers;
  options.loss = f_loss(parts);
  for (int c = 0; c < F_KINDS; c++) f_kind_weights[c] = weighted ? 0.5f + (float)c : 1;
  if (weighted) parts[1].loss.class_weights = f_kind_weights, parts[1].loss.class_count = F_KINDS;
  TRY(sl_loader_new(set,
                    &(struct sl_loader_options){.batch = F_BATCH / workers,
                                                .num_parts = workers,
                                                .part_index = rank < workers ? rank : 0},
                    &t.loader));
  TRY(sl_trainer_new(model, &(struct sl_optimizer){.lr = (float)F_LR}, NULL, &options, &t.trainer));
  f_read(model, start);
  take_steps(&t, F_STEPS, losses);
  TRY(sl_trainer_settle(t.trainer, NULL));
  f_read(model, end_weights);
  TRY(sl_loader_seek(t.loader, 0));
  TRY(sl_trainer_evaluate(t.trainer, t.loader, &loss, &accuracy));
  for (int s = 0; s < F_STEPS; s++) apart = fmax(apart, fabs(f_step(start, s) - losses[s]));
  for (int i = 0; i < F_WEIGHTS; i++) moved = fmax(moved, fabs(start[i] - end_weights[i]));
  apart = fmax(apart, fabs(f_mean(start, 0, F_COUNT, means) - loss));
  check(apart <= 1e-5 && moved <= 2e-5,
        "two outputs%s%s, %d ranks, %d servers, %d x %d slices: losses within %.1e, weights within "
        "%.1e",
        missing ? ", missing targets" : "", weighted ? ", class weights" : "", ranks,
        options.servers, options.replicas, options.microbatches ? options.microbatches : 1, apart,
        moved);
  end(&t);
  sl_dataset_free(set);
}

static void check_fields(void) {
  const struct sl_trainer_options plain = {.replicas = 1, .kvstore = SL_KVSTORE_DIST_SYNC},
                                  sliced = {.replicas = 2,
                                            .microbatches = 2,
                                            .kvstore = SL_KVSTORE_DIST_SYNC_DEVICE},
                                  served = {
                                      .replicas = 1, .servers = 1, .kvstore = SL_KVSTORE_DIST_SYNC};
  for (int missing = 0; missing < 2; missing++)
    for (int weighted = 0; weighted < 2; weighted++) {
      check_fields_with(&plain, missing, weighted);
      check_fields_with(&sliced, missing, weighted);
      check_fields_with(&served, missing, weighted);
    }
}

/* ---- searches for a rate ---- */

/* All ranks see the same losses, and have their weights again. */
static void check_search(struct training *t) {
  static float before[EXACT_PARAMETERS], after[EXACT_PARAMETERS];
  const struct sl_rate_search_options options = {.low = 1e-3, .high = 1e30, .steps = 30};
  struct sl_rate_search *s;
  TRY(sl_model_get(t->model, "fc1.weight", before));
  TRY(sl_find_rate(t->trainer, t->loader, &options, &s));
  TRY(sl_model_get(t->model, "fc1.weight", after));
  double first[2] = {s->divergence, s->steepest};
  TRY(sl_broadcast(context, first, sizeof first));
  check(s->divergence > 0.01 && first[0] == s->divergence && first[1] == s->steepest &&
            !memcmp(before, after, sizeof before),
        "a search for a rate on %d ranks: %g, divergence at %g", ranks, s->steepest, s->divergence);
  sl_rate_search_free(s);
}

/* Ranks that ask for other searches, or one of which asks for none, are all told so. */
static void refuse_searches(struct training *t) {
  const struct sl_rate_search_options rates = {.low = rank ? 1e-3 : 1e-2, .high = 1, .steps = 10},
                                      steps = {.steps = 10 + rank},
                                      bad = {.steps = 10, .smoothing = rank ? 2 : 0.5};
  struct sl_rate_search *s;
  enum sl_status status = sl_find_rate(t->trainer, t->loader, &rates, &s);
  check(
      status == SL_BAD_ARGUMENT && strstr(sl_error(), "rank 0 has \"a search from rate 0.01 to 1"),
      "searches with other rates are refused: %.150s", status == SL_OK ? "no" : sl_error());
  status = sl_find_rate(t->trainer, t->loader, &steps, &s);
  check(status == SL_BAD_ARGUMENT && strstr(sl_error(), "steps 10, smoothing 0.9\", rank "),
        "searches of other lengths are refused: %.150s", status == SL_OK ? "no" : sl_error());
  status = sl_find_rate(t->trainer, t->loader, &bad, &s);
  check(status == SL_BAD_ARGUMENT && strstr(sl_error(), "smoothing 2: must be"),
        "a search of which one rank is wrong is refused: %.150s",
        status == SL_OK ? "no" : sl_error());
}

/* Ranks with other numbers of batches are all told so; the trainer goes on. */
static void refuse_evaluations(const struct training *t) {
  struct sl_loader *other;
  double loss, accuracy;
  TRY(sl_loader_new(
      data, &(struct sl_loader_options){.batch = BATCH / 12, .num_parts = rank ? 1 : 2}, &other));
  enum sl_status status = sl_trainer_evaluate(t->trainer, other, &loss, &accuracy);
  check(status == SL_BAD_ARGUMENT && strstr(sl_error(), "rank 0 has \"an evaluation of "),
        "evaluations of other lengths are refused: %.150s", status == SL_OK ? "no" : sl_error());
  TRY(sl_loader_seek(t->loader, 0));
  TRY(sl_trainer_evaluate(t->trainer, t->loader, &loss, &accuracy));
  sl_loader_free(other);
}

/* ---- norms of gradients ---- */

/* Parts of all workers together: the last batch is short, so it has no noise. */
static void check_gradients(const struct sl_trainer_options *options) {
  static struct exact_network net;
  struct sl_model *model;
  const struct sl_optimizer *optimizer = &optimizers[0];
  double loss, apart = 0, square = 0, noise[2] = {0, 0};
  int workers = ranks - options->servers, parts = workers * options->replicas, n = 0;
  struct sl_report report[STEPS + 1] = {{0}};
  bool reported;
  TRY(sl_model_new(context, &SL_SHAPE(1, EXACT_SIDE, EXACT_SIDE), &model));
  TRY(exact_build(model));
  struct training t = begin(model, optimizer, options, 1);
  TRY(exact_begin(model, &net));
  for (int s = 0; s < STEPS; s++, n += reported)
    TRY(sl_trainer_step(t.trainer, t.loader, &report[n], &reported));
  for (reported = true; reported; n += reported)
    TRY(sl_trainer_drain(t.trainer, &report[n], &reported));
  for (int64_t s = 0; s < STEPS; s++) {
    int64_t first = s % 4 * BATCH, left = SAMPLES - first, count = left < BATCH ? left : BATCH;
    TRY(exact_noise(&net, data, first, count, count < BATCH ? 1 : parts,
                    count < BATCH ? 1 : workers, &square, noise));
    apart = fmax(apart, fabs(report[s].grad_norm / sqrt(square) - 1));
    if (count == BATCH && rank < ranks - options->servers)
      apart = fmax(apart, fabs(report[s].grad_variance / noise[1] - 1));
    else if (report[s].grad_variance != -1)
      apart = 1e30;
    TRY(exact_step(&net, data, first, count, optimizer, &loss));
  }
  check(apart < 1e-4,
        "%s: norms and noise of gradients, %d parts on %d ranks, %d of them servers: "
        "within %.1e",
        sl_kvstore_name(options->kvstore), parts, ranks, options->servers, apart);
  check_search(&t);
  refuse_searches(&t);
  refuse_evaluations(&t);
  end(&t);
}

static void check_all_gradients(void) {
  check_gradients(&(struct sl_trainer_options){
      .replicas = 1, .kvstore = SL_KVSTORE_DIST_SYNC, .log_gradients = true});
  check_gradients(&(struct sl_trainer_options){.replicas = 2,
                                               .kvstore = SL_KVSTORE_DIST_SYNC_DEVICE,
                                               .bigarray_bound = 50,
                                               .log_gradients = true});
  check_gradients(&(struct sl_trainer_options){
      .replicas = 2, .kvstore = SL_KVSTORE_DIST_SYNC, .servers = 1, .log_gradients = true});
  check_refused(&optimizers[0],
                &(struct sl_trainer_options){
                    .replicas = 1, .kvstore = SL_KVSTORE_DIST_ASYNC, .log_gradients = true});
}

/* ---- running statistics ---- */

enum { CHANNELS = 3 };

static void read_statistics(struct sl_model *m, float values[2 * CHANNELS]) {
  TRY(sl_model_get(m, "bn.running_mean", values));
  TRY(sl_model_get(m, "bn.running_var", values + CHANNELS));
}

/* Are they those of rank 0? */
static bool are_first_ranks(const float own[2 * CHANNELS]) {
  float first[2 * CHANNELS];
  memcpy(first, own, sizeof first);
  TRY(sl_broadcast(context, first, sizeof first));
  return !memcmp(first, own, sizeof first);
}

/* The mean loss over the whole set, of this rank's own answers. */
static double loss_of_answers(struct sl_model *m) {
  struct sl_predictor *p;
  double loss = 0;
  float x[EXACT_SIDE * EXACT_SIDE], z[EXACT_CLASSES];
  int32_t label;
  TRY(sl_predictor_open(m, NULL, &p));
  for (int64_t i = 0; i < SAMPLES; i++) {
    double sum = 0;
    TRY(sl_dataset_get(data, i, x, &label));
    TRY(sl_predict(p, x, 1, z));
    for (int c = 0; c < EXACT_CLASSES; c++) sum += exp((double)z[c] - (double)z[label]);
    loss += log(sum) / SAMPLES;
  }
  sl_predictor_free(p);
  return loss;
}

/* Each rank normalises its own samples. An evaluation gives all ranks rank 0's statistics, and its
 * loss is that of every rank's answers after it. */
static void check_statistics(void) {
  const struct sl_optimizer optimizer = {.lr = 0.1f};
  const struct sl_trainer_options options = {.replicas = 1, .kvstore = SL_KVSTORE_DIST_SYNC};
  struct sl_model *m;
  double losses[3], loss, accuracy;
  float before[2 * CHANNELS], after[2 * CHANNELS];
  TRY(sl_model_new(context, &SL_SHAPE(1, EXACT_SIDE, EXACT_SIDE), &m));
  TRY(sl_conv2d(m, "conv",
                &(struct sl_conv2d_options){.channels = CHANNELS, .kernel_h = 5, .stride_h = 3}));
  TRY(sl_batchnorm(m, "bn", &(struct sl_batchnorm_options){.momentum = 0.5f}));
  TRY(sl_dense(m, "fc", &(struct sl_dense_options){.features = EXACT_CLASSES}));
  struct training t = begin(m, &optimizer, &options, 1);
  take_steps(&t, 3, losses);
  read_statistics(m, before);
  bool alike = are_first_ranks(before);
  check(!rank || !alike, "ranks have statistics of their own while they train");
  TRY(sl_loader_seek(t.loader, 0));
  TRY(sl_trainer_evaluate(t.trainer, t.loader, &loss, &accuracy));
  read_statistics(m, after);
  check(are_first_ranks(after), "an evaluation gives rank 0's to all");
  double own = loss_of_answers(m);
  check(fabs(loss - own) <= NEAR * own, "its loss %.7g is that of rank %d's answers, %.7g", loss,
        rank, own);
  end(&t);
}

/* ---- compressed gradients ---- */

static struct training begin_compressed(const char *compress, float average) {
  const struct sl_optimizer optimizer = {.lr = 0.1f, .average = average};
  const struct sl_trainer_options options = {
      .replicas = 1, .kvstore = SL_KVSTORE_DIST_SYNC, .compress = compress};
  struct sl_model *model;
  TRY(sl_model_new(context, &SL_SHAPE(1, EXACT_SIDE, EXACT_SIDE), &model));
  TRY(exact_build(model));
  return begin(model, &optimizer, &options, 1);
}

static void read_average(struct training *t, float *average) {
  TRY(sl_trainer_swap_average(t->trainer));
  TRY(sl_trainer_settle(t->trainer, NULL));
  TRY(sl_model_get(t->model, "fc1.weight", average));
  TRY(sl_trainer_swap_average(t->trainer));
  TRY(sl_trainer_settle(t->trainer, NULL));
}

static void check_resumed_averages(const char *path) {
  static const char *const compressions[] = {"none", "fp16", "bf16", "1bit", "2bit:0.01"};
  static float before[EXACT_PARAMETERS], after[EXACT_PARAMETERS];
  for (size_t i = 0; i < sizeof compressions / sizeof *compressions; i++) {
    struct training t = begin_compressed(compressions[i], 0.9f);
    double losses[3];
    take_steps(&t, 3, losses);
    read_average(&t, before);
    TRY(sl_trainer_save(t.trainer, path));
    end(&t);
    t = begin_compressed(compressions[i], 0.9f);
    TRY(sl_trainer_load(t.trainer, t.loader, path));
    read_average(&t, after);
    end(&t);
    check(!memcmp(before, after, sizeof before), "%s: the averages after a resume",
          compressions[i]);
  }
}

static void save(const char *path) {
  struct training t = begin_compressed("2bit:0.01", 0);
  double losses[3];
  take_steps(&t, 3, losses);
  TRY(sl_trainer_save(t.trainer, path));
  check(true, "saved after 3 steps with compressed gradients");
  end(&t);
}

/* A worker's residual of a layer; NULL if the file has none. */
static const float *residual(const struct sl__safetensors *file, int worker, const char *layer,
                             int64_t *count) {
  char name[80];
  snprintf(name, sizeof name, "residual.%d.%s", worker, layer);
  const struct sl__safetensors_entry *entry = sl__safetensors_find(file, name);
  if (entry) *count = sl_shape_count(&entry->shape);
  return entry ? entry->data : NULL;
}

/* The same number of workers: each has its own. Another number: the first worker has the sum, the
 * others have zeros. Returns the number of values that are not so, or -1 if there is nothing to
 * see. */
static int compare_residuals(const struct sl__safetensors *old, const struct sl__safetensors *new,
                             const char *layer) {
  const float *from[4], *to[4];
  int64_t count = 0, other = 0;
  int olds = 0, news = 0, wrong = 0, apart = 0;
  while (olds < 4 && (from[olds] = residual(old, olds, layer, &count))) olds++;
  while (news < 4 && (to[news] = residual(new, news, layer, &other))) news++;
  if (olds != 2 || news != ranks || count != other) return -1;
  for (int64_t i = 0; i < count; i++) {
    apart += from[0][i] != from[1][i];
    for (int w = 0; w < news; w++) {
      float want = olds == news ? from[w][i] : w ? 0 : from[0][i] + from[1][i];
      wrong += to[w][i] != want;
    }
  }
  return apart ? wrong : -1;
}

static void load(const char *path, const char *out) {
  static const char *const layers[] = {"conv1", "fc1", "fc2"};
  struct training t = begin_compressed("2bit:0.01", 0);
  struct sl__safetensors *old, *new;
  TRY(sl_trainer_load(t.trainer, t.loader, path));
  TRY(sl_trainer_save(t.trainer, out));
  end(&t);
  TRY(sl__safetensors_open(path, &old));
  TRY(sl__safetensors_open(out, &new));
  for (int l = 0; l < 3; l++) {
    int wrong = compare_residuals(old, new, layers[l]);
    check(wrong == 0, "%d workers take over the residuals of 2, layer %s: %d values are wrong",
          ranks, layers[l], wrong);
  }
  sl__safetensors_close(old);
  sl__safetensors_close(new);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "", *own = getenv("OMPI_COMM_WORLD_RANK");
  /* the other ranks' own weights would be others */
  TRY(sl_open(&(struct sl_context_options){.seed = own && atoi(own) ? 99 : 11, .distributed = true},
              &context));
  rank = sl_rank(context);
  ranks = sl_rank_count(context);
  TRY(sl_digits_new(SAMPLES, 3, true, &data));
  if (!strcmp(what, "losses")) check_losses();
  if (!strcmp(what, "fields")) check_fields();
  if (!strcmp(what, "gradients")) check_all_gradients();
  if (!strcmp(what, "statistics")) check_statistics();
  if (!strcmp(what, "averages") && argc == 3) check_resumed_averages(argv[2]);
  if (!strcmp(what, "save") && argc == 3) save(argv[2]);
  if (!strcmp(what, "load") && argc == 4) load(argv[2], argv[3]);
  sl_dataset_free(data);
  sl_close(context);
  return !good;
}
