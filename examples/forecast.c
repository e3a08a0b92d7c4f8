/* A forecast: an LSTM reads three seasons of a series with a trend, two seasons and noise, and says
 * the next one. The naive forecast, the value of one season ago, is what it must beat. To build and
 * run it:
 *
 *     gcc forecast.c $(pkg-config --cflags --libs starling) -lm -o forecast
 *     ./forecast
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <starling.h>

#define TRY(call)                                                                                  \
  if ((status = (call)) != SL_OK) goto out

/* The last TEST windows begin where the training's series ends. */
enum { SEASON = 12, LONG_SEASON = 30, PAST = 36, AHEAD = 12, TRAIN = 2000, TEST = 500, BATCH = 50 };
static const float noise = 0.5f; /* its deviation; no forecast's error is below it */

/* Windows of a series: what is known, and what is to be said. Both are relative to the mean of what
 * is known, so that the trend leads to no numbers that the training has not seen. */
struct windows {
  float past[TRAIN][PAST], ahead[TRAIN][AHEAD];
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

static void generate(float *series, int count) {
  const double turn = 2 * 3.14159265358979;
  uint64_t state = 1;
  for (int t = 0; t < count; t++)
    series[t] = (float)(0.02 * t + 5 * sin(turn * t / SEASON) + 2 * sin(turn * t / LONG_SEASON)) +
                noise * random_number(&state);
}

static void cut(const float *series, int count, struct windows *windows) {
  for (int w = 0; w < count; w++) {
    float mean = 0;
    for (int t = 0; t < PAST; t++) mean += series[w + t] / PAST;
    for (int t = 0; t < PAST; t++) windows->past[w][t] = series[w + t] - mean;
    for (int t = 0; t < AHEAD; t++) windows->ahead[w][t] = series[w + PAST + t] - mean;
  }
}

static double naive_error(const struct windows *windows, int count) {
  double sum = 0;
  for (int w = 0; w < count; w++)
    for (int t = 0; t < AHEAD; t++) {
      double error = (double)(windows->past[w][PAST - SEASON + t % SEASON] - windows->ahead[w][t]);
      sum += error * error;
    }
  return sqrt(sum / (count * AHEAD));
}

/* scale: the past's deviation in the training. */
static enum sl_status open_set(const char *name, const struct windows *windows, int count,
                               const float scale[2], struct sl_dataset **set) {
  const struct sl_dataset_options options = {.name = name,
                                             .sample = SL_SHAPE(PAST, 1),
                                             .target = SL_SHAPE(AHEAD),
                                             .count = count,
                                             .channels = 1,
                                             .mean = &scale[0],
                                             .deviation = &scale[1],
                                             .target_channels = 1,
                                             .target_mean = &scale[0],
                                             .target_deviation = &scale[1]};
  return sl_dataset_floats(&options, windows->past[0], windows->ahead[0], NULL, true, set);
}

int main(int argc, char **argv) {
  static float series[TRAIN + TEST + 2 * (PAST + AHEAD)];
  static struct windows train, test;
  float scale[2];
  struct sl_context *context = NULL;
  struct sl_model *model = NULL;
  struct sl_dataset *train_set = NULL, *test_set = NULL;
  struct sl_loader *batches = NULL, *test_batches = NULL;
  struct sl_trainer *trainer = NULL;
  struct sl_fit_result result;
  struct sl_schedule schedule;
  enum sl_status status;
  int epochs = 15;
  char rest;
  const struct sl_shape shape = SL_SHAPE(PAST, 1);
  const struct sl_trainer_options options = {.loss.kind = SL_LOSS_MSE, .replicas = 2};
  if (argc > 1 && sscanf(argv[1], "%4d%c", &epochs, &rest) != 1) epochs = 0;
  if (argc > 2 || epochs < 1) return fprintf(stderr, "Usage: forecast [EPOCHS]\n"), 2;

  generate(series, sizeof series / sizeof *series);
  cut(series, TRAIN, &train);
  cut(series + TRAIN + PAST + AHEAD, TEST, &test);
  TRY(sl_measure(train.past[0], TRAIN, &shape, 1, &scale[0], &scale[1]));
  TRY(open_set("training windows", &train, TRAIN, scale, &train_set));
  TRY(open_set("test windows", &test, TEST, scale, &test_set));
  TRY(sl_loader_new(train_set, &(struct sl_loader_options){.batch = BATCH, .shuffle = true},
                    &batches));
  TRY(sl_loader_new(test_set, &(struct sl_loader_options){.batch = BATCH}, &test_batches));

  TRY(sl_open(&(struct sl_context_options){.seed = 1}, &context));
  TRY(sl_model_new(context, &shape, &model));
  TRY(sl_lstm(model, "lstm", &(struct sl_lstm_options){.features = 32}));
  TRY(sl_slice(model, "last", &(struct sl_slice_options){.first = PAST - 1}));
  TRY(sl_dense(model, "fc", &(struct sl_dense_options){.features = AHEAD}));
  TRY(sl_model_note_data(model, train_set, &options.loss));

  TRY(sl_schedule_parse("cosine", epochs * sl_loader_length(batches), &schedule));
  TRY(sl_trainer_new(model, &(struct sl_optimizer){.kind = SL_ADAM, .lr = 0.01f, .clip = 1},
                     &schedule, &options, &trainer));
  const struct sl_fit_options run = {
      .epochs = epochs, .validation = test_batches, .metric = "rmse", .progress = true};
  TRY(sl_fit(trainer, batches, &run, &result));
  printf("RMSE %.4f, of the naive forecast %.4f; the noise's is %.4f\n", result.last.rmse,
         naive_error(&test, TEST), (double)noise);
  TRY(sl_model_save(model, "forecast.json"));
out:
  if (status != SL_OK)
    fprintf(stderr, "forecast: %s\n", sl_error());
  else if (fflush(stdout) != 0 || ferror(stdout))
    status = SL_IO, fprintf(stderr, "forecast: the output cannot be written\n");
  sl_trainer_free(trainer);
  sl_model_free(model);
  sl_close(context);
  sl_loader_free(test_batches), sl_loader_free(batches);
  sl_dataset_free(test_set), sl_dataset_free(train_set);
  return status == SL_OK ? 0 : 1;
}
