/* The cost model, the played pipeline, and sl_place_auto. */
#include "codelets/codelets.h"
#include "core/base/error.h"
#include "core/base/median.h"
#include "core/runtime/hooks.h"
#include "parallel/planning/cost.h"
#include "parallel/planning/stage_plan.h"
#include "parallel/planning/step_simulator.h"
#include "tests/common/check.h"

/* ---- the played pipeline ------------------------------------------------------------------- */

enum { LAYERS = 8 };

static double forward[LAYERS], data[LAYERS], weight[LAYERS], update[LAYERS], cuts[LAYERS];

static double period(int stages, int microbatches, int chunks, int in_flight, bool barrier) {
  int stage[LAYERS];
  double ms;
  for (int i = 0; i < LAYERS; i++) stage[i] = i * stages / LAYERS;
  const struct sl__step_model p = {.layers = LAYERS,
                                   .stages = stages,
                                   .microbatches = microbatches,
                                   .chunks = chunks,
                                   .in_flight = in_flight,
                                   .stage = stage,
                                   .forward = forward,
                                   .backward_data = data,
                                   .backward_weight = weight,
                                   .update = update,
                                   .cut_ms = cuts,
                                   .barrier = barrier};
  OK(sl__simulate_step_period(&p, &ms));
  return ms;
}

static void set_times(double f, double d, double w, double u, double cut) {
  for (int i = 0; i < LAYERS; i++) {
    forward[i] = f;
    data[i] = d;
    weight[i] = w;
    update[i] = u;
    cuts[i] = cut;
  }
}

static void assert_about(double got, double want, double tolerance) {
  if (fabs(got - want) > tolerance * want) fail_msg("%.6g, expected %.6g", got, want);
}

static void one_stage_takes_the_sum(void **state) {
  (void)state;
  set_times(1, 2, 3, 4, 0);
  assert_about(period(1, 1, 1, 1, false), LAYERS * 10, 1e-9);
  assert_about(period(1, 5, 1, 2, false), LAYERS * (5 * 6 + 4), 1e-9);
  assert_about(period(1, 5, 3, 2, true), LAYERS * (15 * 6 + 4), 1e-9);
}

/* One microbatch: forward and backward go through the stages one after the other; weight gradients
 * and updates of the late stages are done while the early ones go backward, so only the first
 * stage's show. */
static void one_microbatch_has_no_overlap(void **state) {
  (void)state;
  set_times(1, 1, 0, 0, 0);
  assert_about(period(4, 1, 1, 1, false), LAYERS * 2, 1e-9);
  set_times(1, 1, 0, 0, 0.5); /* three cuts, there and back */
  assert_about(period(4, 1, 1, 1, false), LAYERS * 2 + 3, 1e-9);
}

/* Without weight gradients to fill the gaps, one step at a time: GPipe's (m + p - 1) / m. */
static void a_step_alone_has_the_known_bubble(void **state) {
  (void)state;
  set_times(1, 1, 0, 0, 0);
  for (int m = 1; m <= 16; m *= 2) {
    double work = m * 2.0 * LAYERS / 4;
    assert_about(period(4, m, 1, 1, false), work * (m + 3) / m, 1e-9);
    assert_about(period(4, 1, m, 1, false), work * (m + 3) / m, 1e-9); /* chunks in time likewise */
  }
}

/* Weight gradients fill gaps; steps in flight close them; a barrier opens them again. */
static void what_fills_the_gaps(void **state) {
  (void)state;
  set_times(1, 1, 1, 0.1, 0);
  double work = 16 * 3.0 * LAYERS / 4 + 0.1 * LAYERS / 4;
  double alone = period(4, 16, 1, 1, false), many = period(4, 16, 1, 4, false);
  double barrier = period(4, 16, 1, 4, true);
  assert_true(alone >= work && alone < work * 19 / 16);
  assert_true(many >= work * (1 - 1e-9) && many < 1.04 * work);
  assert_true(barrier > many && barrier <= alone * 1.001);
}

/* Thousands of cells are merged: quickly done, and nearly the same answer. */
static void many_cells_are_merged(void **state) {
  (void)state;
  set_times(1, 1, 1, 1, 0);
  double few = period(4, 200, 1, 2, false) / 200, many = period(4, 4000, 100, 2, false) / 400000;
  assert_about(many, few, 0.02);
}

/* ---- automatic placement ------------------------------------------------------------------- */

enum { WORDS = 300, STEPS = 10, BATCH = 16 };

static struct sl_model *language_model(int layers, int vocabulary, int hidden) {
  struct sl_model *m;
  char name[16];
  OK(sl_model_new(context, &SL_SHAPE(STEPS), &m));
  OK(sl_embedding(m, "embed",
                  &(struct sl_embedding_options){.vocabulary = vocabulary, .features = hidden}));
  for (int i = 0; i < layers; i++) {
    snprintf(name, sizeof name, "lstm%d", i);
    OK(sl_lstm(m, name, &(struct sl_lstm_options){.features = hidden}));
  }
  OK(sl_dense(m, "decoder", &(struct sl_dense_options){.features = vocabulary, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

static const struct sl_optimizer sgd = {.lr = 1};

/* Stages for this number of replicas, as sl_place takes them. */
static char *stages_of(struct sl_model *m, int replicas, int microbatches, int most_stages) {
  const struct sl__cost_case c = {.model = m,
                                  .optimizer = &sgd,
                                  .big_shard = 250000,
                                  .replicas = replicas,
                                  .microbatches = microbatches};
  struct sl__device_classes classes;
  struct sl__stage_plan plan;
  char *rules;
  OK(sl__device_classes_new(context, &classes));
  assert_int_equal(sl__device_classes_largest(&classes), 4);
  OK(sl__stage_plan_new(&c, BATCH, 2, most_stages, &classes, &plan));
  assert_false(plan.partition.nothing_fits);
  assert_false(sl__stage_plan_is_guessed(&plan)); /* it was measured */
  assert_true(plan.step_ms > 0 && plan.step_ms < 1e5);
  OK(sl__stage_plan_rules(&plan, &rules));
  sl__stage_plan_clear(&plan);
  sl__device_classes_clear(&classes);
  return rules;
}

/* Weights stay; the text is a legal placement of all layers; equal layers are shared out. */
static void layers_are_shared_out(void **state) {
  (void)state;
  struct sl_model *m = language_model(8, 11, 40);
  struct sl_trainer *trainer;
  static float before[40 * 160], after[40 * 160];
  OK(sl_model_get(m, "lstm3.weight_hh_l0", before));
  char *rules = stages_of(m, 1, 4, 0);
  OK(sl_model_get(m, "lstm3.weight_hh_l0", after));
  assert_memory_equal(before, after, sizeof before);
  assert_non_null(strstr(rules, "cpu:0"));
  assert_non_null(strstr(rules, "cpu:1"));
  /* a trainer takes it */
  OK(sl_place(m, rules));
  OK(sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.microbatches = 4}, &trainer));
  sl_trainer_free(trainer);
  free(rules);
  sl_model_free(m);
  /* fewer stages, if so asked */
  m = language_model(8, 11, 40);
  rules = stages_of(m, 1, 4, 1);
  assert_null(strchr(rules, ';'));
  free(rules);
  sl_model_free(m);
}

/* Two replicas: every stage takes two devices, so four workers give two stages. */
static void replicas_take_a_device_each(void **state) {
  (void)state;
  struct sl_model *m = language_model(6, 11, 40);
  struct sl_trainer *trainer;
  char *rules = stages_of(m, 2, 2, 0);
  int stages = 1, commas = 0;
  for (const char *c = rules; *c; c++) stages += *c == ';';
  for (const char *c = strchr(rules, '='); c && *c && *c != ';'; c++) commas += *c == ',';
  assert_true(stages <= 2);
  assert_int_equal(commas, 1);
  OK(sl_place(m, rules));
  OK(sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.replicas = 2, .microbatches = 2},
                    &trainer));
  sl_trainer_free(trainer);
  free(rules);
  sl_model_free(m);
}

/* A decoder that costs more than all else together stands alone. */
static void a_dear_decoder_stands_alone(void **state) {
  (void)state;
  struct sl_model *m = language_model(1, 40000, 32);
  char *rules = stages_of(m, 1, 2, 2);
  if (!strstr(rules, ";decoder=cpu:1")) fail_msg("%s", rules);
  free(rules);
  sl_model_free(m);
}

/* The table's candidates, and the taken one's replicas, stages (0: no placement) and ms. */
struct candidates {
  int rows, timed, replicas, stages;
  double free_ms, ms, least_ms;
};

static void read_taken(const char *table, struct candidates *found) {
  static const char title[] = "taken (and the same by hand): replicas ";
  const char *line = strstr(table, title);
  assert_non_null(line);
  found->replicas = atoi(line + strlen(title));
  if (strstr(line, ", no placement\n")) return;
  assert_non_null(strstr(line, ", placement '"));
  found->stages = 1;
  for (; *line != '\n'; line++) found->stages += *line == ';';
}

static struct candidates read_table(const char *table) {
  struct candidates found = {.least_ms = INFINITY};
  char line[200];
  read_taken(table, &found);
  for (const char *from = strchr(table, '\n') + 1; *from; from = strchr(from, '\n') + 1) {
    int replicas;
    char stages[8], predicted[16], measured[16];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(from, "\n"), from);
    if (sscanf(line, "%d %7s %15s %15s", &replicas, stages, predicted, measured) != 4) break;
    bool is_free = strstr(line, "no placement") != NULL;
    assert_int_equal(is_free, !strcmp(stages, "-") && !strcmp(predicted, "-"));
    found.rows++;
    if (!strcmp(measured, "-")) continue;
    double ms = strtod(measured, NULL);
    found.timed++;
    found.least_ms = fmin(found.least_ms, ms);
    if (is_free) found.free_ms = ms;
    if (replicas == found.replicas && atoi(stages) == found.stages) found.ms = ms;
  }
  return found;
}

static void assert_placed_as(struct sl_model *m, const char *table,
                             const struct candidates *found) {
  if (!found->stages) {
    assert_null(sl_placement(m));
    assert_non_null(strstr(table, "no placement\n"));
  } else {
    assert_non_null(sl_placement(m));
    assert_non_null(strstr(table, sl_placement(m)));
  }
}

/* Plain replicas, stages and replicas, and no placement are compared; the quickest is taken, but no
 * placement unless the others surely gain (sl__cost_is_less). The model is placed as the table
 * says. */
static void the_quickest_is_taken(void **state) {
  (void)state;
  struct sl_model *m = language_model(2, 11, 40);
  static float before[40 * 160], after[40 * 160];
  char *table;
  double ms;
  OK(sl_model_get(m, "lstm1.weight_hh_l0", before));
  OK(sl_place_auto(m, &sgd, NULL, BATCH, &ms, &table));
  OK(sl_model_get(m, "lstm1.weight_hh_l0", after));
  assert_memory_equal(before, after, sizeof before);
  struct candidates found = read_table(table);
  if (found.rows != 4) fail_msg("%s", table); /* 4, 2, 1 replicas; free */
  assert_non_null(strstr(table, "ms predicted"));
  assert_true(fabs(ms - found.ms) < 0.006); /* it is printed with two digits */
  if (found.stages)
    assert_true(found.ms <= found.least_ms + 0.01 && found.ms <= 0.97 * found.free_ms + 0.01);
  assert_placed_as(m, table, &found);
  /* a trainer has the table's number of replicas */
  struct sl_trainer *trainer;
  OK(sl_trainer_new(m, &sgd, NULL, NULL, &trainer));
  assert_int_equal(sl_trainer_replicas(trainer), found.replicas);
  sl_trainer_free(trainer);
  free(table);
  /* with the options' replicas alone, and for a model that was placed */
  OK(sl_place(m, "embed,lstm0-1,decoder=cpu:2"));
  OK(sl_place_auto(m, &sgd, &(struct sl_trainer_options){.replicas = 2}, BATCH, NULL, &table));
  found = read_table(table);
  if (found.rows != 2 || found.replicas != 2) fail_msg("%s", table);
  assert_placed_as(m, table, &found);
  assert_null(strstr(table, "'embed,lstm0-1,decoder=cpu:2'"));
  free(table);
  sl_model_free(m);
}

static enum sl_status count_graphs(void *data, const struct sl__call *call,
                                   struct starpu_task *task) {
  (void)task;
  *(int *)data += call->op == &sl__op_subgraph;
  return SL_OK;
}

/* Of captured steps, as a trainer runs them: a pipeline of small layers seemed quicker than
 * tasks of single calls, and was slower than the step without a placement. */
static void whole_steps_are_captured(void **state) {
  (void)state;
  struct sl_model *m = language_model(1, 11, 8);
  int graphs = 0;
  const struct sl__submit_hook hook = {.before = count_graphs, .data = &graphs};
  OK(sl__submit_hook_add(context, &hook));
  OK(sl_place_auto(m, &sgd, &(struct sl_trainer_options){.eager = true}, BATCH, NULL, NULL));
  assert_int_equal(graphs, 0);
  OK(sl_place_auto(m, &sgd, NULL, BATCH, NULL, NULL));
  assert_true(graphs > 0);
  sl__submit_hook_remove(context, &graphs);
  sl_model_free(m);
}

/* Rounds of three steps. */
static void noise_is_no_gain(void **state) {
  (void)state;
  const double free_ms[] = {10, 10.2, 9.9, 10.1, 10, 10.3, 10, 9.8, 14};
  const double less[] = {9.5, 9.4, 9.6, 9.5, 9.5, 9.4, 9.6, 20, 9.5};
  const double little[] = {9.9, 9.8, 9.9, 9.9, 9.9, 9.8, 9.9, 9.7, 9.9};
  const double once_more[] = {8, 8, 8, 8, 8, 8, 10.1, 8, 10.1};
  assert_true(sl__cost_is_less(3, less, free_ms));
  assert_false(sl__cost_is_less(3, little, free_ms));
  assert_false(sl__cost_is_less(3, once_more, free_ms));
  assert_true(sl__cost_is_less(2, once_more, free_ms));
  assert_false(sl__cost_is_less(3, free_ms, free_ms));
  assert_false(sl__cost_is_less(0, less, free_ms));
}

static void medians(void **state) {
  (void)state;
  double one[] = {3}, odd[] = {9, 1, 4}, even[] = {8, 2, 100, 4};
  assert_true(sl__median(1, one) == 3);
  assert_true(sl__median(3, odd) == 4);
  assert_true(sl__median(4, even) == 6);
}

/* A guess stands in where nothing was measured: the larger of flops and bytes. */
static void guesses_are_of_the_right_kind(void **state) {
  (void)state;
  const struct sl__device cpu = {.place.where = STARPU_CPU}, gpu = {.place.where = STARPU_CUDA};
  struct sl__dry_run_task busy = {.flops = 3e9, .bytes = 10}, moving = {.flops = 10, .bytes = 1e9};
  assert_about(sl__cost_estimate(&busy, &cpu), 100, 1e-6);
  assert_about(sl__cost_estimate(&moving, &cpu), 100, 1e-6);
  assert_true(sl__cost_estimate(&busy, &gpu) < sl__cost_estimate(&busy, &cpu) / 10);
  assert_true(sl__cost_estimate(&moving, &gpu) < sl__cost_estimate(&moving, &cpu) / 10);
}

static void memory_is_counted(void **state) {
  (void)state;
  struct sl_model *m = language_model(1, 11, 40);
  const struct sl_optimizer adam = {.kind = SL_ADAM};
  struct sl__cost_case c = {.model = m, .optimizer = &adam, .rows = 3};
  /* decoder: 11 x 40 + 11 parameters, their gradients, two states; 3 x 10 x 11 outputs of 5 slices
   */
  assert_true(sl__cost_bytes(&c, 2, 5) == 4.0 * (4 * 451 + 330 * 5));
  /* lstm: 4 x 40 x (40 + 40 + 2), 6 x 40 saved values a step, 2 x 40 of state with a gradient */
  c.optimizer = &sgd;
  assert_true(sl__cost_bytes(&c, 1, 2) ==
              4.0 * (2 * 13120 + 3 * 10 * 40 * 2 * 7 + 3 * 2 * 40 * 2 * 2));
  /* embedding, of one token each: only the rows that 2 x 3 x 10 tokens touch have a gradient */
  struct sl_model *wide = language_model(1, 600, 40);
  c.model = wide;
  c.microbatches = 2;
  assert_true(sl__cost_bytes(&c, 0, 1) == 4.0 * (600 * 40 + 60 * 40 + 3 * 10 * 40));
  sl_model_free(wide);
  /* attention: in chunks its keys and values stay, 2 x 2 heads x 4 for each of 10 steps */
  struct sl_model *heads;
  OK(sl_model_new(context, &SL_SHAPE(10), &heads));
  OK(sl_embedding(heads, "embed",
                  &(struct sl_embedding_options){.vocabulary = 11, .features = 24}));
  OK(sl_attention(heads, "attention", &(struct sl_attention_options){.heads = 2}));
  OK(sl_model_build(heads));
  c.model = heads;
  double whole = sl__cost_bytes(&c, 1, 1);
  c.chunk = 5;
  assert_true(sl__cost_bytes(&c, 1, 1) == whole + 4.0 * 3 * 10 * 16 * 2);
  sl_model_free(heads);
  struct sl__device cpu = {.node = STARPU_MAIN_RAM};
  assert_true(sl__device_memory(&cpu) > 1e8);
  sl_model_free(m);
}

/* ---- limits of main memory ----------------------------------------------------------------- */

enum { WIDTH = 256, WIDE_LAYERS = 6, ROWS = 96 };

static void limit_memory(const char *limit) {
  assert_int_equal(close_context(NULL), 0);
  OK(sl_open(&(struct sl_context_options){.seed = 1, .memory_limit = limit}, &context));
}

/* Parameters and the state of Adam: 4.7 MB; the gradients of each replica: 1.6 MB. */
static struct sl_model *wide_model(void) {
  struct sl_model *m;
  char name[16];
  OK(sl_model_new(context, &SL_SHAPE(WIDTH), &m));
  for (int i = 0; i < WIDE_LAYERS; i++) {
    snprintf(name, sizeof name, "fc%d", i);
    OK(sl_dense(m, name, &(struct sl_dense_options){.features = WIDTH}));
  }
  OK(sl_model_build(m));
  return m;
}

static enum sl_status place_wide(struct sl_model *m, int replicas, double *ms, char **table) {
  return sl_place_auto(m, &(struct sl_optimizer){.kind = SL_ADAM},
                       &(struct sl_trainer_options){.replicas = replicas}, ROWS, ms, table);
}

/* Replicas in one memory share parameters and state: 11.1 MB for four, not 25.3. */
static void parameters_count_once(void **state) {
  (void)state;
  char *table;
  limit_memory("cpu=14M");
  struct sl_model *m = wide_model();
  OK(place_wide(m, 4, NULL, &table));
  struct candidates found = read_table(table);
  if (found.rows != 2 || !(found.free_ms > 0)) fail_msg("%s", table);
  assert_null(strstr(table, "guessed"));
  free(table);
  sl_model_free(m);
  limit_memory("cpu=9M"); /* two replicas at most: the way without a placement has four */
  m = wide_model();
  OK(place_wide(m, 0, NULL, &table));
  found = read_table(table);
  if (found.rows != 3 || found.free_ms > 0 || found.replicas > 2) fail_msg("%s", table);
  free(table);
  FAILS(place_wide(m, 4, NULL, NULL), SL_NO_MEMORY, "MB of main memory for 4 replicas");
  sl_model_free(m);
  limit_memory(NULL);
}

/* As the limit does, for tasks with the given number of rows. */
static enum sl_status refuse_rows(void *data, const struct sl__call *call,
                                  struct starpu_task *task) {
  (void)task;
  for (int i = 0; i < call->count; i++)
    if (call->tensors[i]->shape.ndim == 2 && call->tensors[i]->shape.dim[0] >= *(int64_t *)data)
      return sl__fail(SL_NO_MEMORY, "%s: the limit is used up", call->op->codelet.name);
  return SL_OK;
}

/* A candidate whose steps do not fit is none, what the trainer does by itself likewise. */
static void what_cannot_be_measured_is_left_out(void **state) {
  (void)state;
  int64_t rows = WIDTH + 1;
  const struct sl__submit_hook hook = {.before = refuse_rows, .data = &rows};
  static float before[WIDTH * WIDTH], after[WIDTH * WIDTH];
  char *table;
  double ms;
  limit_memory("cpu=1G");
  OK(sl__submit_hook_add(context, &hook));
  struct sl_model *m = wide_model();
  OK(sl_model_get(m, "fc1.weight", before));
  OK(sl_place_auto(m, &sgd, NULL, rows, &ms, &table)); /* a single replica has too many */
  struct candidates found = read_table(table);
  if (found.replicas < 2 || !(ms > 0) || !(found.free_ms > 0)) fail_msg("%s", table);
  free(table);
  rows = 1;
  FAILS(place_wide(m, 0, NULL, NULL), SL_NO_MEMORY, "measuring a placement: ");
  OK(sl_model_get(m, "fc1.weight", after));
  assert_memory_equal(before, after, sizeof before);
  sl_model_free(m);
  limit_memory("cpu=9M");
  OK(sl__submit_hook_add(context, &hook));
  m = wide_model();
  FAILS(place_wide(m, 0, NULL, NULL), SL_NO_MEMORY, "measuring a placement: ");
  sl_model_free(m);
  limit_memory(NULL);
}

struct refusal {
  const struct sl_model *model;
  int plans; /* the number that is refused */
};

static enum sl_status refuse_plans(void *data, const struct sl__call *call,
                                   struct starpu_task *task) {
  struct refusal *r = data;
  (void)task;
  if (!r->model || !sl_placement(r->model) || !r->plans) return SL_OK;
  r->plans--;
  return sl__fail(SL_NO_MEMORY, "%s: the limit is used up", call->op->codelet.name);
}

/* Those predicted to be slower are measured in the place of refused ones. */
static void the_next_plans_are_measured(void **state) {
  (void)state;
  struct refusal refusal = {0};
  const struct sl__submit_hook hook = {.before = refuse_plans, .data = &refusal};
  limit_memory("cpu=1G");
  OK(sl__submit_hook_add(context, &hook));
  struct sl_model *m = wide_model();
  refusal.model = m;
  const int refused[] = {0, 1, 2, 3}, timed[] = {3, 3, 2, 1}; /* with the free choice */
  for (int i = 0; i < 4; i++) {
    char *table;
    refusal.plans = refused[i];
    OK(place_wide(m, 0, NULL, &table));
    struct candidates found = read_table(table);
    if (found.rows != 4 || found.timed != timed[i] || !(found.free_ms > 0)) fail_msg("%s", table);
    free(table);
  }
  sl_model_free(m);
  limit_memory(NULL);
}

/* As refuse_rows, but of layers alone, not of the steps of a plan. */
static enum sl_status refuse_layers(void *data, const struct sl__call *call,
                                    struct starpu_task *task) {
  const struct refusal *r = data;
  int64_t rows = 2 * WIDTH;
  if (!r->model || sl_placement(r->model)) return SL_OK;
  return refuse_rows(&rows, call, task);
}

/* Times of a single replica's layers cannot be measured: other plans are tried before it, though
 * the guess is that it is quicker. */
static void measured_plans_come_first(void **state) {
  (void)state;
  struct refusal refusal = {0};
  const struct sl__submit_hook hook = {.before = refuse_layers, .data = &refusal};
  char *table;
  int replicas;
  char measured[16] = "";
  limit_memory("cpu=1G");
  OK(sl__submit_hook_add(context, &hook));
  struct sl_model *m = wide_model();
  refusal.model = m;
  OK(sl_place_auto(m, &sgd, NULL, 2 * WIDTH, NULL, &table));
  struct candidates found = read_table(table);
  if (found.rows != 4 || found.timed != 3) fail_msg("%s", table);
  const char *line = table;
  for (int i = 0; i < 3; i++) line = strchr(line, '\n') + 1;
  assert_int_equal(sscanf(line, "%d %*s %*s %15s", &replicas, measured), 2);
  if (replicas != 1 || strcmp(measured, "-") != 0) fail_msg("%s", table);
  free(table);
  sl_model_free(m);
  limit_memory(NULL);
}

/* A replica in another memory takes its parameters with it, and leaves none here. */
static void each_memory_has_parameters(void **state) {
  (void)state;
  int stage[WIDE_LAYERS] = {0};
  limit_memory("cpu=5M");
  struct sl_model *m = wide_model();
  struct sl__device devices[2] = {{.name = "cuda:0", .node = 1}, {.name = "cpu"}};
  for (int d = 0; d < 2; d++) devices[d].place.where = d ? STARPU_CPU : STARPU_CUDA;
  const struct sl__grid grid = {.members = 1,
                                .replicas = 2,
                                .microbatches = 1,
                                .stages = 1,
                                .stage = stage,
                                .devices = devices,
                                .layers = WIDE_LAYERS};
  const struct sl_optimizer adam = {.kind = SL_ADAM};
  FAILS(sl__placement_check_memory(m, &adam, &(struct sl_loss){0}, &grid, ROWS), SL_NO_MEMORY,
        "the layers on cpu (stage 0");
  sl_model_free(m);
  limit_memory(NULL);
}

enum refused { LAYER, CAPTURED_STEP };

/* Where there is a check of health, waits allocate. */
static enum sl_status is_healthy(void *data) {
  (void)data;
  return SL_OK;
}

/* Refuses such a call, and the next allocation of its thread. */
static enum sl_status refuse_and_starve(void *data, const struct sl__call *call,
                                        struct starpu_task *task) {
  enum refused refused = *(enum refused *)data;
  (void)task;
  bool is_layer = call->count > 2 && call->tensors[0]->shape.dim[0] == ROWS;
  if (refused == LAYER ? !is_layer : call->op != &sl__op_subgraph) return SL_OK;
  sl__alloc_fail_after(1);
  return sl__fail(SL_NO_MEMORY, "%s: the limit is used up", call->op->codelet.name);
}

/* Neither a refused step nor layers that are guessed may hide that the weights are other ones. */
static void a_failed_restoration_is_told(void **state) {
  (void)state;
  enum refused refused = LAYER;
  const struct sl__submit_hook hook = {.before = refuse_and_starve, .data = &refused};
  limit_memory("cpu=1G");
  OK(sl__health_check_add(context, &(struct sl__health_check){.check = is_healthy}));
  OK(sl__submit_hook_add(context, &hook));
  struct sl_model *m = wide_model();
  for (; refused <= CAPTURED_STEP; refused++) {
    enum sl_status status = place_wide(m, 1, NULL, NULL);
    sl__alloc_fail_after(0);
    FAILS(status, SL_STARPU, "they could not be restored: no memory for");
  }
  sl_model_free(m);
  limit_memory(NULL);
}

/* Residual, normalised; with an embedding or without. */
static struct sl_model *small_model(bool tokens) {
  struct sl_model *m;
  OK(sl_model_new(context, &SL_SHAPE(STEPS), &m));
  if (tokens)
    OK(sl_embedding(m, "embed", &(struct sl_embedding_options){.vocabulary = 11, .features = 8}));
  else
    OK(sl_dense(m, "embed", &(struct sl_dense_options){.features = 8}));
  if (!tokens) OK(sl_batchnorm(m, "bn", &(struct sl_batchnorm_options){0}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 8, .positions = true}));
  OK(sl_add(m, "sum", &(struct sl_add_options){.layer.inputs = tokens ? "embed,fc" : "bn,fc"}));
  OK(sl_dense(m, "out", &(struct sl_dense_options){.features = 11, .positions = true}));
  OK(sl_model_build(m));
  return m;
}

static enum sl_status plan_once(struct sl_model *m) {
  const struct sl__cost_case c = {
      .model = m, .optimizer = &sgd, .big_shard = 20, .replicas = 1, .microbatches = 2};
  struct sl__device_classes classes;
  struct sl__stage_plan plan;
  enum sl_status status = sl__device_classes_new(context, &classes);
  if (status == SL_OK) status = sl__stage_plan_new(&c, BATCH, 2, 0, &classes, &plan);
  if (status == SL_OK) sl__stage_plan_clear(&plan);
  sl__device_classes_clear(&classes);
  return status;
}

static enum sl_status place_once(struct sl_model *m) {
  const struct sl_trainer_options options = {.replicas = 1, .microbatches = 2, .big_shard = 20};
  return sl_place_auto(m, &sgd, &options, BATCH, NULL, NULL);
}

/* Weights, buffers and placement of before, and no crash, whichever allocation fails: each
 * of the first `dense`, then fewer and fewer, since such a run takes many steps. */
static void fail_everywhere(struct sl_model *m, enum sl_status (*run)(struct sl_model *),
                            long dense) {
  float weight[80], mean[8], variance[8], got[80];
  OK(sl_model_get(m, "embed.weight", weight));
  OK(sl_model_get(m, "bn.running_mean", mean));
  OK(sl_model_get(m, "bn.running_var", variance));
  enum sl_status status = SL_NO_MEMORY;
  for (long n = 1; status != SL_OK; n += 1 + n / dense) {
    assert_true(n < 9000);
    sl__alloc_fail_after(n);
    status = run(m);
    sl__alloc_fail_after(0);
    if (status != SL_OK) assert_int_equal(status, SL_NO_MEMORY);
    if (status != SL_OK) assert_string_equal(sl_placement(m), "embed,bn,fc,sum,out=cpu:3");
    OK(sl_model_get(m, "embed.weight", got));
    assert_memory_equal(got, weight, sizeof weight);
    OK(sl_model_get(m, "bn.running_mean", got));
    assert_memory_equal(got, mean, sizeof mean);
    OK(sl_model_get(m, "bn.running_var", got));
    assert_memory_equal(got, variance, sizeof variance);
  }
}

static void a_failure_changes_nothing(void **state) {
  (void)state;
  struct sl_model *m = small_model(false);
  OK(sl_place(m, "embed,bn,fc,sum,out=cpu:3"));
  fail_everywhere(m, plan_once, 60);
  fail_everywhere(m, place_once, 3);
  sl_model_free(m);
}

static void a_trainer_without_memory_is_an_error(void **state) {
  (void)state;
  for (int replicas = 1; replicas <= 3; replicas++) {
    struct sl_model *m = small_model(true);
    struct sl_trainer *trainer;
    enum sl_status status = SL_NO_MEMORY;
    const struct sl_optimizer adam = {.kind = SL_ADAM, .clip = 1};
    for (long n = 1; status != SL_OK; n++) {
      assert_true(n < 3000);
      sl__alloc_fail_after(n);
      status = sl_trainer_new(m, replicas == 2 ? &adam : &sgd, NULL,
                              &(struct sl_trainer_options){.replicas = replicas, .big_shard = 30},
                              &trainer);
      sl__alloc_fail_after(0);
      if (status != SL_OK) assert_int_equal(status, SL_NO_MEMORY);
    }
    sl_trainer_free(trainer);
    sl_model_free(m);
  }
}

/* Shards in use stay as they are cut. */
static void two_trainers_cut_alike(void **state) {
  (void)state;
  struct sl_model *m = small_model(true);
  struct sl_trainer *first, *second;
  const struct sl_trainer_options whole = {.replicas = 1}, cut = {.replicas = 1, .big_shard = 20};
  OK(sl_trainer_new(m, &sgd, NULL, &whole, &first));
  OK(sl_trainer_new(m, &sgd, NULL, &whole, &second));
  sl_trainer_free(second);
  assert_int_equal(sl_trainer_new(m, &sgd, NULL, &cut, &second), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "another trainer"));
  assert_int_equal(sl_place_auto(m, &sgd, &cut, BATCH, NULL, NULL), SL_BAD_ARGUMENT);
  sl_trainer_free(first);
  OK(sl_trainer_new(m, &sgd, NULL, &cut, &first));
  OK(sl_trainer_new(m, &sgd, NULL, &whole, &second)); /* takes the cut that is there */
  sl_trainer_free(first);
  sl_trainer_free(second);
  sl_model_free(m);
}

/* A batch with fewer rows than slices: the words of the trainer, whatever the layers. */
static void too_small_a_batch_is_told(void **state) {
  (void)state;
  struct sl_model *m;
  struct sl_dataset *data;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  OK(sl_digits_new(10, 1, true, &data));
  OK(sl_loader_new(data, &(struct sl_loader_options){.batch = 2}, &loader));
  OK(sl_model_new(context, &SL_SHAPE(1, 28, 28), &m));
  OK(sl_batchnorm(m, "bn", &(struct sl_batchnorm_options){0}));
  OK(sl_dense(m, "fc", &(struct sl_dense_options){.features = 10}));
  OK(sl_trainer_new(m, &sgd, NULL, &(struct sl_trainer_options){.replicas = 4}, &trainer));
  assert_int_equal(sl_trainer_step(trainer, loader, &report, &reported), SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "a batch of 2 cannot be cut into 4 replicas"));
  sl_trainer_free(trainer);
  sl_model_free(m);
  sl_loader_free(loader);
  sl_dataset_free(data);
}

static void what_cannot_be_is_refused(void **state) {
  (void)state;
  struct sl_model *m = language_model(1, 11, 8);
  assert_int_equal(
      sl_place_auto(m, &sgd, &(struct sl_trainer_options){.microbatches = 20}, BATCH, NULL, NULL),
      SL_BAD_ARGUMENT);
  assert_int_equal(
      sl_place_auto(m, &sgd, &(struct sl_trainer_options){.chunk = -1}, BATCH, NULL, NULL),
      SL_BAD_ARGUMENT);
  assert_int_equal(sl_place_auto(m, &(struct sl_optimizer){.lr = -1}, NULL, BATCH, NULL, NULL),
                   SL_BAD_ARGUMENT);
  assert_int_equal(
      sl_place_auto(m, &sgd, &(struct sl_trainer_options){.replicas = 5}, BATCH, NULL, NULL),
      SL_BAD_ARGUMENT);
  assert_non_null(strstr(sl_error(), "5 replicas need as many devices"));
  assert_int_equal(
      sl_place_auto(m, &sgd, &(struct sl_trainer_options){.in_flight = -1}, BATCH, NULL, NULL),
      SL_BAD_ARGUMENT);
  assert_int_equal(
      sl_place_auto(m, &sgd, &(struct sl_trainer_options){.big_shard = -1}, BATCH, NULL, NULL),
      SL_BAD_ARGUMENT);
  assert_null(sl_placement(m));
  sl_model_free(m);
}

int main(void) {
  setenv("STARPU_NCPU", "4", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_stage_takes_the_sum),
                                     cmocka_unit_test(one_microbatch_has_no_overlap),
                                     cmocka_unit_test(a_step_alone_has_the_known_bubble),
                                     cmocka_unit_test(what_fills_the_gaps),
                                     cmocka_unit_test(many_cells_are_merged),
                                     cmocka_unit_test(layers_are_shared_out),
                                     cmocka_unit_test(replicas_take_a_device_each),
                                     cmocka_unit_test(a_dear_decoder_stands_alone),
                                     cmocka_unit_test(the_quickest_is_taken),
                                     cmocka_unit_test(whole_steps_are_captured),
                                     cmocka_unit_test(noise_is_no_gain),
                                     cmocka_unit_test(medians),
                                     cmocka_unit_test(guesses_are_of_the_right_kind),
                                     cmocka_unit_test(memory_is_counted),
                                     cmocka_unit_test(parameters_count_once),
                                     cmocka_unit_test(what_cannot_be_measured_is_left_out),
                                     cmocka_unit_test(the_next_plans_are_measured),
                                     cmocka_unit_test(measured_plans_come_first),
                                     cmocka_unit_test(each_memory_has_parameters),
                                     cmocka_unit_test(a_failed_restoration_is_told),
                                     cmocka_unit_test(a_failure_changes_nothing),
                                     cmocka_unit_test(a_trainer_without_memory_is_an_error),
                                     cmocka_unit_test(two_trainers_cut_alike),
                                     cmocka_unit_test(too_small_a_batch_is_told),
                                     cmocka_unit_test(what_cannot_be_is_refused)};
  return cmocka_run_group_tests_name("automatic", tests, open_operations, close_context);
}
