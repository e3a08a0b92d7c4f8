/* Trainings that are cut in every way one process knows, against a network in double precision that
 * knows of no cut (tests/common/exact_network.h): replicas, microbatches, uneven splits, stages,
 * shards on the CPU and on devices, several steps in flight. A run that is compared with another
 * run shares its faults; these numbers do not come from the library. test_exact_ranks.sh has the
 * ranks.
 *
 * The bounds: a loss is within 3e-6 of itself, a parameter within 3e-6 of its tensor's largest. A
 * float rounds by 6e-8 and a value comes of some hundred roundings a step; a lost or doubled part
 * of a gradient, or one of another step, is 1e-3 and more. */
#include "tests/common/exact_network.h"
#include "tests/common/training.h"

enum { SAMPLES = 43, BATCH = 18, STEPS = 8, WARMUP = 3 }; /* an epoch's last batch has 7 samples */
static const double NEAR = 3e-6;

static const struct sl_optimizer optimizers[] = {
    {.lr = 0.1f},
    {.lr = 0.05f, .momentum = 0.9f, .weight_decay = 1e-2f, .clip = 0.5f, .average = 0.6f},
    {.lr = 0.05f, .momentum = 0.8f, .nesterov = true},
    {.kind = SL_ADAM,
     .lr = 0.01f,
     .beta1 = 0.9f,
     .beta2 = 0.99f,
     .epsilon = 1e-3f,
     .weight_decay = 1e-2f},
    {.kind = SL_ADAMW,
     .lr = 0.01f,
     .beta1 = 0.8f,
     .beta2 = 0.99f,
     .epsilon = 1e-3f,
     .weight_decay = 0.1f,
     .clip = 0.5f},
    {.kind = SL_LAMB,
     .lr = 0.02f,
     .beta1 = 0.9f,
     .beta2 = 0.99f,
     .epsilon = 1e-3f,
     .average = 0.8f},
    {.kind = SL_LAMB,
     .lr = 0.02f,
     .beta1 = 0.8f,
     .beta2 = 0.99f,
     .epsilon = 1e-3f,
     .weight_decay = 0.1f,
     .clip = 0.5f}};

enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

static const struct sl_trainer_options cuts[] = {
    {.replicas = 1, .in_flight = 1},
    {.replicas = 3},
    {.replicas = 1, .microbatches = 4, .in_flight = 5},
    {.replicas = 2, .microbatches = 3},
    {.replicas = 2, .split = "5,2"},
    {.replicas = 3, .microbatches = 2, .split = "1,2,3"},
    {.replicas = 1, .stages = 2, .microbatches = 3},
    {.replicas = 2, .stages = 3, .microbatches = 2, .kvstore = SL_KVSTORE_DEVICE},
    {.replicas = 1, .big_shard = 50},
    {.replicas = 2, .big_shard = 50, .kvstore = SL_KVSTORE_DEVICE},
    {.replicas = 4, .kvstore = SL_KVSTORE_DEVICE},
    {.replicas = 2, .kvstore = SL_KVSTORE_DIST_SYNC},
    {.replicas = 2, .kvstore = SL_KVSTORE_DIST_SYNC_DEVICE, .bigarray_bound = 50}};

static void check(struct sl_dataset *data, size_t cut, size_t optimizer) {
  static struct exact_network net;
  const struct sl_optimizer *o = &optimizers[optimizer];
  struct sl_model *m;
  struct sl_loader *loader;
  struct sl_trainer *t;
  double losses[STEPS] = {0}, want, distance;
  OK(sl_model_new(context, &SL_SHAPE(1, EXACT_SIDE, EXACT_SIDE), &m));
  OK(exact_build(m));
  OK(exact_begin(m, &net));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = BATCH, .slots = 6}, &loader));
  OK(sl_trainer_new(m, o, &(struct sl_schedule){.warmup = WARMUP}, &cuts[cut], &t));
  take_steps(t, loader, STEPS, losses);
  for (int s = 0; s < STEPS; s++) {
    int64_t first = s * BATCH % (3 * BATCH), left = SAMPLES - first;
    struct sl_optimizer now = *o;
    if (s < WARMUP) now.lr *= (float)(s + 1) / WARMUP;
    OK(exact_step(&net, data, first, left < BATCH ? left : BATCH, &now, &want));
    if (!(fabs(losses[s] - want) <= NEAR * want))
      fail_msg("cut %zu, optimizer %zu, step %d: loss %.9g, in double precision %.9g", cut,
               optimizer, s, losses[s], want);
  }
  OK(exact_distance(m, net.parameter, &distance));
  if (!(distance <= NEAR))
    fail_msg("cut %zu, optimizer %zu: weights are off by %.2g of the largest", cut, optimizer,
             distance);
  if (o->average > 0) {
    OK(sl_trainer_swap_average(t));
    OK(exact_distance(m, net.average, &distance));
    if (!(distance <= NEAR))
      fail_msg("cut %zu, optimizer %zu: averages are off by %.2g", cut, optimizer, distance);
  }
  sl_trainer_free(t);
  sl_loader_free(loader);
  sl_model_free(m);
}

/* Each cut with three of the optimizers; the first one, which is none, with all. */
static void any_cut_gives_the_numbers_in_double_precision(void **state) {
  (void)state;
  struct sl_dataset *data;
  OK(sl_digits_new(SAMPLES, 3, true, &data));
  for (size_t cut = 0; cut < sizeof cuts / sizeof *cuts; cut++)
    for (size_t o = 0; o < OPTIMIZERS; o++)
      if (!cut || (cut + o) % OPTIMIZERS < 3) check(data, cut, o);
  sl_dataset_free(data);
}

static void check_report(const struct exact_network *net, struct sl_dataset *data,
                         const struct sl_report *r, int parts) {
  double square = 0, noise[2] = {0, 0};
  int64_t first = r->step * BATCH % (3 * BATCH), left = SAMPLES - first;
  int64_t count = left < BATCH ? left : BATCH;
  OK(exact_noise(net, data, first, count, count < BATCH ? 1 : parts, 1, &square, noise));
  bool is_near = fabs(r->grad_norm / sqrt(square) - 1) < 1e-5;
  if (count < BATCH || parts < 2)
    is_near &= r->grad_variance == -1 && r->grad_noise == -1;
  else
    is_near &= fabs(r->grad_variance / noise[1] - 1) < 1e-4 &&
               (noise[0] > 0 ? fabs(r->grad_noise / (noise[1] / noise[0]) - 1) < 1e-3
                             : r->grad_noise == -1);
  if (!is_near)
    fail_msg(
        "step %d of %d parts: norm %.9g, not %.9g; variance %.9g, not %.9g; noise %.9g, |G|^2 "
        "%.9g",
        (int)r->step, parts, r->grad_norm, sqrt(square), r->grad_variance, noise[1], r->grad_noise,
        noise[0]);
}

/* Two trainings in turn: with the option reports have the norms, and weights the same bits. */
static void gradients_are_logged(void **state) {
  (void)state;
  static const struct sl_trainer_options ways[] = {
      {.replicas = 1},
      {.replicas = 3, .in_flight = 1},
      {.replicas = 2, .microbatches = 3, .eager = true},
      {.replicas = 3, .big_shard = 50, .kvstore = SL_KVSTORE_DEVICE},
      {.replicas = 2, .kvstore = SL_KVSTORE_DIST_SYNC, .bigarray_bound = 50}};
  static struct exact_network net;
  static float weights[2][EXACT_PARAMETERS];
  struct sl_dataset *data;
  OK(sl_digits_new(SAMPLES, 3, true, &data));
  for (size_t i = 0; i < 2 * sizeof ways / sizeof *ways; i++) {
    struct sl_trainer_options options = ways[i / 2];
    const struct sl_optimizer *o = &optimizers[i / 2 % 2];
    struct sl_report report[STEPS + 1] = {{0}};
    struct sl_model *m;
    struct sl_loader *loader;
    struct sl_trainer *t;
    bool reported;
    double loss;
    options.log_gradients = i % 2;
    OK(sl_model_new(context, &SL_SHAPE(1, EXACT_SIDE, EXACT_SIDE), &m));
    OK(exact_build(m));
    OK(exact_begin(m, &net));
    OK(sl_loader_new(data, &(struct sl_loader_options){.batch = BATCH, .slots = 6}, &loader));
    OK(sl_trainer_new(m, o, NULL, &options, &t));
    int n = 0;
    for (int s = 0; s < STEPS; s++, n += reported) {
      OK(sl_trainer_step(t, loader, &report[n], &reported));
    }
    for (reported = true; reported; n += reported) OK(sl_trainer_drain(t, &report[n], &reported));
    for (int s = 0; s < STEPS; s++) {
      int64_t first = s * BATCH % (3 * BATCH), left = SAMPLES - first;
      if (options.log_gradients) check_report(&net, data, &report[s], options.replicas);
      if (!options.log_gradients) assert_true(report[s].grad_norm == -1);
      OK(exact_step(&net, data, first, left < BATCH ? left : BATCH, o, &loss));
    }
    OK(sl_model_get(m, "fc1.weight", weights[i % 2]));
    if (i % 2) assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
    sl_trainer_free(t);
    sl_loader_free(loader);
    sl_model_free(m);
  }
  sl_dataset_free(data);
}

/* The network's own gradient, by finite differences of its loss. */
static void the_network_knows_its_gradient(void **state) {
  static struct exact_network net, moved;
  (void)state;
  const struct sl_optimizer still = {.lr = 0};
  struct sl_dataset *data;
  struct sl_model *m;
  double loss, side[2], h = 1e-5;
  OK(sl_digits_new(5, 3, true, &data));
  OK(sl_model_new(context, &SL_SHAPE(1, EXACT_SIDE, EXACT_SIDE), &m));
  OK(exact_build(m));
  OK(exact_begin(m, &net));
  OK(exact_step(&net, data, 0, 5, &still, &loss));
  for (int i = 0; i < EXACT_PARAMETERS; i += 7) {
    for (int s = 0; s < 2; s++) {
      moved = net;
      moved.parameter[i] += s ? h : -h;
      OK(exact_step(&moved, data, 0, 5, &still, &side[s]));
    }
    assert_true(fabs((side[1] - side[0]) / (2 * h) - net.gradient[i]) < 1e-8);
  }
  sl_model_free(m);
  sl_dataset_free(data);
}

static int open_several(void **state) {
  (void)state;
  return open_context_with(&(struct sl_context_options){.seed = 11, .distributed = true});
}

int main(void) {
  setenv("STARPU_NCPU", "3", 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_network_knows_its_gradient),
      cmocka_unit_test(any_cut_gives_the_numbers_in_double_precision),
      cmocka_unit_test(gradients_are_logged)};
  return cmocka_run_group_tests_name("exact", tests, open_several, close_context);
}
