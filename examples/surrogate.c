/* A surrogate of a simulation: a network learns where the Lorenz system (Lorenz 1963) will be in a
 * tenth of a unit of time, from measurements with noise. The noise is known, so the best error that
 * any model can have is, too. To build and run it:
 *
 *     gcc surrogate.c $(pkg-config --cflags --libs starling) -lm -o surrogate
 *     ./surrogate
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <starling.h>

#define TRY(call)                                                                                  \
  if ((status = (call)) != SL_OK) goto out

enum { TRAIN = 6000, TEST = 2000, BATCH = 100, WIDTH = 64 };
static const float noise = 0.5f; /* deviation of the measurements */

/* Rows of a table: the state now, and the measured one later. */
struct table {
  float now[TRAIN][3], later[TRAIN][3];
};

/* A number of mean 0 and deviation 1: the sum of twelve that are uniform, less their mean. */
static float random_number(uint64_t *state) {
  double sum = -6;
  for (int i = 0; i < 12; i++) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    sum += (double)(*state >> 40) / (1 << 24);
  }
  return (float)sum;
}

static void slope(const double s[3], double d[3]) {
  d[0] = 10 * (s[1] - s[0]);
  d[1] = s[0] * (28 - s[2]) - s[1];
  d[2] = s[0] * s[1] - 8.0 / 3 * s[2];
}

/* Steps of the classical Runge-Kutta method. */
static void simulate(double s[3], double time) {
  const double h = 0.005;
  for (int step = 0; step < (int)(time / h + 0.5); step++) {
    double k[4][3], at[3];
    for (int stage = 0; stage < 4; stage++) {
      const double share = stage == 0 ? 0 : stage == 3 ? 1 : 0.5;
      for (int i = 0; i < 3; i++) at[i] = s[i] + (stage ? share * h * k[stage - 1][i] : 0);
      slope(at, k[stage]);
    }
    for (int i = 0; i < 3; i++) s[i] += h / 6 * (k[0][i] + 2 * k[1][i] + 2 * k[2][i] + k[3][i]);
  }
}

/* States along one path, from a start of its own. */
static void fill(struct table *table, int rows, uint64_t seed) {
  double s[3] = {1 + 0.1 * (double)seed, 1, 20};
  simulate(s, 10);
  for (int row = 0; row < rows; row++) {
    double later[3] = {s[0], s[1], s[2]};
    simulate(later, 0.1);
    for (int i = 0; i < 3; i++) {
      table->now[row][i] = (float)s[i];
      table->later[row][i] = (float)later[i] + noise * random_number(&seed);
    }
    simulate(s, 0.07);
  }
}

/* A set with the means and deviations of the training's table. */
static enum sl_status open_set(const char *name, const struct table *table, int rows,
                               const float normal[4][3], struct sl_dataset **set) {
  const struct sl_dataset_options options = {.name = name,
                                             .sample = SL_SHAPE(3),
                                             .target = SL_SHAPE(3),
                                             .count = rows,
                                             .channels = 3,
                                             .mean = normal[0],
                                             .deviation = normal[1],
                                             .target_channels = 3,
                                             .target_mean = normal[2],
                                             .target_deviation = normal[3]};
  return sl_dataset_floats(&options, table->now[0], table->later[0], NULL, true, set);
}

static enum sl_status build(struct sl_context *context, struct sl_model **model) {
  struct sl_dense_options dense = {.features = WIDTH, .activation = SL_ACTIVATION_TANH};
  enum sl_status status;
  TRY(sl_model_new(context, &SL_SHAPE(3), model));
  TRY(sl_dense(*model, "fc1", &dense));
  TRY(sl_dense(*model, "fc2", &dense));
  TRY(sl_dense(*model, "fc3", &(struct sl_dense_options){.features = 3}));
out:
  return status;
}

/* The later state of one, in the table's unit. The network takes normalised numbers and gives such;
 * sl_fit has noted in the model how, and its file has it, too. */
static enum sl_status answer(struct sl_model *model, const float now[3], float later[3]) {
  const struct sl_model_notes *notes = sl_model_notes(model);
  struct sl_predictor *predictor = NULL;
  float normalised[3];
  enum sl_status status;
  TRY(sl_predictor_open(model, NULL, &predictor));
  for (int i = 0; i < 3; i++) normalised[i] = (now[i] - notes->mean[i]) / notes->deviation[i];
  TRY(sl_predict(predictor, normalised, 1, later));
  for (int i = 0; i < 3; i++)
    later[i] = later[i] * notes->target_deviation[i] + notes->target_mean[i];
out:
  sl_predictor_free(predictor);
  return status;
}

int main(int argc, char **argv) {
  static struct table train, test;
  float normal[4][3]; /* means and deviations of the inputs, and of the targets */
  float later[3];
  struct sl_context *context = NULL;
  struct sl_model *model = NULL;
  struct sl_dataset *train_set = NULL, *test_set = NULL;
  struct sl_loader *batches = NULL, *test_batches = NULL;
  struct sl_trainer *trainer = NULL;
  struct sl_fit_result result;
  struct sl_schedule schedule;
  enum sl_status status;
  int epochs = 30;
  char rest;
  const struct sl_shape shape = SL_SHAPE(3);
  const struct sl_trainer_options options = {.loss.kind = SL_LOSS_MSE, .replicas = 2};
  if (argc > 1 && sscanf(argv[1], "%4d%c", &epochs, &rest) != 1) epochs = 0;
  if (argc > 2 || epochs < 1) return fprintf(stderr, "Usage: surrogate [EPOCHS]\n"), 2;

  fill(&train, TRAIN, 1);
  fill(&test, TEST, 2);
  TRY(sl_measure(train.now[0], TRAIN, &shape, 3, normal[0], normal[1]));
  TRY(sl_measure(train.later[0], TRAIN, &shape, 3, normal[2], normal[3]));
  TRY(open_set("training path", &train, TRAIN, normal, &train_set));
  TRY(open_set("test path", &test, TEST, normal, &test_set));
  TRY(sl_loader_new(train_set, &(struct sl_loader_options){.batch = BATCH, .shuffle = true},
                    &batches));
  TRY(sl_loader_new(test_set, &(struct sl_loader_options){.batch = BATCH}, &test_batches));

  TRY(sl_open(&(struct sl_context_options){.seed = 1}, &context));
  TRY(build(context, &model));
  TRY(sl_schedule_parse("cosine", epochs * sl_loader_length(batches), &schedule));
  TRY(sl_trainer_new(model, &(struct sl_optimizer){.kind = SL_ADAM, .lr = 0.005f}, &schedule,
                     &options, &trainer));
  const struct sl_fit_options run = {
      .epochs = epochs, .validation = test_batches, .metric = "rmse", .progress = true};
  TRY(sl_fit(trainer, batches, &run, &result));
  TRY(sl_model_save(model, "surrogate.json"));
  TRY(answer(model, test.now[0], later));
  printf("measured (%.1f, %.1f, %.1f), answered (%.1f, %.1f, %.1f)\n", (double)test.later[0][0],
         (double)test.later[0][1], (double)test.later[0][2], (double)later[0], (double)later[1],
         (double)later[2]);
  const double rmse = result.last.rmse;
  printf("RMSE %.4f, the noise's is %.4f: the model's own error is %.4f\n", rmse, (double)noise,
         sqrt(fmax(0, rmse * rmse - (double)(noise * noise))));
out:
  if (status != SL_OK)
    fprintf(stderr, "surrogate: %s\n", sl_error());
  else if (fflush(stdout) != 0 || ferror(stdout))
    status = SL_IO, fprintf(stderr, "surrogate: the output cannot be written\n");
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_close(context);
  sl_loader_free(test_batches), sl_loader_free(batches);
  sl_dataset_free(test_set), sl_dataset_free(train_set);
  return status == SL_OK ? 0 : 1;
}
