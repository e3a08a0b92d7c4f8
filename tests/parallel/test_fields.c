/* Models with several inputs and outputs by name, and a loss of parts: against the same network in
 * double precision, whatever the division of the work; metrics by output; files; bad input. */
#include "tests/common/fields_network.h"
#include "tests/common/harness.h"

/* ---- trainings ---- */

struct run {
  double start[F_WEIGHTS], end[F_WEIGHTS], loss[F_STEPS], part[F_STEPS][2], evaluated;
};

static void take(const struct sl_report *report, struct run *run) {
  assert_int_equal(report->part_count, 2);
  run->loss[report->step] = report->loss;
  for (int p = 0; p < 2; p++) run->part[report->step][p] = report->part_loss[p];
}

static void train(bool missing, struct sl_trainer_options options, struct run *run) {
  struct sl_dataset *set = f_set(missing);
  struct sl_model *model = f_model(context);
  struct sl_loss_part parts[SL_MAX_FIELDS];
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  double accuracy;
  options.loss = f_loss(parts);
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = F_BATCH}, &loader));
  OK(sl_trainer_new(model, &(struct sl_optimizer){.lr = (float)F_LR}, NULL, &options, &trainer));
  memset(parts, 0, sizeof parts); /* they are copied */
  assert_string_equal(sl_trainer_part(trainer, 0), "kind");
  assert_string_equal(sl_trainer_part(trainer, 1), "place");
  assert_null(sl_trainer_part(trainer, 2));
  f_read(model, run->start);
  for (int s = 0; s < F_STEPS; s++) {
    OK(sl_trainer_step(trainer, loader, &report, &reported));
    if (reported) take(&report, run);
  }
  for (reported = true; reported;) {
    OK(sl_trainer_drain(trainer, &report, &reported));
    if (reported) take(&report, run);
  }
  OK(sl_loader_seek(loader, 0));
  OK(sl_trainer_evaluate(trainer, loader, &run->evaluated, &accuracy));
  f_read(model, run->end);
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_loader_free(loader);
  sl_dataset_free(set);
}

static void assert_as_reference(const struct run *run) {
  double w[F_WEIGHTS], parts[2];
  memcpy(w, run->start, sizeof w);
  for (int s = 0; s < F_STEPS; s++) {
    const int64_t first = s % 5 * F_BATCH, count = s % 5 == 4 ? F_COUNT - first : F_BATCH;
    f_mean(w, first, count, parts);
    double want = f_step(w, s);
    if (!(fabs(run->loss[s] - want) < 1e-5 * (1 + want)))
      fail_msg("step %d has %.9g, the reference %.9g", s, run->loss[s], want);
    for (int p = 0; p < 2; p++) assert_true(fabs(run->part[s][p] - parts[p]) < 2e-5);
  }
  for (int i = 0; i < F_WEIGHTS; i++)
    if (!(fabs(run->end[i] - w[i]) < 2e-5))
      fail_msg("weight %d is %.9g, of the reference %.9g", i, run->end[i], w[i]);
  assert_true(fabs(run->evaluated - f_mean(w, 0, F_COUNT, parts)) < 2e-5);
}

static void assert_same_bits(const struct run *a, const struct run *b) {
  assert_memory_equal(a->loss, b->loss, sizeof a->loss);
  assert_memory_equal(a->end, b->end, sizeof a->end);
  assert_true(a->evaluated == b->evaluated);
}

static void trainings_match_the_reference(void **state) {
  (void)state;
  static const struct sl_trainer_options divisions[] = {{.replicas = 1},
                                                        {.replicas = 2, .microbatches = 3},
                                                        {.replicas = 3, .split = "2,1,1"},
                                                        {.replicas = 1, .stages = 2}};
  for (int d = 0; d < 4; d++)
    for (int missing = 0; missing < 2; missing++) {
      struct run captured, eager;
      struct sl_trainer_options options = divisions[d];
      train(missing, options, &captured);
      assert_as_reference(&captured);
      options.eager = true;
      train(missing, options, &eager);
      assert_same_bits(&captured, &eager);
    }
}

static void bf16_is_near(void **state) {
  (void)state;
  struct run full, half;
  train(true, (struct sl_trainer_options){.replicas = 2}, &full);
  train(true, (struct sl_trainer_options){.replicas = 2, .math = SL_MATH_BF16}, &half);
  for (int s = 0; s < F_STEPS; s++)
    assert_true(fabs(full.loss[s] - half.loss[s]) < 0.03 * (1 + full.loss[s]));
}

/* ---- other parts ---- */

/* Trains some steps with a loss; status: of the first call that fails. */
static enum sl_status try_loss(struct sl_model *model, struct sl_dataset *set,
                               const struct sl_loss *loss, struct sl_report *last,
                               struct sl_evaluation **evaluation) {
  struct sl_trainer *trainer = NULL;
  struct sl_loader *loader;
  struct sl_report report;
  bool reported = false;
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = F_BATCH}, &loader));
  enum sl_status status =
      sl_trainer_new(model, &(struct sl_optimizer){.lr = 0.1f}, NULL,
                     &(struct sl_trainer_options){.replicas = 2, .loss = *loss}, &trainer);
  for (int s = 0; s < 3 && status == SL_OK; s++)
    status = sl_trainer_step(trainer, loader, &report, &reported);
  for (reported = true; status == SL_OK && reported;) {
    status = sl_trainer_drain(trainer, &report, &reported);
    if (reported && last) *last = report;
  }
  if (status == SL_OK && evaluation) {
    OK(sl_loader_seek(loader, 0));
    status = sl_trainer_measure(trainer, loader, evaluation);
  }
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  return status;
}

/* An output without a part trains nothing; its layer's weights stay. */
static void an_output_may_have_no_part(void **state) {
  (void)state;
  struct sl_dataset *set = f_set(false);
  struct sl_model *model = f_model(context);
  struct sl_loss_part parts[SL_MAX_FIELDS];
  struct sl_loss loss;
  struct sl_report report;
  double before[F_WEIGHTS], after[F_WEIGHTS];
  OK(sl_model_build(model));
  f_read(model, before);
  OK(sl_loss_parse_parts("place=huber:2", parts, &loss));
  OK(try_loss(model, set, &loss, &report, NULL));
  f_read(model, after);
  assert_int_equal(report.part_count, 1);
  assert_int_equal(report.samples, F_BATCH);
  const int kind = F_HA * (F_A + 1) + F_HB * (F_B + 1), place = kind + F_KINDS * (F_JOIN + 1);
  assert_memory_equal(before + kind, after + kind, (size_t)(place - kind) * sizeof *after);
  assert_memory_not_equal(before, after, (size_t)kind * sizeof *after);
  assert_memory_not_equal(before + place, after + place,
                          (size_t)(F_WEIGHTS - place) * sizeof *after);
  sl_model_free(model);
  sl_dataset_free(set);
}

/* Class weights of a part, against the definition of the mean. */
static void parts_have_settings(void **state) {
  (void)state;
  struct sl_dataset *set = f_set(true);
  struct sl_model *model = f_model(context);
  const float weights[F_KINDS] = {0.5f, 2, 1};
  const struct sl_loss_part part = {
      .output = "kind", .weight = 3, .loss = {.class_weights = weights, .class_count = F_KINDS}};
  const struct sl_loss loss = {.parts = &part, .part_count = 1};
  struct sl_report report;
  double w[F_WEIGHTS], y[F_KINDS + F_PLACE], sum = 0, terms = 0;
  OK(sl_model_build(model));
  f_read(model, w);
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  bool reported;
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = F_BATCH}, &loader));
  OK(sl_trainer_new(model, &(struct sl_optimizer){.lr = 0.1f}, NULL,
                    &(struct sl_trainer_options){.replicas = 2, .loss = loss}, &trainer));
  OK(sl_trainer_step(trainer, loader, &report, &reported));
  OK(sl_trainer_drain(trainer, &report, &reported));
  for (int64_t n = 0; n < F_BATCH; n++) {
    const float kind = f_targets[n * F_TARGETS + F_PLACE];
    double total = 0;
    if (isnan(kind)) continue;
    f_forward(w, n, y);
    for (int c = 0; c < F_KINDS; c++) total += exp(y[c]);
    sum += (double)weights[(int)kind] * (log(total) - y[(int)kind]);
    terms += (double)weights[(int)kind];
  }
  assert_true(fabs(report.loss - 3 * sum / terms) < 1e-5);
  sl_trainer_free(trainer);
  sl_loader_free(loader);
  sl_model_free(model);
  sl_dataset_free(set);
}

/* The mean of a part does not depend on the batch, not even where a batch's labels have no weight.
 */
static void evaluations_add_up_parts(void **state) {
  (void)state;
  const float weights[F_KINDS] = {0, 2, 1};
  const struct sl_loss_part part = {
      .output = "kind",
      .loss = {.class_weights = weights, .class_count = F_KINDS, .label_smoothing = 0.2f}};
  struct sl_dataset *set = f_set(true);
  double mean[2], accuracy;
  for (int i = 0; i < 2; i++) {
    struct sl_model *model = f_model(context);
    struct sl_loader *loader;
    struct sl_trainer *trainer;
    OK(sl_model_build(model));
    OK(sl_loader_new(set, &(struct sl_loader_options){.batch = i ? F_BATCH : 1}, &loader));
    OK(sl_trainer_new(
        model, &(struct sl_optimizer){.lr = 0.1f}, NULL,
        &(struct sl_trainer_options){.replicas = 1, .loss = {.parts = &part, .part_count = 1}},
        &trainer));
    OK(sl_trainer_evaluate(trainer, loader, &mean[i], &accuracy));
    sl_trainer_free(trainer);
    sl_loader_free(loader);
    sl_model_free(model);
  }
  assert_true(fabs(mean[0] - mean[1]) < 1e-6 * mean[1]);
  sl_dataset_free(set);
}

/* Two outputs of one target, with losses of their own: each part's mean is that of the output
 * against the target, and the gradient that of both. */
static void parts_may_share_a_target(void **state) {
  (void)state;
  static const float weight[F_PLACE] = {0.5f, -1};
  static const struct sl_row_field input = {.name = "x", .shape = {1, {1}}},
                                   target = {.name = "y", .shape = {1, {1}}};
  static const float x[4] = {1, 2, -1, 0.5f}, y[4] = {2, -1, 0, 1};
  const struct sl_dataset_options about = {.name = "line",
                                           .count = 4,
                                           .inputs = &input,
                                           .input_count = 1,
                                           .targets = &target,
                                           .target_count = 1};
  struct sl_loss_part parts[SL_MAX_FIELDS];
  struct sl_loss loss;
  struct sl_dataset *set;
  struct sl_model *m;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
  struct sl_report report;
  bool reported;
  OK(sl_dataset_floats(&about, x, y, NULL, true, &set));
  OK(sl_model_new_fields(context, &input, 1, &m));
  OK(sl_dense(m, "y",
              &(struct sl_dense_options){.layer.inputs = "x", .features = 1, .no_bias = 1}));
  OK(sl_dense(m, "z",
              &(struct sl_dense_options){.layer.inputs = "x", .features = 1, .no_bias = 1}));
  OK(sl_outputs(m, "z,y"));
  OK(sl_model_build(m));
  OK(sl_model_set(m, "y.weight", &weight[0]));
  OK(sl_model_set(m, "z.weight", &weight[1]));
  OK(sl_loss_parse_parts("y=mse,z:y=mae*3", parts, &loss));
  OK(sl_loader_new(set, &(struct sl_loader_options){.batch = 4}, &loader));
  OK(sl_trainer_new(m, &(struct sl_optimizer){.lr = 0.1f}, NULL,
                    &(struct sl_trainer_options){.replicas = 2, .loss = loss}, &trainer));
  OK(sl_trainer_step(trainer, loader, &report, &reported));
  for (; !reported;) OK(sl_trainer_drain(trainer, &report, &reported));
  OK(sl_trainer_settle(trainer, NULL));
  double mse = 0, mae = 0, d[2] = {0, 0};
  for (int i = 0; i < 4; i++) {
    double e = (double)(weight[0] * x[i] - y[i]), a = (double)(weight[1] * x[i] - y[i]);
    mse += e * e / 4, mae += fabs(a) / 4;
    d[0] += 2 * e * (double)x[i] / 4, d[1] += 3 * (a > 0 ? 1 : -1) * (double)x[i] / 4;
  }
  assert_string_equal(sl_trainer_part(trainer, 0), "z");
  assert_true(fabs(report.part_loss[0] - mae) < 1e-6 && fabs(report.part_loss[1] - mse) < 1e-6);
  assert_true(fabs(report.loss - mse - 3 * mae) < 1e-6);
  float got[2];
  OK(sl_model_get(m, "y.weight", &got[0]));
  OK(sl_model_get(m, "z.weight", &got[1]));
  for (int i = 0; i < 2; i++) assert_true(fabs((double)(weight[i] - got[i]) - 0.1 * d[i]) < 1e-6);
  OK(sl_fit(trainer, loader, &(struct sl_fit_options){.steps = 2}, NULL)); /* notes the tasks */
  for (int i = 0; i < 2; i++) assert_int_equal(sl_model_output_task(m, i), SL_TASK_VALUES);
  sl_trainer_free(trainer);
  struct sl_dataset_options scaled = about;
  const float mean = 5, deviation = 2;
  sl_loader_free(loader);
  sl_dataset_free(set);
  scaled.target_channels = 1, scaled.target_mean = &mean, scaled.target_deviation = &deviation;
  OK(sl_dataset_floats(&scaled, x, y, NULL, true, &set));
  OK(sl_model_note_data(m, set, &loss));
  const struct sl_model_notes *notes = sl_model_notes(m);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(sl_model_output_task(m, i), SL_TASK_VALUES);
    assert_true(notes->target_mean[i] == mean && notes->target_deviation[i] == deviation);
  }
  sl_model_free(m);
  sl_dataset_free(set);
}

static double metric(const struct sl_evaluation *e, const char *name) {
  const struct sl_metric *found = sl_evaluation_metric(e, name);
  if (!found) fail_msg("no metric %s", name);
  return found->value;
}

static void metrics_have_their_output(void **state) {
  (void)state;
  struct sl_dataset *set = f_set(true);
  struct sl_model *model = f_model(context);
  struct sl_loss_part parts[SL_MAX_FIELDS];
  const struct sl_loss loss = f_loss(parts);
  struct sl_evaluation *e;
  double w[F_WEIGHTS], means[2], right = 0, labels = 0, squares = 0, values = 0;
  OK(try_loss(model, set, &loss, NULL, &e));
  f_read(model, w);
  for (int64_t n = 0; n < F_COUNT; n++) {
    const float *t = f_targets + n * F_TARGETS;
    double y[F_KINDS + F_PLACE];
    int best = 0;
    f_forward(w, n, y);
    for (int c = 1; c < F_KINDS; c++)
      if (y[c] > y[best]) best = c;
    if (!isnan(t[F_PLACE])) labels += 1, right += best == (int)t[F_PLACE];
    for (int i = 0; i < F_PLACE; i++)
      if (!isnan(t[i])) values += 1, squares += pow(y[F_KINDS + i] - (double)t[i], 2);
  }
  assert_true(fabs(e->loss - f_mean(w, 0, F_COUNT, means)) < 2e-5);
  assert_true(fabs(metric(e, "kind.loss") - means[0]) < 2e-5);
  assert_true(fabs(metric(e, "place.loss") - means[1]) < 2e-5);
  assert_true(fabs(metric(e, "kind.accuracy") - right / labels) < 1e-9);
  assert_true(fabs(metric(e, "place.rmse") - sqrt(squares / values)) < 1e-5);
  assert_null(sl_evaluation_metric(e, "accuracy"));
  assert_null(sl_evaluation_metric(e, "place.accuracy"));
  sl_evaluation_free(e);
  sl_model_free(model);
  sl_dataset_free(set);
}

/* Its loss was 0, as if all answers were right. */
static void an_output_without_targets_has_no_loss(void **state) {
  (void)state;
  struct sl_dataset *set = f_set(true); /* borrows f_targets */
  struct sl_model *model = f_model(context);
  struct sl_loss_part parts[SL_MAX_FIELDS];
  const struct sl_loss loss = f_loss(parts);
  struct sl_evaluation *e;
  for (int n = 0; n < F_COUNT; n++) f_targets[n * F_TARGETS + F_PLACE] = NAN;
  OK(try_loss(model, set, &loss, NULL, &e));
  assert_true(isnan(metric(e, "kind.loss")) && isnan(metric(e, "kind.accuracy")));
  assert_true(fabs(e->loss - 0.5 * metric(e, "place.loss")) < 1e-6 && e->loss > 0);
  sl_evaluation_free(e);
  for (int i = 0; i < F_COUNT * F_TARGETS; i++) f_targets[i] = NAN;
  OK(try_loss(model, set, &loss, NULL, &e));
  assert_true(isnan(e->loss) && isnan(metric(e, "place.loss")));
  sl_evaluation_free(e);
  sl_model_free(model);
  sl_dataset_free(set);
}

/* ---- files ---- */

static void predict(struct sl_model *model, float *answers) {
  struct sl_predictor *predictor;
  OK(sl_predictor_open(model, NULL, &predictor));
  OK(sl_predict(predictor, f_inputs, F_COUNT, answers));
  sl_predictor_free(predictor);
}

static void assert_fields(const struct sl_model *model) {
  struct sl_row_field field;
  for (int i = 0, first = 0; i < 2; first += (int)sl_shape_count(&field.shape), i++) {
    assert_true(sl_model_input_field(model, i, &field));
    assert_string_equal(field.name, f_input_fields[i].name);
    assert_true(sl_shape_equal(&field.shape, &f_input_fields[i].shape));
    assert_int_equal(field.first, first);
  }
  assert_false(sl_model_input_field(model, 2, &field));
  assert_true(sl_model_output_field(model, 0, &field));
  assert_string_equal(field.name, "kind");
  assert_true(sl_model_output_field(model, 1, &field));
  assert_string_equal(field.name, "place");
  assert_int_equal(field.first, F_KINDS);
  assert_false(sl_model_output_field(model, 2, &field));
}

/* The answers are the network's, and a model that was read back gives the same ones. */
static void files_keep_the_fields(void **state) {
  (void)state;
  static const char *const paths[] = {"fields.json", "fields.onnx"};
  struct sl_dataset *set = f_set(false);
  struct sl_model *model = f_model(context), *back;
  float want[F_COUNT * (F_KINDS + F_PLACE)], have[F_COUNT * (F_KINDS + F_PLACE)];
  double w[F_WEIGHTS], y[F_KINDS + F_PLACE];
  OK(sl_model_build(model));
  predict(model, want);
  f_read(model, w);
  for (int64_t n = 0; n < F_COUNT; n++) {
    f_forward(w, n, y);
    for (int i = 0; i < F_KINDS + F_PLACE; i++)
      assert_true(fabs((double)want[n * (F_KINDS + F_PLACE) + i] - y[i]) < 1e-5);
  }
  for (int p = 0; p < 2; p++) {
    enum sl_status status = sl_model_save(model, paths[p]);
    if (status == SL_UNSUPPORTED && p) continue; /* a build without protobuf-c */
    OK(status);
    OK(sl_model_open(context, paths[p], &back));
    assert_fields(back);
    memset(have, 0, sizeof have);
    predict(back, have);
    assert_memory_equal(want, have, sizeof want);
    sl_model_free(back);
    remove(paths[p]);
  }
  remove("fields.safetensors");
  sl_model_free(model);
  sl_dataset_free(set);
}

static void json_fails(const char *head, const char *text) {
  struct sl_model *model;
  char json[1024];
  snprintf(json, sizeof json,
           "{\"format\": \"starling model\", \"version\": 2, %s, \"layers\": [{\"name\": \"fc\", "
           "\"kind\": \"dense\", \"inputs\": [\"a\"], \"features\": 2}]}",
           head);
  FAILS(sl_model_parse(context, "m.json", json, strlen(json), &model), SL_BAD_FILE, text);
  assert_null(model);
}

static void damaged_files_are_refused(void **state) {
  (void)state;
  const char *a = "{\"name\": \"a\", \"shape\": [2]}";
  char head[400];
  json_fails("\"inputs\": []", "\"inputs\" must be a list of 1 to 15");
  json_fails("\"inputs\": {\"a\": [2]}", "\"inputs\" must be a list of 1 to 15");
  json_fails("\"inputs\": [3]", "a name and a shape");
  json_fails("\"inputs\": [{\"name\": \"a\"}]", "a name and a shape");
  json_fails("\"inputs\": [{\"name\": 7, \"shape\": [2]}]", "a name and a shape");
  json_fails("\"inputs\": [{\"name\": \"a\", \"shape\": [0]}]", "cannot have shape [0]");
  json_fails("\"inputs\": [{\"name\": \"a\", \"shape\": [1, 1, 1, 1, 1]}]", "cannot have shape");
  json_fails("\"inputs\": [{\"name\": \"a\", \"shape\": [1099511627776, 1099511627776]}]",
             "cannot have shape");
  json_fails("\"inputs\": [{\"name\": \"a,b\", \"shape\": [2]}]", "cannot name a layer");
  json_fails("\"inputs\": [{\"name\": \"input\", \"shape\": [2]}]", "cannot name a layer");
  snprintf(head, sizeof head, "\"inputs\": [%s, %s]", a, a);
  json_fails(head, "there is a layer 'a' already");
  snprintf(head, sizeof head, "\"inputs\": [%s], \"input\": [2]", a);
  json_fails(head, "both there");
  snprintf(head, sizeof head, "\"inputs\": [%s], \"outputs\": []", a);
  json_fails(head, "\"outputs\" must be a list of 1 to 15 names");
  snprintf(head, sizeof head, "\"inputs\": [%s], \"outputs\": [\"fc\", \"fc\"]", a);
  json_fails(head, "output 'fc' is there twice");
  snprintf(head, sizeof head, "\"inputs\": [%s], \"outputs\": [\"fd\"]", a);
  json_fails(head, "'fd' is no layer appended before");
}

/* ---- bad input ---- */

static void set_fails(const struct sl_row_field *targets, int count, const float *row,
                      const char *text) {
  struct sl_dataset *set;
  const float x[F_IN] = {0};
  const struct sl_dataset_options options = {.name = "bad",
                                             .count = 1,
                                             .sample = SL_SHAPE(F_IN),
                                             .targets = targets,
                                             .target_count = count};
  FAILS(sl_dataset_floats(&options, x, row, NULL, false, &set), SL_BAD_ARGUMENT, text);
}

static void sets_are_checked(void **state) {
  (void)state;
  const float row[4] = {0, 1, 2, 0.5f};
  struct sl_row_field f[2] = {{.name = "a", .shape = SL_SHAPE(2)},
                              {.name = "a", .shape = SL_SHAPE(2)}};
  set_fails(f, 2, row, "target field 'a' is there twice");
  f[1].name = NULL;
  set_fails(f, 2, row, "'' cannot name one of the targets");
  f[1].name = "b";
  f[1].shape = SL_SHAPE(0);
  set_fails(f, 2, row, "the shape of target field 'b' is impossible");
  f[1].shape = SL_SHAPE(2);
  f[1].classes = SL_MAX_CLASSES + 1;
  set_fails(f, 2, row, "16777217 classes");
  f[1].classes = 3;
  set_fails(f, 2, row, "sample 0: label 0.5 of 'b' is no class; classes are 0 to 2");
  f[1].classes = 0;
  set_fails(f, 16, row, "16 target fields");
}

static void loss_fails(const char *text, enum sl_status expected, const char *message) {
  struct sl_dataset *set = f_set(false);
  struct sl_model *model = f_model(context);
  struct sl_loss_part parts[SL_MAX_FIELDS];
  struct sl_loss loss = {0};
  enum sl_status status = sl_loss_parse_parts(text, parts, &loss);
  if (status == SL_OK) status = try_loss(model, set, &loss, NULL, NULL);
  FAILS(status, expected, message);
  sl_model_free(model);
  sl_dataset_free(set);
}

static void losses_are_checked(void **state) {
  (void)state;
  loss_fails("kind", SL_BAD_ARGUMENT, "'kind' is unknown");
  loss_fails("=mse", SL_BAD_ARGUMENT, "is no OUTPUT[:TARGET]=LOSS");
  loss_fails("kind=mse,", SL_BAD_ARGUMENT, "is no OUTPUT[:TARGET]=LOSS");
  loss_fails("place:=mse", SL_BAD_ARGUMENT, "is no OUTPUT[:TARGET]=LOSS");
  loss_fails("place:a:b=mse", SL_BAD_ARGUMENT, "is no OUTPUT[:TARGET]=LOSS");
  loss_fails("place:edge=mse", SL_BAD_ARGUMENT, "has no target 'edge', which the loss needs");
  loss_fails("place:kind=mse", SL_BAD_SHAPE,
             "target 'kind' is [1], but the model's output 'place'");
  loss_fails("kind=msa", SL_BAD_ARGUMENT, "'msa' is unknown");
  loss_fails("place=mse*0", SL_BAD_ARGUMENT, "has the weight '0'");
  loss_fails("place=mse*x", SL_BAD_ARGUMENT, "has the weight 'x'");
  loss_fails("place=mse,place=mae", SL_BAD_ARGUMENT, "two parts for output 'place'");
  loss_fails("edge=mse", SL_BAD_ARGUMENT, "'edge', which is no output of the model");
  loss_fails("place=cross-entropy", SL_BAD_ARGUMENT, "'place' has numbers, but the loss");
  loss_fails("kind=mse", SL_BAD_SHAPE,
             "target 'kind' is [1], but the model's output 'kind' is [3]");
  loss_fails("mse", SL_BAD_SHAPE, "targets [3], but the model's output is [5]");
}

/* A set with other fields than the model's, and a model without outputs by name. */
static void models_and_sets_must_fit(void **state) {
  (void)state;
  static const struct sl_row_field other[] = {{.name = "control", .shape = {1, {F_B}}},
                                              {.name = "state", .shape = {1, {F_A}}}};
  struct sl_dataset *set = f_set(false), *turned;
  struct sl_loss_part parts[SL_MAX_FIELDS];
  const struct sl_loss loss = f_loss(parts);
  struct sl_model *model;
  const struct sl_dataset_options options = {.name = "turned",
                                             .count = F_COUNT,
                                             .inputs = other,
                                             .input_count = 2,
                                             .target = SL_SHAPE(F_TARGETS)};
  OK(sl_dataset_floats(&options, f_inputs, f_targets, NULL, false, &turned));
  model = f_model(context);
  FAILS(try_loss(model, turned, &loss, NULL, NULL), SL_BAD_SHAPE,
        "turned has as input 0 'control' [4], but the model takes 'state' [3]");
  sl_model_free(model);
  OK(sl_model_new(context, &SL_SHAPE(F_IN), &model));
  FAILS(sl_outputs(model, "kind"), SL_BAD_ARGUMENT, "'kind' is no layer");
  OK(sl_dense(model, "kind", &(struct sl_dense_options){.features = F_KINDS}));
  FAILS(try_loss(model, set, &loss, NULL, NULL), SL_BAD_ARGUMENT, "name its outputs");
  sl_model_free(model);
  OK(sl_model_new(context, &SL_SHAPE(F_IN), &model));
  OK(sl_dense(model, "kind", &(struct sl_dense_options){.features = F_KINDS}));
  FAILS(
      sl_outputs(model,
                 "kind,kind,kind,kind,kind,kind,kind,kind,kind,kind,kind,kind,kind,kind,kind,kind"),
      SL_BAD_ARGUMENT, "1 to 15 outputs, not 16");
  OK(sl_outputs(model, "kind"));
  FAILS(sl_dense(model, "more", &(struct sl_dense_options){.features = 1}), SL_BAD_ARGUMENT,
        "append before sl_outputs");
  const struct sl_loss_part kind = {.output = "kind"};
  FAILS(try_loss(model, turned, &(struct sl_loss){.parts = &kind, .part_count = 1}, NULL, NULL),
        SL_BAD_ARGUMENT, "has no target 'kind', which the loss needs; its targets have no names");
  sl_model_free(model);
  FAILS(sl_model_new_fields(context, f_input_fields, 0, &model), SL_BAD_ARGUMENT, "0 inputs");
  OK(sl_model_new_fields(context, f_input_fields, 2, &model));
  FAILS(sl_dense(model, "fc", &(struct sl_dense_options){.layer.inputs = "input", .features = 1}),
        SL_BAD_ARGUMENT, "'input' has fields; name one of them, such as 'state'");
  FAILS(sl_dense(model, "state", &(struct sl_dense_options){.features = 1}), SL_BAD_ARGUMENT,
        "there is a layer 'state' already");
  OK(sl_dense(model, "fc", &(struct sl_dense_options){.layer.inputs = "state", .features = 1}));
  FAILS(sl_model_build(model), SL_BAD_ARGUMENT, "control (slice): no layer takes its output");
  sl_model_free(model);
  sl_dataset_free(turned);
  sl_dataset_free(set);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(trainings_match_the_reference),
                                     cmocka_unit_test(bf16_is_near),
                                     cmocka_unit_test(an_output_may_have_no_part),
                                     cmocka_unit_test(parts_have_settings),
                                     cmocka_unit_test(evaluations_add_up_parts),
                                     cmocka_unit_test(parts_may_share_a_target),
                                     cmocka_unit_test(metrics_have_their_output),
                                     cmocka_unit_test(an_output_without_targets_has_no_loss),
                                     cmocka_unit_test(files_keep_the_fields),
                                     cmocka_unit_test(damaged_files_are_refused),
                                     cmocka_unit_test(sets_are_checked),
                                     cmocka_unit_test(losses_are_checked),
                                     cmocka_unit_test(models_and_sets_must_fit)};
  return cmocka_run_group_tests_name("fields", tests, open_context, close_context);
}
