/* Trains a network on random values, with the mean squared error of its outputs, and prints a JSON
 * line with the milliseconds of a step. torch_layers.py and torch_models.py run it beside PyTorch.
 *
 *     bench_layers NETWORK.json BATCH [SECONDS] */
#include <stdio.h>
#include <stdlib.h>

#include <starling.h>

#include "bench/bench.h"

enum { BATCHES = 4, FIRST = 5, MOST = 1 << 16 };

struct bench {
  struct sl_context *context;
  struct sl_model *model;
  struct sl_dataset *set;
  struct sl_loader *loader;
  struct sl_trainer *trainer;
};

static enum sl_status read_network(const char *path, struct bench *b) {
  static char text[MOST];
  FILE *file = fopen(path, "r");
  if (!file) perror(path);
  size_t size = file ? fread(text, 1, sizeof text, file) : 0;
  if (file) fclose(file);
  return sl_model_parse(b->context, path, text, size, &b->model);
}

/* Values from -1 to 1, always the same ones: Knuth's linear congruential generator. */
static float *random_values(int64_t count) {
  float *values = malloc((size_t)count * sizeof *values);
  uint64_t state = 1;
  for (int64_t i = 0; values && i < count; i++) {
    state = state * 6364136223846793005 + 1442695040888963407;
    values[i] = (float)(state >> 40) / 8388608.0f - 1;
  }
  return values;
}

static enum sl_status make_data(struct bench *b, int64_t batch) {
  const struct sl_dataset_options options = {.name = "random values",
                                             .sample = *sl_model_input(b->model),
                                             .target = *sl_model_output(b->model),
                                             .count = BATCHES * batch};
  float *x = random_values(options.count * sl_shape_count(&options.sample));
  float *y = random_values(options.count * sl_shape_count(&options.target));
  enum sl_status status =
      x && y ? sl_dataset_floats(&options, x, y, NULL, false, &b->set) : SL_NO_MEMORY;
  free(x);
  free(y);
  return status;
}

static enum sl_status start(struct bench *b, const char *path, int64_t batch) {
  const struct sl_loader_options batches = {.batch = batch};
  const struct sl_optimizer optimizer = {.lr = 1e-6f};
  const struct sl_trainer_options training = {.loss = {.kind = SL_LOSS_MSE}};
  enum sl_status status = sl_open(&(struct sl_context_options){.seed = 1}, &b->context);
  if (status == SL_OK) status = read_network(path, b);
  if (status == SL_OK) status = make_data(b, batch);
  if (status == SL_OK) status = sl_loader_new(b->set, &batches, &b->loader);
  if (status == SL_OK) status = sl_trainer_new(b->model, &optimizer, NULL, &training, &b->trainer);
  return status;
}

/* *count steps, or as many as fit into some seconds, and their end. */
static enum sl_status take_steps(struct bench *b, double seconds, int *count) {
  struct sl_report report;
  bool reported = true;
  double end = bench_now() + seconds;
  enum sl_status status = SL_OK;
  int steps = 0;
  for (; status == SL_OK && (steps < *count || bench_now() < end); steps++)
    status = sl_trainer_step(b->trainer, b->loader, &report, &reported);
  for (reported = true; status == SL_OK && reported;)
    status = sl_trainer_drain(b->trainer, &report, &reported);
  *count = steps;
  return status;
}

static void stop(struct bench *b) {
  sl_trainer_free(b->trainer);
  sl_loader_free(b->loader);
  sl_dataset_free(b->set);
  sl_model_free(b->model);
  sl_close(b->context);
}

int main(int argc, char **argv) {
  struct bench b = {0};
  int first = FIRST, steps = 1, code = 1;
  if (argc < 3 || argc > 4 || atoi(argv[2]) < 1) {
    fprintf(stderr, "usage: bench_layers NETWORK.json BATCH [SECONDS]\n");
    return 2;
  }
  enum sl_status status = start(&b, argv[1], atoi(argv[2]));
  if (status == SL_OK) status = take_steps(&b, 0, &first);
  double begin = bench_now();
  if (status == SL_OK) status = take_steps(&b, argc > 3 ? atof(argv[3]) : 1, &steps);
  if (status == SL_OK)
    code = bench_print(json_pack("{s:s, s:i, s:f}", "bench", "layers", "steps", steps, "ms",
                                 1e3 * (bench_now() - begin) / steps));
  else
    fprintf(stderr, "bench_layers: %s\n", sl_error());
  stop(&b);
  return code;
}
